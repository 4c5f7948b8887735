"""Filters made by hypothesis from the catalogue, and exchanges of every API and version to try them on."""

from __future__ import annotations

import random
from typing import Any

from barnabas import decoder
from barnabas.decoder import Exchange, State, Topics
from barnabas.decoder.connection.api_versions import PeerInfo
from barnabas.decoder.filter import FIELDS, Field, ValueKind
from barnabas.decoder.filter.language.fields import NUMBERS
from barnabas.decoder.schema import facts
from harness.generator import Generator
from hypothesis import strategies as st

START_NS = 1_700_000_000_000_000_000


class Sample(list[Exchange]):
    """A list that a failing example can print."""

    def __repr__(self) -> str:
        return f"<{len(self)} exchanges>"


def exchanges(generator: Generator, seed: int = 5) -> Sample:
    """One exchange for each API and version, with generated bodies, in all states."""
    chosen = random.Random(seed)
    topics, about = Topics(), PeerInfo()
    about.software_name, about.software_version = "judge", "1.0"
    about.offered = dict.fromkeys(range(0, 90, 2), (0, 5))
    found = Sample()
    for key in facts.api_keys():
        for version in facts.api(key).versions.every():
            exchange = Exchange(
                connection=chosen.randrange(6),
                client=chosen.choice(("10.0.0.1:50001", "[::1]:50002", "web.example:50003", "")),
                broker=chosen.choice(("192.168.0.9:9092", "kafka-1:9093")),
                api_key=key,
                api_version=version,
                correlation_id=chosen.randrange(-5, 50),
                client_id=chosen.choice((None, "", "stock-1", "billing", "Straße", "x" * 1500)),
                topics=topics,
                about=chosen.choice((about, None)),
            )
            exchange.state = chosen.choice(list(State))
            if exchange.state is not State.ORPHAN:
                exchange.request = _frame(generator, "request", key, version, exchange)
                exchange.request_time_ns = START_NS + chosen.randrange(10**14)
            else:
                exchange.api_key = exchange.api_version = -1
            if exchange.state in (State.PAIRED, State.ORPHAN):
                exchange.response = _frame(generator, "response", key, version, exchange)
                exchange.response_time_ns = (exchange.request_time_ns or START_NS) + chosen.randrange(-5, 10**9)
            if chosen.random() < 0.1:
                if exchange.request:
                    exchange.request = exchange.request[:-1] if chosen.random() < 0.5 else exchange.request + b"more"
                exchange.marks.changed = True
            if chosen.random() < 0.1:
                exchange.marks.notes = ["a rule"]
            found.append(exchange)
    return found


def _frame(generator: Generator, kind: str, key: int, version: int, exchange: Exchange) -> bytes:
    _, body = generator.body(kind, key, version)
    fields = decoder.decode_body(kind, key, version, body).to_dict()
    if kind == "request":
        return decoder.encode_request(
            key, version, fields, correlation_id=exchange.correlation_id, client_id=exchange.client_id
        )
    return decoder.encode_response(key, version, fields, correlation_id=exchange.correlation_id)


_VALUES: dict[ValueKind, tuple[str, ...]] = {
    ValueKind.INTEGER: ("-1", "0", "1", "3", "5", "0x10", "2147483647", "1.5", "9092", "50001"),
    ValueKind.FLOAT: ("0.5", "-1e9", "0"),
    ValueKind.DURATION: ("0", "5ms", "0.1s", "300 ms", "1s", "1h", "20us", "7ns"),
    ValueKind.MILLISECONDS: ("0", "100", "5ms", "1s", "1 us"),
    ValueKind.SIZE: ("0", "40", "100B", "0.2kB", "1 KiB", "1MB"),
    ValueKind.TIME: ("12:01", "23:59:59.5", "2023-11-15", "2023-11-15T12:00:00Z", "2023-11-15T12:00:00+01:00"),
    ValueKind.TEXT: ("orders", "stock-1", '"Straße"', "''", "a", "abc", "judge", "billing"),
    ValueKind.BYTES: ("a", '"bc"'),
    ValueKind.API: ("Produce", "fetch", "18", "JoinGroup", "1234", "METADATA"),
    ValueKind.ERROR: ("NONE", "0", "not_leader_or_follower", "-1", "27", "999"),
    ValueKind.STATE: ("paired", "pending", "ORPHAN", "no_response"),
    ValueKind.CODEC: ("none", "gzip", "zstd", "2"),
    ValueKind.FLAG: ("true", "false"),
    ValueKind.ADDRESS: ("10.0.0.1", "10.0.0.0/8", "::1", "[::1]:50002", ":9092", "kafka-1", "web.example:50003"),
    ValueKind.UUID: ("AAAAAAAAAAAAAAAAAAAAAQ", "00000000-0000-0000-0000-000000000001"),
}
_PATTERNS = ("a", '"^s"', "o.*k", '"(?i)STOCK"', r'"\\d+$"', '"[xyz]"')
INDEX_FIELDS = tuple(field for field in FIELDS if field.needs == {"index"})
CONNECTION_FIELDS = tuple(field for field in FIELDS if field.needs == {"connection"})
_PATHS = (
    "resp.throttle_time_ms > 5ms", "resp.error_code != 0", "any(resp.topics[*].partitions[*].error_code != NONE)",
    "all(resp.topics.error_code == 0)", "any(req.topics.name ~ a)", "any(req.members.group_instance_id)",
    "any(resp.brokers)", 'any(req.topic_data.partition_data.records contains "a")', "any(resp.api_keys.api_key == Fetch)",
    "req.group_id startswith a", "any(req.topics[*].topic_id == AAAAAAAAAAAAAAAAAAAAAQ)", "all(resp.responses.topic != a)",
)  # fmt: skip


