"""How a proxy knows that its relays take clients.

The listening socket stands before any relay does: clients that come in between are let in by the kernel and then wait,
for as long as a loaded machine takes to start an interpreter. So each relay says when its loop begins, and the proxy
is said to listen when all have.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Mapping

from .child import PACKET

ACCEPTING = b'{"accepting": true}'
"""A relay's packet to its supervisor: clients are taken from now on."""
SECONDS = 120.0
"""How long relays may take for it."""

Said = tuple[str, bytes, list[int]]
"""(who, packet, descriptors that came with it); the packet is empty where somebody's end has come."""


def receive(name: str, control: socket.socket) -> Said:
    """What somebody says next."""
    try:
        packet, fds, _, _ = socket.recv_fds(control, PACKET, 1)
    except ConnectionResetError:
        # It has closed its end with a word of ours unread. That is told once, in front of what it said last.
        return receive(name, control)
    except OSError:
        return name, b"", []
    return name, packet, fds


def until_all_accept(relays: Mapping[str, socket.socket]) -> tuple[set[str], list[Said]]:
    """Wait until each of these takes clients or has ended: who takes clients, and what they said before."""
    waiting = {control.fileno(): name for name, control in relays.items()}
    accepting: set[str] = set()
    said: list[Said] = []
    poll = select.poll()
    for fd in waiting:
        poll.register(fd, select.POLLIN)
    while waiting:
        for fd, _ in poll.poll():
            name = waiting[fd]
            heard = receive(name, relays[name])
            if heard[1] and heard[1] != ACCEPTING:
                said.append(heard)
                continue
            if heard[1]:
                accepting.add(name)
            poll.unregister(fd)
            del waiting[fd]  # an end is told to whoever asks next
    return accepting, said
