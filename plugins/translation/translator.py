"""One connection's translator: requests in versions that the broker serves, responses in the client's. Sans-IO."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field

from ... import decoder
from ...decoder import DecodeError, EncodeError, Message
from ...decoder.records import RecordsError
from ...decoder.schema import facts
from ...decoder.schema.plan import plan
from ..answers import responses
from . import error_codes, version_ranges
from .fields import FieldLoss, Fields, fit
from .fields import error_codes as replace_codes
from .message_format import ConversionError
from .steps import ConversionContext, Unbridgeable, splitting, walk, why_droppable, why_impossible

API_VERSIONS = facts.api_key("ApiVersions")
PRODUCE, JOIN_GROUP = facts.api_key("Produce"), facts.api_key("JoinGroup")
_HEAD = struct.Struct(">hhi")
_CORRELATION = struct.Struct(">i")

Ranges = Mapping[int, tuple[int, int]]
"""Api key -> the lowest and the highest version that a broker serves."""


@dataclass(frozen=True, slots=True)
class Translated:
    """What replaces a request: usually one frame. Its responses go to `Translator.response`."""

    frames: tuple[bytes, ...]
    asked: tuple[ConversionContext, ...]
    whole: ConversionContext
    awaited: bool
    """Whether there will be responses (not to a Produce with acks=0)."""

    @property
    def notes(self) -> list[str]:
        """What was changed in meaning or left out."""
        return list(dict.fromkeys(note for one in (self.whole, *self.asked) for note in one.notes))


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer for the client; the broker gets nothing. `frame` is empty where no answer can express it.

    `refusal`: the answer is an error, as the broker cannot do what the client wants."""

    frame: bytes
    why: str
    refusal: bool = True


