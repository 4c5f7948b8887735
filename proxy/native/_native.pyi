"""The optional accelerator of the relay (proxy/native): the ring, and moving bytes from socket to socket, in C."""

from collections.abc import Callable
from typing import Any

from ...captures.native._native import ConnectionRecorder
from ...decoder.native._native import Reader

class Queue:
    """What waits for its response: see `proxy.relay.connections.correlation.PlainQueue`."""

    def append(self, entry: Any, /) -> None: ...
    def append_kept(self, number: int, frame: bytes, time_ns: int, size: int, /) -> None: ...
    def kept(self) -> tuple[bytes, int, int] | None: ...
    def memory(self) -> int: ...
    def appendleft(self, entry: Any, /) -> None: ...
    def popleft(self) -> Any: ...
    def clear(self) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...

def header_prefix(reader: Reader, header_version: int, request: bool, data: bytes | memoryview, /) -> bytes | None:
    """As `header_prefix.HeaderPrefix`; `reader`: of `header_prefix.asked_paths`."""

class RingPen:
    """As `proxy.ring.PlainPen`: `map` with so many slots of 64 bytes at `slots_at`, and the data at `data_at`. `bells`: of the
    readers, by their numbers."""

    sequence: int
    position: int
    total: int
    def __init__(
        self, map: Any, slots_at: int, slots: int, data_at: int, data_size: int, bells: list[tuple[int, int]], /
    ) -> None: ...
    def has_room(self) -> bool: ...
    def space(self, size: int = 262144, /) -> tuple[int, int]: ...
    def take(
        self, kind: int, connection: int, direction: int, time_ns: int, length: int, first: int, stream: int, /
    ) -> None: ...
    def ring_bells(self) -> None: ...
    def snapshot_wanted(self) -> bool: ...
    def blocked(self, value: bool, /) -> None: ...

class RingFeed:
    """Feeds chunks of a ring to connection recorders, for `proxy.ring.reader`. `reader`: its number; `bell`: the writer's."""

    def __init__(
        self, map: Any, area: memoryview, slots_at: int, slots: int, data_at: int, data_size: int, reader: int, bell: int, /
    ) -> None: ...
    def feed(
        self,
        cursor: int,
        total: int,
        streams: dict[int, Any],
        recorders: dict[int, ConnectionRecorder],
        barred: set[int],
        base: int,
        stop: int,
        most: int,
        /,
    ) -> tuple[
        int, int, int, int, tuple[int, int], tuple[int, int, int, bytes | memoryview, int, Exception | None] | None
    ]:
        """(cursor, total, bytes lost, chunks, bytes of both directions, rest): what a recorder has left of the last chunk, as
        (connection, direction, time_ns, data, position of its end, error). Then that chunk's end is not published."""

class HalfConnectionFields:
    """The fields of `proxy.relay.connections.half_connection.PlainState`, with the same meaning."""

class ConnectionFields:
    """Attributes of `proxy.relay.connections.connection.Connection` that the accelerator reads: inline, draining, number, answer_bytes, in_flight,
    neutralized, adapter, pass_cache, response."""

class Mover:
    """Moves the bytes of half-connections whose sockets are of the type `plain`; `fault(connection, error)` is called with exceptions.
    `most`: bytes of a frame; `wanted`: how many of them readers of the ring want, 0 for all. `editor`: whose `scan_rules` says what rules ask (`frame_editor.ScanRules`). `bulk`: an API-version bitmap of
    responses that are followed to their end where they are large. See `proxy.relay.connections.native`."""

    def __init__(
        self,
        pen: RingPen,
        data: memoryview,
        fault: Callable[[Any, Exception], object],
        plain: type,
        lossless: bool,
        switchable: bool,
        most: int,
        wanted: int,
        editor: Any = None,
        bulk: bytes = b"",
        /,
    ) -> None: ...

    share: int
    """Bytes of requests that a connection may keep without being looked at (`Relay.crowded`)."""
    clock: int
    """Nanoseconds to add to the monotonic clock for the time of what comes."""
    def pump(self, half: HalfConnectionFields, /) -> bool | None:
        """As `HalfConnection.pump`; None: that has to go on, nothing is lost."""

    def scan(self, half: HalfConnectionFields, offset: int, count: int, /) -> tuple[int, int, bool]:
        """Of `count` bytes in the ring that were received and not sent yet: (place of the first frame or NONE, how many may pass as
        they are, whether the rest waits for more of its frame; otherwise it is for `filter_frames`). ValueError if the bytes are not in
        the ring, also from `note`."""

    def note(self, half: HalfConnectionFields, offset: int, count: int, /) -> int:
        """Of bytes in the ring that have passed: the place of the first frame, or NONE."""

    def turn(
        self, epoll: int, seconds: float, ends: dict[int, tuple[Any, Any]], ready: list[Any], /
    ) -> list[tuple[int, int]]:
        """Wait and move until the time is up or there is something for others: events (file descriptor, bits), which
        are given, or half-connections in `ready`. Those that are there go on at once; who has more is put there."""
