"""The relay's own classes between fake sockets: every cut, every partial send, in the order a test chooses.

A `SteppedRelay` is a `Relay` whose loop does not run. `SteppedRelay.session()` gives a connection with a `FakeSocket` at either end;
the test says which bytes arrive as one segment and how many the other side takes. The ring is read afterwards
with a real `RingReader`.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import struct
from collections import deque
from typing import Any

from barnabas.decoder.wire.frame import MAX_FRAME, foreign_protocol
from barnabas.plugins.rules.rules import Rule
from barnabas.proxy.events import Address, Event, NotKafka
from barnabas.proxy.processes.shared_counters import FileRule
from barnabas.proxy.processes.worker_shared_state import SharedState
from barnabas.proxy.relay.addressing.address_map import AddressMap
from barnabas.proxy.relay.connections.connection import Connection
from barnabas.proxy.relay.connections.half_connection import HalfConnection
from barnabas.proxy.relay.connections.states import ConnectionState
from barnabas.proxy.relay.loop import Relay
from barnabas.proxy.relay.relay_settings import RelaySettings, WorkerResources
from barnabas.proxy.ring.reader import Lost, RingReader, RingRecord
from barnabas.proxy.ring.ring import NONE, Kind, Ring

BROKER = ("10.20.30.40", 9092)
"""Where the brokers are that responses name: nobody may ever hear of it."""
OWN_HOST = "127.0.0.1"
OWN_PORT = 30000
"""A broker's port here: this plus its own."""


class FakeSocket:
    """One end. `arrive` what the peer sent, one segment each; `room` is what it takes of what is sent to it."""

    def __init__(self, peer: Address) -> None:
        self.peer = peer
        self.inbox: deque[bytes] = deque()
        self.ended = self.reset = self.closed = self.shut = False
        self.room: float = float("inf")
        self.got = bytearray()
        """What the relay sent to this end."""

    def recv_into(self, view: memoryview) -> int:
        if self.inbox:
            segment = self.inbox.popleft()
            taken = segment[: len(view)]
            view[: len(taken)] = taken
            if len(taken) < len(segment):
                self.inbox.appendleft(segment[len(taken) :])
            return len(taken)
        if self.reset:
            raise ConnectionResetError(104, "reset")
        if self.ended:
            return 0
        raise BlockingIOError

    def send(self, data: bytes | memoryview) -> int:
        if self.closed or self.shut:
            raise BrokenPipeError(32, "closed")
        taken = int(min(len(data), self.room))
        if not taken:
            raise BlockingIOError
        self.room -= taken
        self.got += data[:taken]
        return taken

    def shutdown(self, how: int) -> None:
        self.shut = True

    def close(self) -> None:
        self.closed = True

    def fileno(self) -> int:
        return -1

    def setsockopt(self, *_: Any) -> None: ...

    def getsockopt(self, *_: Any) -> int:
        return 0

    def setblocking(self, value: bool) -> None: ...

    def getpeername(self) -> Address:
        if self.reset:
            raise OSError(107, "not connected")
        return self.peer

    def getsockname(self) -> Address:
        return OWN_HOST, 40000


class Ports(AddressMap):
    """The address map without listeners."""

    def port_for(self, broker: Address, node: int) -> int | None:
        return OWN_PORT + broker[1] % 30000 if broker[0] and broker[1] > 0 else None


