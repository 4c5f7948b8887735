"""Lets a client see a broker of another release, or with lower versions (`profile`).

ApiVersions is answered as by such a broker, and requests that it would not understand do not reach the real one.
Seen at real brokers: 0.8 closes the connection; 0.9 does not answer, and goes on with the next request; from 0.10 on the
connection is closed, and an ApiVersions of another version is answered at version 0 with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from typing import Any

from ... import decoder
from ...decoder.connection import api_versions
from ...decoder.schema import facts
from .adapter import AdaptedRequest, Answer, Close, Forward, Silence, Step
from .profile import API_VERSIONS, Profile, Range


class EmulatedRelease:
    """The adapter of a profile. It has no state: one serves any number of connections. `translated`: an adapter behind it
    serves all versions that it offers."""

    def __init__(self, profile: Profile, translated: bool = False) -> None:
        self.profile, self.translated = profile, translated

    def wants(self, api_key: int, api_version: int) -> bool:
        return api_key == API_VERSIONS or not self.profile.accepts(api_key, api_version)

    def request(self, frame: bytes) -> Step:
        key, version, correlation = decoder.peek_request(frame)
        if self.profile.accepts(key, version):
            return Forward(frame)
        note = self.profile.refusal(key, version)
        if key == API_VERSIONS and self.profile.negotiates:
            return Answer(self._refusal(correlation), note)
        return Silence(note=note, onwards=True) if self.profile.unanswered else Close(note=note)

    def _refusal(self, correlation: int) -> bytes:
        served = self.range_of_api_versions() if self.profile.states_range else None
        return decoder.encode_version_refusal(correlation, served)

    def range_of_api_versions(self) -> Range:
        """The range of ApiVersions itself."""
        low, high = 0, facts.api(API_VERSIONS).versions.high or 0
        if self.profile.release is not None:
            low, high = self.profile.release.range(API_VERSIONS) or (low, high)
        return low, min(high, self.profile.highest.get(API_VERSIONS, high))

    def response(self, asked: AdaptedRequest, frame: bytes) -> bytes:
        if asked.api_key != API_VERSIONS:
            return frame
        message = read(frame, asked.api_version)
        fields = message.to_dict()
        if fields["error_code"] or fields["api_keys"] is None:
            return frame
        wanted: dict[str, Any] = {"api_keys": self.offered_entries(fields["api_keys"])}
        features = self.profile.features
        if features is not None and "supported_features" in fields:
            wanted |= features.restrict(fields)
        changed = {name: value for name, value in wanted.items() if value != fields[name]}
        return message.replace(changed).encode() if changed else frame

    def offered_entries(self, offers: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The entries of an ApiVersions response as the profile has them."""
        found = []
        for offer in offers:
            kept = self.profile.offered(offer["api_key"], offer["min_version"], offer["max_version"], self.translated)
            if kept is not None:
                found.append(offer | {"min_version": kept[0], "max_version": kept[1]})
        return found

    def response_before(self, asked: AdaptedRequest, place: int, frame: bytes) -> None:
        raise AssertionError("an emulated release sends no requests of its own")


def read(frame: bytes, api_version: int) -> decoder.Message:
    """An ApiVersions response; extra bytes after its end are ignored. Raises DecodeError."""
    return decoder.read_response(frame, api_key=API_VERSIONS, api_version=api_version)


def offers(frame: bytes, api_version: int) -> dict[int, Range] | None:
    """(min, max) by api key in an ApiVersions response; None if it is a refusal."""
    answer = api_versions.read(frame, api_version)
    return None if answer.error_code else answer.ranges


__all__ = ["EmulatedRelease", "offers", "read"]
