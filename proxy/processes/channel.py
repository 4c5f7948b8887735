"""A two-way channel of commands and answers between two of the proxy's processes, over a stream socket pair.

A packet is a JSON object and perhaps bytes (a frame): length of the JSON, length of the bytes (4 bytes each, big
endian), then both. Nothing here waits: what the socket does not take is kept, up to `LIMIT`, and beyond that the
other side is taken for dead and the channel is closed.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any, NamedTuple

from .serialization import to_plain

HEAD = struct.Struct(">II")
LIMIT = 96 << 20
"""Most bytes that wait for the other side: more than the frames that may be held at one time."""
PACKET_LIMIT = 72 << 20
_RECEIVE = 256 * 1024


class Packet(NamedTuple):
    """A JSON object, and the bytes that go with it."""

    message: dict[str, Any]
    data: bytes


def pack(message: dict[str, Any], data: bytes = b"") -> bytes:
    """One packet as bytes. Values of `message` may be dataclasses."""
    text = json.dumps(message, default=to_plain).encode()
    return HEAD.pack(len(text), len(data)) + text + data


class Unpacker:
    """Bytes cut anywhere become packets; ValueError when they cannot be."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[Packet]:
        buffer = self._data
        buffer += data
        found: list[Packet] = []
        at = 0
        while len(buffer) - at >= HEAD.size:
            text, blob = HEAD.unpack_from(buffer, at)
            if text + blob > PACKET_LIMIT:
                raise ValueError("a packet is too large")
            begin = at + HEAD.size
            if len(buffer) - begin < text + blob:
                break
            at = begin + text + blob
            found.append(Packet(json.loads(buffer[begin : begin + text]), bytes(buffer[begin + text : at])))
        del buffer[:at]
        return found


class Channel:
    """One end of a channel; `closed` once the other side is gone."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._out = bytearray()
        self._unpacker = Unpacker()
        self.closed = False

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def pending(self) -> int:
        """Bytes that the other side has not taken yet."""
        return len(self._out)

    def send(self, message: dict[str, Any], data: bytes = b"") -> bool:
        """Whether the packet is on its way."""
        if self.closed:
            return False
        packet = pack(message, data)
        if len(self._out) + len(packet) > LIMIT:
            self.close()
            return False
        self._out += packet
        self.flush()
        return not self.closed

    def flush(self) -> None:
        """Hand over what waits, as far as the other side takes it."""
        if self.closed:
            return
        try:
            while self._out:
                with memoryview(self._out) as view:
                    sent = self._sock.send(view[:_RECEIVE], socket.MSG_NOSIGNAL)
                del self._out[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self.close()

    def receive(self) -> list[Packet]:
        """The packets that have come; none and `closed` at the end."""
        found: list[Packet] = []
        try:
            while not self.closed:
                data = self._sock.recv(_RECEIVE)
                if not data:
                    self.close()
                    break
                found += self._unpacker.feed(data)
        except BlockingIOError:
            pass
        except (OSError, ValueError):
            self.close()
        return found

    def close(self) -> None:
        """The end of it; may be called more than once. The descriptor stays until the channel is dropped, so that
        a poll that names it finds no other file behind it."""
        if not self.closed:
            self.closed = True
            self._out = bytearray()
            try:
                self._sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
