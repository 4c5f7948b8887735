"""Every field against a walk over `Exchange.to_dict()` that follows the text of Kafka's definitions (`notation`), not plans."""

from __future__ import annotations

import ipaddress
import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder import Exchange, State
from barnabas.decoder.filter import compile
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.notation import FieldLine, snake_case
from harness.generator import Generator
from traffic.generated_filters import Sample, exchanges

Row = dict[str, Any]


@pytest.fixture(scope="module", params=[(11,), pytest.param((11, 12), marks=pytest.mark.slow)], ids=str)
def sample(request: pytest.FixtureRequest) -> Sample:
    found = Sample(e for seed in request.param for e in exchanges(Generator(seed), seed))
    failed = decoder.encode_response(12, 4, {"error_code": 15})
    return Sample(
        [*found, Exchange(api_key=12, api_version=4, response=failed, response_time_ns=5, state=State.PAIRED)]
    )


def fields_of(definition: Any, field: FieldLine) -> tuple[FieldLine, ...]:
    if field.fields:
        return field.fields
    return next((inner for name, inner in definition.structs if name == field.type), ())


def walk(definition: Any, fields: tuple[FieldLine, ...], values: Any, path: str = "") -> Iterator[tuple[str, FieldLine, Any]]:
    """Every plain value of a body: (path without indexes, the definition's field, the value)."""
    for field in fields:
        name = snake_case(field.name)
        if not isinstance(values, dict) or name not in values or values[name] is None:
            continue
        value, inner = values[name], fields_of(definition, field)
        for item in value if field.array else [value]:
            if inner:
                yield from walk(definition, inner, item, f"{path}{name}.")
            else:
                yield f"{path}{name}", field, item


def leaves(exchange: Exchange, side: str) -> Iterator[tuple[str, FieldLine, Any]]:
    message = exchange.request_message if side == "request" else exchange.response_message
    if message is not None:
        api = facts.api(message.api_key)
        definition = api.request if side == "request" else api.response
        yield from walk(definition, definition.fields, message.to_dict())


def both(exchange: Exchange) -> Iterator[tuple[str, FieldLine, Any]]:
    yield from leaves(exchange, "request")
    yield from leaves(exchange, "response")


def coordinator_keys(exchange: Exchange, kind: int) -> Iterator[str]:
    body = exchange.request_message.to_dict() if exchange.request_message else {}
    if exchange.api == "FindCoordinator" and body and body.get("key_type", 0) == kind:
        yield from [body["key"]] if "key" in body else body["coordinator_keys"]
        answered = exchange.response_message.to_dict() if exchange.response_message else {}
        yield from (each["key"] for each in answered.get("coordinators", ()))


def entity(name: str, kind: str, *names: str) -> Callable[[Exchange], list[Any]]:
    def found(exchange: Exchange) -> list[Any]:
        return [v for path, f, v in both(exchange) if f.entity == kind or path.rpartition(".")[2] in names]

    return found


def of_error(field: FieldLine) -> bool:
    return field.type == "int16" and not field.array and snake_case(field.name).endswith("error_code")


HELD: dict[str, Callable[[Exchange], list[Any]]] = {
    "topic": entity("topic", "topicName"),
    "group": lambda e: [*entity("group", "groupId", "group_id")(e), *coordinator_keys(e, 0)],
    "txn": lambda e: [*entity("txn", "transactionalId", "transactional_id")(e), *coordinator_keys(e, 1)],
    "member": lambda e: [v for p, f, v in both(e) if p.endswith("member_id") or (p == "leader" and f.type == "string")],
    "instance": entity("instance", "-", "group_instance_id", "instance_id"),
    "errors": lambda e: [v for _, f, v in leaves(e, "response") if of_error(f)],
    "producer.id": lambda e: [v for v in entity("p", "producerId", "producer_id")(e) if v != -1],
    "topic.id": lambda e: [v.bytes for p, f, v in both(e) if p.rpartition(".")[2] == "topic_id" and f.type == "uuid" and v.int],
    "acks": lambda e: [v for p, _, v in leaves(e, "request") if p == "acks"],
    "throttle": lambda e: [v for p, _, v in leaves(e, "response") if p == "throttle_time_ms"],
}  # fmt: skip


def selected(text: str, exchanges: list[Exchange]) -> list[bool]:
    """Whether a filter matches each."""
    return list(map(compile(text), exchanges))


