"""The accelerator's part of the relay: it waits for sockets and moves bytes from one to the other in C (proxy/native/mover.c),
for connections of which nobody has asked anything.

All that is not plain stays with `HalfConnection.pump` and the loop of `Relay`, which are the reference and do everything where the
accelerator is missing. A half may change between the two with every chunk: its state is the same for both.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...native.accelerator import native
from ...ring import polling
from ..interception.frame_editor import ADDRESS_APIS
from ..interception.interest.api_version_bitmap import api_version_bitmap
from .half_connection import MOVES

if TYPE_CHECKING:
    from ..interfaces import RelayInterface


def make_mover(relay: RelayInterface) -> Any:
    """`pump(half)`: as `HalfConnection.pump`, or None if that has to do it; `scan` and `note`: what is in a chunk that was received.
    None where there is no accelerator."""
    if native is None or not MOVES:
        return None
    writer, most = relay.writer, relay.guard.limits.max_frame
    bulk = api_version_bitmap(number for number in relay.watch if number >> 16 not in ADDRESS_APIS)
    wanted = relay.snaplen + 4 if relay.snaplen else 0
    how = relay.lossless, relay.switchable, most, wanted, relay.editor, bulk
    return native.Mover(writer, writer.data, relay.fault, socket.socket, *how)


def make_turn(mover: Any, poll: polling.Poll) -> Callable[..., list[tuple[int, int]]] | None:
    """A turn of the relay's loop, or several: `turn(seconds, ends, ready)` waits so long at most, but not while there are
    halves in `ready`, moves what it can, leaves halves in `ready` that have more, and gives the events that are left for Python.
    None where there is no such thing."""
    return None if mover is None or polling.PORTABLE else partial(mover.turn, poll.fileno())  # type: ignore[attr-defined]
