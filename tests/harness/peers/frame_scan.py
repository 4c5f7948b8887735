"""The accelerator's frame scanner (proxy/native/frame_scanner.c) over bytes, without sockets and without a relay."""

from __future__ import annotations

import socket
from collections import deque
from types import SimpleNamespace
from typing import Any, NamedTuple

from barnabas.proxy.native.accelerator import native
from barnabas.proxy.relay.interception.frame_editor import ScanRules
from barnabas.proxy.relay.interception.interest.api_version_bitmap import api_version_bitmap
from barnabas.proxy.relay.interception.interest.response_interest import ResponseInterest
from barnabas.proxy.ring.ring import NONE

MOST = 100_000
_SLOTS_AT, _SLOTS = 4096, 16
_DATA_AT, RING_BYTES = _SLOTS_AT + 64 * _SLOTS, 1 << 20
EMPTY = api_version_bitmap(())


class Scanned(NamedTuple):
    """What became of a chunk. `passes`: bytes that may pass; `last_id`: of the last frame among them, or None; `waits`: whether the
    rest waits for more of its frame (otherwise `filter_frames` has it); `left`: bytes of the last frame that are still to come."""

    passes: int
    last_id: int | None
    waits: bool
    left: int


if native is not None:

    class _Half(native.HalfConnectionFields):  # type: ignore[misc, name-defined]
        __slots__ = ()

        def head_complete(self, data: Any, at: int, count: int) -> int:
            return count

        def not_frames(self, data: bytes) -> None:
            self.opaque = True

    class _Connection(native.ConnectionFields):  # type: ignore[misc, name-defined]
        __slots__ = ("followed",)

        def follow(self, half: Any) -> None:
            self.followed += 1
            half.endpoint_scanner = None


class FrameScan:
    """One connection. `watch`: requests whose responses are held unless they are seen to have no node endpoints. With `passing`
    (requests that pass) it is one on which every request is followed; `rules`: what is kept of them then, and why. `beginnings`: the
    table of a `PassCache`. `bulk`: requests whose large responses are followed to their end."""

    def __init__(
        self,
        watch: bytes = EMPTY,
        passing: bytes | None = None,
        rules: ResponseInterest | None = None,
        beginnings: bytes = b"",
        most: int = MOST,
        bulk: bytes = EMPTY,
    ) -> None:
        assert native is not None
        kept = (EMPTY, (), (), ()) if rules is None else (rules.selection, rules.quiet, *rules.prefix_readers)
        editor = SimpleNamespace(scan_rules=ScanRules(passing or EMPTY, *kept))
        memory = bytearray(_DATA_AT + RING_BYTES)
        self._data = memoryview(memory)[_DATA_AT:]
        pen = native.RingPen(memory, _SLOTS_AT, _SLOTS, _DATA_AT, RING_BYTES, [])
        self.mover = native.Mover(pen, self._data, deque().append, socket.socket, False, True, most, 0, editor, bulk)
        self.queue = native.Queue()
        self.queue.watch = watch
        connection = _Connection()
        connection.in_flight, connection.inline = self.queue, passing is not None
        connection.pass_cache = SimpleNamespace(table=beginnings)
        connection.followed = 0
        self.connection = connection
        self._halves = [_Half(), _Half()]
        for direction, half in enumerate(self._halves):
            half.connection, half.direction, half._begun = connection, direction, True

    def requests(self, data: bytes) -> Scanned:
        """Bytes of a client, from the beginning of a frame on. At most 1 MiB."""
        return self._scan(0, data)

    def responses(self, data: bytes) -> Scanned:
        """Bytes of a broker, from the beginning of a frame on."""
        return self._scan(1, data)

    def note(self, direction: int, data: bytes) -> Scanned:
        """Bytes that have passed: requests that are watched are put into the queue."""
        half = self.half(direction)
        first = self.mover.note(half, self._put(data), len(data))
        assert first in (0, NONE)
        return Scanned(len(data), half.last_id, False, half.left)

    def _scan(self, direction: int, data: bytes) -> Scanned:
        half = self.half(direction)
        _, cut, waits = self.mover.scan(half, self._put(data), len(data))
        return Scanned(cut, half.last_id, waits, half.left)

    def half(self, direction: int) -> Any:
        """A half-connection at the beginning of a frame."""
        half = self._halves[direction]
        half.left, half.last_id, half.opaque = 0, None, False
        return half

    def _put(self, data: bytes) -> int:
        """At the end of the memory, so that a sanitizer sees what is read behind it."""
        at = RING_BYTES - len(data)
        self._data[at:] = data
        return at
