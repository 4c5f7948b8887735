"""What a chunk costs does not depend on how many requests wait for their responses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from barnabas import decoder
from barnabas.captures import Recorder
from barnabas.proxy.observers.exchange_counter import ExchangeCounter
from barnabas.proxy.observers.ring_feed import ConnectionEnds
from barnabas.proxy.observers.traffic_decoder import TrafficDecoder
from harness.run.steps import assert_linear
from harness.wire import with_size

ENDS = ("127.0.0.1", 50000), ("127.0.0.1", 9092)
VERSIONS, HEARTBEAT = 18, 12
"""One that native recorders leave to Python, and one that they take."""


def requests(count: int, *keys: int) -> list[bytes]:
    """So many requests, of the APIs in turn."""
    return [with_size(decoder.encode_request(keys[i % len(keys)], 0, {}, correlation_id=i)) for i in range(count)]


def responses(count: int, *keys: int) -> list[bytes]:
    return [with_size(decoder.encode_response(keys[i % len(keys)], 0, {}, correlation_id=i)) for i in range(count)]


KINDS = {"versions": (VERSIONS,), "both": (VERSIONS, HEARTBEAT), "heartbeats": (HEARTBEAT,), "seldom": (*[HEARTBEAT] * 99, VERSIONS)}


@pytest.mark.parametrize("reported", ["", "broker leg", "note"])
@pytest.mark.parametrize("kind", KINDS)
def test_of_a_recorder(tmp_path: Path, kind: str, reported: str) -> None:
    keys = KINDS[kind]

    def work(count: int) -> Callable[[], object]:
        recorder = Recorder(tmp_path / str(count))
        recorder.opened(1, 0, *ENDS)
        asked, answered = requests(count, *keys), responses(count, *keys)

        def run() -> None:
            for number, frame in enumerate(asked):
                recorder.data(1, 0, number, frame)
            for number, frame in enumerate(answered):
                if reported == "broker leg":
                    recorder.broker_leg(1, 1, number, frame)
                elif reported:
                    recorder.note(1, number, "seen")
                recorder.data(1, 1, count + number, frame)
            recorder.close()
            assert recorder.counts["exchanges"] == count

        return run

    assert_linear(work, 1500)


@pytest.mark.parametrize("reported", [False, True])
def test_of_a_traffic_decoder(reported: bool) -> None:
    def work(count: int) -> Callable[[], object]:
        traffic = TrafficDecoder()
        traffic.opened(1, 0, ConnectionEnds(*ENDS))
        asked, answered = requests(count, VERSIONS), responses(count, VERSIONS)

        def run() -> None:
            for number, frame in enumerate(asked):
                traffic.data(1, 0, number, frame)
                if reported:
                    traffic.note(1, number, "seen")
            for number, frame in enumerate(answered):
                if reported:
                    traffic.broker_leg(1, 1, number, frame)
                traffic.data(1, 1, count + number, frame)

        return run

    assert_linear(work, 1500)


@pytest.mark.parametrize("kind", KINDS)
def test_of_a_counter(kind: str) -> None:
    keys = KINDS[kind]

    def work(count: int) -> Callable[[], object]:
        counter = ExchangeCounter()
        counter.opened(1, 0)
        asked, answered = requests(count, *keys), responses(count, *keys)

        def run() -> None:
            for number, frame in enumerate([*asked, *answered]):
                counter.data(1, number >= count, number, frame)
            assert counter.counts["exchanges"] == count

        return run

    assert_linear(work, 1500)
