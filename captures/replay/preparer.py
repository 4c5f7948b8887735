"""Preparing a recorded request for the target: with the target's ids, at a version that it offers.

Fetch sessions (KIP-227): requests that name only changes are rewritten for the target's sessions. The recorded sessions are
followed, so that a full request can always be made: the target may grant no session, or forget one.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import crc32c

from ...decoder.codec.codec import decode_request_header, encode_request
from ...decoder.codec.message import Message
from ...decoder.schema import facts
from ...decoder.schema.meaning import Meaning
from ...errors import BarnabasError
from .mapping import IdMapping
from .partial_requests import partitions_of, with_partitions
from .rewrite import Scope, changed, with_values
from .script import RecordedCall, has_producer
from .version_conversion import API_VERSIONS, NotExpressible, at_version, candidates

FETCH = facts.api_key("Fetch")
FORGOTTEN = facts.error_code_set("FETCH_SESSION_ID_NOT_FOUND", "INVALID_FETCH_SESSION_EPOCH")
_FINAL = -1


class _Session:
    __slots__ = ("epoch", "target", "topics")

    def __init__(self) -> None:
        self.target = 0
        self.epoch = 0
        # Topic (its other values) -> partition -> values, as recorded.
        self.topics: dict[Any, dict[int, Any]] = {}


class RecordedFetchSessions:
    """All sessions of a recording, by the id they had in it."""

    def __init__(self) -> None:
        self._sessions: dict[int, _Session] = {}
        self._opening: dict[int, _Session] = {}

    def prepared(self, request: Message, number: int) -> Message:
        """The request (of version 7 or newer, as recorded) as it is to be sent; `number` names it until `answered`.
        To be called once more for each time that it is sent again."""
        names = {f.name: i for i, f in enumerate(request.plan.root.fields)}
        values = list(request.values)
        recorded, epoch = values[names["session_id"]], values[names["session_epoch"]]
        if recorded == 0 and epoch != 0:
            return request
        topics, forgotten = values[names["topics"]], values[names["forgotten_topics_data"]]
        if epoch == 0:
            session = self._opening[number] = _Session()
            _take(session, request, topics)
            if recorded == 0:
                return request
            values[names["session_id"]] = 0  # the old one is given up with it
        else:
            session = self._sessions.setdefault(recorded, _Session())
            if number not in self._opening:
                _forget(session, request, forgotten)
                _take(session, request, topics)
            self._opening[number] = session
            if session.target:
                session.epoch += 1
                values[names["session_id"]] = session.target
                values[names["session_epoch"]] = epoch if epoch == _FINAL else session.epoch
            else:
                values[names["session_id"]], values[names["session_epoch"]] = 0, _FINAL
                values[names["topics"]] = _full(session, request)
                values[names["forgotten_topics_data"]] = ()
        return with_values(request, tuple(values))

    def answered(self, request: Message, number: int, recorded: Message | None, got: Message) -> None:
        """The target has answered; `recorded` is None where the recording holds no answer."""
        session = self._opening.get(number)
        if session is None:
            return
        if got["error_code"] in FORGOTTEN:
            session.target = 0
            return
        del self._opening[number]
        if request["session_epoch"] == 0:
            session.target = got["session_id"]
            if recorded is not None and recorded["session_id"]:
                self._sessions[recorded["session_id"]] = session
        elif request["session_epoch"] == _FINAL:
            self._sessions.pop(request["session_id"], None)


def _layout(request: Message, array: str) -> tuple[int, int]:
    """In the rows of an array of topics: the position of the partitions, and of the partition's number in those."""
    field = next(f for f in request.plan.root.fields if f.name == array)
    assert field.struct is not None
    at = next(i for i, f in enumerate(field.struct.fields) if f.name == "partitions")
    inner = field.struct.fields[at].struct
    return at, next(i for i, f in enumerate(inner.fields) if f.name == "partition") if inner is not None else -1


def _take(session: _Session, request: Message, topics: Any) -> None:
    at, number = _layout(request, "topics")
    for topic in topics:
        partitions = session.topics.setdefault(topic[:at] + topic[at + 1 :], {})
        partitions.update((partition[number], partition) for partition in topic[at])


def _forget(session: _Session, request: Message, forgotten: Any) -> None:
    at, _ = _layout(request, "forgotten_topics_data")
    for topic in forgotten:
        partitions = session.topics.get(topic[:at] + topic[at + 1 :], {})
        for number in topic[at]:
            partitions.pop(number, None)


def _full(session: _Session, request: Message) -> Any:
    at, _ = _layout(request, "topics")
    return tuple(
        (*key[:at], tuple(partitions.values()), *key[at:]) for key, partitions in session.topics.items() if partitions
    )


FIND_COORDINATOR = facts.api_key("FindCoordinator")
_SESSIONS_FROM = 7
_PRODUCER = struct.Struct(">qh")
_PRODUCER_AT, _CRC_AT, _CRC_FROM, _HEADER = 43, 17, 21, 61
_SIZE = struct.Struct(">i")


class CannotSend(BarnabasError):
    """The request cannot be sent to the target; the message has the reason."""


