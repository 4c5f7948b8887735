"""Every allocation of the accelerator fails once, in turn; run as a program, so that a crash ends a process of its own.

    PYTHONPATH=tests python tests/torture/native/no_memory.py

For each scenario: a call may raise MemoryError, or do without. Then the same is done again, with memory, and has to give what
it gives where nothing ever failed: nothing was lost, taken twice, or freed twice.
"""

from __future__ import annotations

import _testcapi
import os
import struct
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from barnabas import decoder
from barnabas.captures.foreign.importer import Importer
from barnabas.captures.native.accelerator import native as recording
from barnabas.captures.pcap.packets import ACK, SYN, build
from barnabas.captures.pcap.packets import block as packet_block
from barnabas.captures.pcap.sources import CaptureSource
from barnabas.captures.reading.indexing.frame_pieces import FramePieces
from barnabas.captures.reading.indexing.index_builder import _IndexConsumer
from barnabas.captures.reading.indexing.scan import Scanner
from barnabas.captures.reading.indexing.skim import Skimmer
from barnabas.captures.recording import bulk_names
from barnabas.captures.recording.index import RECORD, IndexEncoder
from barnabas.captures.recording.native_recorder import shape
from barnabas.captures.recording.segment import check as faults
from barnabas.captures.tables import bulk_batches
from barnabas.decoder import records
from barnabas.decoder.codec.decode import description
from barnabas.decoder.codec.project import reader
from barnabas.decoder.native.accelerator import native as reading
from barnabas.decoder.records import Record, encode_batch
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.plan import plan
from barnabas.plugins.rules.rule_engine import RuleEngine
from barnabas.plugins.rules.rules import Rule
from barnabas.proxy.native.accelerator import native
from barnabas.proxy.relay.addressing.node_endpoint_scanner import NodeEndpointScanner
from barnabas.proxy.relay.interception.interest.api_version_bitmap import api_version_bitmap
from barnabas.proxy.relay.interception.interest.header_prefix import asked_paths
from barnabas.proxy.relay.interception.interest.response_interest import ResponseInterest
from barnabas.proxy.ring.reader import RingReader
from barnabas.proxy.ring.ring import CHUNK, NONE, Kind, Ring, RingWriter
from harness.peers.frame_scan import FrameScan
from harness.wire import with_size

PRODUCE, METADATA, HEARTBEAT, FETCH = (facts.api_key(name) for name in ("Produce", "Metadata", "Heartbeat", "Fetch"))
QUIET = 100
"""So many runs without MemoryError, and there is no allocation left that could fail."""

Step = Callable[[], Any]
Scenario = Callable[[], tuple[Step, Callable[[], Any]]]
"""Makes what it needs, and gives what is done without memory, and what is to be seen of it afterwards."""


def failing(number: int, step: Step) -> tuple[bool, Any]:
    """Do it while the allocation of this number fails: whether that raised, and what it gave."""
    _testcapi.set_nomemory(number, number + 1)
    try:
        result = step()
    except MemoryError:
        _testcapi.remove_mem_hooks()
        return True, None
    finally:
        _testcapi.remove_mem_hooks()
    return False, result


def check(name: str, scenario: Scenario) -> int:
    """How many allocations failed with a MemoryError."""
    step, seen = scenario()
    expected = step(), seen()
    failed = quiet = number = 0
    while quiet < QUIET:
        step, seen = scenario()
        raised, result = failing(number, step)
        failed, quiet, number = failed + raised, 0 if raised else quiet + 1, number + 1
        if raised:
            result = step()
        assert (result, seen()) == expected, f"{name}: after the allocation {number} had failed, it is another"
    return failed


def nothing() -> None:
    return None


def message() -> bytes:
    topics = [
        {"name": f"topic-{n}", "partitions": [{"partition_index": p, "replica_nodes": [1, 2, 3]} for p in range(3)]}
        for n in range(4)
    ]
    brokers = [{"node_id": n, "host": f"host-{n}", "port": 9092, "rack": "r" * n} for n in range(3)]
    return decoder.encode_body("response", METADATA, 12, {"brokers": brokers, "topics": topics, "cluster_id": "c" * 22})


def making_a_reader() -> tuple[Step, Callable[[], Any]]:
    described, body = description(plan("response", METADATA, 12).root), message()
    return lambda: reading.Reader(described)(body, 0), nothing


