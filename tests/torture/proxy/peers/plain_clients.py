"""Clients on plain sockets, answers to them, and what a process of a proxy holds."""

from __future__ import annotations

import hashlib
import os
import socket
import struct
from collections import Counter
from pathlib import Path

from barnabas.proxy import Proxy
from barnabas.proxy.events import ConnectionClosed, Event
from harness.testbed import next_event
from harness.wire import connect, read_frame

RESET = struct.pack("ii", 1, 0)


def reset(sock: socket.socket) -> None:
    """Close so that the peer sees a reset."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    sock.close()


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


def sockets(pid: int) -> dict[int, str]:
    """Its sockets by descriptor."""
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:
            continue
        if target.startswith("socket:"):
            found[int(name)] = target
    return found


def warm(proxy: Proxy) -> int:
    """The relay's pid, when it has taken (and lost) a first connection."""
    connect(proxy.address).close()
    next_event(proxy, ConnectionClosed)
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
