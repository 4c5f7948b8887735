"""From byte streams to index records: frames are found and paired, but nothing of them is kept or decoded.

`Skimmer` is for the index of foreign captures what `decoder.Connection` is for everything else, and comes to the same
records (tests/captures/foreign/test_scan.py holds the two together). It takes the bytes of each direction in order, cut
anywhere, and adds to an `IndexEncoder`. What is rare goes through `Exchange` and its decoder.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from typing import Any

from ...decoder import Exchange, State
from ...decoder.codec.codec import decode_request_header
from ...decoder.codec.decode import FAULTS
from ...decoder.codec.skim import Skim, first_code, skim
from ...decoder.connection.connection import expects_no_response, plausible_request
from ...decoder.schema import facts
from ...decoder.wire.errors import DecodeError
from ...decoder.wire.frame import MAX_FRAME, foreign_protocol
from ...decoder.wire.truncated_frame import first_error_in
from ..native.accelerator import native
from ..recording.index import CUT, MAX_STRING, RECORD, STATES, SURPLUS, UNDECODED, IndexEncoder
from .frame_pieces import Pieces
from .talks import Asked, PlainAsked, Talk, Way

PRODUCE, SASL_HANDSHAKE, API_VERSIONS = map(facts.api_key, ("Produce", "SaslHandshake", "ApiVersions"))
TOKEN = "SASL token"
MOST_WAITING = 1 << 16
"""Requests of a connection that wait for responses; in a capture of one direction the oldest are given up."""

_PAIRED, _NO_RESPONSE, _ORPHAN, _PENDING = (
    STATES.index(state) for state in (State.PAIRED, State.NO_RESPONSE, State.ORPHAN, State.PENDING)
)
_HEAD = struct.Struct(">hhih").unpack_from
_INT = struct.Struct(">i").unpack_from
_pack = RECORD.pack


class Skimmer:
    """Feed it each direction's bytes (`data`) and losses (`gap`, `cut`). `read(pieces)` gives the bytes of a frame
    that came in several pieces. Records of requests that are shown as pending at the end are written anew when
    their response comes after all: `changed` collects (row, record)."""

    indexes = True
    """Whether it makes records by itself; who derives from it may do something else with exchanges."""

    def __init__(self, encoder: IndexEncoder, pieces: Pieces, read: Callable[[list[tuple[int, int]]], bytes]) -> None:
        self.encoder, self.pieces, self._read = encoder, pieces, read
        self.frames: Any = None
        self._count = 0
        self.changed: list[tuple[int, bytes]] = []
        self._talks: dict[int, Talk] = {}
        self._clients: dict[bytes, int] = {}
        self._asked: dict[int, Skim | None] = {}
        self._answered: dict[int, Skim | None] = {}
        if native is not None:
            # It takes ordinary frames by itself, and calls the methods here for all others.
            records = encoder.records if self.indexes else None
            self.frames = native.Frames(self, records, MOST_WAITING, MAX_FRAME, MAX_STRING)

    @property
    def rows(self) -> int:
        """How many records were made."""
        return self._count if self.frames is None else self._count + int(self.frames.rows)

    # connections

    def open(self, number: int) -> Talk:
        """A connection begins."""
        talk = self._talks[number] = Talk(number)
        return talk

    def close(self, talk: Talk) -> None:
        """It ended: what waits gets no response."""
        while talk.waiting:
            self._unanswered(self._next(talk), talk)
        self._talks.pop(talk.number, None)

    def pending(self) -> list[tuple[Talk, PlainAsked]]:
        """The requests that wait, in the order of their times."""
        waiting = [(talk, asked) for talk in self._talks.values() for asked in talk.waiting if asked is not None]
        return sorted(waiting, key=lambda pair: (pair[1].time_ns, pair[0].number))

    def show_pending(self) -> None:
        """Give the requests that wait a record each, if they have none."""
        for talk, asked in self.pending():
            if asked.row < 0:
                asked.row = self._record(talk, asked, _PENDING)

    def awaits(self, talk: Talk, correlation_id: int) -> bool:
        """Whether a request waits for that response."""
        if not talk.waiting:
            return False
        if talk.ids is None:
            talk.ids = self._ids_of(talk)
        return correlation_id in talk.ids

    @staticmethod
    def _ids_of(talk: Talk) -> Counter[int]:
        return Counter(asked.correlation_id for asked in talk.waiting if asked is not None)

    # bytes

    def data(self, way: Way, time_ns: int, data: bytes, offset: int) -> None:
        """The next bytes of a direction, and their file offset."""
        end = len(data)
        if end > 3 and way.began and not way.pieces and not way.opaque and _INT(data)[0] == end - 4:  # one frame, as it mostly is
            if way.direction:
                self._response(way.talk, time_ns, data, offset)
            else:
                self._request(way.talk, time_ns, data, offset)
            return
        if way.opaque:
            self._non_kafka(way.talk, way.direction, time_ns, data, "")
            return
        at = 0
        while at < end:
            if not way.missing:
                if not way.pieces:
                    way.started_ns = time_ns
                have = len(way.head)
                way.head += data[at : at + 4 - have]
                step = len(way.head) - have
                way.pieces.append((offset + at, step))
                at += step
                if len(way.head) < 4:
                    return
                (way.size,) = _INT(way.head)
                other = not way.began and foreign_protocol(way.head + data[at : at + 4])
                if other or not 0 <= way.size <= MAX_FRAME:
                    reason = f"not Kafka: {other}" if other else f"not a frame: size {way.size}"
                    self._non_kafka(way.talk, way.direction, way.started_ns, way.head + data[at:], reason)
                    way.opaque = True
                    way.reset()
                    return
                way.missing = way.size
                if at < end and way.size and way.pieces[-1][0] + way.pieces[-1][1] == offset + at:
                    step = min(way.missing, end - at)
                    way.pieces[-1] = way.pieces[-1][0], way.pieces[-1][1] + step
                    way.missing -= step
                    at += step
            else:
                step = min(way.missing, end - at)
                if not way.holed:
                    way.pieces.append((offset + at, step))
                way.missing -= step
                at += step
            if not way.missing:
                self._whole(way)

    def cut(self, way: Way, size: int) -> bool:
        """`size` bytes of a direction are known to be there, but not what they are. False: frames are lost, too."""
        if way.opaque:
            return True
        if size > way.missing or len(way.head) < 4 or sum(length for _, length in way.pieces) < 18:
            way.reset()
            return False
        way.holed = True
        way.missing -= size
        if not way.missing:
            self._whole(way)
        return True

    def gap(self, way: Way) -> None:
        """Bytes are missing; the next ones start a frame."""
        way.opaque = False
        way.reset()

    def _placed(self, pieces: list[tuple[int, int]]) -> int:
        return self.pieces.add(pieces)

    def _whole(self, way: Way) -> None:
        pieces, size, started_ns, holed = way.pieces, way.size, way.started_ns, way.holed
        way.reset()
        way.began = True
        data = self._read(pieces)
        place = self.pieces.add(pieces, not holed)
        if holed:
            self._holed(way, started_ns, data, place, size)
        else:
            self.frame(way, started_ns, data, place)

    def frame(self, way: Way, time_ns: int, data: bytes, place: int) -> None:
        """A whole frame, its 4 size bytes first."""
        if way.direction:
            self._response(way.talk, time_ns, data, place)
        else:
            self._request(way.talk, time_ns, data, place)

    # requests

    def _request(self, talk: Talk, time_ns: int, data: bytes, place: int) -> None:
        last = talk.waiting[-1] if talk.waiting else None
        # A SaslHandshake v0 that waits: see `Connection`.
        waits = last is not None and last.api_key == SASL_HANDSHAKE and last.api_version == 0
        if talk.raw_sasl or waits or not talk.began:
            # Clients of 0.9 begin GSSAPI without a handshake: see `Connection`.
            if not talk.began:
                talk.began = True
                talk.raw_sasl = data[4:5] == b"\x60"
            if (talk.raw_sasl or waits) and not plausible_request(data[4:]):
                talk.waiting.append(None)
                self._non_kafka(talk, 0, time_ns, data, TOKEN)
                return
            talk.raw_sasl = False
        size = len(data) - 4
        if size >= 10:
            key, version, correlation_id, length = _HEAD(data, 4)
            how = self._asked.get(key << 16 | version & 0xFFFF)
            if how is None:
                how = self._known(self._asked, "request", key, version)
            if how is not None and how.header_version and -1 <= length <= MAX_STRING:
                body = 14 + length if length > 0 else 14
                flexible = how.header_version == 2
                if body + flexible <= len(data) and not (flexible and data[body]):
                    client_id = self._client(data[14:body]) if length >= 0 else 0
                    if client_id >= 0:
                        asked = Asked(time_ns, place, size, correlation_id, key, version, client_id, 0)
                        try:
                            found, end = how.read(data, body + flexible)
                        except FAULTS:
                            asked.flags = UNDECODED
                        else:
                            if end != size + 4:
                                asked.flags = SURPLUS
                            if found and not found[0][0]:
                                self._alone(talk, asked, data)  # acks=0
                                return
                        self._wait(talk, asked, data)
                        return
        self._odd_request(talk, time_ns, data, place, size)

    def _odd_request(self, talk: Talk, time_ns: int, data: bytes, place: int, size: int) -> None:
        """As `Connection` reads any request."""
        frame = data[4:]
        exchange = Exchange(request=frame, request_cut=size - len(frame))
        body = 0
        try:
            header, body = decode_request_header(frame)
            exchange.api_key, exchange.api_version = header["request_api_key"], header["request_api_version"]
            exchange.correlation_id, exchange.client_id = header["correlation_id"], header.get("client_id")
        except DecodeError:
            if len(frame) >= 8:
                exchange.api_key, exchange.api_version, exchange.correlation_id = struct.unpack_from(">hhi", frame)
        message = exchange.request_message
        flags = UNDECODED if message is None else SURPLUS if message.trailing else 0
        if size > len(frame):
            flags = CUT
        client_id = self.encoder.string(exchange.client_id)
        key, version = exchange.api_key, exchange.api_version
        asked = Asked(time_ns, place, size, exchange.correlation_id, key, version, client_id, flags)
        if key == PRODUCE and body and expects_no_response(exchange):
            self._alone(talk, asked, data)
        else:
            self._wait(talk, asked, data)

    def _wait(self, talk: Talk, asked: PlainAsked, data: bytes) -> None:
        talk.waiting.append(asked)
        if talk.ids is not None:
            talk.ids[asked.correlation_id] += 1
        if len(talk.waiting) > MOST_WAITING:
            self._give_up_first(talk)

    def _give_up_first(self, talk: Talk) -> None:
        self._unanswered(self._next(talk), talk)

    def _alone(self, talk: Talk, asked: PlainAsked, data: bytes) -> None:
        """A request that gets no response."""
        self._record(talk, asked, _NO_RESPONSE)

    # responses

    def _response(self, talk: Talk, time_ns: int, data: bytes, place: int) -> None:
        waiting = talk.waiting
        if len(data) >= 9 and waiting:
            first = waiting[0]
            if first is not None and first.correlation_id == _INT(data, 4)[0]:
                key = first.api_key
                how = self._answered.get(key << 16 | first.api_version & 0xFFFF)
                if how is None:
                    how = self._known(self._answered, "response", key, first.api_version)
                if how is not None and not (how.header_version and data[8]):
                    waiting.popleft()
                    if talk.ids is not None:
                        self._forget(talk, first)
                    try:
                        found = how.read(data, 8 + how.header_version)
                    except FAULTS:
                        self._pair(talk, first, time_ns, data, place, len(data) - 4, 0, UNDECODED)
                        return
                    flags = SURPLUS if found[1] != len(data) else 0
                    self._pair(talk, first, time_ns, data, place, len(data) - 4, first_code(found), flags)
                    return
        self._odd_response(talk, time_ns, data, place, len(data) - 4)

    def _odd_response(self, talk: Talk, time_ns: int, data: bytes, place: int, size: int) -> None:
        """As `Connection` reads any response."""
        waiting = talk.waiting
        if waiting and waiting[0] is None:
            waiting.popleft()
            self._non_kafka(talk, 1, time_ns, data, TOKEN)
            return
        if talk.ids is None:
            talk.ids = self._ids_of(talk)
        correlation_id = int.from_bytes(data[4:8], "big", signed=True)
        if size < 4 or correlation_id not in talk.ids:
            orphan = Asked(time_ns, -1, 0, correlation_id, -1, -1, 0, 0)
            self._pair(talk, orphan, time_ns, data, place, size, 0, 0, _ORPHAN)
            return
        while True:
            first = self._next(talk)
            if first is not None and first.correlation_id == correlation_id:
                break
            self._unanswered(first, talk)
        if not waiting:
            talk.ids = None  # the oddity is over
        if size > len(data) - 4:
            error = first_error_in(data[4:], first.api_key, first.api_version, size - len(data) + 4)
            self._pair(talk, first, time_ns, data, place, size, error, CUT)
            return
        exchange = Exchange(
            api_key=first.api_key, api_version=first.api_version, response=data[4:], state=State.PAIRED
        )
        message = exchange.response_message
        flags = UNDECODED if message is None else SURPLUS if message.trailing else 0
        error = exchange.error
        if first.api_key == SASL_HANDSHAKE and first.api_version == 0 and error == 0:
            talk.raw_sasl = True
        self._pair(talk, first, time_ns, data, place, size, error, flags)

    def _next(self, talk: Talk) -> PlainAsked | None:
        first = talk.waiting.popleft()
        if first is not None and talk.ids is not None:
            self._forget(talk, first)
        return first

    @staticmethod
    def _forget(talk: Talk, asked: PlainAsked) -> None:
        ids = talk.ids
        assert ids is not None
        ids[asked.correlation_id] -= 1
        if not ids[asked.correlation_id]:
            del ids[asked.correlation_id]

    def _unanswered(self, asked: PlainAsked | None, talk: Talk) -> None:
        if asked is not None:
            self._record(talk, asked, _NO_RESPONSE)

    def _non_kafka(self, talk: Talk, direction: int, time_ns: int, data: bytes, reason: str) -> None:
        """Bytes that are no request or response have no record. `reason`: "" for more of the same."""

    # frames that were cut

    def _holed(self, way: Way, time_ns: int, data: bytes, place: int, size: int) -> None:
        """A frame of which the beginning was captured."""
        if way.direction:
            self._odd_response(way.talk, time_ns, data, place, size)
        else:
            self._odd_request(way.talk, time_ns, data, place, size)

    # records

    def skimmed(self, kind: str, key: int, version: int) -> Skim | None:
        """How messages are skimmed; None for those that need more than that."""
        return self._known(self._asked if kind == "request" else self._answered, kind, key, version)

    def _known(self, cache: dict[int, Skim | None], kind: str, key: int, version: int) -> Skim | None:
        """How messages are skimmed; None for those that need more than that."""
        place = key << 16 | version & 0xFFFF
        if place not in cache:
            odd = kind == "response" and key in (API_VERSIONS, SASL_HANDSHAKE)
            cache[place] = None if odd else skim(kind, key, version)
        return cache[place]

    def _client(self, name: bytes) -> int:
        """The string id of a client id; -1 when it is no text."""
        number = self._clients.get(name)
        if number is None:
            try:
                number = self.encoder.string(name.decode())
            except UnicodeDecodeError:
                return -1
            self._clients[name] = number
        return number

    def _pair(
        self, talk: Talk, asked: PlainAsked, time_ns: int, data: bytes, place: int, size: int, error: int, flags: int,
        state: int = _PAIRED,
    ) -> None:  # fmt: skip
        """An exchange is done. `data`: the response with its size bytes."""
        self._record(talk, asked, state, time_ns, place, size, error, flags)

    def _record(
        self, talk: Talk, asked: PlainAsked, state: int, time_ns: int = -1, place: int = -1, size: int = 0, error: int = 0,
        flags: int = 0,
    ) -> int:  # fmt: skip
        record = self._packed(talk, asked, state, time_ns, place, size, error, flags, asked.client_id)
        if asked.row >= 0:
            self.changed.append((asked.row, record))
            return asked.row
        self.encoder.records += record
        self._count += 1
        return self.rows - 1

    @staticmethod
    def _packed(
        talk: Talk, asked: PlainAsked, state: int, time_ns: int, place: int, size: int, error: int, flags: int, client_id: int
    ) -> bytes:
        """The record of an exchange; `place` and `size` are the response's."""
        flags |= asked.flags
        if flags & UNDECODED:
            flags &= ~SURPLUS
        return _pack(
            asked.time_ns,
            max(time_ns - asked.time_ns, 0) if place >= 0 and asked.place >= 0 else -1,
            asked.place,
            place,
            asked.size,
            size,
            asked.correlation_id,
            talk.number,
            asked.api_key,
            asked.api_version,
            error,
            flags | state,
            client_id,
            0,
        )
