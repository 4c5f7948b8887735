"""Conversations of real frames: every API and version from the schema, and the addresses of brokers that a client may get."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from barnabas import decoder
from barnabas.decoder.codec.codec import header_version
from barnabas.decoder.codec.encode import encode_struct
from barnabas.decoder.codec.message import Message
from barnabas.decoder.records import Record, encode_batch
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.plan import plan
from barnabas.proxy.relay.interception.frame_editor import ADDRESS_REQUESTS
from harness.wire import with_size
from torture.decoder.corpus import record_areas, struct_values
from torture.proxy.peers.stepped_relay import BROKER, OWN_HOST, OWN_PORT

PRODUCE, FETCH, METADATA = (facts.api_key(name) for name in ("Produce", "Fetch", "Metadata"))
PRODUCE_VERSIONS = tuple(facts.api(PRODUCE).versions.every())
ADDRESSED = tuple(
    (key, version)
    for key in (facts.api_key(name) for name in ("Metadata", "FindCoordinator", "DescribeCluster"))
    for version in facts.api(key).versions.every()
) + tuple(
    (key, version)
    for key in (facts.api_key(name) for name in ("Produce", "Fetch", "ShareFetch", "ShareAcknowledge"))
    for version in facts.api(key).versions.every()
    if any(field.name == "node_endpoints" for field in plan("response", key, version).root.fields)
)
"""(api key, version) of every response that can name brokers."""
Fields = dict[str, Any]
Endpoints = Sequence[tuple[int, str, int]]
"""(node id, host, port) of the brokers that a response names."""


@dataclass(frozen=True)
class Exchange:
    """A request and its response (None: it gets none), whole frames with their sizes. `rewritten`: what the client gets
    instead, None where it gets the response as it is."""

    api_key: int
    api_version: int
    request: bytes
    response: bytes | None
    rewritten: bytes | None = None

    @property
    def correlation(self) -> int:
        """The correlation id."""
        return int.from_bytes(self.request[8:12], "big")

    @property
    def expected(self) -> bytes:
        return self.rewritten if self.rewritten is not None else self.response or b""


def head(key: int, version: int, correlation: int, client_id: str | None, tags: bytes = b"\0") -> bytes:
    """A request header; `tags` where the version is flexible."""
    header = header_version("request", key, version)
    out = struct.pack(">hhI", key, version, correlation & 0xFFFFFFFF)
    if not header:
        return out
    text = None if client_id is None else client_id.encode()
    out += struct.pack(">h", -1 if text is None else len(text)) + (text or b"")
    return out + (tags if header == 2 else b"")


def request(
    key: int, version: int, correlation: int, body: bytes | Fields, client_id: str | None = "t", tags: bytes = b"\0"
) -> bytes:
    """`body`: its bytes, or the fields that it is encoded from."""
    body = body if isinstance(body, bytes) else decoder.encode_body("request", key, version, body)
    return with_size(head(key, version, correlation, client_id, tags) + body)


def response(key: int, version: int, correlation: int, body: bytes | Fields) -> bytes:
    """As `request`."""
    body = body if isinstance(body, bytes) else decoder.encode_body("response", key, version, body)
    tags = bytes(header_version("response", key, version))
    return with_size(struct.pack(">I", correlation & 0xFFFFFFFF) + tags + body)


def _topic(key: int, version: int, **fields: Any) -> Fields:
    """One topic of a Produce or Fetch message, by its name or its id."""
    if version >= 13:
        return fields | {"topic_id": "00000000-0000-4000-8000-000000000001"}
    return fields | {"topic" if key == FETCH else "name": "orders"}


def produce(
    version: int,
    correlation: int,
    acks: int,
    client_id: str | None = "t",
    transactional_id: str | None = None,
    tags: bytes = b"\0",
    value: bytes = b"v",
) -> bytes:
    """A Produce request with one record."""
    partition = {"index": 0, "records": bytes(encode_batch([Record(0, 1, None, value)]))}
    fields: Fields = {"acks": acks, "timeout_ms": 1000, "topic_data": [_topic(PRODUCE, version, partition_data=[partition])]}
    if version >= 3:
        fields["transactional_id"] = transactional_id
    return request(PRODUCE, version, correlation, fields, client_id, tags)


def produced(version: int, correlation: int, endpoints: Endpoints = (), rack: str | None = None) -> bytes:
    """Its response."""
    partition = {"index": 0, "base_offset": 1, "error_code": 6 if endpoints else 0}
    return _answer(PRODUCE, version, correlation, endpoints, rack, partition_responses=[partition])


def fetched(
    version: int, correlation: int, size: int, endpoints: Endpoints = (), rack: str | None = None
) -> bytes:
    """A Fetch response with `size` bytes of a record."""
    records = bytes(encode_batch([Record(0, 1, None, random.Random(size).randbytes(size))])) if size else None
    partition = {"partition_index": 0, "high_watermark": 5, "error_code": 6 if endpoints else 0, "records": records}
    return _answer(FETCH, version, correlation, endpoints, rack, partitions=[partition])


def _answer(
    key: int, version: int, correlation: int, endpoints: Endpoints, rack: str | None, **topic: Any
) -> bytes:
    fields: Fields = {"responses": [_topic(key, version, **topic)]}
    if endpoints:
        fields["node_endpoints"] = [{"node_id": n, "host": h, "port": p, "rack": rack} for n, h, p in endpoints]
    return response(key, version, correlation, fields)


class TrafficGenerator:
    """Writes conversations; the same seed, the same bytes."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._areas = record_areas()

    def body(self, kind: str, key: int, version: int) -> bytes:
        out = bytearray()
        of = plan(kind, key, version)
        values = struct_values(self.chance, of.root, self._areas)
        encode_struct(of.root, values, out)
        return bytes(out)

    def exchange(self, key: int, version: int, correlation: int) -> Exchange:
        """Any bodies that the schema allows, but no broker's address."""
        chance = self.chance
        client_id = chance.choice((None, "", "t", "client-1", "c" * 300))
        if key == PRODUCE:
            # generated acks would mostly be neither -1, 0 nor 1
            acks = chance.choice((-1, 0, 1))
            made = produce(version, correlation, acks, client_id, chance.choice((None, "tx", "t" * 200)))
            return Exchange(key, version, made, produced(version, correlation) if acks else None)
        asked = request(key, version, correlation, self.body("request", key, version), client_id)
        plain = (key, version) in ADDRESSED or key == facts.api_key("ApiVersions")
        body = {} if plain else self.body("response", key, version)
        return Exchange(key, version, asked, response(key, version, correlation, body))

    def large(self, correlation: int, size: int) -> Exchange:
        """A Produce or a Fetch with so many bytes of records."""
        chance = self.chance
        if chance.random() < 0.5:
            version = chance.choice(PRODUCE_VERSIONS)
            asked = produce(version, correlation, -1, value=chance.randbytes(size))
            return Exchange(PRODUCE, version, asked, produced(version, correlation))
        version = chance.choice(tuple(facts.api(FETCH).versions.every()))
        asked = request(FETCH, version, correlation, {})
        return Exchange(FETCH, version, asked, fetched(version, correlation, size))

    def conversation(self, count: int, first: int = 0, most: int = 0) -> list[Exchange]:
        """`count` exchanges of any API; one of thirty has up to `most` bytes of records."""
        chance = self.chance
        found = []
        for number in range(count):
            correlation = (first + number) & 0xFFFFFFFF
            if most and chance.random() < 1 / 30:
                found.append(self.large(correlation, chance.randrange(most)))
                continue
            key = chance.choice(_FREE)
            found.append(self.exchange(key, chance.choice(tuple(facts.api(key).versions.every())), correlation))
        return found

    def sizes(self, kind: str) -> Iterator[int]:
        """Sizes of segments, without end."""
        while True:
            if kind == "bytes":
                yield 1
            elif kind == "small":
                yield self.chance.randrange(1, 40)
            elif kind == "mixed":
                yield self.chance.choice((1, 2, 3, 7, 50, 1000, 1460, 4096, 65536, 200_000))
            else:
                yield 1 << 30


