"""Plain sockets on both sides of a proxy that runs: brokers by script, clients, and what a process holds."""

from __future__ import annotations

import hashlib
import os
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from barnabas.proxy import Proxy
from barnabas.proxy.events import ConnectionClosed, Event

RESET = struct.pack("ii", 1, 0)


class Broker:
    """Runs `script(socket)` in a thread for every connection; the socket is closed behind it."""

    def __init__(self, script: Callable[[socket.socket], Any], port: int = 0) -> None:
        self.server = socket.create_server(("127.0.0.1", port), backlog=4096)
        self.address: tuple[str, int] = self.server.getsockname()[:2]
        self.sockets: list[socket.socket] = []
        self.script = script
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.server.accept()
            except OSError:
                return
            self.sockets.append(sock)
            threading.Thread(target=self._run, args=(sock,), daemon=True).start()

    def _run(self, sock: socket.socket) -> None:
        try:
            self.script(sock)
        except OSError:
            pass
        finally:
            sock.close()

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.server.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.server.close()
        for sock in self.sockets:
            sock.close()


def connect(address: tuple[str, int], **options: int) -> socket.socket:
    sock = socket.socket()
    for name, value in options.items():
        sock.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
    sock.settimeout(30)
    sock.connect(address)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def reset(sock: socket.socket) -> None:
    """Close so that the peer sees a reset."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    sock.close()


def exactly(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = sock.recv(min(count - len(data), 1 << 20))
        if not part:
            break
        data += part
    return bytes(data)


def read_frame(sock: socket.socket) -> bytes:
    """The next frame with its size; empty at the end."""
    head = exactly(sock, 4)
    return head + exactly(sock, int.from_bytes(head, "big")) if len(head) == 4 else b""


def echo(sock: socket.socket) -> None:
    """Answers every request with its correlation id and itself."""
    while frame := read_frame(sock):
        sock.sendall((len(frame) + 4).to_bytes(4, "big") + frame[8:12] + frame)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def pid_of(proxy: Proxy, name: str) -> int:
    return proxy._children[name].pid


def memory(pid: int) -> int:
    """Resident bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no process {pid}")


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def warm(proxy: Proxy) -> int:
    """The relay's pid, when it has taken (and lost) a first connection."""
    connect(proxy.address).close()
    while not isinstance(event := proxy.next_event(60), ConnectionClosed):
        assert event is not None, "the proxy does not accept"
    return pid_of(proxy, "relay")


def taken(proxy: Proxy) -> list[Event]:
    """The events so far."""
    found = []
    while (event := proxy.next_event(0)) is not None:
        found.append(event)
    return found


def unfaulted(events: list[Event]) -> None:
    """No process has failed, and no connection by the relay's fault."""
    kinds = Counter(type(event).__name__ for event in events)
    assert not kinds["ProcessFailed"] and not kinds["RelayFault"], [e.text for e in events if e.warning][:5]
