"""A stepped relay whose connections have real sockets, so that the accelerator moves their bytes (proxy/relay/connections/native.py).

A session is used as one of `stepped_relay`: a segment is put into the socket when its turn has come, so each `recv` gets one at
most; `room` is what the other side reads, behind a socket that takes no more than a few thousand bytes at a time.
"""

from __future__ import annotations

import socket
from collections import deque
from types import SimpleNamespace
from typing import Any

from barnabas.decoder.wire.frame import MAX_FRAME
from barnabas.plugins.rules.rules import Rule
from barnabas.proxy.events import Address
from barnabas.proxy.native.accelerator import native
from barnabas.proxy.relay.connections.connection import Connection
from barnabas.proxy.relay.connections.half_connection import HalfConnection
from barnabas.proxy.relay.connections.states import ConnectionState
from barnabas.proxy.relay.interception.frame_editor import ADDRESS_APIS, watched
from barnabas.proxy.relay.interception.interest.api_version_bitmap import api_version_bitmap
from torture.proxy.peers.stepped_relay import BROKER, OWN_HOST, Session, SteppedRelay


class Wire(socket.socket):
    """The relay's end: a Unix stream socket that passes for TCP."""

    peer: Address = ("", 0)

    def getpeername(self) -> Address:
        return self.peer

    def getsockname(self) -> Address:
        return OWN_HOST, 40000

    def setsockopt(self, *_: Any) -> None: ...

    def getsockopt(self, *_: Any) -> int:  # type: ignore[override]
        return 0


class End:
    """The other end, as `stepped_relay.FakeSocket` has it."""

    def __init__(self, peer: Address) -> None:
        ours, self.far = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        self.wire = Wire(fileno=ours.detach())
        self.wire.peer = peer
        for sock in (self.wire, self.far):
            sock.setblocking(False)
        self.inbox: deque[bytes] = deque()
        self.ended = self._half_closed = False
        self.room: float = float("inf")
        self.got = bytearray()

    @property
    def closed(self) -> bool:
        return self.wire.fileno() < 0

    @property
    def shut(self) -> bool:
        return False  # part of what is compared to see whether anything moves

    def deliver(self) -> bool:
        """Put the next segment, or the end, into the socket; whether there was one."""
        if self.inbox:
            segment = self.inbox.popleft()
            sent = self.far.send(segment)
            if sent < len(segment):
                self.inbox.appendleft(segment[sent:])
        elif self.ended and not self._half_closed:
            self._half_closed = True
            self.far.shutdown(socket.SHUT_WR)
        else:
            return False
        return True

    def collect(self) -> int:
        """Read as much as there is room for."""
        before = len(self.got)
        while self.room:
            try:
                part = self.far.recv(int(min(self.room, 1 << 20)))
            except OSError:  # nothing there, or closed by the test
                break
            if not part:
                break
            self.room -= len(part)
            self.got += part
        return len(self.got) - before


class WiredSession(Session):
    def _pump(self, half: HalfConnection) -> None:
        source, sink = (self.broker, self.client) if half.direction else (self.client, self.broker)
        half.readable = True
        while True:
            while half.readable and half.pump():
                pass
            if sink.collect() or half.pending:  # type: ignore[attr-defined]
                if half.pending and half.open:
                    before = len(half.pending)
                    half.flush()
                    if len(half.pending) == before:
                        return
                half.readable = True
            elif half.open and source.deliver():  # type: ignore[attr-defined]
                half.readable = True
            else:
                return


class WiredRelay(SteppedRelay):
    """Its relay moves bytes by the accelerator, as far as that goes; `moves=False`: Python receives and sends them, and the
    accelerator decides what may pass; `scans=False`: Python does everything, frame by frame. `snaplen`: what readers want of a frame."""

    def __init__(
        self, rules: list[Rule] | None = None, lossless: bool = False, moves: bool = True, scans: bool = True, snaplen: int = 0
    ) -> None:
        super().__init__(rules, lossless)
        self.ends: list[End] = []
        self.switchable = True  # more is remembered then
        self.mover = None
        if scans:
            assert native is not None
            bulk = api_version_bitmap(number for number in watched() if number >> 16 not in ADDRESS_APIS)
            more = lossless, self.switchable, MAX_FRAME, snaplen + 4 if snaplen else 0, self.editor, bulk
            mover = native.Mover(self.writer, self.writer.data, self.fault, Wire, *more)
            self.mover = mover if moves else SimpleNamespace(pump=lambda half: None, scan=mover.scan, note=mover.note)

    def session(self) -> WiredSession:
        self.events.clear()
        client, broker = End(("127.0.0.1", 50000)), End(BROKER)
        self.ends += client, broker
        connection = Connection(self, next(self._numbers), client.wire, ("127.0.0.1", 50000), BROKER)
        connection.upstream = broker.wire
        connection.state = ConnectionState.CONNECTING
        connection.connected()
        return WiredSession(self, connection, client, broker)  # type: ignore[arg-type]

    def tidy(self) -> None:
        """Close the ends of all sessions."""
        for end in self.ends:
            end.wire.close()
            end.far.close()
        self.ends.clear()