# SaslHandshake v0 would make the next bytes a token without header; requests with the addresses of other brokers are rewritten.
_FREE = tuple(key for key in facts.api_keys() if key not in {facts.api_key("SaslHandshake"), *ADDRESS_REQUESTS})


def rewritten(answer: bytes, key: int, version: int) -> bytes:
    """A response as a client behind the proxy has to get it: written anew from its fields, not by the proxy."""
    message = decoder.decode_response(answer[4:], api_key=key, api_version=version)
    edits: dict[str, Any] = {}

    def look(value: Any, path: str) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("host"), str) and isinstance(value.get("port"), int):
                edits[path + "host"] = OWN_HOST
                edits[path + "port"] = OWN_PORT + value["port"] % 30000
            for name, inner in value.items():
                look(inner, f"{path}{name}.")
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                look(inner, f"{path.removesuffix('.')}[{index}].")

    look(message.to_dict(), "")
    changed: Message = message.replace(edits) if edits else message
    return with_size(changed.encode())


def naming(key: int, version: int, correlation: int) -> Exchange:
    """An exchange whose response names brokers."""
    at = {"node_id": 1, "host": BROKER[0], "port": BROKER[1]}
    asked = produce(version, correlation, -1) if key == PRODUCE else request(key, version, correlation, {})
    if key == PRODUCE:
        answer = produced(version, correlation, [(1, *BROKER)])
    elif key == FETCH:
        answer = fetched(version, correlation, 500, [(1, *BROKER)])
    else:
        name = facts.api_name(key)
        fields: Fields = {"node_endpoints": [at]}
        if name == "Metadata":
            fields = {"brokers": [at]}
        elif name == "DescribeCluster":
            fields = {"brokers": [{"broker_id": 1, "host": at["host"], "port": at["port"]}]}
        elif name == "FindCoordinator":
            fields = at if version < 4 else {"coordinators": [at | {"key": "group"}]}
        answer = response(key, version, correlation, fields)
    return Exchange(key, version, asked, answer, rewritten(answer, key, version))


def renumbered(exchanges: Iterable[Exchange], ids: Iterable[int]) -> list[Exchange]:
    """The same with other correlation ids."""
    found = []
    for exchange, number in zip(exchanges, ids, strict=False):
        word = struct.pack(">I", number & 0xFFFFFFFF)
        asked = exchange.request[:8] + word + exchange.request[12:]
        answers = [a if a is None else a[:4] + word + a[8:] for a in (exchange.response, exchange.rewritten)]
        found.append(replace(exchange, request=asked, response=answers[0], rewritten=answers[1]))
    return found