def making_messages() -> tuple[Step, Callable[[], Any]]:
    body, frame = message(), beat(70_000)[4:]
    answer = b"\0\1\0\0\0" + body

    def made() -> Any:
        whole = decoder.decode_body("response", METADATA, 12, body)
        asked, given = decoder.decode_request(frame), decoder.decode_response(answer, api_key=METADATA, api_version=12)
        one = whole["cluster_id"], whole["controller_id"], asked["member_id"]
        return one, whole.values, asked.values, asked.header, given.header, decoder.peek_request(frame), decoder.decode_request_header(frame)

    return made, nothing


def projecting() -> tuple[Step, Callable[[], Any]]:
    found, body = reader(plan("response", METADATA, 12), ("brokers[*].host", "topics[*].name")), message()
    return lambda: found(body, 0), nothing


def batch() -> bytes:
    return bytes(encode_batch([Record(n, n, b"key-%d" % n, b"v" * 300, (("h", b"x"),)) for n in range(5)]))


def reading_records() -> tuple[Step, Callable[[], Any]]:
    (found,) = records.batches(batch())
    return lambda: list(found.records()), nothing


def indexing_records() -> tuple[Step, Callable[[], Any]]:
    (found,) = records.batches(batch())
    return lambda: [records.RecordIndex(found).span(n) for n in range(5)], nothing


def produce(number: int, size: int = 10, topic: str = "t") -> bytes:
    data = [{"name": topic, "partition_data": [{"index": 0, "records": encode_batch([Record(0, 1, None, bytes(size))])}]}]
    fields = {"acks": -1, "transactional_id": "payer", "topic_data": data}
    frame = decoder.encode_request(PRODUCE, 9, fields, correlation_id=number, client_id="c")
    return with_size(frame)


def beat(number: int) -> bytes:
    fields = {"group_id": "g", "member_id": "m" * 600}
    return with_size(decoder.encode_request(HEARTBEAT, 4, fields, correlation_id=number, client_id=f"client-{number}"))


def header_prefixes() -> tuple[Step, Callable[[], Any]]:
    of = plan("request", PRODUCE, 9)
    found, frame = reader(of, asked_paths(of)), produce(1, 9000)
    return lambda: native.header_prefix(found, of.header_version, True, frame), nothing


def keeping_requests() -> tuple[Step, Callable[[], Any]]:
    """A chunk of requests that are kept; then the chunk of their responses."""
    rules = ResponseInterest(RuleEngine([Rule.of("(api == Heartbeat or api == Produce) and err", delay="1ms")]), frozenset(), 40)
    asked = b"".join([beat(n) for n in range(20)] + [produce(n, 9000) for n in range(20, 24)])
    answers = b"".join(
        with_size(decoder.encode_response(HEARTBEAT, 4, {"throttle_time_ms": n % 3}, correlation_id=n)) for n in range(20)
    )
    passing = api_version_bitmap(key << 16 | version for key in (HEARTBEAT, PRODUCE) for version in range(20))
    scan = FrameScan(passing=passing, rules=rules, most=1 << 20)

    def step() -> Any:
        # what was taken before the memory ended is not known from outside: a relay ends such a connection
        scan.queue.clear()
        sent = scan.requests(asked)
        frame, _, size = scan.queue.kept() or (b"", 0, 0)
        given = scan.responses(answers)
        return sent, frame, size, given, len(scan.queue), scan.queue.memory()

    return step, nothing


def packing_rows() -> tuple[Step, Callable[[], Any]]:
    """The rows of the table `batches`, of three Produce requests that lie one behind the other."""
    frames = [produce(number)[4:] for number in range(3)]
    places = b"".join(struct.pack("=qii", sum(map(len, frames[:n])), len(frame), 0) for n, frame in enumerate(frames))
    way = bulk_batches._way(True, PRODUCE, 9, True, True)
    return lambda: recording.batches(b"".join(frames), places, (way,), {}, {}, {}), nothing