@dataclass(slots=True)
class Translator:
    """Between one client and a broker that serves `served` (`offering.served_by`).

    `shown`: what ApiVersions offers to clients; None: what is served and what can be bridged.
    """

    served: Ranges
    shown: Ranges | None = None
    offset_overrides: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    asked: bool = False
    """Whether the broker has answered an ApiVersions on the client's connection already: before a login it takes no second one."""
    _offered: bool = False
    """Whether the client has been told versions on this connection."""

    def request(self, frame: bytes) -> Translated | Answered | None:
        """What to do with a request; None: it and its response pass unchanged."""
        if len(frame) < _HEAD.size:
            return None
        key, version, _ = _HEAD.unpack_from(frame)
        target = self.target(key, version)
        if target == version and key != API_VERSIONS:
            return None
        try:
            message = decoder.decode_request(frame)
        except DecodeError:
            return None  # a token, or damage: the broker answers it
        if target is None and self._infers(message):
            return Answered(b"", "the broker closes the connection, too")
        try:
            if key == API_VERSIONS and (target is None or self.asked):
                why = "the proxy has asked the broker" if self.asked else "the broker has no ApiVersions"
                self.asked = False
                return Answered(self._versions(message), why, refusal=False)
            if target is None:
                raise Unbridgeable(f"the broker does not have {facts.api_name(key)}")
            return self._translated(message, target)
        except (Unbridgeable, EncodeError, RecordsError) as fault:
            error = fault.error if isinstance(fault, Unbridgeable | ConversionError) else "UNSUPPORTED_VERSION"
            return refused(message, error, str(fault))

    def _infers(self, message: Message) -> bool:
        """Whether a client may conclude from any answer that the broker has groups, and then use them. kafka-python
        before 3 does; of a broker that closes the connection it expects none."""
        if JOIN_GROUP in self.served or self.shown is not None or self._offered:
            return False
        if message.api_key == API_VERSIONS and message.api_version > 0:
            software = message.to_dict()
            name, version = software.get("client_software_name"), software.get("client_software_version") or ""
            self._offered = (name, version.partition(".")[0]) != ("kafka-python", "2")
        return not self._offered

    def target(self, api_key: int, version: int) -> int | None:
        """The version that the broker gets; None if it has no such API. Unknown versions stay as they are."""
        try:
            known = facts.api(api_key).versions
        except KeyError:
            return version
        if version not in known:
            return version
        ends = self.served.get(api_key)
        if ends is None:
            return None
        return min(max(version, ends[0]), ends[1])

    def _translated(self, message: Message, target: int) -> Translated | Answered:
        key, version = message.api_key, message.api_version
        if reason := why_impossible(key, version, target):
            raise Unbridgeable(reason)
        whole = ConversionContext(key, version, target, message.to_dict(), self.offset_overrides)
        parts = [message.to_dict()]
        if found := splitting(key, version, target):
            parts = found[0](parts[0], whole)
        if not parts:
            return _nothing(message)
        frames, asked = [], []
        for part in parts:
            one = ConversionContext(key, version, target, message.to_dict() if len(parts) == 1 else deepcopy(part), self.offset_overrides)
            frames.append(self._request(message, part, one))
            asked.append(one)
        awaited = key != PRODUCE or whole.request["acks"] != 0
        return Translated(tuple(frames), tuple(asked), whole, awaited)

    def _request(self, message: Message, fields: Fields, asked: ConversionContext) -> bytes:
        if asked.served == asked.version:
            return message.frame
        walk("request", asked.api_key, asked.version, asked.served, fields, asked)
        losses: list[FieldLoss] = []
        fields = fit("request", asked.api_key, asked.served, fields, losses)
        for loss in losses:
            why = why_droppable(asked.api_key, loss.path)
            if why is None:
                raise Unbridgeable(f"{loss.path} does not exist in version {asked.served}, the broker's highest")
            asked.note(f"{loss.path}: {why}")
        header = message.header
        return decoder.encode_request(
            asked.api_key, asked.served, fields, correlation_id=header["correlation_id"], client_id=header.get("client_id")
        )

    def response(self, translated: Translated, frames: list[bytes]) -> bytes:
        """The client's response, made from the broker's, one for each of ``translated.frames``.

        Raises DecodeError, EncodeError or RecordsError for a response that does not fit its request.
        """
        whole = translated.whole
        key, version = whole.api_key, whole.version
        parts = [self._response(asked, frame) for asked, frame in zip(translated.asked, frames, strict=True)]
        fields = parts[0]
        if len(parts) > 1:
            found = splitting(key, version, whole.served)
            assert found is not None
            fields = found[1](parts, whole)
        if key == API_VERSIONS:
            self._extend(fields)
        losses: list[FieldLoss] = []
        fields = fit("response", key, version, fields, losses)
        replace_codes(plan("response", key, version).root, fields, error_codes.changes(key, version))
        (correlation,) = _CORRELATION.unpack_from(frames[0])
        return decoder.encode_response(key, version, fields, correlation_id=correlation)

    def _response(self, asked: ConversionContext, frame: bytes) -> Fields:
        message = decoder.decode_response(frame, api_key=asked.api_key, api_version=asked.served)
        fields = message.to_dict()
        walk("response", asked.api_key, asked.served, asked.version, fields, asked)
        return fields

    def _versions(self, message: Message) -> bytes:
        """The answer to ApiVersions for brokers that have none (before 0.10.0), or need not be asked again."""
        fields: Fields = {"api_keys": version_ranges.entries(self.served)}
        self._extend(fields)
        key, version = message.api_key, message.api_version
        return decoder.encode_response(key, version, fields, correlation_id=message.header["correlation_id"])

    def _extend(self, fields: Fields) -> None:
        if not fields.get("error_code"):
            shown = version_ranges.shown(self.served) if self.shown is None else self.shown
            fields["api_keys"] = version_ranges.extended(fields["api_keys"], shown)


def _nothing(message: Message) -> Answered:
    """The answer to a request that asks for nothing."""
    fields, correlation = responses.mirror_request(message), message.header["correlation_id"]
    frame = decoder.encode_response(message.api_key, message.api_version, fields, correlation_id=correlation)
    return Answered(frame, "it requests nothing", refusal=False)


def refused(request: Message, error: str, why: str) -> Answered:
    """A typed error as the answer, with an error code that this version knows."""
    key, version = request.api_key, request.api_version
    if not responses.has_error_code(key, version) or (key == PRODUCE and request["acks"] == 0):
        return Answered(b"", why)
    code = facts.error_code(error)
    code = error_codes.changes(key, version).get(code, code)
    return Answered(responses.error_response(request, code, request.header["correlation_id"]), why)
