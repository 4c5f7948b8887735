"""Metrics to a StatsD server: the lines, and a real proxy that sends them."""

from __future__ import annotations

import re
import socket
from collections import Counter
from contextlib import closing
from itertools import islice

import pytest
from barnabas import decoder
from barnabas.proxy.metrics.feed.client import Totals, subscribe
from barnabas.proxy.metrics.feed.sender import FeedSender
from barnabas.proxy.metrics.meter import TrafficMeter
from barnabas.proxy.metrics.registry import Metrics
from barnabas.proxy.metrics.settings import MeterConfig
from barnabas.proxy.metrics.statsd import COUNTERS, DATAGRAM, SAMPLES, StatsD
from barnabas.proxy.observers.ring_feed import ConnectionEnds
from barnabas.proxy.observers.traffic_decoder import TrafficDecoder
from harness import wire
from harness.scripted import answering
from harness.testbed import Testbed
from harness.waiting import PATIENCE
from harness.wire import with_size

LINE = re.compile(
    r"[A-Za-z0-9_.-]+:-?[0-9.]+\|(c|g|ms)(\|@[0-9.]+)?(\|#[a-z_]+:[A-Za-z0-9_-]*(,[a-z_]+:[A-Za-z0-9_-]*)*)?"
)


def traffic(prefix: str = "barnabas", tags: bool = False) -> tuple[TrafficDecoder, StatsD]:
    metrics = Metrics()
    statsd = StatsD(metrics, prefix, tags)
    metered = TrafficDecoder(TrafficMeter(metrics, FeedSender("t", 1), statsd).on_event)
    metered.opened(1, 0, ConnectionEnds(("a", 1), ("b", 2)))
    return metered, statsd


def exchanges(metered: TrafficDecoder, count: int, error: int = 0, latency_ns: int = 2_500_000) -> None:
    for number in range(count):
        asked = decoder.encode_request(12, 4, {}, correlation_id=number, client_id="c")
        metered.data(1, 0, 0, with_size(asked))
        metered.data(1, 1, latency_ns, with_size(decoder.encode_response(12, 4, {"error_code": error}, correlation_id=number)))


def lines(statsd: StatsD) -> list[str]:
    datagrams = list(statsd.datagrams())
    assert all(len(datagram) <= DATAGRAM for datagram in datagrams)
    found = [line for datagram in datagrams for line in datagram.decode().split("\n")]
    assert all(LINE.fullmatch(line) for line in found), found
    return found


def test_counters_are_differences_and_latencies_timers() -> None:
    metered, statsd = traffic()
    exchanges(metered, 3, error=27)
    first = lines(statsd)
    assert "barnabas.requests.Heartbeat.4:3|c" in first
    assert "barnabas.errors.Heartbeat.REBALANCE_IN_PROGRESS:3|c" in first
    assert first.count("barnabas.latency.Heartbeat:2.500|ms") == 3
    assert "barnabas.connections:1|g" in first
    assert lines(statsd) == ["barnabas.connections:1|g"]
    exchanges(metered, 2)
    assert "barnabas.requests.Heartbeat.4:2|c" in lines(statsd)


def test_counters_are_those_of_prometheus() -> None:
    assert set(COUNTERS) <= {family.name for family in Metrics().collect()}
    metered, statsd = traffic()
    metered.data(1, 0, 0, with_size(decoder.encode_request(12, 4, {}, correlation_id=1, client_id="c")))
    metered.data(1, 1, 5, with_size(decoder.encode_response(12, 4, {"throttle_time_ms": 7}, correlation_id=1)))
    assert "barnabas.throttle_ms.Heartbeat:7|c" in lines(statsd)


def test_tags_replace_parts_of_names() -> None:
    metered, statsd = traffic("my.proxy:1|x", tags=True)
    exchanges(metered, 1, error=27)
    statsd._metrics.process_events.rules["leader moved|c\n#x:1"] = 4
    found = lines(statsd)
    assert "my.proxy_1_x.requests:1|c|#api:Heartbeat,api_version:4" in found
    assert "my.proxy_1_x.errors:1|c|#api:Heartbeat,error:REBALANCE_IN_PROGRESS" in found
    assert "my.proxy_1_x.rule_hits:4|c|#rule:leader_moved_c__x_1" in found
    assert "my.proxy_1_x.latency:2.500|ms|#api:Heartbeat" in found


def test_many_latencies_are_sampled_with_their_rate() -> None:
    metered, statsd = traffic()
    exchanges(metered, SAMPLES * 4)
    timers = [line for line in lines(statsd) if line.endswith("|ms|@0.25")]
    assert len(timers) == SAMPLES
    assert statsd._latencies == {}


def test_unknown_apis_share_a_name() -> None:
    metered, statsd = traffic()
    for key in range(500, 600):
        frame = key.to_bytes(2, "big") + bytes(2) + key.to_bytes(4, "big") + b"\xff\xff"
        metered.data(1, 0, 0, with_size(frame))
        answer = key.to_bytes(4, "big")
        metered.data(1, 1, 5, with_size(answer))
    names = Counter(line.partition(":")[0] for line in lines(statsd))
    assert {name for name in names if "requests" in name or "latency" in name} == {
        "barnabas.requests.other.other",
        "barnabas.latency.other",
    }


@pytest.mark.parametrize("listens", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_running_proxy_sends_metrics(testbed: Testbed, listens: bool) -> None:
    broker = testbed.broker(answering(decoder.encode_response(12, 4, {}, correlation_id=0)[4:]))
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(PATIENCE)
        where = server.getsockname()
        if not listens:
            server.close()
        meter = MeterConfig(statsd=where, metrics=("127.0.0.1", 0), feed=("127.0.0.1", 0))
        proxy = testbed.proxy(broker.address, meter=meter)
        client = testbed.client(proxy.address)
        for number in range(40):
            wire.ask(client, wire.with_size(decoder.encode_request(12, 4, {}, correlation_id=number, client_id="c")))
        if listens:
            asked = timed = 0.0
            while asked < 40:
                for line in server.recv(65536).decode().split("\n"):
                    assert LINE.fullmatch(line)
                    if line.startswith("barnabas.requests.Heartbeat.4:"):
                        asked += float(line.partition(":")[2].partition("|")[0])
                    timed += line.startswith("barnabas.latency.Heartbeat:")
            assert asked == 40
            assert timed <= 40
        else:
            with closing(subscribe(proxy.meter.feed, proxy.meter.feed_token)) as events:
                # every second it publishes its totals, and then sends to the missing server
                totals = islice((event for event in events if isinstance(event, Totals)), 3)
                assert [event.exchanges for event in totals][-1] == 40
            assert proxy._children["meter"].poll() is None
