"""The accelerator's frame scanner: what passes, where it stops, what it remembers; and the queue that it shares with Python.

That a relay with it does what one without does, with any bytes cut anywhere, is tested in torture/proxy/test_moving.py.
"""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder.filter.fast_reject import FastReject
from barnabas.decoder.schema import facts
from barnabas.plugins.rules.rule_engine import RuleEngine
from barnabas.plugins.rules.rules import Rule
from barnabas.proxy.native.accelerator import native
from barnabas.proxy.relay.connections.correlation import PlainQueue
from barnabas.proxy.relay.interception.interest import response_interest
from barnabas.proxy.relay.interception.interest.api_version_bitmap import api_version_bitmap
from barnabas.proxy.relay.interception.interest.response_interest import ResponseInterest
from harness.peers.frame_scan import MOST, RING_BYTES, FrameScan
from harness.run.slices import thin
from harness.wire import with_size
from torture.decoder import sanitized

PRODUCE, FETCH, METADATA, HEARTBEAT = (facts.api_key(n) for n in ("Produce", "Fetch", "Metadata", "Heartbeat"))
WATCHED_HERE = api_version_bitmap(
    [METADATA << 16 | version for version in range(14)]
    + [PRODUCE << 16 | version for version in range(10, 41)]
    + [FETCH << 16 | version for version in range(16, 41)]
)
ALL = api_version_bitmap(key << 16 | version for key in range(93) for version in range(41))
needs_native = pytest.mark.skipif(native is None, reason="the accelerator is not built")


def bulk(key: int, number: int, sizes: list[int], code: int = 0) -> bytes:
    """A Produce request, or a Fetch response, with partitions of so many bytes."""
    topic = {"topic_id": "00000000-0000-4000-8000-000000000001"}
    if key == PRODUCE:
        data = [{"index": n, "records": bytes(size)} for n, size in enumerate(sizes)]
        fields: dict[str, Any] = {"acks": -1, "topic_data": [topic | {"partition_data": data}]}
        return with_size(decoder.encode_request(PRODUCE, 13, fields, correlation_id=number, client_id="t"))
    parts = [{"partition_index": n, "error_code": code, "records": bytes(size)} for n, size in enumerate(sizes)]
    fields = {"responses": [topic | {"partitions": parts}]}
    return with_size(decoder.encode_response(FETCH, 13, fields, correlation_id=number))


def produce(acks: int, number: int, client_id: str = "t") -> bytes:
    return with_size(decoder.encode_request(PRODUCE, 11, {"acks": acks}, correlation_id=number, client_id=client_id))


def heartbeat(number: int) -> bytes:
    return with_size(decoder.encode_request(HEARTBEAT, 4, {}, correlation_id=number, client_id="t"))


KEPT_KEYS = frozenset({PRODUCE, FETCH, HEARTBEAT})
KEPT = api_version_bitmap(key << 16 | version for key in KEPT_KEYS for version in range(20))
LATE = ResponseInterest(RuleEngine([Rule.of("api in {Produce, Fetch, Heartbeat} and err", drop="response")]), frozenset(), 40)


@needs_native
def test_what_is_remembered_of_requests_that_have_passed() -> None:
    """Only what is watched and gets a response."""
    data = produce(-1, 1) + heartbeat(9) + produce(0, 2) + produce(1, 3) + produce(1, 4)
    scan = FrameScan(WATCHED_HERE)
    assert scan.note(0, data + heartbeat(5)[:20]) == (len(data) + 20, 5, False, len(heartbeat(5)) - 20)
    assert list(scan.queue) == [(PRODUCE << 16 | 11) << 32 | number for number in (1, 3, 4)]


@needs_native
def test_no_more_are_remembered_than_the_limit() -> None:
    scan = FrameScan(WATCHED_HERE)
    for first in range(0, 9000, 1000):
        scan.note(0, b"".join(produce(1, number) for number in range(first, first + 1000)))
    assert [entry & 0xFFFFFFFF for entry in scan.queue] == list(range(9000 - 8192, 9000))


@needs_native
def test_where_it_stops() -> None:
    scan = FrameScan(WATCHED_HERE)
    queue = scan.queue
    for number in (1, 2, 3):
        queue.append((METADATA << 16 | 12) << 32 | number)
    for number in (4, 5):
        queue.append((HEARTBEAT << 16 | 4) << 32 | number)
    answer = [with_size(struct.pack(">I", number) + bytes(20)) for number in range(8)]
    one = len(answer[0])
    assert scan.responses(answer[0] + answer[1]) == (one, 0, False, 0), "its request is watched"
    assert scan.responses(answer[0] + answer[3]) == (one, 0, False, 0), "its request is not the first"
    assert scan.responses(answer[0] + answer[1][:20]) == (one, 0, True, 0), "small, and not all there"
    for _ in range(3):
        queue.popleft()
    assert scan.responses(answer[7] + answer[4] + answer[5][:10]) == (2 * one + 10, 5, True, one - 10)
    assert not queue
    assert scan.responses(answer[1] + struct.pack(">II", MOST + 1, 0)) == (one, 1, False, 0), "no frame has this size"