class SteppedRelay(Relay):
    """A relay with nothing but its classes; `events` keeps what it reports."""

    def __init__(self, rules: list[Rule] | None = None, lossless: bool = False) -> None:
        self.shared = Ring.create()
        self.shared.admit(0, lossless=lossless)
        self._bells = os.eventfd(0, os.EFD_NONBLOCK), os.eventfd(0, os.EFD_NONBLOCK)
        ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener = socket.create_server((OWN_HOST, 0))
        resources = WorkerResources(
            ring=os.dup(self.shared.fd),
            shared_state=SharedState.create(1, 0).fd,
            bells={0: self._bells[0]},
            room_bell=self._bells[1],
            lossless=lossless,
            listener=listener.detach(),
        )
        settings = RelaySettings(resources=resources, upstream=BROKER, rules=tuple(FileRule(rule) for rule in rules or []))
        self.events: list[Event] = []
        super().__init__(ours, settings)
        self.editor._addresses = Ports(
            (OWN_HOST, 1), BROKER, fixed=False, same_host=lambda *_: False, opened=lambda *_: None, emit=self.emit
        )
        self.reader = RingReader(self.shared, 0, *self._bells)
        self._numbers = itertools.count(1)

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def established(self, connection: Connection) -> None:
        connection.request.readable = connection.response.readable = True

    def wake(self, half: HalfConnection) -> None:
        half.readable = True

    def session(self) -> Session:
        """A connection that stands, nothing sent yet; `events` begin anew with it."""
        self.events.clear()
        client, broker = FakeSocket(("127.0.0.1", 50000)), FakeSocket(BROKER)
        connection = Connection(self, next(self._numbers), client, client.peer, BROKER)  # type: ignore[arg-type]
        connection.upstream = broker  # type: ignore[assignment]
        self.connections[connection.number] = connection
        self._counted()
        connection.state = ConnectionState.CONNECTING
        connection.connected()
        return Session(self, connection, client, broker)

    def read(self) -> list[RingRecord | Lost]:
        """The records for observers since the last call."""
        found: list[RingRecord | Lost] = []
        for _ in range(self.shared.slots // 512 + 1):
            found += self.reader.read()
        return found

    def shut(self) -> None:
        self.sockets.poll.close()
        for listener, _, _ in self.acceptor.listeners:
            listener.close()
        for sock in (self.control, self._theirs):
            sock.close()
        for fd in (*self._bells, self.resolver.bell):
            os.close(fd)


class Session:
    """One connection of the relay, and its two ends."""

    def __init__(self, relay: SteppedRelay, connection: Connection, client: FakeSocket, broker: FakeSocket) -> None:
        self.relay = relay
        self.connection = connection
        self.client = client
        self.broker = broker

    def _pump(self, half: HalfConnection) -> None:
        half.readable = True
        while half.readable and half.pump():
            pass

    def pump(self) -> None:
        """Move everything that can be moved, as the loop would."""
        for _ in range(10_000):
            before = self._state()
            for half in (self.connection.request, self.connection.response):
                if half.pending and half.open:
                    half.flush()
                self._pump(half)
            if self._state() == before:
                return
        raise AssertionError("the relay does not come to rest")

    def _state(self) -> tuple[Any, ...]:
        ends = (self.client, self.broker)
        halves = (self.connection.request, self.connection.response)
        return tuple((len(end.got), len(end.inbox), end.shut, end.closed) for end in ends) + tuple(
            (half.position, half.eof, half.done) for half in halves
        )

    def from_client(self, data: bytes) -> None:
        """A segment of the client arrives."""
        if data:
            self.client.inbox.append(data)
        self._pump(self.connection.request)

    def from_broker(self, data: bytes) -> None:
        """A segment of the broker arrives."""
        if data:
            self.broker.inbox.append(data)
        self._pump(self.connection.response)

    def finish(self) -> None:
        """Both ends are closed, first the client's; everything they sent before is passed on."""
        self.client.room = self.broker.room = float("inf")
        self.pump()
        self.client.ended = True
        self.pump()
        self.broker.ended = True
        self.pump()
        assert self.connection.closed, "a connection that does not end"

    def check_ring(self) -> tuple[bytes, bytes]:
        """Both streams of the client leg as observers read them; every frame start in the records is one."""
        streams = bytearray(), bytearray()
        starts: tuple[set[int], set[int]] = (set(), set())
        ends: list[int] = []
        for record in self.relay.read():
            assert isinstance(record, RingRecord), record
            if record.connection != self.connection.number:
                continue
            assert not ends, "something follows the end of the connection"
            if record.kind == Kind.DATA:
                stream = streams[record.direction]
                if record.first_frame != NONE:
                    starts[record.direction].add(len(stream) + record.first_frame)
                stream += record.data
            elif record.kind == Kind.CLOSED:
                ends = json.loads(record.data)["streams"]
        assert ends == [len(stream) for stream in streams]
        for stream, marked in zip(streams, starts, strict=True):
            if not any(isinstance(event, NotKafka) for event in self.relay.events):
                assert marked <= boundaries(bytes(stream)), "a record marks a frame where none begins"
        return bytes(streams[0]), bytes(streams[1])


def boundaries(stream: bytes) -> set[int]:
    """Where frames begin, and the end of the last whole one."""
    found = {0}
    at = 0
    while at + 4 <= len(stream):
        (size,) = struct.unpack_from(">I", stream, at)
        if size > MAX_FRAME or (at == 0 and foreign_protocol(stream[:4])):
            break
        at += size + 4
        found.add(at)
    return found


def cut(data: bytes, sizes: Any) -> list[bytes]:
    """The data in segments of these sizes (an iterator; it is asked until the data are used up)."""
    parts = []
    at = 0
    while at < len(data):
        size = max(int(next(sizes)), 1)
        parts.append(data[at : at + size])
        at += size
    return parts
