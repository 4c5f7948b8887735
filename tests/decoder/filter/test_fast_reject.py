"""A filter is false of every exchange that its `fast_reject` rejects."""

from __future__ import annotations

import random
import re

import pytest
from barnabas.decoder import Exchange, State
from barnabas.decoder.codec.project import error_paths
from barnabas.decoder.filter import compile
from barnabas.decoder.filter.fast_reject import ANY
from harness.generator import Generator
from hypothesis import given
from traffic.generated_filters import ALL_TESTS, Sample, exchanges, filters

UNUSUAL = (
    "err", "errors != 0", "errors == 6", "partition.err != 0", "topic == orders and topic.err != 0", "retriable",
    "latency > 1us", "latency in {5ms, 1s..2s}", "size.resp >= 100", "throttle > 10ms", "all(errors == 3)",
    "any(resp.topics[*].partitions[*].error_code != NONE)", "err in {3, 5}", "any(resp.error_code == NONE)",
    "err == NONE", "latency < 1s", "all(errors == 0)", "not retriable", "throttle == 0", "partition.err == 0",
    "retriable == false", "throttle",
)  # fmt: skip
INDEX = re.compile(r"\[\d+\]")


@pytest.fixture(scope="module")
def ordinary() -> Sample:
    """Answered exchanges of every API and version, all their error codes and throttle times 0."""
    chance = random.Random(4)
    found = Sample()
    for exchange in exchanges(Generator(3))[::2]:
        message = exchange.response_message
        if exchange.state is not State.PAIRED or message is None or exchange.request_message is None:
            continue
        frame = bytearray(message.frame)
        zeros = {*error_paths(message.plan), "throttle_time_ms"}
        for span in message.map():
            if INDEX.sub("", span.path) in zeros:
                frame[span.start : span.end] = bytes(span.end - span.start)
        exchange = Exchange(
            **{name: getattr(exchange, name) for name in ("api_key", "api_version", "request", "request_time_ns", "topics")},
            response=bytes(frame), response_time_ns=(exchange.request_time_ns or 0) + chance.randrange(1000), state=State.PAIRED,
        )  # fmt: skip
        assert exchange.response_message is not None and not exchange.error
        found.append(exchange)
    return found


def holds(text: str, ordinary: Sample) -> bool:
    wanted = compile(text)
    fast_reject = wanted.fast_reject
    if fast_reject is None:
        return False
    for exchange in ordinary:
        if (exchange.latency_ns or 0) <= fast_reject.latency and (exchange.response_size or 0) <= fast_reject.size:
            assert not wanted(exchange), exchange
    return True


@given(filters(ALL_TESTS))
def test_ordinary_responses_are_rejected_rightly(ordinary: Sample, text: str) -> None:
    holds(text, ordinary)


def test_filters_with_and_without_a_fast_reject(ordinary: Sample) -> None:
    """Typical filters of rules have a fast reject; filters that match ordinary responses have none."""
    assert [text for text in UNUSUAL if not holds(text, ordinary)] == list(UNUSUAL[-9:])
    assert [name for name in ("latency", "size") if getattr(compile("latency > 1s and err").fast_reject, name) != ANY] == [
        "latency"
    ]
