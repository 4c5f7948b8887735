"""A second opinion: the frames of a capture as Wireshark's dissector reads them, compared with Barnabas' reading.

Both know where in a frame each field lies, so fields are compared by position: for each field of Wireshark's, Barnabas must
have one with the same first and last byte and the same value. No table of field names is needed.
"""

from __future__ import annotations

import uuid
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from ...decoder import DecodeError, Direction, Exchange, Message, State, encode_request, encode_response
from ...decoder.codec.walk import FieldSpan
from ...decoder.errors import EncodeError
from ...decoder.records import Partial, RecordsError, batches
from ...decoder.schema import facts
from ...decoder.schema.plan import FieldPlan, StructPlan
from ..reading.capture import Capture
from .wireshark import Wireshark, fields

_SIZE = 4
"""The size bytes of a frame. Wireshark counts them in."""
_NOT_READ = {
    "kafka.unsupported_api_version": "the version is newer than its dissector",
    "kafka.unknown_api_key": "it does not know the API",
    "kafka.request_missing": "it has not seen the request",
}
_COMPLAINTS = {
    "kafka.pdu_length_mismatch": "the message does not end where the frame ends",
    "kafka.bad_string_length": "a string's length is wrong",
    "kafka.bad_bytes_length": "a length is wrong",
    "kafka.bad_array_length": "an array's length is wrong",
    "kafka.bad_record_length": "a record's length is wrong",
    "kafka.bad_varint": "a varint is wrong",
    "kafka.ei_kafka_bad_message_set_length": "a message set's size is wrong",
    "kafka.unknown_message_magic": "a batch's magic is unknown",
}
_NO_FIELDS = ("kafka.request_frame", "kafka.response_frame", "kafka.tagged_field_tag", "kafka.tagged_field_data")
"""Numbers of packets; and how tagged fields are framed (KIP-482), where Barnabas has the fields themselves."""


class CrosscheckOutcome(StrEnum):
    """The result of comparing one frame."""

    AGREED = "agreed"
    NOT_READ = "not read by Wireshark"
    WIRESHARK = "Wireshark is wrong"
    BARNABAS = "Barnabas is wrong"
    DAMAGED = "the frame is damaged"
    UNMATCHED = "not matched by Barnabas"


@dataclass(frozen=True)
class Disagreement:
    """Where the two disagree about a frame. `start`, `end`: bytes of the frame, without its 4 size bytes; -1 for the whole."""

    start: int
    end: int
    wireshark: str
    barnabas: str

    def without_values(self) -> Disagreement:
        """Only the names."""
        return Disagreement(self.start, self.end, self.wireshark.partition(" = ")[0], self.barnabas.partition(" = ")[0])


@dataclass(frozen=True)
class Checked:
    """One frame that Wireshark takes for Kafka. `packet`: its number in the file, as Wireshark counts; `row`: the exchange's
    number in `Capture.rows`, None where Barnabas has none. `size`: bytes of the frame. `compared`: how many fields both have.
    `why`: what the outcome rests on, empty where they agree."""

    file: str
    packet: int
    row: int | None
    api_key: int
    api_version: int
    direction: Direction
    size: int
    outcome: CrosscheckOutcome
    compared: int = 0
    why: str = ""
    differences: tuple[Disagreement, ...] = ()

    @property
    def message(self) -> str:
        """Such as ``"Metadata v12 request"``."""
        return f"{facts.api_name(self.api_key)} v{self.api_version} {self.direction.name.lower()}"

    def to_dict(self) -> dict[str, Any]:
        """With JSON's types only."""
        return {
            "file": self.file, "packet": self.packet,
            "number": None if self.row is None else self.row + 1, "api": facts.api_name(self.api_key),
            "api_version": self.api_version, "direction": self.direction.name.lower(),
            "size": self.size, "outcome": self.outcome.value,
            "fields_compared": self.compared, "why": self.why,
            "differences": [vars(difference) for difference in self.differences],
        }  # fmt: skip


