"""Seeds for the fuzz driver: bodies of every (api, version, direction), and record areas of every magic and codec."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from barnabas.decoder import records
from barnabas.decoder.codec.encode import encode_field, encode_struct
from barnabas.decoder.codec.message import Message
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.plan import FieldPlan, Plan, StructPlan, plan

RECORDS = "records"
"""The kind of seeds that are record areas and no messages."""


class Seed(NamedTuple):
    """Well-formed bytes: a body of `kind`, or a record area. `starts`: where fields begin (their lengths, mostly)."""

    kind: str
    key: int
    version: int
    data: bytes
    starts: tuple[int, ...]


def triples() -> list[tuple[str, int, int]]:
    """Every (direction, api key, version)."""
    return [
        (kind, key, version)
        for key in facts.api_keys()
        for version in facts.api(key).versions.every()
        for kind in ("request", "response")
    ]


def message_seeds(seed: int, rounds: int) -> list[Seed]:
    """`rounds` generated bodies for every triple."""
    chance = random.Random(seed)
    areas = record_areas()
    return [_message_seed(chance, triple, areas) for _ in range(rounds) for triple in triples()]


def _message_seed(chance: random.Random, triple: tuple[str, int, int], areas: list[bytes]) -> Seed:
    of = plan(*triple)
    body = bytearray()
    values = struct_values(chance, of.root, areas)
    encode_struct(of.root, values, body)
    return Seed(*triple, bytes(body), starts_of(of, values, bytes(body)))


def starts_of(of: Plan, values: tuple[Any, ...], body: bytes) -> tuple[int, ...]:
    """Where the fields of a body begin."""
    return tuple(sorted({span.start for span in Message(of, values, body).map()}))


def struct_values(chance: random.Random, of: StructPlan, areas: list[bytes], depth: int = 0) -> tuple[Any, ...]:
    """Values for a struct, small: what matters to a fuzzer is the shape."""
    values = tuple(
        f.default if f.tag is not None and chance.random() < 0.3 else _value(chance, f, areas, depth) for f in of.fields
    )
    if not of.flexible:
        return values
    others = []
    if chance.random() < 0.2:
        others.append((chance.randrange(50, 400), chance.randbytes(chance.randrange(20))))
    for f in of.fields[of.untagged :]:
        if f.tag is not None and chance.random() < 0.15:  # a known tag once more: the last one counts
            again = bytearray()
            encode_field(f, _value(chance, f, areas, depth + 1), again)
            others.append((f.tag, bytes(again)))
    return (*values, tuple(others))


def _value(chance: random.Random, field: FieldPlan, areas: list[bytes], depth: int, item: bool = False) -> Any:
    if field.nullable and not item and chance.random() < 0.15:
        return None
    if field.array and not item:
        count = chance.choice((0, 1, 2) if depth < 2 else (0, 1, 1))
        return tuple(_value(chance, field, areas, depth + 1, True) for _ in range(count))
    if field.struct:
        return struct_values(chance, field.struct, areas, depth + 1)
    if field.type == "bool":
        return chance.random() < 0.5
    if field.type == "float64":
        return chance.random()
    if field.type == "uuid":
        return chance.randbytes(16)
    if field.type == "string":
        return "".join(chance.choices("abcÄ€𝄞", k=chance.choice((0, 1, 5, 20, 130))))
    if field.type == "records":
        return chance.choice(areas)
    if field.type == "bytes":
        return chance.randbytes(chance.choice((0, 1, 17, 130)))
    bits = int(field.type.lstrip("uint"))
    low, high = (0, 1 << bits) if field.type.startswith("u") else (-(1 << bits - 1), 1 << bits - 1)
    return chance.choice((low, high - 1, chance.randrange(low, high), 0, 1))


def large_seeds(seed: int, count: int, size: int = 64 << 10) -> list[Seed]:
    """Bodies of about `size` bytes: the items of the first array of a message many times over."""
    chance = random.Random(seed)
    areas = record_areas()
    found = []
    candidates = [t for t in triples() if any(f.array for f in plan(*t).root.fields)]
    for triple in chance.sample(candidates, count):
        of = plan(*triple)
        values = list(struct_values(chance, of.root, areas))
        place = next(i for i, f in enumerate(of.root.fields) if f.array)
        one = StructPlan("items", False, (of.root.fields[place],), 1)
        items: list[Any] = []
        filled = 0
        while filled < size:
            (more,) = struct_values(chance, one, areas)
            out = bytearray()
            encode_struct(one, (more,), out)
            items.extend(more or ())
            filled += len(out)
        values[place] = tuple(items)
        body = bytearray()
        encode_struct(of.root, tuple(values), body)
        found.append(Seed(*triple, bytes(body), starts_of(of, tuple(values), bytes(body))[:200]))
    return found


# --- record areas -------------------------------------------------------------------------------------------


def old_message(magic: int, offset: int, value: bytes | None, codec: int = 0, key: bytes | None = None) -> bytes:
    """One message of magic 0 or 1, CRC right; with a codec, `value` is the compressed set (a wrapper)."""
    body = struct.pack(">bb", magic, codec) + (struct.pack(">q", 1_600_000_000_000) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def record_areas() -> list[bytes]:
    """Small record areas of every magic and codec, plain and nested, and one that is cut."""
    made = []
    for i in range(6):
        key, headers = b"k%d" % i if i % 3 else None, ((b"h", b"x"), (b"n", None))[: i % 3]
        made.append(records.Record(40 + i, 1_600_000_000_000 + i, key, b"v" * i * 9, headers))
    areas = [records.encode_batch(made, codec=codec) for codec in range(5)]
    transaction = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 2**31 - 3, "transactional": True}
    areas.append(records.encode_batch(made, **transaction))
    marker = records.Record(9, 5, b"\0\0\0\1", b"\0\0\0\0\0\7")
    areas.append(records.encode_batch([marker], control=True, log_append=True))
    areas.append(records.encode_batch([], base_offset=3, last_offset_delta=4))
    for magic in (0, 1):
        plain = b"".join(old_message(magic, i, b"value" * i, key=b"k" if i else None) for i in range(4))
        areas.append(plain)
        wrapped = [old_message(magic, 3, records.compress(codec, plain), codec) for codec in (1, 2, 3)]
        areas += [*wrapped, old_message(magic, 3, records.compress(1, wrapped[0]), 1)]
    areas.append(areas[0] + areas[1] + areas[-2][:40])
    return areas


def record_seeds() -> list[Seed]:
    """Every area as a seed; the starts are the fields of the headers."""
    heads = {0: (0, 8, 12, 16, 17, 18, 22), 1: (0, 8, 12, 16, 17, 18, 26, 30), 2: (0, 8, 16, 17, 21, 23, 27, 57, 61)}
    return [Seed(RECORDS, -1, area[16], area, heads[area[16]]) for area in record_areas()]


TOKEN = "token"
"""The kind of seeds that are SASL tokens or pushed metrics."""

_TOKENS = (
    b"\0alice\0secret",
    b"n,,n=alice,r=fyko+d2lbbFgONRv9qkxdawL",
    b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
    b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
    b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    b"n,a=bob,\1auth=Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJib2IifQ.\1\1",
    b'{"status":"invalid_token"}',
    b"\x60\x23\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01\x00" + b"x" * 22,
    bytes.fromhex("0a1b120a0a060a016e1a01312200120d0a0b0a016d2a060a04110000f03f"),
)


def token_seeds() -> list[Seed]:
    """One token of each kind, and metrics."""
    return [Seed(TOKEN, -1, 0, data, ()) for data in _TOKENS]


def every_seed(seed: int, rounds: int) -> Iterator[Seed]:
    """All of them; each round holds every triple and token once, and every record area four times."""
    for i in range(rounds):
        yield from message_seeds(seed + i, 1)
        yield from record_seeds() * 4
        yield from token_seeds()
