"""Frames as bytes, and sockets that speak them: the one builder of frames for all tests."""

from __future__ import annotations

import random
import select
import socket
import struct
from collections.abc import Sequence
from typing import Any

from barnabas import decoder

from .waiting import PATIENCE


def with_size(frame: bytes) -> bytes:
    """The frame behind its four size bytes, as it crosses the wire."""
    return struct.pack(">i", len(frame)) + frame


def request(api_key: int, api_version: int, correlation_id: int, body: bytes = b"") -> bytes:
    """A request with its size, request header v1 (client id "t") and any bytes as its body."""
    return with_size(struct.pack(">hhih", api_key, api_version, correlation_id, 1) + b"t" + body)


def response(correlation_id: int, body: bytes = b"") -> bytes:
    """A response with its size, response header v0 and any bytes as its body."""
    return with_size(struct.pack(">i", correlation_id) + body)


def metadata_response(correlation_id: int, brokers: list[tuple[int, str, int]], version: int = 8) -> bytes:
    """A Metadata response with its size; ``brokers`` are (node id, host, port)."""
    fields: dict[str, Any] = {
        "brokers": [{"node_id": node, "host": host, "port": port} for node, host, port in brokers],
        "controller_id": 1,
    }
    return with_size(decoder.encode_response(3, version, fields, correlation_id=correlation_id))


def connect(address: tuple[str, int], **options: int) -> socket.socket:
    """A connection without Nagle's delay; ``options`` are socket options by name (``SO_RCVBUF=4096``)."""
    sock = socket.socket()
    for name, value in options.items():
        sock.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
    sock.settimeout(PATIENCE)
    sock.connect(address)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def send_cut(sock: socket.socket, data: bytes, chance: random.Random, sizes: Sequence[int] = (1, 7, 50, 300, 5000)) -> None:
    """Send bytes in pieces of these sizes: frames are cut anywhere."""
    at = 0
    while at < len(data):
        size = chance.choice(sizes)
        sock.sendall(data[at : at + size])
        at += size


def exactly(sock: socket.socket, count: int) -> bytes:
    """``count`` bytes, or fewer when the stream ends."""
    data = bytearray()
    while len(data) < count:
        part = sock.recv(min(count - len(data), 1 << 20))
        if not part:
            break
        data += part
    return bytes(data)


def read_frame(sock: socket.socket) -> bytes:
    """The next frame with its size; empty at the end of the stream."""
    head = exactly(sock, 4)
    return head + exactly(sock, int.from_bytes(head, "big")) if len(head) == 4 else b""


def ask(sock: socket.socket, frame: bytes) -> bytes:
    """Send a request (with its size) and read the response; fails when the stream ends instead."""
    answer = ask_or_end(sock, frame)
    assert answer, "the connection ended instead of an answer"
    return answer


def ask_or_end(sock: socket.socket, sent: bytes) -> bytes:
    """Send bytes and read the next frame; b"" where the stream ends."""
    sock.sendall(sent)
    return read_frame(sock)


def readable(sock: socket.socket) -> bool:
    """Whether bytes have come, or the end. Nothing is waited for."""
    return bool(select.select([sock], [], [], 0)[0])