def finding_names() -> tuple[Step, Callable[[], Any]]:
    """The names of three Produce requests that are packets of a segment, the last of which has the name of the first."""
    frames = [produce(number, 20, topic)[4:] for number, topic in enumerate(("t", "u" * 600, "t"))]
    ends = (("10.0.0.1", 40000), ("10.0.0.2", 9092))
    blocks = [packet_block(*ends, 1, 1, ACK, with_size(frame), 0, 0, 5, 1) for frame in frames]
    data = b"".join(blocks)
    offsets = struct.pack("=3q", *(sum(map(len, blocks[:n])) for n in range(3)))
    sizes = struct.pack("=3I", *map(len, frames))
    way = bulk_names._way(True, PRODUCE, 9)

    def step() -> Any:
        starts = struct.unpack("=3q", recording.frames(data, offsets, sizes))
        places = b"".join(struct.pack("=qii", start, len(frame), 0) for start, frame in zip(starts, frames, strict=True))
        return starts, recording.names(data, places, struct.pack("=3i", 0, 1, 2), 3, (way,), {})

    return step, nothing


class Entry:
    correlation = 5
    weight = 1000


def queueing() -> tuple[Step, Callable[[], Any]]:
    queue = native.Queue()
    for number in range(8):  # the next one needs more room
        queue.append(number)
    entry = Entry()

    def step() -> Any:
        queue.append(entry)
        queue.append_kept(1 << 62, b"frame" * 10, 5, 50)
        while len(queue) > 1:
            queue.popleft()
        return queue.kept(), queue.memory()

    def again() -> Any:
        while len(queue) > 8:
            queue.popleft()
        return step()

    done: list[int] = []

    def once() -> Any:
        done.append(1)
        return step() if len(done) == 1 else again()

    return once, nothing


def scanning_node_endpoints() -> tuple[Step, Callable[[], Any]]:
    body = decoder.encode_response(FETCH, 16, {"responses": [{"partitions": [{"records": batch()}]}]}, correlation_id=1)
    return lambda: NodeEndpointScanner(FETCH, 16).feed(memoryview(body)), nothing


def recorder_and_chunks(counting: bool) -> tuple[Any, Any, bytearray, array[int], list[tuple[int, bytes]]]:
    """A recorder with what it writes to, and the chunks of a few exchanges, which are cut in the middle of frames."""
    context = recording.RecorderContext(lambda *asked: shape(False, *asked), 0)
    context.counting = counting
    recorder, buffer, rows, places = recording.ConnectionRecorder(context, 7), recording.Buffer(), bytearray(), array("Q", [1, 1])
    names = ["", "c", *(f"client-{n}" for n in range(40))]
    if not counting:
        recorder.attach(places, bytes(14 + 40), bytes(14 + 40), buffer, rows, names.index)
    assert all(context.knows(key, version) for key, version in ((HEARTBEAT, 4), (PRODUCE, 9)))
    silent = decoder.encode_request(PRODUCE, 9, {"acks": 0}, correlation_id=9, client_id="c")
    asked = [*(beat(n) for n in range(18)), with_size(silent), produce(18, 200_000), produce(19, 70_000)]
    answers = [with_size(decoder.encode_response(HEARTBEAT, 4, {}, correlation_id=n)) for n in range(18)]
    answers += [with_size(decoder.encode_response(PRODUCE, 9, {}, correlation_id=n)) for n in (18, 19)]
    sent, given = b"".join(asked), b"".join(answers)
    cut = 650
    return recorder, buffer, rows, places, [
        (0, sent[:cut]), (0, sent[cut:-cut]), (0, sent[-cut:]), (1, given[:cut]), (1, given[cut:])
    ]  # fmt: skip


def recording_chunks(counting: bool) -> int:
    """What a recorder takes. When the memory ends, whole frames were written and no more, and those that wait are all there;
    then everything is released, and freed once."""
    failed = quiet = number = 0
    whole: Any = None
    while quiet < QUIET:
        recorder, buffer, rows, places, chunks = recorder_and_chunks(counting)

        def step(recorder: Any = recorder, chunks: list[tuple[int, bytes]] = chunks) -> None:
            for direction, data in chunks:
                at = 0
                while at < len(data):
                    at = recorder.feed(direction, data, at, 5, 0, 1 << 40)

        if whole is None:
            step()
            whole = bytes(buffer), bytes(rows), recorder.waiting()
            continue
        raised, _ = failing(number, step)
        failed, quiet, number = failed + raised, 0 if raised else quiet + 1, number + 1
        assert whole[0].startswith(bytes(buffer)) and whole[1].startswith(bytes(rows)), "something was written in part"
        assert places[0] <= 1 + sum(len(data) for direction, data in chunks if not direction)
        waiting = recorder.waiting()
        assert [recorder.frame(n) for n in range(len(waiting))] == [frame for frame, *_ in recorder.release()[0]]
        if not raised:
            assert (bytes(buffer), bytes(rows), waiting) == whole
    return failed


