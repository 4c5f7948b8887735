"""Large frames, recorded with a snap length: bytes, ends and records stay what they are."""

from __future__ import annotations

import hashlib
import os
import random
import select
import socket
import struct
import threading
import uuid
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest
from barnabas import decoder
from barnabas.captures import open_capture
from barnabas.captures.reading.verify import verify
from barnabas.plugins.rules.rules import Rule
from barnabas.proxy.events import ConnectionClosed, Counts
from barnabas.proxy.native.accelerator import native
from barnabas.proxy.ring.reader import Lost, RingReader, RingRecord
from barnabas.proxy.ring.ring import NONE, Kind, Ring, RingWriter
from harness import scripted, wire
from harness.scripted import answering
from harness.testbed import Testbed, next_event
from harness.waiting import PATIENCE, until
from torture.proxy.peers.wired_relay import WiredRelay

SNAPLEN = 1024
SIZES = (100, 70_000, 1 << 20, 300, 3_000_001, 64 << 10, 1500, 2 << 20, 5)


def frames(sizes: tuple[int, ...]) -> list[bytes]:
    """Produce requests of version 3 as far as their heads go: no transactional id, acks of 1."""
    head = struct.pack(">hhi", -1, 1, 5000)
    return [wire.request(0, 3, number, head + os.urandom(size)) for number, size in enumerate(sizes)]


def is_kept(kept: bytes | None, frame: bytes) -> bool:
    """Whether the beginning of a frame was kept; of whole frames, which do not decode, but for what is masked there."""
    if len(frame) > SNAPLEN:
        return kept == frame[:SNAPLEN]
    return kept is not None and len(kept) == len(frame) and all(a in (b, ord("*")) for a, b in zip(kept, frame, strict=True))


@pytest.mark.parametrize("lossless", [False, True])
def test_bytes_and_records(testbed: Testbed, tmp_path: Path, lossless: bool) -> None:
    proxy = testbed.proxy(testbed.broker(answering(None)).address, record=tmp_path, snaplen=SNAPLEN, lossless=lossless)
    asked = frames(SIZES)
    clients = [testbed.client(proxy.address) for _ in range(3)]

    def send(client: socket.socket) -> None:
        data = b"".join(asked)
        for at in range(0, len(data), 777_777):
            client.sendall(data[at : at + 777_777])

    for client in clients:
        threading.Thread(target=send, args=(client,), daemon=True).start()
    for client in clients:
        for number, frame in enumerate(asked):
            got = wire.read_frame(client)
            assert hashlib.sha256(got).digest() == hashlib.sha256(wire.response(number, frame)).digest()
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
        closed = next_event(proxy, ConnectionClosed)
        assert (closed.how, closed.sent) == ("fin", sum(map(len, asked)))
        assert closed.received == sum(len(frame) + 8 for frame in asked)
    proxy.stop()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 300_000
    with open_capture(tmp_path) as capture:
        assert capture.lost == []
        rows = list(capture.rows())
        assert sorted((row.connection, row.correlation_id) for row in rows) == sorted(
            (conn, number) for conn in {row.connection for row in rows} for number in range(len(SIZES))
        )
        for row in rows:
            frame = asked[row.correlation_id]
            assert (row.request_size, row.response_size) == (len(frame) - 4, len(frame) + 4)
            assert row.state == "paired"
            exchange = capture.exchange(row)
            assert is_kept(exchange.request, frame[4:])
            assert is_kept(exchange.response, wire.response(row.correlation_id, frame)[4:])
    assert [verify(path).state for path in tmp_path.glob("*.pcapng")] == ["fine"]


def test_half_close_and_reset_inside_of_a_large_frame(testbed: Testbed, tmp_path: Path) -> None:
    got: list[int] = []
    part_is_there, ended = threading.Event(), threading.Event()

    def script(sock: socket.socket) -> None:
        count = 0
        try:
            while part := sock.recv(1 << 20):
                count += len(part)
                if count == 3 << 20:
                    part_is_there.set()
            got.append(count)
            sock.sendall(wire.response(0, b"late"))
        except ConnectionResetError:
            got.append(-1)
        ended.set()

    proxy = testbed.proxy(testbed.broker(script).address, record=tmp_path, snaplen=SNAPLEN)
    (frame,) = frames((4 << 20,))
    client = testbed.client(proxy.address)
    client.sendall(frame[: 3 << 20])
    client.shutdown(socket.SHUT_WR)
    assert wire.read_frame(client) == wire.response(0, b"late")
    assert client.recv(1) == b""
    assert ended.wait(PATIENCE) and got == [3 << 20]
    ended.clear()
    part_is_there.clear()
    client = testbed.client(proxy.address)
    client.sendall(frame[: 3 << 20])
    assert part_is_there.wait(PATIENCE)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    assert ended.wait(PATIENCE) and got[1:] == [-1]
    proxy.stop()
    with open_capture(tmp_path) as capture:
        assert capture.note is None and all(path.exists() for path in tmp_path.glob("*.pcapng"))