class Crosscheck:
    """The frames of a capture, compared one after the other. `total`: bytes of all frames that Barnabas has.

    Raises WiresharkError where tshark or pyshark is missing, or cannot read the capture.
    """

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self.wireshark = Wireshark()
        self._rows: dict[tuple[int, int, int, Direction], deque[int]] = defaultdict(deque)
        self._ports: set[int] = set()
        self.total = 0
        for row in capture.rows():
            client, broker = (int(end.rpartition(":")[2] or 0) for end in (row.client, row.broker))
            self._ports.add(broker)
            for direction, size in ((Direction.REQUEST, row.request_size), (Direction.RESPONSE, row.response_size)):
                if size is not None:
                    self.total += size
                    self._rows[client, row.correlation_id, size, direction].append(row.number)

    def frames(self) -> Iterator[Checked]:
        """Every frame that Wireshark dissects as Kafka, in its order."""
        decode_as = {f"tcp.port=={port}": "kafka" for port in sorted(self._ports)}
        # The other leg of a frame that the proxy changed is no exchange of its own.
        wanted = 'kafka && !(frame.interface_name == "broker leg")'
        for segment in self._capture.segments:
            for packet in self.wireshark.packets(segment.path, wanted, decode_as=decode_as):
                names = {layer.layer_name for layer in packet.layers}
                for layer in packet.layers:
                    if layer.layer_name == "kafka":
                        checked = self._checked(
                            segment.path.name, packet, list(fields(layer)), "_ws.malformed" in names
                        )
                        if checked is not None:
                            yield checked

    def _checked(self, file: str, packet: Any, found: list[Any], malformed: bool) -> Checked | None:
        first: dict[str, Any] = {}
        for field in found:
            first.setdefault(field.name, field)
        try:
            size, correlation_id = int(first["kafka.len"].show), int(first["kafka.correlation_id"].show)
            is_request = "kafka.request_key" in first
            client = int(packet.tcp.srcport if is_request else packet.tcp.dstport)
        except (KeyError, ValueError, AttributeError):
            return None  # not a whole frame: SASL tokens, the rest of one that began before the capture
        direction = Direction.REQUEST if is_request else Direction.RESPONSE
        waiting = self._rows.get((client, correlation_id, size, direction))
        place = (
            _number(first, "kafka.api_key"),
            _number(first, "kafka.request.version" if is_request else "kafka.response.version"),
        )
        if not waiting:
            why = "Barnabas reads no frame of this size and correlation id on this connection"
            return Checked(file, int(packet.number), None, *place, direction, size, CrosscheckOutcome.UNMATCHED, 0, why)
        number = waiting.popleft()
        exchange = self._capture.exchange(number)
        outcome, compared, why, differences = compare(exchange, direction, found, malformed)
        return Checked(
            file, int(packet.number), number, exchange.api_key, exchange.api_version, direction, size, outcome,
            compared, why, tuple(differences),
        )  # fmt: skip


def _number(first: dict[str, Any], name: str) -> int:
    return int(first[name].show) if name in first else -1


class FrameComparison(NamedTuple):
    """One frame compared. `compared`: how many fields; `why`: what the outcome rests on."""

    outcome: CrosscheckOutcome
    compared: int
    why: str
    differences: list[Disagreement]