class Preparer:
    """Makes requests; `offers` is what the target's brokers offer: api key -> (lowest, highest) version."""

    def __init__(self, mapping: IdMapping, offers: Mapping[int, tuple[int, int]] | None) -> None:
        self.mapping, self.offers = mapping, offers
        self.sessions = RecordedFetchSessions()
        self._offered_version: dict[tuple[int, int], int | None] = {}

    def unchanged(self, call: RecordedCall) -> bool:
        """Whether the request can be sent as it was recorded, but for its correlation id."""
        exchange = call.exchange
        return call.plain and call.taken is None and self.version(exchange.api_key, exchange.api_version) == exchange.api_version

    def version(self, api_key: int, version: int) -> int | None:
        """The version to ask at, the recorded one if it is offered; None if the API is not."""
        known = self._offered_version.get((api_key, version), -1)
        if known != -1:
            return known
        offered = None if self.offers is None else self.offers.get(api_key)
        if self.offers is None or api_key == API_VERSIONS:
            found: int | None = version
        elif offered is None:
            found = None
        elif offered[0] <= version <= offered[1]:
            found = version
        else:
            found = next(iter(candidates(api_key, version, offered)), None)
        self._offered_version[api_key, version] = found
        return found

    def request(self, call: RecordedCall) -> Message:
        """The request for the target. Raises UnknownId (a later answer has to provide an id), CannotSend."""
        exchange = call.exchange
        message = exchange.request_message
        if message is None:
            raise CannotSend("it cannot be decoded")
        key = exchange.api_key
        if message.trailing:
            return self._renamed_client(message)
        if call.left_out:
            message = with_partitions(message, partitions_of(message) - call.left_out)
        new = changed(message, self._change(message))  # first: sessions go on only when the request goes out
        if key == FETCH and exchange.api_version >= _SESSIONS_FROM:
            # The session is followed with recorded names and ids; a full request is then translated for the target.
            in_session = self.sessions.prepared(message, call.number)
            new = changed(in_session, self._change(in_session))
        new = self._at_offered_version(new)
        if call.taken is not None:
            new = with_partitions(new, partitions_of(new) - partitions_of(call.taken))
        return self._renamed_client(new)

    def answered(self, call: RecordedCall, got: Message) -> None:
        """An answer has come that a session is made or lost by."""
        asked = call.exchange.request_message
        if asked is None or asked.api_key != FETCH:
            return
        if asked.api_version >= _SESSIONS_FROM and got.api_version >= _SESSIONS_FROM:
            self.sessions.answered(asked, call.number, call.recorded, got)

    def _renamed_client(self, message: Message) -> Message:
        client_id = message.header.get("client_id")
        renamed = self.mapping.names.client_id(client_id)
        if renamed == client_id:
            return message
        # Only the header is made anew: the body keeps its bytes.
        new = encode_request(message.api_key, message.api_version, {}, client_id=renamed)
        start = decode_request_header(new)[1]
        frame = new[:start] + message.frame[message.body_start :]
        header = message.header | {"client_id": renamed}
        return Message(message.plan, message.values, frame, start, header, message.trailing)

    def _at_offered_version(self, message: Message) -> Message:
        offered = None if self.offers is None else self.offers.get(message.api_key)
        version = message.api_version
        if self.offers is None or message.api_key == API_VERSIONS:
            return message
        if offered is None:
            raise CannotSend("the target does not offer this API")
        if offered[0] <= version <= offered[1]:
            return message
        reason = f"the target offers {_range(offered)} of it, but version {version} was recorded"
        reasons = []
        for candidate in candidates(message.api_key, version, offered):
            try:
                return at_version(message, candidate, self.mapping.topics.get, self.topic_there)
            except NotExpressible as error:
                reasons.append(f"version {candidate}: {error}")
        raise CannotSend(f"{reason}" + (f"; {reasons[0]}" if reasons else ""))

    def topic_there(self, topic_id: bytes) -> str | None:
        """The name of a topic by the target's id."""
        return next((name for name, there in self.mapping.topics.items() if there == topic_id), None)

    def _change(self, message: Message) -> Any:
        key_type = message["key_type"] if message.api_key == FIND_COORDINATOR and message.api_version >= 1 else 0
        change = self.mapping.change

        def one(role: Meaning, value: Any, scope: Scope, name: str) -> Any:
            if role is Meaning.COORDINATOR_KEY:
                return self.mapping.coordinator_key(value, key_type)
            if role is Meaning.RECORDS:
                return self._records(value) if has_producer(value) else value
            if role is Meaning.SESSION_ID or role is Meaning.SESSION_EPOCH:
                return value
            new = change(role, value, scope, name)
            return value if new == value else new

        return one

    def _records(self, data: bytes) -> bytes:
        """Batches with the target's producer ids and epochs, their CRCs right again."""
        out: bytearray | None = None
        at = 0
        while at + _HEADER <= len(data) and data[at + 16] == 2:
            end = at + 12 + _SIZE.unpack_from(data, at + 8)[0]
            recorded = _PRODUCER.unpack_from(data, at + _PRODUCER_AT)
            there = self.mapping.producer(*recorded)
            if there != recorded and recorded[0] >= 0 and at < end <= len(data):
                if out is None:
                    out = bytearray(data)
                _PRODUCER.pack_into(out, at + _PRODUCER_AT, *there)
                crc = crc32c.crc32c(bytes(out[at + _CRC_FROM : end]))
                out[at + _CRC_AT : at + _CRC_FROM] = crc.to_bytes(4, "big")
            if end <= at:
                break
            at = end
        return data if out is None else bytes(out)


def patched(frame: bytes, correlation_id: int) -> bytes:
    """The bytes to send: the size, and the frame with another correlation id."""
    return b"%b%b%b%b" % (_SIZE.pack(len(frame)), frame[:4], _SIZE.pack(correlation_id), frame[8:])


def _range(offered: tuple[int, int]) -> str:
    return f"version {offered[0]}" if offered[0] == offered[1] else f"versions {offered[0]}-{offered[1]}"


__all__ = ["CannotSend", "Preparer", "patched"]
