"""Messages that are legal but rare, or that decoders read although the definition forbids them: unknown tagged fields,
nulls where none may be, empty and extreme values. For everything that reads decoded messages.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from barnabas import decoder
from barnabas.decoder import Exchange, State
from barnabas.decoder.codec.codec import UNSUPPORTED_VERSION, encode_version_refusal
from barnabas.decoder.codec.encode import encode_struct
from barnabas.decoder.codec.message import is_error_code
from barnabas.decoder.records import Record, encode_batch
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.plan import API_VERSIONS, FieldPlan, Plan, StructPlan, plan
from harness.wire import with_size

SECOND = 1_000_000_000
START_NS = 1_700_000_000 * SECOND
NULLABLE_BYTES = frozenset({"string", "bytes", "records"})
"""Types whose length may be null on the wire, whatever the definition allows; so may that of arrays."""
BATCH = encode_batch([Record(7, 1_700_000_000_000, b"key", b"value")])
SUBSCRIPTION = struct.pack(">hi", 1, 1) + b"\x00\x06orders" + struct.pack(">ii", -1, 0)
SUBSCRIPTION_OF_NULLS = struct.pack(">hiii", 1, -1, -1, -1)
ASSIGNMENT_OF_NULLS = struct.pack(">hii", 0, -1, -1)
NAMES = ("orders", "payments", "", "client-1", "range", "consumer", "PLAIN", "SCRAM-SHA-256", "x" * 300)
PAYLOADS = (b"", SUBSCRIPTION, SUBSCRIPTION_OF_NULLS, ASSIGNMENT_OF_NULLS, b"\x00user\x00secret", b"\xff" * 40)
ERRORS = tuple(facts.errors())

Value = Callable[[FieldPlan], Any]


@dataclass(frozen=True)
class Message:
    """The values of one body and what is unusual about them."""

    of: Plan
    values: tuple[Any, ...]
    what: str

    def frame(self, correlation_id: int) -> bytes:
        """The whole frame, without its size."""
        version = self.of.header_version
        if self.of.kind == "request":
            header = struct.pack(">hhi", self.of.api_key, self.of.version, correlation_id)
            header += b"" if version == 0 else b"\x00\x05usual"
            header += b"\x00" if version == 2 else b""
        else:
            header = struct.pack(">i", correlation_id) + (b"\x00" if version == 1 else b"")
        return header + self.body()

    def body(self) -> bytes:
        """What follows the header."""
        out = bytearray()
        encode_struct(self.of.root, self.values, out)
        return bytes(out)


def every_version(keys: Iterable[int] | None = None) -> Iterator[tuple[int, int]]:
    """(api key, version) of everything that the schema has."""
    for key in facts.api_keys() if keys is None else keys:
        for version in facts.api(key).versions.every():
            yield key, version


def body(of: Plan, value: Value, items: int, tags: tuple[tuple[int, bytes], ...] = ()) -> tuple[Any, ...]:
    """Values for a plan: `value` gives the content of a field (not asked for structs), every array has `items` of them."""

    def one(field: FieldPlan) -> Any:
        return inside(field.struct) if field.struct is not None else value(field)

    def inside(of: StructPlan) -> tuple[Any, ...]:
        found = tuple(tuple(one(f) for _ in range(items)) if f.array else one(f) for f in of.fields)
        return (*found, tags) if of.flexible else found

    return inside(of.root)


def plausible(random_: random.Random) -> Value:
    """Values as traffic has them, with error codes that exist, so that detectors look on."""

    def value(field: FieldPlan) -> Any:
        if is_error_code(field):
            return random_.choice(ERRORS) if random_.random() < 0.7 else 0
        if field.nullable and random_.random() < 0.15 and field.type in NULLABLE_BYTES:
            return None
        if field.type == "bool":
            return random_.random() < 0.5
        if field.type == "float64":
            return random_.random()
        if field.type == "uuid":
            return random_.choice((bytes(16), bytes(15) + b"\x07", random_.randbytes(16)))
        if field.type == "string":
            return random_.choice(NAMES)
        if field.type == "records":
            return random_.choice((BATCH, BATCH + BATCH, BATCH[:40], b""))
        if field.type == "bytes":
            return random_.choice(PAYLOADS)
        return random_.choice((0, 1, 2, 5) if field.type.startswith("u") else (-1, 0, 0, 1, 1, 2, 5))

    return value


def limit(field: FieldPlan, high: bool) -> Any:
    """The largest, or the least, that a field holds."""
    if field.type == "bool":
        return high
    if field.type == "float64":
        return 1.7e308 if high else -1.7e308
    if field.type == "uuid":
        return (b"\xff" if high else b"\x00") * 16
    if field.type == "string":
        return "ö" * 16_000 if high else ""
    if field.type in ("bytes", "records"):
        return b"\xff" * 16_000 if high else b""
    bits = int(field.type.lstrip("uint"))
    if field.type.startswith("u"):
        return (1 << bits) - 1 if high else 0
    return (1 << bits - 1) - 1 if high else -(1 << bits - 1)


def with_nulls(of: Plan, values: tuple[Any, ...]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The values with one field at a time null, of every item; null on the wire, allowed or not."""

    def inside(of: StructPlan, values: tuple[Any, ...], prefix: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
        for at, field in enumerate(of.fields):
            path = prefix + field.name
            if field.array or field.type in NULLABLE_BYTES or (field.struct is not None and field.nullable):
                yield path, (*values[:at], None, *values[at + 1 :])
            if field.struct is None or not values[at]:
                continue
            if not field.array:
                for name, new in inside(field.struct, values[at], path + "."):
                    yield name, (*values[:at], new, *values[at + 1 :])
                continue
            for several in zip(*(inside(field.struct, item, path + "[].") for item in values[at]), strict=True):
                yield several[0][0], (*values[:at], tuple(new for _, new in several), *values[at + 1 :])

    return inside(of.root, values, "")


def unusual(kind: str, key: int, version: int, seed: int = 0) -> Iterator[Message]:
    """Bodies of one message without nulls that are forbidden: unknown tags, empty, extreme, and anything."""
    of = plan(kind, key, version)
    random_ = random.Random(f"{kind} {key} {version} {seed}")
    yield Message(of, body(of, plausible(random_), 2, ((77, b"new"), (4000, b""))), "unknown tagged fields")
    yield Message(of, body(of, plausible(random_), 0), "empty arrays")
    yield Message(of, body(of, lambda field: limit(field, True), 2), "largest values")
    yield Message(of, body(of, lambda field: limit(field, False), 1), "least values")
    yield Message(of, body(of, plausible(random_), 1), "anything")


def nulls(kind: str, key: int, version: int, seed: int = 0) -> Iterator[Message]:
    """Bodies of one message, each with one field null."""
    of = plan(kind, key, version)
    random_ = random.Random(f"{kind} {key} {version} {seed} null")
    for path, values in with_nulls(of, body(of, plausible(random_), 2)):
        yield Message(of, values, f"{path} is null")


def usual(kind: str, key: int, version: int) -> Message:
    """A body as traffic has it."""
    of = plan(kind, key, version)
    return Message(of, body(of, plausible(random.Random(f"{kind} {key} {version}")), 1), "usual")


class Conversation:
    """Exchanges of one client with one broker, one every 100 ms, and earlier ones are remembered."""

    def __init__(self) -> None:
        self.number = 0
        self.topics = decoder.Topics()

    def exchange(self, request: Message, response: Message | None) -> Exchange:
        """The next exchange; without a response it stays unanswered."""
        self.number += 1
        sent_ns = START_NS + self.number * SECOND // 10
        found = Exchange(
            connection=1,
            client="10.0.0.5:50000",
            broker="10.0.0.1:9092",
            api_key=request.of.api_key,
            api_version=request.of.version,
            correlation_id=self.number,
            client_id="usual",
            request=request.frame(self.number),
            request_time_ns=sent_ns,
            response=None if response is None else response.frame(self.number),
            response_time_ns=None if response is None else sent_ns + 2_000_000,
            state=State.NO_RESPONSE if response is None else State.PAIRED,
            topics=self.topics,
        )
        self.topics.learn(found)
        return found


def _versions_answers(version: int, number: int) -> list[bytes]:
    ranges = {"api_keys": [{"api_key": key, "min_version": 0, "max_version": 9} for key in range(60)]}
    whole = decoder.encode_response(API_VERSIONS, version, ranges, correlation_id=number)
    refused = decoder.encode_response(API_VERSIONS, version, {"error_code": UNSUPPORTED_VERSION}, correlation_id=number)
    return [
        whole,
        encode_version_refusal(number, (0, 2)),
        encode_version_refusal(number, None),
        refused,
        refused + b"\0\0",
        # a body of no version, as librdkafka's mock brokers refuse
        number.to_bytes(4, "big") + UNSUPPORTED_VERSION.to_bytes(2, "big") + b"\0\0\0\0\0\0\0\0",
        whole + b"\0",
        whole[:-1],
        decoder.encode_response(API_VERSIONS, version, ranges | {"error_code": 58}, correlation_id=number),
    ]


def versions_asked() -> list[tuple[bytes, bytes]]:
    """ApiVersions in every version and one that nobody knows, answered in every way that brokers have: requests and
    responses with their sizes. The correlation ids are 0, 1, 2 ..."""
    found: list[tuple[bytes, bytes]] = []
    for version in range(5):
        for way in range(len(_versions_answers(version, 0))):
            fields = {"client_software_name": "t", "client_software_version": "1"} if version >= 3 else {}
            asked = decoder.encode_request(API_VERSIONS, version, fields, correlation_id=len(found), client_id="t")
            found.append((with_size(asked), with_size(_versions_answers(version, len(found))[way])))
    number = len(found)
    unknown = decoder.encode_request(API_VERSIONS, 0, {}, correlation_id=number, client_id="t")
    found.append((with_size(unknown[:2] + b"\0\x63" + unknown[4:]), with_size(encode_version_refusal(number, (0, 4)))))
    return found