def compare(exchange: Exchange, direction: Direction, found: list[Any], malformed: bool = False) -> FrameComparison:
    """One frame of an exchange against Wireshark's fields. `malformed`: Wireshark could not read the frame to its end."""
    asked = direction is Direction.REQUEST
    frame = _frame(exchange, direction)
    message = exchange.request_message if asked else exchange.response_message
    fault = exchange.fault(direction)
    names = {field.name for field in found}
    # In an ApiVersions response the first one speaks of what the broker offers.
    offered = "kafka.api_versions.api_key" in names
    not_read = None if offered else next((why for name, why in _NOT_READ.items() if name in names), None)
    complaint = next((why for name, why in _COMPLAINTS.items() if name in names), "malformed" if malformed else None)
    compared, differences = _Frame(exchange, frame, message).held_to(found)
    if differences and frame and exchange.masked(direction) != frame:  # one of the values may be a secret
        differences = [difference.without_values() for difference in differences]
    if not_read is not None:  # it goes on all the same, with the fields of the version that it does know
        return FrameComparison(CrosscheckOutcome.NOT_READ, 0, not_read, [])
    if exchange.state is State.ORPHAN:
        return FrameComparison(CrosscheckOutcome.UNMATCHED, 0, "Barnabas has not seen the request", [])
    if message is None and complaint is not None:
        return FrameComparison(CrosscheckOutcome.DAMAGED, compared, f"neither can read it: {fault}; Wireshark: {complaint}", differences)
    if message is None:
        return FrameComparison(CrosscheckOutcome.BARNABAS, compared, f"only Wireshark reads it; Barnabas reports: {fault}", differences)
    if complaint is not None:
        differences.append(Disagreement(-1, -1, complaint, "reads it to the end"))
    if not differences:
        return FrameComparison(CrosscheckOutcome.AGREED, compared, "", differences)
    if _encodes_again(exchange, message, asked):
        why = "what Barnabas read, encoded again by Kafka's definition of the message, gives exactly these bytes"
        return FrameComparison(CrosscheckOutcome.WIRESHARK, compared, why, differences)
    why = "what Barnabas read does not give the same bytes when it is encoded again"
    return FrameComparison(CrosscheckOutcome.BARNABAS, compared, why, differences)


def _frame(exchange: Exchange, direction: Direction) -> bytes:
    return (exchange.request if direction is Direction.REQUEST else exchange.response) or b""


def _encodes_again(exchange: Exchange, message: Message, asked: bool) -> bool:
    """Whether the values that were read, without the bytes they were read from, encode to these bytes."""
    try:
        if asked:
            made = encode_request(
                exchange.api_key, exchange.api_version, message.to_dict(),
                correlation_id=exchange.correlation_id, client_id=exchange.client_id,
            )  # fmt: skip
        else:
            made = encode_response(
                message.api_key, message.api_version, message.to_dict(), correlation_id=exchange.correlation_id
            )
    except (EncodeError, DecodeError):
        return False
    return made + message.trailing == message.frame