@needs_native
@pytest.mark.parametrize("key", [PRODUCE, FETCH])
def test_responses_that_cannot_name_a_broker_pass(key: int) -> None:
    """KIP-951: Kafka's own encoding of responses with and without node endpoints, of every version that has them."""
    for version in range(*{PRODUCE: (10, 14), FETCH: (16, 19)}[key]):
        for endpoints in ([], [{"node_id": 1, "host": "h", "port": 9092, "rack": None}], [{"node_id": 70000, "host": "b", "port": 1}]):
            for topics in ([], [{}], [{"name": "t"} if version < 13 and key == PRODUCE else {}]):
                frame = decoder.encode_response(key, version, {"responses": topics, "node_endpoints": endpoints}, correlation_id=5)
                scan = FrameScan(WATCHED_HERE)
                scan.queue.append((key << 16 | version) << 32 | 5)
                passes = scan.responses(with_size(frame)).passes
                assert not passes if endpoints else passes in (0, len(frame) + 4)
                if not endpoints and (topics if key == PRODUCE else len(frame) < 30):
                    assert passes


@needs_native
def test_requests_that_are_kept_at_every_split() -> None:
    """Of large ones the header prefix is kept, as soon as it is there; the same request again is kept with its own id."""
    beats = [heartbeat(n) for n in (1, 2, 3, 7)]
    data = b"".join(
        (*beats[:3], bulk(PRODUCE, 4, [300]), bulk(PRODUCE, 5, [5000]), bulk(PRODUCE, 6, [2000, 3000]), beats[3])
    )
    prefixes = 0
    for at in (*range(12, 130), *range(130, len(data), 31)):
        scan = FrameScan(passing=KEPT, rules=LATE)
        first = scan.requests(data[:at])
        rest = data[first.passes + first.left :]
        if rest:
            scan.requests(rest)
        numbers = []
        while scan.queue:
            kept = scan.queue.kept()
            assert kept is not None
            frame, _, size = kept
            numbers.append(int.from_bytes(frame[8:12], "big"))
            assert len(frame) <= size + 4
            prefixes += len(frame) < size
            scan.queue.popleft()
        assert numbers == [1, 2, 3, 4, 5, 6, 7][: len(numbers)] and len(numbers) >= 5
    assert prefixes > 300


@needs_native
@pytest.mark.parametrize("code", [0, 6])
def test_large_responses_are_seen_to_be_quiet_at_every_split(code: int) -> None:
    """From the beginning of the last partition's records on; then one that may name brokers is followed to its end."""
    data = bulk(FETCH, 7, [9000, 9000], code)
    passed = held = followed = 0
    for watched in (frozenset[int](), frozenset({FETCH << 16 | 13})):
        for at in (*range(8, 130), *range(130, 8990, 297), *range(8990, 9130), *range(9130, len(data) + 1, 297)):
            bitmap = api_version_bitmap(watched)
            scan = FrameScan(bitmap, passing=KEPT, rules=LATE, bulk=bitmap)
            scan.queue.append_kept((FETCH << 16 | 13) << 32 | 7, b"request", time.time_ns(), 7)
            passes = scan.responses(data[:at]).passes
            assert passes in (0, at)
            assert not passes or (not code and at > 9000), at
            passed, held, followed = passed + bool(passes), held + (not passes), followed + scan.connection.followed
    if code:
        assert not passed and held > 600
    else:
        assert min(passed, held, followed) > 40, (passed, held, followed)


@needs_native
@pytest.mark.parametrize("seed", thin(range(10), 2))
def test_responses_to_kept_requests(seed: int) -> None:
    """What is quiet passes; an error, a throttle time, or bytes that are no response, never do.

    On one connection, so that most are like one before, but for numbers, a flag, or a damaged byte.
    """
    chance = random.Random(seed)
    parts = [(HEARTBEAT, 4), (HEARTBEAT, 0), (PRODUCE, 11), (PRODUCE, 2), (FETCH, 16)]
    wanted = FastReject(errors=True, throttle=True, latency=600 * 10**9, size=400)
    ways = {key: tuple(response_interest.quiet_test(key, version, wanted) for version in range(18)) for key, _ in parts}
    quiet = tuple(ways.get(key) for key in range(max(ways) + 1))
    passed = stopped = 0
    scan = FrameScan(passing=KEPT, rules=SimpleNamespace(selection=KEPT, quiet=quiet, prefix_readers=((), ())))  # type: ignore[arg-type]
    for number in range(600):
        key, version = chance.choice(parts)
        while scan.queue:
            scan.queue.popleft()
        late = chance.choice((0, 0, 0, 3600 * 10**9))
        scan.queue.append_kept((key << 16 | version) << 32 | number, b"request", time.time_ns() - late, 7)
        code = chance.choice((0, 0, 6))
        throttle = chance.choice((0, 0, 0, 9)) if (key, version) != (HEARTBEAT, 0) else 0
        fields: dict[str, Any] = {"throttle_time_ms": throttle}
        if key == HEARTBEAT:
            fields = {**({"throttle_time_ms": throttle} if version else {}), "error_code": code}
        elif key == PRODUCE:
            answers = [{"index": 0, "base_offset": chance.randrange(1 << 60)}, {"index": 1, "error_code": code}]
            fields["responses"] = [{"name": "t", "partition_responses": answers}]
        else:
            marks = {"high_watermark": chance.randrange(1 << 60), "records": bytes(chance.choice((0, 600)))}
            answers = [{"partition_index": 0, "error_code": code, **marks}]
            fields["responses"] = [{"topic_id": "00000000-0000-4000-8000-000000000001", "partitions": answers}]
        frame = bytearray(with_size(decoder.encode_response(key, version, fields, correlation_id=number)))
        large = len(frame) > 404
        damaged = chance.random() < 0.2
        if damaged:
            frame[chance.randrange(8, len(frame))] ^= 1 << chance.randrange(8)
        end = chance.choice((len(frame), len(frame), len(frame) - 1))
        found = scan.responses(bytes(frame[:end]))
        expected = end == len(frame) and not (code or throttle or large or late)
        assert found.passes in (0, end)
        assert damaged or bool(found.passes) == expected
        passed, stopped = passed + bool(found.passes), stopped + (not found.passes)
    assert passed > 100 and stopped > 100


