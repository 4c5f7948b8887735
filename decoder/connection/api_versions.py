"""Asking a broker which versions it serves, sans-IO (KIP-35, KIP-511). All code that asks ApiVersions uses this module.

    frame = api_versions.request(version, correlation_id=1, client_id="me")
    answer = api_versions.read(response, version)
    if answer.again is not None: ask once more, in that version

A refusal (UNSUPPORTED_VERSION) comes in body version 0, with the versions of ApiVersions that the broker serves, or with none
before Kafka 2.4. librdkafka's mock brokers answer in a body of no version at all. So of a refusal that is not in version 0 only
the error counts, and version 0 is asked next, as librdkafka does.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..codec.codec import UNSUPPORTED_VERSION, decode_body, encode_request, read_response
from ..codec.message import MessagePair
from ..codec.project import values_at
from ..errors import DecodeError
from ..schema import facts
from ..schema.plan import API_VERSIONS

Range = tuple[int, int]
_ERROR = slice(4, 6)
"""Where the error stands, after the correlation id: the header of these answers is always version 0."""
_FIRST_WITH_SOFTWARE = 3


@dataclass(frozen=True, slots=True)
class ApiVersionsAnswer:
    """`ranges`: (min, max) by api key. `again`: the version to ask next, None where this was an answer."""

    error_code: int
    ranges: dict[int, Range]
    again: int | None = None


def newest() -> int:
    """The newest version that is known here."""
    return facts.api(API_VERSIONS).versions.every()[-1]


def request(version: int = 0, *, correlation_id: int, client_id: str | None, software: str = "") -> bytes:
    """A request frame. `software`: the version of Barnabas, sent from version 3 on."""
    software_fields = {"client_software_name": "barnabas", "client_software_version": software} if version >= _FIRST_WITH_SOFTWARE else {}
    return encode_request(API_VERSIONS, version, software_fields, correlation_id=correlation_id, client_id=client_id)


def read(frame: bytes, version: int) -> ApiVersionsAnswer:
    """The answer in a response to a request of this version. Raises DecodeError."""
    if version and frame[_ERROR] == UNSUPPORTED_VERSION.to_bytes(2, "big"):
        try:
            fields = decode_body("response", API_VERSIONS, 0, frame[_ERROR.start :]).to_dict()
        except DecodeError:
            return ApiVersionsAnswer(UNSUPPORTED_VERSION, {}, 0)
        ranges = _ranges(fields)
        return ApiVersionsAnswer(UNSUPPORTED_VERSION, ranges, min(version - 1, ranges.get(API_VERSIONS, (0, 0))[1]))
    fields = read_response(frame, api_key=API_VERSIONS, api_version=version).to_dict()
    return ApiVersionsAnswer(fields["error_code"], _ranges(fields))


def _ranges(fields: dict[str, object]) -> dict[int, Range]:
    listed = fields["api_keys"]
    return {each["api_key"]: (each["min_version"], each["max_version"]) for each in listed} if isinstance(listed, list) else {}


_SOFTWARE = ("client_software_name", "client_software_version")
_RANGES = ("api_keys.api_key", "api_keys.min_version", "api_keys.max_version")


class PeerInfo:
    """The two ends of a connection, as its ApiVersions exchanges describe them (KIP-35, KIP-511).

    `software_name`, `software_version`: of the client; "" until it sends them, which it does not before ApiVersions v3.
    `offered`: (min, max) by api key, as the broker offered them; None before it did.
    """

    __slots__ = ("offered", "software_name", "software_version")

    def __init__(self) -> None:
        self.software_name = ""
        self.software_version = ""
        self.offered: dict[int, Range] | None = None

    def learn(self, exchange: MessagePair) -> None:
        """Learn from an ApiVersions exchange; others are ignored."""
        if exchange.api_key != API_VERSIONS:
            return
        asked = exchange.request_message
        if asked is not None and asked.api_version >= 3:
            name, version = values_at(asked.plan, asked.frame, asked.body_start, _SOFTWARE)
            self.software_name, self.software_version = name[0] or "", version[0] or ""
        answered = exchange.response_message if exchange.response is not None else None
        surplus = answered is not None and answered.trailing and (exchange.response or b"")[_ERROR] != UNSUPPORTED_VERSION.to_bytes(2, "big")
        if answered is not None and not surplus:  # shifted bytes would read as any ranges
            found = values_at(answered.plan, answered.frame, answered.body_start, _RANGES)
            ranges = {key: (low, high) for key, low, high in zip(*found, strict=True)}
            if ranges:
                # A refusal names ApiVersions alone; what was offered before still holds.
                self.offered = (self.offered or {}) | ranges

    def range(self, api_key: int) -> Range | None:
        """(min, max) that the broker offers of an API; None if it does not or is not known to."""
        return self.offered.get(api_key) if self.offered is not None else None
