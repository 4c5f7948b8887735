"""ApiVersions: what the recorded broker offered, or what the recording can answer."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from ...decoder import facts
from .asked import Ask, Missed, Reply
from .memory import Memory
from .restating import fitting

API_VERSIONS = facts.api_key("ApiVersions")
UNSUPPORTED = facts.error_code("UNSUPPORTED_VERSION")
TELEMETRY = tuple(map(facts.api_key, ("GetTelemetrySubscriptions", "PushTelemetry")))
"""Clients send these on a timer (KIP-714), so a slower run can need them although the recorded one did not."""


class Offer(StrEnum):
    """Which APIs and versions clients are offered."""

    RECORDED = "recorded"
    """what the recorded broker offered, so that the same client speaks the same versions again"""
    ANSWERABLE = "answerable"
    """only APIs that are in the recording, up to the highest recorded version"""


class Offers:
    """The offered versions. `kept_up` are the APIs that are answered at every known version."""

    def __init__(self, memory: Memory, kept_up: frozenset[str], offer: Offer) -> None:
        self._fields: dict[str, Any] = {}
        self._nothing = not memory.kept
        ranges: dict[int, tuple[int, int]] = {}
        for kept in memory.of("ApiVersions"):
            assert kept.answered is not None
            fields = kept.answered.to_dict()
            if not fields["error_code"] and len(fields) >= len(self._fields):
                self._fields = fields
        for item in self._fields.get("api_keys", ()):
            ranges[item["api_key"]] = item["min_version"], item["max_version"]
        if offer is Offer.ANSWERABLE or not ranges:
            ranges = self._answerable(memory, kept_up, ranges)
        if TELEMETRY[0] not in memory.by_api:
            for key in TELEMETRY:
                ranges.pop(key, None)
        self.ranges: dict[int, tuple[int, int]] = {}
        for key, (low, high) in sorted(ranges.items()):
            if key in facts.api_keys():
                known = facts.api(key).versions.every()
                if max(low, known[0]) <= min(high, known[-1]):
                    self.ranges[key] = max(low, known[0]), min(high, known[-1])

    @staticmethod
    def _answerable(
        memory: Memory, kept_up: frozenset[str], offered: dict[int, tuple[int, int]]
    ) -> dict[int, tuple[int, int]]:
        found: dict[int, tuple[int, int]] = {}
        for key, known in memory.by_api.items():
            versions = [kept.api_version for kept in known]
            low = facts.api(key).versions.low if facts.api_name(key) in kept_up else min(versions)
            if key in offered:
                low = max(low, offered[key][0])
            found[key] = low, max(versions)
        known_here = facts.api(API_VERSIONS).versions.every()
        found.setdefault(API_VERSIONS, (known_here[0], known_here[-1]))
        return found

    def answer(self, ask: Ask) -> Reply:
        """The offer; to a version that is not offered, the refusal that brokers give (KIP-511). Raises `Missed` for an empty
        recording."""
        if self._nothing:
            raise Missed(f"ApiVersions v{ask.version}, the first request of all")
        low, high = self.ranges.get(API_VERSIONS, (0, 0))
        items = [{"api_key": key, "min_version": a, "max_version": b} for key, (a, b) in self.ranges.items()]
        if not low <= ask.version <= high:
            return self.refusal()
        fields = self._fields | {"error_code": 0, "api_keys": items, "throttle_time_ms": 0}
        return Reply(fitting("response", API_VERSIONS, ask.version, fields), "recorded")

    def refusal(self) -> Reply:
        """What a broker says to a version of ApiVersions that it does not have: version 0, with its own range."""
        low, high = self.ranges.get(API_VERSIONS, (0, 0))
        own = [{"api_key": API_VERSIONS, "min_version": low, "max_version": high}]
        return Reply({"error_code": UNSUPPORTED, "api_keys": own}, version=0)