def giving_up() -> int:
    """Requests that get no response. When the memory ends, each is either in the index or still waits."""
    failed = quiet = number = 0
    while quiet < QUIET:
        recorder, buffer, rows, _, chunks = recorder_and_chunks(False)
        for direction, data in chunks[:3]:
            at = 0
            while at < len(data):
                at = recorder.feed(direction, data, at, 5, 0, 1 << 40)
        if number % 2:
            recorder.detach()
        waiting, before, done = len(recorder.waiting()), bytes(buffer), len(rows) // RECORD.size
        names = ["", "c", *(f"client-{n}" for n in range(40))]

        def step(recorder: Any = recorder, rows: bytearray = rows, names: list[str] = names) -> None:
            recorder.give_up(rows, names.index)

        raised, _ = failing(number // 2, step)
        failed, quiet, number = failed + raised, 0 if raised else quiet + 1, number + 1
        assert len(rows) // RECORD.size - done + len(recorder.waiting()) == waiting > 18
        step()
        assert len(rows) // RECORD.size - done == waiting and not recorder.waiting() and bytes(buffer) == before
    return failed


def capture() -> tuple[bytes, bytes]:
    """A pcap: two connections that begin, and the packets behind that, which the accelerator takes by itself: frames of all
    sizes, cut anywhere, and packets of nothing."""
    begins, rest = [], []
    for client in (40000, 40001):
        ends, next_ = (("10.0.0.1", client), ("10.0.0.2", 9092)), [1000, 2000]

        def put(into: list[bytes], side: int, flags: int, data: bytes = b"", ends: Any = ends, next_: list[int] = next_) -> None:
            packet = build(ends[side], ends[1 - side], next_[side], next_[1 - side], flags, data, side)
            into.append(struct.pack("<IIII", 1_795_223_022, len(into), len(packet), len(packet)) + packet)
            next_[side] += len(data) + bool(flags & SYN)

        put(begins, 0, SYN)
        put(begins, 1, SYN | ACK)
        put(begins, 0, ACK)
        answers = [with_size(decoder.encode_response(HEARTBEAT, 4, {"error_code": n % 2 * 27}, correlation_id=n)) for n in range(9)]
        answers.append(with_size(decoder.encode_response(PRODUCE, 9, {}, correlation_id=9)))
        for number, answer in enumerate(answers):
            into, asked = (rest if number else begins), produce(9, 4000) if number == 9 else beat(number)
            for data in (asked[:300], asked[300:]):
                put(into, 0, ACK, data)
            put(into, 1, ACK, answer)
            put(into, 0, ACK)
    head = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1)
    return head + b"".join(begins), b"".join(rest)


def scanning() -> int:
    """What makes the index of a capture of others. When the memory ends, whole records were made and no more; everything is
    released, and freed once."""
    failed = quiet = number = 0
    whole: bytes = b""
    begins, rest = capture()
    while quiet < QUIET:
        with tempfile.TemporaryFile() as file:
            file.write(begins)
            file.flush()
            encoder = IndexEncoder()
            skimmer = Skimmer(encoder, FramePieces(), lambda pieces: scanner.windows.read(pieces))  # noqa: B023
            scanner = Scanner(_IndexConsumer(encoder, skimmer))
            scanner.windows.begin(file, "capture")
            scanner.windows.advance()
            file.seek(0, os.SEEK_END)
            file.write(rest)
            file.flush()
            if not whole:
                scanner.windows.advance()
                whole = bytes(encoder.records)
                assert len(whole) == 20 * RECORD.size
                continue
            raised, _ = failing(number, scanner.windows.advance)
            failed, quiet, number = failed + raised, 0 if raised else quiet + 1, number + 1
            records_made = bytes(encoder.records)
            assert whole.startswith(records_made) and len(records_made) % RECORD.size == 0, "something was written in part"
            assert raised or records_made == whole
    return failed


