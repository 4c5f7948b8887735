"""The end of a reader of the ring: the time for the rest is bounded, and what was not read is counted."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator

import pytest
from barnabas.decoder import ExchangeDone
from barnabas.decoder.connection.events import Closed
from barnabas.proxy.events import Event, NotInspected
from barnabas.proxy.observers.inspector import InspectingTask
from barnabas.proxy.observers.observer_loop import ObserverLoop, SupervisorLink
from barnabas.proxy.observers.ring_feed import ConnectionEnds, RingFeed
from barnabas.proxy.observers.settings import InspectorSettings
from barnabas.proxy.observers.traffic_decoder import TrafficDecoder
from barnabas.proxy.processes.messages import Stop, decode, encode
from barnabas.proxy.ring.merged_rings import RingAccess
from barnabas.proxy.ring.ring import Kind, Ring, RingWriter
from harness import wire

ENDS = {"client": ["10.0.0.1", 1], "broker": ["10.0.0.2", 9092], "upstream": ["10.0.0.3", 2], "streams": [0, 0]}
CHUNKS = 100


@pytest.fixture
def supervisor() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def rings(count: int) -> tuple[RingAccess, int]:
    """Rings with requests that nobody has read, the end of the traffic behind them, and how many bytes of data they have."""
    written, size = [], 0
    bell = os.eventfd(0, os.EFD_NONBLOCK)
    for worker in range(count):
        ring = Ring.create(1 << 20, 1024)
        ring.admit(0, lossless=False)
        writer = RingWriter(ring, {0: bell})
        writer.write(Kind.OPENED, worker, 0, 1, json.dumps(ENDS).encode())
        stream = 0
        for number in range(CHUNKS):
            data = wire.request(18, 0, number)
            writer.write(Kind.DATA, worker, 0, 1, data, 0, stream)
            stream += len(data)
        writer.write(Kind.STOP, 0, 0, 1, b"")
        written.append((os.dup(ring.fd), os.eventfd(0, os.EFD_NONBLOCK)))
        size += stream
    return RingAccess(written, 0, bell), size


def sent(ours: socket.socket) -> list[Event]:
    found = []
    ours.setblocking(False)
    try:
        while packet := ours.recv(1 << 16):
            found.append(decode(packet))
    except BlockingIOError:
        pass
    return [event for event in found if isinstance(event, Event)]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("seconds", [0.0, 600.0], ids=["no time", "time"])
def test_what_the_inspector_has_no_time_for_is_counted(
    supervisor: tuple[socket.socket, socket.socket], workers: int, seconds: float
) -> None:
    ours, theirs = supervisor
    ours.send(encode(Stop(time.monotonic() + seconds)))
    access, size = rings(workers)
    link = SupervisorLink(theirs)
    task = InspectingTask(link, InspectorSettings(access, "info", flight=None, live=None, commands=None))
    loop = ObserverLoop(link, access, None, RingFeed(task.decoder), task)
    loop.run()
    assert loop.feed.finished == bool(seconds)
    read = sum(loop.feed.bytes)
    assert read == size if seconds else read <= len(wire.request(18, 0, 0))  # not even the rest of a batch
    missed = [event.lost_bytes for event in sent(ours) if isinstance(event, NotInspected)]
    assert missed == ([] if seconds else [size - read])


def test_a_reader_whose_supervisor_is_gone_reads_what_is_there(supervisor: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = supervisor
    ours.close()
    access, size = rings(1)
    link = SupervisorLink(theirs)
    task = InspectingTask(link, InspectorSettings(access, "info", flight=None, live=None, commands=None))
    loop = ObserverLoop(link, access, None, RingFeed(task.decoder), task)
    loop.run()
    assert sum(loop.feed.bytes) == size


@pytest.mark.parametrize("side", ["both", "broker"])
def test_the_end_of_a_connection_with_many_requests_in_flight_is_left(side: str) -> None:
    seen: list[object] = []
    traffic = TrafficDecoder(seen.append, over=lambda: sum(type(each) is ExchangeDone for each in seen) >= 300)
    traffic.opened(1, 1, ConnectionEnds(("10.0.0.1", 1), ("10.0.0.2", 9092)))
    requests = [wire.request(18, 0, number) for number in range(2000)]
    traffic.data(1, 0, 2, b"".join(requests))
    if side == "broker":
        traffic.ended(1, 1, 3)
    traffic.closed(1, 4)
    done = sum(type(each) is ExchangeDone for each in seen)
    assert 300 <= done < 600 and isinstance(seen[-1], Closed)
    assert traffic.unseen_bytes == (len(requests) - done) * (len(requests[0]) - 4)
