"""How the supervisor knows that its relays accept clients.

The listening socket exists before any relay does. The kernel completes connections of clients that come in between, and these wait, for
as long as a loaded machine takes to start an interpreter. So each relay reports when its loop begins, and the proxy counts as listening
when all have.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Mapping
from typing import NamedTuple

from ..processes.child import PACKET
from ..processes.messages import Accepting, Message, decode

SECONDS = 120.0
"""How long relays may take for it."""


class ProcessPacket(NamedTuple):
    """What a process has sent, with descriptors; `message` is None where its socket has ended."""

    process: str
    message: Message | None
    fds: list[int]


def receive(process: str, control: socket.socket) -> ProcessPacket:
    """The next packet of a process."""
    try:
        data, fds, _, _ = socket.recv_fds(control, PACKET, 1)
    except ConnectionResetError:
        # It has closed its end with a packet of ours unread. The kernel reports that once, before what the process sent last.
        return receive(process, control)
    except OSError:
        return ProcessPacket(process, None, [])
    return ProcessPacket(process, decode(data) if data else None, fds)


def until_all_accept(relays: Mapping[str, socket.socket]) -> tuple[set[str], list[ProcessPacket]]:
    """Wait until each of these relays accepts clients or has ended: those that accept clients, and what was sent before."""
    waiting = {control.fileno(): name for name, control in relays.items()}
    accepting: set[str] = set()
    early: list[ProcessPacket] = []
    poll = select.poll()
    for fd in waiting:
        poll.register(fd, select.POLLIN)
    while waiting:
        for fd, _ in poll.poll():
            name = waiting[fd]
            packet = receive(name, relays[name])
            if packet.message is not None and not isinstance(packet.message, Accepting):
                early.append(packet)
                continue
            if packet.message is not None:
                accepting.add(name)
            poll.unregister(fd)
            del waiting[fd]  # the next `receive` reports an end again
    return accepting, early