@pytest.mark.parametrize("name", HELD)
def test_fields_of_bodies(sample: Sample, name: str) -> None:
    held = [HELD[name](exchange) for exchange in sample]
    seen = sorted({v for values in held for v in values}, key=str)
    assert len(seen) > 5 or name == "acks"
    assert sum(map(compile(f"{name} == {shown(seen[0])}"), sample)) > 0
    for value in [*seen[:: max(1, len(seen) // 7)], seen[-1]]:
        text = shown(value)
        expected = [value in values for values in held]
        assert selected(f"{name} == {text}", sample) == expected, text
        assert selected(f"{name} != {text}", sample) == [not each for each in expected] or (
            name == "errors" and value == 0
        )
        assert selected(f"{name} in {{{text}}}", sample) == expected
    zero = [any(v == 0 for v in values) if name == "errors" else False for values in held]
    alone = [any(v or not isinstance(v, str) for v in values) for values in held]
    if name == "errors":
        alone = [any(values) for values in held]
        assert selected("errors != 0", sample) == alone
        assert selected("any(errors == 0)", sample) == zero
    assert selected(name, sample) == alone
    if isinstance(seen[0], str):
        expected = [any("a" in v for v in values) for values in held]
        assert selected(f"{name} contains a", sample) == expected
        assert selected(f"{name} ~ a", sample) == expected
        assert selected(f"all({name} contains a)", sample) == [
            bool(values) and all("a" in v for v in values) for values in held
        ]
    elif isinstance(seen[0], int):
        middle = seen[len(seen) // 2]
        assert (
            selected(f"{name} > {middle}", sample) == [any(v > middle for v in each) for each in held]
            if (name != "errors")
            else True
        )


def shown(value: Any) -> str:
    if isinstance(value, bytes):
        return str(uuid.UUID(bytes=value))
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' if isinstance(value, str) else str(value)


def rows(exchange: Exchange) -> Iterator[Row]:
    """Topic-partitions, found another way: a dict with a topic, and the partitions below it."""
    for side in ("request", "response"):
        message = exchange.request_message if side == "request" else exchange.response_message
        if message is not None:
            api = facts.api(message.api_key)
            definition = api.request if side == "request" else api.response
            yield from below(definition, definition.fields, message.to_dict(), {})


def below(definition: Any, fields: tuple[FieldLine, ...], values: Row, topic: Row) -> Iterator[Row]:
    here = dict(topic)
    for field in fields:
        name = snake_case(field.name)
        if name in values and not field.array and (field.entity == "topicName" or name == "topic_id"):
            here = {"topic": None} | {k: v for k, v in here.items() if k != "of"} if "topic" not in here else here
            here["topic" if field.entity == "topicName" else "id"] = values[name]
    for field in fields:
        name = snake_case(field.name)
        value = values.get(name)
        if not here or field.type != "int32" or value is None:
            continue
        if field.array and name in ("partitions", "partition_indexes"):
            yield from ({**here, "partition": each, "error": None} for each in value)
        elif not field.array and name in ("partition", "partition_index", "partition_id", "index"):
            codes = [values[snake_case(f.name)] for f in fields if of_error(f) and snake_case(f.name) in values]
            yield {**here, "partition": value, "error": codes[0] if codes else None}
    for field in fields:
        value, inner = values.get(snake_case(field.name)), fields_of(definition, field)
        if inner and value is not None:
            for item in value if field.array else [value]:
                yield from below(definition, inner, item, here)


def test_topic_and_partition_are_of_the_same_pair(sample: Sample) -> None:
    found = [list(rows(exchange)) for exchange in sample]
    pairs = sorted({(r["topic"], r["partition"]) for each in found for r in each if r.get("topic")})
    assert len(pairs) > len(sample) // 7
    topics = [HELD["topic"](exchange) for exchange in sample]
    # Also a topic with the partition of another one, which tests of each field alone would get wrong.
    crossed = [(a[0], b[1]) for each in found for a in topic_partitions_of(each) for b in topic_partitions_of(each) if a != b]
    for topic, partition in [*pairs[:: len(pairs) // 25], *crossed[:: max(1, len(crossed) // 25)]]:
        wanted = f"partition == {partition} and topic == {shown(topic)}"
        expected = [any(r.get("topic") == topic and r["partition"] == partition for r in each) for each in found]
        assert selected(wanted, sample) == expected
        wanted = f"topic == {shown(topic)} and partition != {partition}"
        expected = [any(r.get("topic") == topic and r["partition"] != partition for r in each) for each in found]
        assert selected(wanted, sample) == expected
        wanted = f"topic == {shown(topic)} and not (partition == {partition})"
        expected = [
            topic in names and not any(r["partition"] == partition for r in each)
            for names, each in zip(topics, found, strict=True)
        ]
        assert selected(wanted, sample) == expected


def topic_partitions_of(each: list[Row]) -> list[tuple[str, int]]:
    return [(r["topic"], r["partition"]) for r in each if r.get("topic")]


def test_errors_of_partitions(sample: Sample) -> None:
    found = [list(rows(exchange)) for exchange in sample]
    failing = [(r["topic"], r["error"]) for each in found for r in each if r.get("topic") and r["error"]]
    assert failing
    for topic, code in failing[:: max(1, len(failing) // 25)]:
        wanted = f"topic == {shown(topic)} and partition.err == {code}"
        expected = [any(r.get("topic") == topic and r["error"] == code for r in each) for each in found]
        assert selected(wanted, sample) == expected
        wanted = f"topic == {shown(topic)} and partition.err != 0"
        expected = [any(r.get("topic") == topic and r["error"] for r in each) for each in found]
        assert selected(wanted, sample) == expected


INDEX: dict[str, Callable[[dict[str, Any]], bool]] = {
    "api == Fetch": lambda d: d["api"] == "Fetch",
    "api in {joingroup, 14}": lambda d: d["api"] in ("JoinGroup", "SyncGroup"),
    "api ~ ^Describe": lambda d: d["api"].startswith("Describe"),
    "ver >= 3": lambda d: d["api_version"] >= 3,
    "err": lambda d: d["error"] is not None,
    "err == NONE": lambda d: d["error"] is None,
    "err ~ COORD": lambda d: "COORD" in (d["error"] or ""),
    "latency > 300ms": lambda d: (d["latency_ns"] or 0) > 300_000_000,
    "latency <= 0.3s": lambda d: d["latency_ns"] is not None and d["latency_ns"] <= 300_000_000,
    "latency": lambda d: d["latency_ns"] is not None,
    "state == orphan": lambda d: d["state"] == "orphan",
    "not paired": lambda d: d["state"] != "paired",
    "no_response or pending": lambda d: d["state"] in ("no_response", "pending"),
    "size.req > 100": lambda d: (d["request_size"] or 0) > 100,
    "size.resp <= 0.1kB": lambda d: d["response_size"] is not None and d["response_size"] <= 100,
    "size > 1KiB": lambda d: (d["request_size"] or 0) + (d["response_size"] or 0) > 1024,
    "time < 2023-11-15T12:00:00Z": lambda d: d["time_ns"] < 1_700_049_600 * 10**9,
    "conn in 2..3": lambda d: d["connection"] in (2, 3),
    "corr == -5 or corr > 40": lambda d: d["correlation_id"] == -5 or d["correlation_id"] > 40,
    "client": lambda d: bool(d["client_id"]),
    "client == stock-1": lambda d: d["client_id"] == "stock-1",
    'client ~ "(?i)STRASSE|straße"': lambda d: bool(re.search("(?i)strasse|straße", d["client_id"] or "")),
    "addr == 10.0.0.0/8": lambda d: d["client"].startswith("10."),
    "addr == ::/0": lambda d: "[" in d["client"],
    "broker == kafka-1": lambda d: d["broker"] == "kafka-1:9093",
    "ends == 192.168.0.9 or port == 50003": lambda d: d["broker"].startswith("192") or d["client"].endswith(":50003"),
    "undecoded": lambda d: d["undecoded"] is not None,
    "surplus": lambda d: d["undecoded"] is None and "surplus_bytes" in d,
    "kafka.api_key == 3 && !(kafka.error eq 0)": lambda d: d["api_key"] == 3 and d["error"] is not None,
}  # fmt: skip


def test_fields_of_the_index(sample: Sample) -> None:
    dicts = [exchange.to_dict(bodies=False) for exchange in sample]
    for text, judge in INDEX.items():
        expected = [judge(each) for each in dicts]
        assert selected(text, sample) == expected, text
        assert any(expected) and not all(expected), text


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield str(name)
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def test_a_search_finds_everything_that_is_printed(sample: Sample) -> None:
    some = Sample(sample[::9])
    printed = [[text.casefold() for text in strings(exchange.to_dict())] for exchange in some]
    words = sorted({text for each in printed for text in each if len(text) > 3})
    for word in [*words[:: len(words) // 40], "brokers", "strasse", "10.0.0.1", "joingroup"]:
        found = selected(shown(word.upper()), some)
        for hit, each in zip(found, printed, strict=True):
            # Names of numbers (errors, APIs, topics) are found too.
            assert hit or not any(word.upper().casefold() in text for text in each)
    assert not any(selected('"no such thing anywhere"', some))


def test_the_search_finds_names_of_errors() -> None:
    frame = decoder.encode_response(12, 4, {"error_code": 27})
    exchange = Exchange(api_key=12, api_version=4, response=frame, state=State.PAIRED)
    assert compile('"rebalance_in"')(exchange)
    assert not compile('"unknown_member"')(exchange)


def test_networks_are_those_of_ipaddress() -> None:
    for host in ("10.1.2.3", "192.168.0.1", "::1", "fe80::1", "::ffff:10.1.2.3", "kafka"):
        exchange = Exchange(client=f"[{host}]:1" if ":" in host else f"{host}:1")
        for network in ("10.0.0.0/8", "10.1.2.3/31", "::/0", "0.0.0.0/0", "fe80::/10"):
            try:
                address = ipaddress.ip_address(host)
                mapped = getattr(address, "ipv4_mapped", None)
                expected = (mapped or address) in ipaddress.ip_network(network, strict=False)
            except ValueError:
                expected = False
            assert compile(f"addr == {network}")(exchange) is expected, (host, network)