class _Frame:
    """Barnabas' reading of a frame, by byte position."""

    def __init__(self, exchange: Exchange, frame: bytes, message: Message | None) -> None:
        self._frame, self._message = frame, message
        self._header = {
            "kafka.len": len(frame), "kafka.api_key": exchange.api_key, "kafka.request_key": exchange.api_key,
            "kafka.response_key": exchange.api_key, "kafka.api_version": exchange.api_version,
            "kafka.request.version": exchange.api_version, "kafka.response.version": exchange.api_version,
            "kafka.correlation_id": exchange.correlation_id, "kafka.client_id": exchange.client_id,
        }  # fmt: skip
        self._spans: list[FieldSpan] = []
        if message is not None:
            try:
                self._spans = message.map()
            except DecodeError:  # what the compiled decoder read, the byte map reads too; a frame cut short has none
                self._spans = []
        self._exact = {(span.start, span.end): span.path for span in self._spans}  # the innermost, which comes last
        self._starts = {span.start for span in self._spans} | {span.end for span in self._spans}

    def held_to(self, found: list[Any]) -> tuple[int, list[Disagreement]]:
        """The number of Wireshark's fields that were compared, and their differences."""
        compared, differences = 0, []
        base = int(next(field.pos for field in found if field.name == "kafka.len"))
        body = self._message.body_start if self._message is not None else len(self._frame)
        inside: dict[str, list[bytes]] = {"kafka.message_key": [], "kafka.message_value": []}
        for field in found:
            if not field.name.startswith("kafka.") or field.name in _NO_FIELDS or field.name in _COMPLAINTS:
                continue
            start = int(field.pos) - base - _SIZE
            end = start + int(field.size)
            if field.name in inside:
                inside[field.name].append(bytes.fromhex(field.raw_value or ""))
                continue
            if field.name in self._header and (start < body or not int(field.size)):
                compared += 1
                ours = self._header[field.name]
                if not _same(field, ours):
                    differences.append(Disagreement(start, end, f"{field.name} = {field.show}", _shown(ours)))
                continue
            # Places in other bytes than the frame's own, such as unpacked records, mean nothing.
            if start < body or not int(field.size) or self._frame[start:end].hex() != field.raw_value:
                continue
            different = self._at(start, end, field)
            if different is not None:
                compared += 1
                differences += different
        for name, theirs in inside.items():
            if any(theirs):
                compared += len(theirs)
                ours_too = self._contents(name == "kafka.message_key")
                if [each for each in theirs if each] != ours_too:
                    differences.append(
                        Disagreement(-1, -1, f"{len(theirs)} x {name}", f"{len(ours_too)} of them, or other bytes")
                    )
        return compared, differences

    def _at(self, start: int, end: int, field: Any) -> list[Disagreement] | None:
        """The differences of Wireshark's field at this place; None where it is not compared."""
        place = f"{field.name} = {field.show}"
        exact = self._exact.get((start, end))
        if exact is not None:
            plan, value = self._value(exact)
            if plan is None or field.unmaskedvalue is not None:
                return None
            if not _same(field, value):
                return [Disagreement(start, end, place, f"{exact} = {_shown(value)}")]
            return []
        here = [span for span in self._spans if span.start < end and start < span.end]
        around = [span for span in here if span.start <= start and end <= span.end]
        if around:
            plan, value = self._value(around[-1].path)
            if plan is not None and plan.type in ("records", "bytes"):
                return None  # what is in there is not this message's
            if plan is not None and plan.struct is None and not plan.array:
                return [Disagreement(start, end, place, f"inside {around[-1].path} = {_shown(value)}")]
        if start in self._starts and end in self._starts:
            return None  # several fields together
        across = ", ".join(span.path for span in here if not (span.start <= start and end <= span.end))
        if not across and around:
            return None  # a count or a length, which is no field of ours
        return [Disagreement(start, end, place, f"other fields there: {across or 'none'}")]

    def _value(self, path: str) -> tuple[FieldPlan | None, Any]:
        assert self._message is not None
        try:
            return _plan_at(self._message.plan.root, path), self._message[path]
        except KeyError:  # an unknown tagged field
            return None, None

    def _contents(self, keys: bool) -> list[bytes]:
        """The keys or values of all records, without the empty ones."""
        return [each for each in _records(self._message, keys) if each] if self._message is not None else []


def _plan_at(struct: StructPlan, path: str) -> FieldPlan | None:
    found: FieldPlan | None = None
    plan: StructPlan | None = struct
    for step in path.split("."):
        name = step.partition("[")[0]
        found = next((f for f in plan.fields if f.name == name), None) if plan is not None else None
        plan = found.struct if found is not None else None
    return found


def _same(field: Any, ours: Any) -> bool:
    """Whether Wireshark's text stands for our value. Bytes are compared before, by their place."""
    text = field.show or ""
    if isinstance(ours, bool):
        return text in (("1", "True", "true") if ours else ("0", "False", "false"))
    if isinstance(ours, int):
        try:
            return (int(text, 0) - ours) % (1 << 8 * (int(field.size) or 8)) == 0  # it has some as unsigned
        except ValueError:
            return not text.strip("-").isdigit()  # a time or a name: its bytes are the same
    if isinstance(ours, str):
        return text == ours or not ours.isprintable() or not ours.isascii() or "\\" in text
    if ours is None:
        return not text or text.startswith("[")
    return isinstance(ours, bytes | uuid.UUID | list | dict | float)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _records(message: Message, keys: bool) -> Iterator[bytes | None]:
    for span in message.map():
        plan = _plan_at(message.plan.root, span.path)
        if plan is None or plan.type != "records":
            continue
        try:
            for entry in batches(message[span.path] or b""):
                if not isinstance(entry, Partial):
                    for record in entry.records():
                        yield record.key if keys else record.value
        except RecordsError:
            return