def test_a_stalled_broker_stalls_one_connection_and_loses_nothing(testbed: Testbed, tmp_path: Path) -> None:
    go = threading.Event()

    def script(sock: socket.socket) -> None:
        first = wire.exactly(sock, 12)
        if int.from_bytes(first[:4], "big") > 1 << 20:
            go.wait(PATIENCE)
        while True:
            rest = wire.exactly(sock, int.from_bytes(first[:4], "big") - 8)
            sock.sendall(wire.response(int.from_bytes(first[8:12], "big"), hashlib.sha256(rest).digest()))
            first = wire.exactly(sock, 12)

    proxy = testbed.proxy(testbed.broker(script).address, record=tmp_path, snaplen=SNAPLEN)
    asked = frames((30 << 20, 20, 90_000, 10 << 20))
    stalled, free = testbed.client(proxy.address), testbed.client(proxy.address)
    threading.Thread(target=lambda: [stalled.sendall(frame) for frame in asked], daemon=True).start()
    until(lambda: not select.select([], [stalled], [], 0)[1])  # no more is taken
    assert wire.ask(free, asked[1])[8:] == hashlib.sha256(asked[1][12:]).digest()
    go.set()
    for frame in asked:
        assert wire.read_frame(stalled)[8:] == hashlib.sha256(frame[12:]).digest()


@pytest.fixture
def ring() -> Iterator[tuple[RingWriter, RingReader]]:
    memory = Ring.create(4 << 20, 16)
    bells = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(2)]
    memory.admit(0, lossless=False)
    yield RingWriter(memory, {0: bells[0]}), RingReader(memory, 0, *bells)
    for bell in bells:
        os.close(bell)


def test_readers_hear_of_skipped_bytes_and_count_them_when_they_are_late(ring: tuple[RingWriter, RingReader]) -> None:
    writer, reader = ring
    writer.write(Kind.OPENED, 1, 0, 5, b'{"streams": [0, 0]}')
    writer.write(Kind.DATA, 1, 0, 6, b"x" * 100, 0, 0)
    writer.take(Kind.SKIPPED, 1, 0, 7, 0, 5000, 100)
    writer.write(Kind.DATA, 1, 0, 8, b"y" * 10, 0, 5100)
    seen = list(reader.read())
    assert [(record.kind, record.first_frame) for record in seen[2:3]] == [(Kind.SKIPPED, 5000)]
    assert not any(isinstance(record, Lost) for record in seen) and len(seen) == 4
    for number in range(20):
        writer.take(Kind.SKIPPED, 1, 0, 9, 0, 1000, 5110 + 1000 * number)
    writer.write(Kind.PRESENT, 1, 0, 9, b'{"streams": [25110, 0]}')
    writer.write(Kind.DATA, 1, 0, 10, b"zzzz", 1, 25_110)
    found = list(reader.read())
    assert found[-2] == Lost(1, 0, 25_111 - 5110)
    assert (found[-1].kind, bytes(found[-1].data)) == (Kind.DATA, b"zzz")
    assert NONE not in [record.first_frame for record in found[-1:]]


