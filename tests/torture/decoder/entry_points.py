"""The ways bytes get into the decoder, each as a function of one input. What they may raise is `ALLOWED`.

Besides not failing they hold what the decoder promises of bytes that it read: an edited message decodes to the edited
values, a projection gives what the whole message has, the byte map lies inside of the message, and (in `both`) the
accelerator and the pure Python reference agree.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from barnabas import decoder
from barnabas.decoder import embedded, records
from barnabas.decoder.codec.decode import FAULTS, python_decoder
from barnabas.decoder.codec.message import Message
from barnabas.decoder.codec.secrets import mask
from barnabas.decoder.native.accelerator import native
from barnabas.decoder.present import present
from barnabas.decoder.schema.plan import FieldPlan, StructPlan, plan

ALLOWED = (decoder.DecodeError, records.RecordsError, decoder.EncodeError)


class Broken(AssertionError):
    """The decoder did not keep a promise."""


class Input(NamedTuple):
    """Bytes and the way they go. `choice` decides what the way leaves open: cuts, the field to replace."""

    way: str
    kind: str
    key: int
    version: int
    choice: int
    data: bytes

    def replay(self) -> str:
        """The command that runs this input alone."""
        return (
            f"PYTHONPATH=tests python -m torture.decoder.fuzz replay {self.way} {self.kind} {self.key} {self.version}"
            f" {self.choice} {self.data.hex() or '-'}"
        )


def body(given: Input) -> None:
    """A body, and one time in four everything that can be done with its message."""
    message = decoder.decode_body(given.kind, given.key, given.version, given.data)
    if message.encode() != given.data:
        raise Broken("a message that nothing was done to encodes to other bytes")
    if not given.choice & 3:
        everything(message, given.choice >> 2)


def frame(given: Input) -> None:
    """A request's or response's frame; masked, it keeps its length."""
    direction = decoder.Direction.REQUEST if given.way == "request" else decoder.Direction.RESPONSE
    if len(mask(direction, given.key, given.version, given.data)) != len(given.data):
        raise Broken("masking changed the length")
    if direction is decoder.Direction.REQUEST:
        message = decoder.decode_request(given.data)
    else:
        message = decoder.decode_response(given.data, api_key=given.key, api_version=given.version)
    if not given.choice & 3:
        everything(message, given.choice >> 2)


def record_area(given: Input) -> None:
    """A record area: every entry, its records, its index, its checksum."""
    for entry in records.batches(given.data):
        if isinstance(entry, records.Partial):
            continue
        _ = entry.crc_ok, entry.codec_name, entry.timestamp_type
        try:
            found = list(entry.records())
        except records.RecordsError:
            found = None
        if isinstance(entry, records.Batch):
            try:
                index = records.RecordIndex(entry)
            except records.RecordsError:
                continue
            if found is not None and not entry.control and [r.key for r in index] != [r.key for r in found]:
                raise Broken("the index has other records than the batch")
        elif found is None:
            continue
        else:
            _ = entry.key, entry.value


def projection(given: Input) -> None:
    """Some paths of a body, and the same out of the whole message."""
    chance = random.Random(given.choice)
    paths = list(_paths(plan(given.kind, given.key, given.version).root, ""))
    asked = chance.sample(paths, min(len(paths), 1 + chance.randrange(3)))
    part = decoder.project(given.kind, given.key, given.version, asked)(given.data)
    try:
        whole = decoder.decode_body(given.kind, given.key, given.version, given.data).to_dict()
    except decoder.TrailingBytes as fault:
        whole = fault.message.to_dict()
    except decoder.DecodeError:
        return  # the fault lies where the projection does not look
    for path in asked:
        expected = _at(plan(given.kind, given.key, given.version).root, whole, path.split("."))
        if not _same(part[path], expected):
            raise Broken(f"projection of {path}: {part[path]!r}, the message has {expected!r}")


def connection(given: Input) -> None:
    """Two byte streams (4 bytes of length in front of the client's), cut anywhere."""
    chance = random.Random(given.choice)
    size = int.from_bytes(given.data[:4], "big")
    streams = [given.data[4 : 4 + size], given.data[4 + size :]]
    conn = decoder.Connection(mid_stream=given.choice % 5 == 0)
    events: list[Any] = []
    at = [0, 0]
    while at[0] < len(streams[0]) or at[1] < len(streams[1]):
        side = chance.random() < 0.4
        cut = at[side] + 1 + int(chance.random() ** 2 * 300)
        piece = streams[side][at[side] : cut]
        at[side] = cut
        events += conn.receive_from_broker(piece, 1) if side else conn.receive_from_client(piece, 1)
        if given.choice % 11 == 0 and chance.random() < 0.1:
            events += conn.lost(decoder.Direction(int(side)))
    events += conn.close(2)
    for event in events:
        if isinstance(event, decoder.ExchangeDone):
            exchange = event.exchange
            _ = exchange.error, exchange.undecoded, exchange.latency_ns
            if given.choice % 3 == 0:
                exchange.to_dict(bodies=True)


def token(given: Input) -> None:
    """A SASL token, and pushed metrics: bytes that no schema describes."""
    embedded.sasl_step(given.data)
    embedded.metrics(given.data, given.choice % 5)


def both(given: Input) -> None:
    """A body by the accelerator and by the reference: the same values or both refuse."""
    of = plan(given.kind, given.key, given.version)
    try:
        slow: Any = python_decoder(of)(given.data, 0)
    except FAULTS:
        slow = None
    try:
        message: Message | None = decoder.decode_body(given.kind, given.key, given.version, given.data)
    except decoder.TrailingBytes as fault:
        message = fault.message
    except decoder.DecodeError:
        message = None
    if (slow is None) != (message is None):
        raise Broken(f"only one of accelerator and reference reads it (the reference: {slow is not None})")
    if message is not None and not _same(message.values, slow[0]):
        raise Broken("accelerator and reference read other values")


WAYS = {
    "body": body,
    "request": frame,
    "response": frame,
    "records": record_area,
    "projection": projection,
    "connection": connection,
    "token": token,
    "both": both,
}
if native is None:
    del WAYS["both"]


# --- what can be done with a message ------------------------------------------------------------------------


def everything(message: Message, choice: int) -> None:
    """Byte map, views, and an edit of one field."""
    for path, start, end in message.map():
        if not 0 <= start <= end <= len(message.frame):
            raise Broken(f"{path} lies outside of the frame: {start} to {end}")
    message.to_json()
    present(message, values=True)
    list(message.errors())
    list(message.forbidden_nulls())
    list(embedded.of(message))
    chance = random.Random(choice)
    path, field = _some_field(chance, message)
    if path:
        edited = message.replace({path: _new_value(chance, field)})
        again = Message(message.plan, *_decoded(message, edited))
        if not _same(again.values, edited.values):
            raise Broken(f"after an edit of {path} the bytes decode to other values")


def _decoded(message: Message, edited: Message) -> tuple[tuple[Any, ...], bytes]:
    try:
        values = python_decoder(message.plan)(edited.frame, edited.body_start)[0]
    except FAULTS as fault:
        raise Broken(f"an edited message is not readable: {fault!r}") from None
    return values, edited.frame


def _some_field(chance: random.Random, message: Message) -> tuple[str, FieldPlan | None]:
    """A random way down the values: the path to a field or an array's item."""
    struct: StructPlan | None = message.plan.root
    values, path = message.values, ""
    field: FieldPlan | None = None
    while struct is not None and struct.fields:
        i = chance.randrange(len(struct.fields))
        field, value = struct.fields[i], values[i]
        path += ("." if path else "") + field.name
        if field.struct is None or value is None or chance.random() < 0.2:
            break
        if field.array:
            if not value:
                break
            item = chance.randrange(len(value))
            path, values = f"{path}[{item}]", value[item]
        else:
            values = value
        struct = field.struct
    return path, field


def _new_value(chance: random.Random, field: FieldPlan | None) -> Any:
    """Something for a field; whether it fits, `replace` decides."""
    assert field is not None
    if chance.random() < 0.1:
        return None
    plain: Any = {
        "string": "new" * chance.randrange(60),
        "bytes": b"\1" * chance.randrange(200),
        "records": b"\2" * 70,
        "uuid": bytes(range(16)),
        "bool": True,
        "float64": 1.5,
        "struct": {},
    }.get(field.type, chance.choice((0, 1, -1, 100, 1 << 40)))
    return [plain] * chance.randrange(3) if field.array and chance.random() < 0.9 else plain


def _paths(struct: StructPlan, prefix: str) -> list[str]:
    found = []
    for field in struct.fields:
        found.append(prefix + field.name)
        if field.struct:
            found += _paths(field.struct, f"{prefix}{field.name}.")
    return found


def _at(struct: StructPlan | None, tree: Any, steps: list[str]) -> Any:
    """What a projection promises for a path, out of `to_dict`: a list of all values where arrays are on the way."""
    through = False
    found = [tree]
    for i, step in enumerate(steps):
        assert struct is not None
        field = next(f for f in struct.fields if f.name == step)
        found = [node[step] for node in found if node is not None]
        if field.array and i < len(steps) - 1:
            through = True
            found = [item for items in found if items is not None for item in items]
        struct = field.struct
    return found if through else found[0] if found else None


def _same(a: Any, b: Any) -> bool:
    """Equal, where a float that is no number equals itself."""
    if a == b:
        return True
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    return isinstance(a, float) and isinstance(b, float) and a != a and b != b
