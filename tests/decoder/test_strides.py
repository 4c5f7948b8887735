"""The loops over frames in C and in Python do the same with any bytes, cut anywhere; and what they are there for."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from barnabas import decoder
from barnabas.decoder import accelerator, facts, strides
from barnabas.decoder.filter.quiet import Quiet
from barnabas.decoder.strides import AWAITED, FOLLOWED, OVERSIZE, PASSED, WATCHED, PythonQueue
from barnabas.plugins.book import RuleBook
from barnabas.plugins.rules import Rule
from barnabas.proxy.interception import response_interest
from barnabas.proxy.interception.response_interest import Keeping
from harness.slices import thin
from harness.wire import with_size
from torture.decoder import sanitized

native = accelerator.native
PRODUCE, FETCH, METADATA, HEARTBEAT = (facts.api_key(n) for n in ("Produce", "Fetch", "Metadata", "Heartbeat"))
MOST = 100_000
WATCHED_HERE = frozenset(
    [METADATA << 16 | version for version in range(14)]
    + [PRODUCE << 16 | version for version in range(10, 41)]
    + [FETCH << 16 | version for version in range(16, 41)]
)
SEEDS = thin(range(40), 3)
FREE = frozenset(key << 16 | version for key in range(93) for version in range(41)) - {METADATA << 16 | 9}
needs_native = pytest.mark.skipif(native is None, reason="the accelerator is not built")


class More:
    """An entry that is more than a number."""

    def __init__(self, correlation: int) -> None:
        self.correlation = correlation


def request(chance: random.Random, number: int) -> bytes:
    key = chance.choice((PRODUCE, PRODUCE, FETCH, METADATA, HEARTBEAT, chance.randrange(100), 0x4000))
    version = chance.choice((0, 2, 3, 8, 9, 11, 12, 13, 16, 17, 40, 41, 63, 64, 999, 0xFFFF))
    client = chance.choice((None, b"", b"t", b"client", b"c" * 300, bytes(40)))
    frame = struct.pack(">HHI", key, version, number)
    frame += struct.pack(">h", -1) if client is None else struct.pack(">h", len(client)) + client
    if version >= 9:
        frame += chance.choice((b"\0", b"\0", b"\1\5\3abc", b"\2\5\1a\6\1b", b"\xff\xff\xff\xff\x0f"))
        frame += chance.choice((b"\0", b"\3tx", b"\1", b"\x80\x80"))
    elif version >= 3:
        frame += chance.choice((b"\xff\xff", b"\0\2tx", b"\0\0"))
    frame += struct.pack(">h", chance.choice((0, 0, 1, -1)))
    frame += bytes(chance.randrange(60))
    return with_size(frame[: chance.choice((len(frame), len(frame), len(frame), chance.randrange(len(frame))))])


def response(chance: random.Random, number: int) -> bytes:
    endings = (bytes(8), b"\1\0\0\0", b"\0\0\x23\x84\0\0", b"ab\0\0\0\0", b"", chance.randbytes(7))
    body = chance.randbytes(chance.randrange(60)) + chance.choice(endings)
    frame = struct.pack(">I", number) + body
    return with_size(frame[: chance.choice((len(frame), len(frame), len(frame), chance.randrange(len(frame) + 1)))])


def heads(chance: random.Random, data: bytes) -> bytes:
    """Beginnings as `proxy.heads` keeps them, some taken from the stream, some with a byte or a mask that is another."""
    found = b""
    at = 0
    while at + 12 < len(data) and len(found) < 2000:
        size, keyver = struct.unpack_from(">II", data, at)
        if chance.random() < 0.3:
            like = bytearray(data[at + 12 : at + 12 + chance.randrange(max(min(size - 8, 90), 0) + 1)])
            mask = bytes(chance.choices((255, 255, 255, 0, 15), k=len(like)))
            if like and chance.random() < 0.5:
                like[chance.randrange(len(like))] ^= 16
            wanted = chance.choice((0, size, size ^ 1))
            found += struct.pack("=5I", 20 + 2 * len(like), keyver, wanted, len(like), chance.randrange(2))
            found += bytes(like) + mask
        at += size + 4
    return found


def stream(chance: random.Random, make: Any, ids: list[int]) -> bytes:
    parts = []
    for number in ids:
        parts.append(make(chance, number))
        if chance.random() < 0.02:
            parts.append(chance.choice((struct.pack(">I", MOST + 1), b"\xff" * 5, b"\0\0\0\0", chance.randbytes(9))))
    return b"".join(parts)


def entries(queue: Any) -> list[Any]:
    return [entry if isinstance(entry, int) else ("more", entry.correlation) for entry in queue]


class Both:
    """One call of both versions, which have queues with the same entries."""

    def __init__(self, name: str, chosen: frozenset[int]) -> None:
        assert native is not None
        self.queues = native.Queue(), PythonQueue()
        self.functions = getattr(native, name), getattr(strides, f"python_{name}")
        self.chosen = strides.selection_table(chosen), chosen
        self.keeping: frozenset[int] | None = None
        self.bones: Any = ()

    def append(self, entry: Any) -> None:
        for queue in self.queues:
            queue.append(entry)

    def __call__(self, data: bytes, at: int, *more: Any, queue: bool = True) -> Any:
        found = []
        # Behind the end there is something else, as in a ring, or nothing at all.
        view = memoryview(data + b"\xee" * (700 if len(data) % 2 else 0))
        for function, own, chosen in zip(self.functions, self.queues, self.chosen, strict=True):
            given = (own, chosen) if queue else ()
            keeping: tuple[Any, ...] = ()
            if self.keeping is not None:
                keeping = (
                    strides.selection_table(self.keeping) if own is self.queues[0] else self.keeping,
                    77,
                    self.bones,
                )
            found.append(function(view, at, len(data), MOST, *given, *more, *keeping))
        assert found[0] == found[1]
        assert entries(self.queues[0]) == entries(self.queues[1])
        assert self.queues[0].kept() == self.queues[1].kept()
        return found[0]


@needs_native
@pytest.mark.parametrize("seed", SEEDS)
def test_requests_are_the_same(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(12):
        data = stream(chance, request, [chance.randrange(1 << 32) for _ in range(chance.randrange(30))])
        watched, every = Both("stride_watched", WATCHED_HERE), Both("stride_requests", FREE)
        limit = chance.choice((0, 3, 8192))
        for both, more in ((watched, (limit,)), (every, (b"",))):
            at = 0
            while at < len(data):
                if both is every:
                    both.keeping = chance.choice((None, frozenset(), WATCHED_HERE))
                    more = (heads(chance, data),)
                end = min(at + chance.choice((1, 11, 12, 13, 40, 700, 5000)), len(data))
                stopped = both(data[:end], at, *more)[0]
                # whoever calls goes on behind a frame that these do not want
                at = max(stopped, at + 1) if stopped < end else stopped


@needs_native
@pytest.mark.parametrize("seed", SEEDS)
def test_responses_are_the_same(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(12):
        ids = [chance.choice((number, number, number, 7, -1 & 0xFFFFFFFF)) for number in range(30)]
        both, plain = Both("stride_responses", WATCHED_HERE), Both("stride", frozenset())
        for number in ids:
            keyver = chance.choice((PRODUCE << 16 | 11, FETCH << 16 | 16, HEARTBEAT << 16 | 4, METADATA << 16 | 9))
            if chance.random() < 0.9:
                both.append(keyver << 32 | number)
            elif chance.random() < 0.3:
                both.append(More(chance.choice((number, -1))))
        data = stream(chance, response, ids)
        at = 0
        while at < len(data):
            end = min(at + chance.choice((1, 7, 8, 9, 40, 700, 5000)), len(data))
            plain(data[:end], at, queue=False)
            stopped, _, why = both(data[:end], at)
            if why == WATCHED:
                for queue in both.queues:
                    queue.popleft()
            at = max(stopped, at + 1) if stopped < end else stopped


KEPT_KEYS = frozenset({PRODUCE, FETCH, HEARTBEAT})
LATE = Keeping(RuleBook([Rule.of("api in {Produce, Fetch, Heartbeat} and err", drop="response")]), frozenset(), 40)


def drained(both: Both) -> list[Any]:
    """All that is kept, as both queues have it."""
    found = []
    while both.queues[0]:
        kept = [queue.kept() for queue in both.queues]
        assert kept[0] == kept[1]
        found.append(kept[0])
        assert both.queues[0].popleft() == both.queues[1].popleft()
    return found


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


@needs_native
def test_requests_that_are_kept_are_the_same_at_every_split() -> None:
    """Of large ones the skeleton is kept, as soon as it is there; the same request again is kept with its own id."""
    beat = [with_size(decoder.encode_request(HEARTBEAT, 4, {}, correlation_id=n, client_id="t")) for n in (1, 2, 3, 7)]
    data = b"".join(
        (*beat[:3], bulk(PRODUCE, 4, [300]), bulk(PRODUCE, 5, [5000]), bulk(PRODUCE, 6, [2000, 3000]), beat[3])
    )
    chosen = frozenset(key << 16 | version for key in KEPT_KEYS for version in range(20))
    thin = 0
    for at in (*range(12, 130), *range(130, len(data), 31)):
        both = Both("stride_requests", chosen)
        both.keeping, both.bones = chosen, LATE.bones[0]
        stopped, _, _ = both(data[:at], 0, b"")
        kept = drained(both)
        if stopped < at:
            both(data[stopped:], 0, b"")
            kept += drained(both)
        for number, (frame, _, size) in enumerate(kept, 1):
            assert int.from_bytes(frame[8:12], "big") == number and len(frame) <= size + 4
            thin += len(frame) < size
    assert thin > 300


@needs_native
@pytest.mark.parametrize("code", [0, 6])
def test_large_responses_are_seen_to_be_quiet_alike_at_every_split(code: int) -> None:
    data = bulk(FETCH, 7, [3000, 3000], code)
    found = {PASSED: 0, WATCHED: 0, FOLLOWED: 0}
    for watched in (frozenset[int](), frozenset({FETCH << 16 | 13})):
        for at in (*range(8, 130), *range(130, 2990, 97), *range(2990, 3130), *range(3130, len(data) + 1, 97)):
            both = Both("stride_responses", watched)
            for queue in both.queues:
                queue.append_kept((FETCH << 16 | 13) << 32 | 7, b"request", 0, 7)
            why = both(data[:at], 0, LATE.quiet, 1, LATE.bones[1])[2]
            assert why == WATCHED or (not code and at > 3000), at
            found[why] += 1
    assert found[WATCHED] > 600 if code else min(found.values()) > 40, found


@needs_native
@pytest.mark.parametrize("seed", thin(range(10), 2))
def test_responses_to_kept_requests_are_the_same(seed: int) -> None:
    """What is quiet passes, in both versions; an error, a throttle time, or bytes that are no response, never do.

    On one connection, so that most are like one before, but for numbers, a flag, or a damaged byte.
    """
    chance = random.Random(seed)
    parts = [(HEARTBEAT, 4), (HEARTBEAT, 0), (PRODUCE, 11), (PRODUCE, 2), (FETCH, 16)]
    wanted = Quiet(errors=True, throttle=True, latency=50, size=400)
    ways = {key: tuple(response_interest.way(key, version, wanted) for version in range(18)) for key, _ in parts}
    quiet = tuple(ways.get(key) for key in range(max(ways) + 1))
    passed = stopped = 0
    both = Both("stride_responses", frozenset())
    for number in range(600):
        key, version = chance.choice(parts)
        while both.queues[0]:
            for queue in both.queues:
                queue.popleft()
        came = chance.choice((0, 0, 0, 60))
        for queue in both.queues:
            queue.append_kept((key << 16 | version) << 32 | number, b"request", 100 - came, 7)
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
        _, _, why = both(bytes(frame[:end]), 0, quiet, 100)
        expected = end == len(frame) and not (code or throttle or large or came)
        assert damaged or (why == PASSED) == expected
        passed, stopped = passed + (why == PASSED), stopped + (why == WATCHED)
    assert passed > 100 and stopped > 100


def produce(acks: int, number: int, client_id: str = "t") -> bytes:
    return with_size(decoder.encode_request(PRODUCE, 11, {"acks": acks}, correlation_id=number, client_id=client_id))


class Version(NamedTuple):
    """The functions of C, or of Python."""

    Queue: type[Any]
    selection: Callable[[frozenset[int]], object]
    stride_watched: Callable[..., tuple[int, int, int, int]]
    stride_responses: Callable[..., tuple[int, int, int]]


def test_what_is_remembered(version: Version) -> None:
    """Only what is watched and gets a response, the last `limit` of them."""
    beat = with_size(decoder.encode_request(HEARTBEAT, 4, {}, correlation_id=9, client_id="t"))
    data = produce(-1, 1) + beat + produce(0, 2) + produce(1, 3) + produce(1, 4)
    queue = version.Queue()
    chosen = version.selection(WATCHED_HERE)
    at, last, number, doubtful = version.stride_watched(data, 0, len(data), MOST, queue, chosen, 2)
    assert (at, last, number, doubtful) == (len(data), len(data) - len(produce(1, 4)), 4, -1)
    assert list(queue) == [(PRODUCE << 16 | 11) << 32 | number for number in (3, 4)]


def test_where_it_stops(version: Version) -> None:
    queue = version.Queue()
    watched = version.selection(WATCHED_HERE)
    for number in (1, 2, 3):
        queue.append((METADATA << 16 | 12) << 32 | number)
    for number in (4, 5):
        queue.append((HEARTBEAT << 16 | 4) << 32 | number)
    answer = [with_size(struct.pack(">I", number) + bytes(20)) for number in range(8)]

    def go(data: bytes) -> tuple[int, int, int]:
        return version.stride_responses(data, 0, len(data), MOST, queue, watched)

    assert go(answer[0] + answer[1]) == (len(answer[0]), 0, WATCHED)
    assert go(answer[0] + answer[3]) == (len(answer[0]), 0, AWAITED)
    for _ in range(3):
        queue.popleft()
    assert go(answer[7] + answer[4] + answer[5][:10]) == (3 * len(answer[0]), 5, PASSED)
    assert not queue
    assert go(answer[1] + struct.pack(">II", MOST + 1, 0)) == (len(answer[0]), 1, OVERSIZE)


@pytest.fixture(params=["C", "Python"])
def version(request: pytest.FixtureRequest) -> Version:
    """Either version."""
    if request.param == "Python":
        return Version(PythonQueue, frozenset, strides.python_stride_watched, strides.python_stride_responses)
    if native is None:
        pytest.skip("the accelerator is not built")
    return Version(native.Queue, strides.selection_table, native.stride_watched, native.stride_responses)


def test_requests_with_the_same_number_are_kept_each_for_itself(version: Version) -> None:
    """Nothing keeps a client from asking twice under one correlation id: each response is judged with its own request."""
    queue, number = version.Queue(), (FETCH << 16 | 12) << 32 | 7
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


@needs_native
def test_wrong_arguments_are_refused() -> None:
    assert native is not None
    queue, table = native.Queue(), strides.selection_table(WATCHED_HERE)
    for data, at, end in ((b"abc", 0, 4), (b"abc", -1, 3)):
        with pytest.raises(ValueError):
            native.stride(data, at, end, MOST)
    with pytest.raises(TypeError):
        native.stride_responses(b"", 0, 0, MOST, deque(), table)
    with pytest.raises(TypeError):
        native.stride_watched(b"", 0, 0, MOST, queue, table)
    with pytest.raises(AttributeError):
        queue.append("no entry")
    with pytest.raises(IndexError):
        queue[0]


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