@pytest.mark.skipif(native is None, reason="the accelerator is not built")
@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_skipped_but_bytes_beyond_the_snap_length(seed: int) -> None:
    """Frames of all sizes, in pieces of all sizes, many of which end soon after a frame has begun; sometimes Python moves a piece."""
    chance = random.Random(seed)
    asked = frames(tuple(chance.choice((50, 5_000, 70_000, 300_000, 1 << 20)) for _ in range(12)))
    stream = b"".join(asked)
    starts = [0, *accumulate(map(len, asked))]
    wanted = {at for start, frame in zip(starts, asked, strict=False) for at in range(start, start + min(len(frame), SNAPLEN + 4))}
    relay = WiredRelay(snaplen=SNAPLEN)
    session = relay.session()
    try:
        seen = bytearray()
        skipped = at = 0
        while at < len(stream):
            soon = next(start for start in starts if start > at - 1) + chance.randrange(1, 1500)
            end = soon if soon > at and chance.random() < 0.3 else at + chance.choice((1, 700, 40_000, 200_000))
            piece, at = stream[at:end], end
            mover, relay.mover = relay.mover, None if chance.random() < 0.2 else relay.mover
            session.from_client(piece)
            relay.mover = mover
            for record in relay.read():
                assert isinstance(record, RingRecord)
                if record.kind == Kind.SKIPPED:
                    hole = range(len(seen), len(seen) + record.first_frame)
                    assert not wanted.intersection(hole)
                    skipped += len(hole)
                    seen += stream[hole.start : hole.stop]
                elif record.kind == Kind.DATA:
                    seen += record.data
        assert seen == stream and session.broker.got == stream
        assert skipped > len(stream) // 10
    finally:
        relay.tidy()
        relay.shut()


def test_all_bytes_are_counted(testbed: Testbed) -> None:
    proxy = testbed.proxy(testbed.broker(answering(None)).address, snaplen=SNAPLEN)
    (frame,) = frames((8 << 20,))
    client = testbed.client(proxy.address)
    threading.Thread(target=client.sendall, args=(frame,), daemon=True).start()
    assert wire.read_frame(client) == wire.response(0, frame)
    while True:
        counts = next_event(proxy, Counts)
        if (counts.request_bytes, counts.response_bytes) == (len(frame), len(frame) + 8):
            break
    assert counts.lost_bytes == 0


def test_large_fetch_responses_are_followed_to_their_node_endpoints(testbed: Testbed) -> None:
    """Where addresses are rewritten, the end of a bulk response is looked at."""
    topic = {"topic_id": str(uuid.UUID(int=7)), "partitions": []}
    for number, size in enumerate((2 << 20, 100, 300_000, 5)):
        topic["partitions"].append({"partition_index": number, "high_watermark": number, "records": os.urandom(size)})
    endpoints = [{"node_id": 3, "host": "secret-broker", "port": 9092, "rack": None}]
    answers = [
        wire.with_size(
            decoder.encode_response(1, 16, {"responses": [topic], "node_endpoints": given}, correlation_id=number)
        )
        for number, given in enumerate(([], endpoints, []))
    ]

    proxy = testbed.proxy(testbed.broker(scripted.each(lambda _, number: answers[number])).address, snaplen=SNAPLEN)
    client = testbed.client(proxy.address)
    for number, answer in enumerate(answers):
        got = wire.ask(client, wire.with_size(decoder.encode_request(1, 16, {"max_wait_ms": 1}, correlation_id=number)))
        if number == 1:
            assert len(got) == len(answer) and got[:-80] == answer[:-80]
            message = decoder.decode_response(got[4:], api_key=1, api_version=16)
            assert not message["node_endpoints"]
        else:
            assert got == answer


def test_a_response_that_is_kept_back_behind_a_large_one(testbed: Testbed) -> None:
    """What is kept back of a response behind a large one comes in pieces."""
    commit = decoder.facts.api_key("OffsetCommit")
    large = wire.request(0, 3, 1, bytes(1 << 20))
    asked = wire.with_size(decoder.encode_request(commit, 8, {"group_id": "g"}, correlation_id=2))
    topic = {"name": "t", "partitions": [{"partition_index": number} for number in range(8_000)]}
    answer = wire.with_size(decoder.encode_response(commit, 8, {"topics": [topic]}, correlation_id=2))
    answers = [wire.response(1, bytes(1 << 20)), answer]
    beginning = threading.Event()

    def script(sock: socket.socket) -> None:
        wire.read_frame(sock)
        wire.ask_or_end(sock, answers[0])
        for at in range(0, len(answer), 20_000):  # each is received by itself
            sock.sendall(answer[at : at + 20_000])
            beginning.wait(0.1)

    rule = Rule.of("api == OffsetCommit and err", edit={"throttle_time_ms": 1})
    proxy = testbed.proxy(testbed.broker(script).address, snaplen=SNAPLEN, rules=[rule])
    client = testbed.client(proxy.address)
    for request, response in zip((large, asked), answers, strict=True):
        assert wire.ask(client, request) == response
