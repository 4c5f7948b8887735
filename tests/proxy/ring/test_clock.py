"""Latencies are what passed, whatever is done to the system's clock meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from barnabas.plugins.rules.rules import Rule
from barnabas.proxy.events import RuleHit
from barnabas.proxy.ring.clock import CLOCK, FAR_NS, SLEW, Clock
from barnabas.proxy.ring.reader import RingRecord
from barnabas.proxy.ring.ring import Kind
from torture.proxy.peers.stepped_relay import SteppedRelay
from torture.proxy.test_correlation import heartbeat

SECOND = 10**9


class Hands:
    """The system's clocks: `set` is by how much somebody has set the wall clock, `passed` is what has passed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.set = self.passed = 0
        wall, steady = time.time_ns(), time.monotonic_ns()
        monkeypatch.setattr(time, "time_ns", lambda: wall + self.set + self.passed)
        monkeypatch.setattr(time, "monotonic_ns", lambda: steady + self.passed)


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hands]:
    before = CLOCK.offset, CLOCK._look
    yield Hands(monkeypatch)
    CLOCK.offset, CLOCK._look = before


@pytest.mark.parametrize("step", [-50 * SECOND, -SECOND, SECOND, 50 * SECOND])
def test_a_clock_that_is_set_while_a_request_waits(hands: Hands, step: int) -> None:
    """No rule for late responses fires, and times in the recording are as far apart as they were."""
    relay = SteppedRelay([Rule.of("api == Heartbeat and latency > 500ms", edit={"throttle_time_ms": 1}, name="late")])
    try:
        session = relay.session()
        session.from_client(heartbeat(1).request)
        hands.set += step
        hands.passed += 2 * SECOND  # the clock has looked at the other one by now
        session.from_client(heartbeat(2).request)
        session.from_broker(heartbeat(1).response)
        session.from_broker(heartbeat(2).response)
        hits = [event.correlation_id for event in relay.events if isinstance(event, RuleHit)]
        assert hits == [1], "the first took 2 s, the second nothing"
        times = [r.time_ns for r in relay.read() if isinstance(r, RingRecord) and r.kind == Kind.DATA]
        assert all(abs(each - times[0] - 2 * SECOND) < SECOND // 2 for each in times[1:]), times
    finally:
        relay.shut()


def test_it_follows_slowly_or_goes_there(hands: Hands) -> None:
    clock = Clock()
    for away in (30 * SECOND, -30 * SECOND):
        hands.set += away
        before = clock.now_ns()
        hands.passed += 100 * SECOND
        moved = clock.now_ns() - before - 100 * SECOND
        assert 0 < moved * (1 if away > 0 else -1) <= 100 * SECOND * SLEW
        for _ in range(100):
            hands.passed += 200 * SECOND
            clock.now_ns()
        assert clock.now_ns() == time.time_ns() and clock.stepped == 0
    hands.set += FAR_NS + SECOND
    hands.passed += 2 * SECOND
    assert clock.now_ns() == time.time_ns() and clock.stepped > FAR_NS