class More:
    """An entry that is more than a number."""

    def __init__(self, correlation: int) -> None:
        self.correlation = correlation


@pytest.mark.parametrize("make", [PlainQueue, pytest.param(native and native.Queue, marks=needs_native)], ids=["Python", "C"])
def test_requests_with_the_same_number_are_kept_each_for_itself(make: Callable[[], Any]) -> None:
    """Nothing keeps a client from asking twice under one correlation id: each response is judged with its own request."""
    queue, number = make(), (FETCH << 16 | 12) << 32 | 7
    queue.append_kept(number, b"first", 1, 10)
    queue.append(number)
    queue.append_kept(number, b"third", 3, 30)
    assert queue.kept() == (b"first", 1, 10)
    queue.popleft()
    assert queue.kept() is None
    queue.popleft()
    assert queue.kept() == (b"third", 3, 30)
    queue.appendleft(number)  # one whose response comes after all
    assert queue.kept() is None
    queue.popleft()
    assert queue.kept() == (b"third", 3, 30)
    queue.clear()
    queue.append_kept(number, b"fourth", 4, 40)
    assert queue.kept() == (b"fourth", 4, 40)


@needs_native
@pytest.mark.parametrize("seed", thin(range(5), 2))
def test_the_queue_has_the_manners_of_a_deque(seed: int) -> None:
    assert native is not None
    chance = random.Random(seed)
    fast, slow = native.Queue(), deque[Any]()
    for step in range(8000):
        what = chance.choice(
            ("append", "append", "appendleft", "popleft", "popleft", "clear" if step % 700 == 0 else "append")
        )
        if step % 2000 > 1500:
            what = "popleft"
        if what.startswith("append"):
            entry = chance.choice((chance.randrange(1 << 63), More(chance.randrange(5))))
            getattr(fast, what)(entry)
            getattr(slow, what)(entry)
        elif what == "clear":
            fast.clear()
            slow.clear()
        elif slow:
            assert fast.popleft() is slow[0] or slow[0].__class__ is int
            slow.popleft()
        else:
            with pytest.raises(IndexError):
                fast.popleft()
        assert len(fast) == len(slow) and bool(fast) == bool(slow)
        if slow:
            assert fast[0] == slow[0] and fast[-1] == slow[-1]
    assert list(fast) == list(slow)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.needs(why_not=sanitized.missing)
def test_nothing_is_read_that_is_not_there(tmp_path: Path) -> None:
    """The tests above, with an accelerator that stops at every byte outside of what it was given."""
    extension = sanitized.build(tmp_path)
    program = (
        "import sys, pytest; from torture.decoder.sanitized import load; load(sys.argv[1]);"
        "sys.exit(pytest.main(['-q', '-n', '0', '-p', 'no:cacheprovider', '-m', '', '-k', 'not that_is_not_there', sys.argv[2]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(extension), __file__],
        env=os.environ | sanitized.environment() | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "skipped" not in done.stdout


@needs_native
@pytest.mark.parametrize(("offset", "count"), [(-1, 4), (0, -1), (0, RING_BYTES + 1), (RING_BYTES + 1, 0), (RING_BYTES, 1), (1 << 62, 1 << 62)])
def test_bytes_outside_the_ring_are_refused(offset: int, count: int) -> None:
    scan = FrameScan()
    for method in (scan.mover.scan, scan.mover.note):
        with pytest.raises(ValueError, match="not in the ring"):
            method(scan.half(0), offset, count)


@needs_native
def test_a_half_connection_without_a_queue_is_refused() -> None:
    scan = FrameScan()
    scan.connection.in_flight = None
    for method in (scan.mover.scan, scan.mover.note):
        with pytest.raises(TypeError):
            method(scan.half(0), 0, 0)