def importing() -> int:
    """What an import takes: its recorder raises nothing, and whatever it could not take, the segment is sound."""
    failed = quiet = number = 0
    whole: dict[str, int] = {}
    begins, rest = capture()
    while quiet < QUIET:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "capture")
            path.write_bytes(begins)
            importer = Importer(Path(folder, "recording"))
            importer.begin(CaptureSource(path))
            importer.advance()
            with path.open("ab") as file:
                file.write(rest)
            if whole:
                # not Importer.advance, which sets handlers of signals: Python's enum module loses a MemoryError there
                raised, _ = failing(number, importer.scanner.windows.advance)
                bad = raised or importer.counts != whole
                failed, quiet, number = failed + bad, 0 if bad else quiet + 1, number + 1
            else:
                importer.advance()
                whole = importer.counts
                assert whole["exchanges"] == 20
            importer.close()
            assert [faults(segment) for segment in Path(folder, "recording").glob("*.pcapng")] == [[]]
    return failed


class RecordingConsumer:
    """A consumer of a ring whose connection 7 has a native recorder, until that fails."""

    def __init__(self, recorder: Any) -> None:
        self.recorder, self.failures = recorder, 0

    def begin(self) -> tuple[dict[int, Any], set[int], int, int]:
        return {} if self.failures else {7: self.recorder}, set(), 0, 1 << 40

    def end(self, requests: int, responses: int) -> None:
        pass

    def failed(self, connection: int, error: Exception) -> None:
        assert isinstance(error, MemoryError)
        self.failures += 1


def feeding_from_a_ring() -> int:
    """What an observer's recorder takes from the ring. Without memory only whole frames were written, and the consumer gets the error or
    the reader raises it."""
    failed = quiet = number = 0
    whole: Any = None
    bell = os.eventfd(0, os.EFD_NONBLOCK)
    while quiet < QUIET:
        recorder, buffer, rows, _, chunks = recorder_and_chunks(False)
        ring = Ring.create(4 * CHUNK, 64)
        ring.admit(0, lossless=True)
        writer, reader_, streams = RingWriter(ring, {0: bell}), RingReader(ring, 0, bell, bell), [0, 0]
        for direction, data in chunks:
            for start in range(0, len(data), CHUNK // 2):
                part = data[start : start + CHUNK // 2]
                writer.write(Kind.DATA, 7, direction, 5, part, NONE if streams[direction] else 0, streams[direction])
                streams[direction] += len(part)
        reader_._streams[7] = array("q", (0, 0, -1, -1))
        consumer = RecordingConsumer(recorder)

        def step(reader_: RingReader = reader_, consumer: RecordingConsumer = consumer) -> int:
            count = 0
            for _, _, direction, time_ns, data, _ in reader_.read(consumer=consumer):
                at, count = 0, count + 1
                while at < len(data) and not consumer.failures:  # what comes as a record goes to the recorder all the same
                    at = consumer.recorder.feed(direction, data, at, time_ns, 0, 1 << 40)
            return count

        if whole is None:
            assert step() == 0, "not all of it went to the recorder"
            whole = bytes(buffer), bytes(rows)
            assert all(whole)
        else:
            raised, _ = failing(number, step)
            bad = raised or consumer.failures > 0
            failed, quiet, number = failed + bad, 0 if bad else quiet + 1, number + 1
            assert whole[0].startswith(bytes(buffer)) and whole[1].startswith(bytes(rows)), "something was written in part"
            assert bad or (bytes(buffer), bytes(rows)) == whole
        ring.close()
    os.close(bell)
    return failed


SCENARIOS: dict[str, Scenario] = {
    "making a reader": making_a_reader,
    "making messages": making_messages,
    "projecting": projecting,
    "reading records": reading_records,
    "indexing records": indexing_records,
    "header prefixes": header_prefixes,
    "keeping requests": keeping_requests,
    "queueing": queueing,
    "scanning node endpoints": scanning_node_endpoints,
    "packing rows": packing_rows,
    "finding names": finding_names,
}


def main() -> None:
    begun = time.process_time()
    for name, scenario in SCENARIOS.items():
        print(f"{name}: {check(name, scenario)}", flush=True)
    print(f"scanning: {scanning()}", flush=True)
    print(f"importing: {importing()}", flush=True)
    print(f"feeding from a ring: {feeding_from_a_ring()}", flush=True)
    print(f"giving up: {giving_up()}", flush=True)
    for counting in (False, True):
        print(f"recording{', counting' * counting}: {recording_chunks(counting)}", flush=True)
    print(f"{time.process_time() - begun:.1f} s of CPU", file=sys.stderr)


if __name__ == "__main__":
    main()
