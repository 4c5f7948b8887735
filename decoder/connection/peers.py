"""What a connection has said about its two ends: the client's software, and the versions that the broker offers."""

from __future__ import annotations

from ..codec.message import MessagePair
from ..codec.project import values_at
from ..schema import facts

_API_VERSIONS = facts.api_key("ApiVersions")
_REQUEST = ("client_software_name", "client_software_version")
_RESPONSE = ("api_keys.api_key", "api_keys.min_version", "api_keys.max_version")


class PeerInfo:
    """Learns from the ApiVersions exchanges of one connection (KIP-35, KIP-511).

    `software_name`, `software_version`: of the client; "" before it has said so, and for clients that never do
    (before ApiVersions v3). `offered`: (min, max) by api key as the broker offered them, None before it has.
    """

    __slots__ = ("offered", "software_name", "software_version")

    def __init__(self) -> None:
        self.software_name = ""
        self.software_version = ""
        self.offered: dict[int, tuple[int, int]] | None = None

    def learn(self, exchange: MessagePair) -> None:
        """Take what an ApiVersions exchange tells; every other one is passed over."""
        if exchange.api_key != _API_VERSIONS:
            return
        asked = exchange.request_message
        if asked is not None and asked.api_version >= 3:
            name, version = values_at(asked.plan, asked.frame, asked.body_start, _REQUEST)
            self.software_name, self.software_version = name[0] or "", version[0] or ""
        answered = exchange.response_message if exchange.response is not None else None
        if answered is not None:
            found = values_at(answered.plan, answered.frame, answered.body_start, _RESPONSE)
            ranges = {key: (low, high) for key, low, high in zip(*found, strict=True)}
            if ranges:
                # A refusal names ApiVersions alone; what was offered before still holds.
                self.offered = (self.offered or {}) | ranges

    def range(self, api_key: int) -> tuple[int, int] | None:
        """(min, max) that the broker offers of an API; None if it does not, or has not said."""
        return self.offered.get(api_key) if self.offered is not None else None
