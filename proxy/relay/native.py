"""The accelerator's part of the relay: it waits for sockets and moves bytes from one to the other in C
(`decoder/native/lanes.c`, `turns.c`), as long as no frame has to be held.

All that is not plain stays with `HalfConnection.pump` and the loop of `Relay`, which are the reference and do everything where the
accelerator is missing. A half may change between the two with every chunk: its state is the same for both.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...decoder.accelerator import native
from ...decoder.strides import selection_table
from .. import polling
from ..interception.frame_editor import ENDPOINT_APIS
from .half_connection import MOVES

if TYPE_CHECKING:
    from .loop import Relay


def make_mover(relay: Relay) -> Any:
    """`pump(half)`: as `HalfConnection.pump`, or None if that has to do it. None where there is no such thing, or with a snap length,
    whose halves need care."""
    if native is None or not MOVES or relay.pipes.wanted:
        return None
    writer, most = relay.writer, relay.guard.limits.max_frame
    bulk = selection_table(number for number in relay.watch if number >> 16 in ENDPOINT_APIS)
    how = relay.lossless, relay.switchable, most, relay.editor, bulk
    return native.Mover(writer, writer.data, relay.fault, socket.socket, *how)


def make_turn(mover: Any, poll: polling.Poll) -> Callable[..., list[tuple[int, int]]] | None:
    """A turn of the relay's loop, or several: `turn(seconds, ends, ready)` waits so long at most, but not while there are
    halves in `ready`, moves what it can, leaves halves in `ready` that have more, and gives the events that are left for Python.
    None where there is no such thing."""
    return None if mover is None or polling.PORTABLE else partial(mover.turn, poll.fileno())  # type: ignore[attr-defined]