@st.composite
def field_tests(draw: Any, among: tuple[Field, ...]) -> str:
    """One test of a field, by any operator that it has."""
    field = draw(st.sampled_from(among))
    name = draw(st.sampled_from((field.name, *field.synonyms)))
    kind = field.kind
    value = st.sampled_from(_VALUES[kind])
    forms = ["alone", "equal", "set"]
    if kind in NUMBERS:
        forms += ["order", "range"]
    if kind in (ValueKind.TEXT, ValueKind.API, ValueKind.ERROR, ValueKind.STATE, ValueKind.CODEC):
        forms += ["match", "text"]
    form = draw(st.sampled_from(forms))
    if form == "alone":
        return str(name)
    if form == "equal":
        test = f"{name} {draw(st.sampled_from(('==', '!=', 'eq', 'ne')))} {draw(value)}"
    elif form == "set":
        test = f"{name} {draw(st.sampled_from(('in', 'not in')))} {{{', '.join(draw(st.lists(value, min_size=1, max_size=4)))}}}"
    elif form == "order":
        test = f"{name} {draw(st.sampled_from(('<', '<=', '>', '>=', 'lt', 'ge')))} {draw(value)}"
    elif form == "range":
        low, high = draw(st.sampled_from(_RANGES[kind]))
        test = f"{name} in {low}..{high}"
    elif form == "match":
        test = f"{name} {draw(st.sampled_from(('~', '!~', 'matches')))} {draw(st.sampled_from(_PATTERNS))}"
    else:
        test = f"{name} {draw(st.sampled_from(('contains', 'startswith', 'endswith')))} {draw(st.sampled_from(_VALUES[ValueKind.TEXT]))}"
    return f"{draw(st.sampled_from(('any', 'all')))}({test})" if field.many and draw(st.booleans()) else test


_RANGES: dict[ValueKind, tuple[tuple[str, str], ...]] = {
    ValueKind.INTEGER: (("0", "3"), ("-5", "10"), ("9092", "9093")),
    ValueKind.DURATION: (("0", "1ms"), ("1ms", "0.5s")),
    ValueKind.MILLISECONDS: (("0", "100"), ("1ms", "1s")),
    ValueKind.SIZE: (("0", "100"), ("50B", "1kB")),
    ValueKind.TIME: (("11:00", "13:00:00"), ("22:00", "02:00"), ("2023-11-15", "2023-11-16T12:00:00Z")),
    ValueKind.FLOAT: (("0", "1"),),
}


def filters(leaves: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Filters of such tests, put together in all ways."""
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from((" and ", " && ", " or ", " || ")), inner).map("".join),
            inner.map(lambda text: f"({text})"),
            inner.map(lambda text: f"not ({text})"),
            inner.map(lambda text: f"!({text})"),
        ),
        max_leaves=6,
    )


INDEX_TESTS = field_tests(INDEX_FIELDS) | st.sampled_from(("ver > corr", "size.req < size.resp", "latency >= pending"))
ALL_TESTS = (
    field_tests(FIELDS)
    | st.sampled_from(_PATHS)
    | st.sampled_from(("ver > broker.max", "throttle > latency", '"orders"'))
)
NAME_TESTS = field_tests(tuple(field for field in FIELDS if field.name in ("topic", "topic.id", "partition", "group", "txn"))) | st.sampled_from(
    ("api == Produce", "err", "latency > 3ms", "acks == 1")
)
CONNECTION_TESTS = field_tests(CONNECTION_FIELDS) | st.sampled_from(
    ("ver > broker.max", "ver < broker.min", "broker.max >= broker.min", "corr == broker.max", "api == Fetch", "err")
)
