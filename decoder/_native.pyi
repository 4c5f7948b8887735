"""The optional accelerator (decoder/native): what decode.py, project.py, records/, captures/packets.py, captures/scanning.py
and captures/skimming.py do, in C."""

from collections.abc import Callable
from typing import Any

class Bad(Exception): ...

class Reader:
    def __new__(cls, description: tuple[Any, ...], sinks: int = -1, /) -> Reader: ...
    def __call__(self, data: bytes, position: int = 0, /) -> tuple[tuple[Any, ...], int]: ...

def scan(
    data: bytes,
    at: int,
    end: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_timestamp: int | None,
    base_sequence: int,
    record: type,
    read_headers: Callable[[bytes, int, int], tuple[Any, int]],
    /,
) -> tuple[list[Any], int]: ...
def index(data: bytes, at: int, end: int, count: int, /) -> tuple[bytes, int]: ...
def batches(
    data: Any,
    frames: Any,
    ways: tuple[tuple[Reader, bool, int, int, int], ...],
    topics: dict[bytes, int],
    topic_ids: dict[bytes, int],
    /,
) -> tuple[bytes, bytes, bytes]:
    """See captures/tables/packed.py."""

class Buffer:
    """Bytes that gather until they are written; keeps its memory when it is cleared."""

    def __new__(cls, start: bytes = b"", /) -> Buffer: ...
    def __len__(self) -> int: ...
    def __iadd__(self, data: bytes | bytearray | memoryview, /) -> Buffer: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def clear(self) -> None: ...

class Tape:
    """What the tracks of a recording share. `find(direction, api key, version)` gives header version, reader of codes
    (see `decoder.skim`), and whether those are acks; or None for messages that need care."""

    frames: int
    exchanges: int
    errors: int
    reason: int
    counting: int
    """Not 0: tracks write nothing, need no segment, and keep the beginnings of requests only. Set before the first."""
    def __new__(cls, find: Callable[[int, int, int], tuple[int, Reader, bool] | None], /) -> Tape: ...
    def knows(self, api_key: int, api_version: int, /) -> bool: ...
    def waiting(self, tracks: list[Track], /) -> bytes: ...

class Track:
    """One connection of a recording, taken without objects for its frames; see captures/tracks.py."""

    attached: int
    chunks: int
    """That came by `RingFeed`."""
    def __new__(cls, tape: Tape, number: int, /) -> Track: ...
    def attach(
        self, next: Any, client: bytes, broker: bytes, buffer: Buffer, records: bytearray, names: Callable[[str], int], /
    ) -> None: ...
    def feed(
        self, direction: int, data: bytes | bytearray | memoryview, start: int, time_ns: int, base: int, stop: int, /
    ) -> int: ...
    def lost(self, direction: int, /) -> None: ...
    def push(self, frame: bytes, time_ns: int, offset: int, flags: int, /) -> bool: ...
    def hold(self, direction: int, data: bytes, time_ns: int, /) -> None: ...
    def release(self) -> tuple[list[tuple[bytes, int, int, int]], tuple[bytes, int], tuple[bytes, int]]: ...

class Queue:
    """What waits for its response: see decoder/strides.py, as for the four functions below."""

    def append(self, entry: Any, /) -> None: ...
    def append_kept(self, number: int, frame: bytes, time_ns: int, size: int, /) -> None: ...
    def kept(self) -> tuple[bytes, int, int] | None: ...
    def memory(self) -> int: ...
    def appendleft(self, entry: Any, /) -> None: ...
    def popleft(self) -> Any: ...
    def clear(self) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...

def stride(data: bytes | memoryview, at: int, end: int, most: int, /) -> tuple[int, int]: ...
def stride_watched(
    data: bytes | memoryview, at: int, end: int, most: int, queue: Queue, chosen: bytes, limit: int, /
) -> tuple[int, int, int, int]: ...
def stride_requests(
    data: bytes | memoryview,
    at: int,
    end: int,
    most: int,
    queue: Queue,
    chosen: bytes,
    heads: bytes,
    keeping: bytes = ...,
    now: int = ...,
    bones: tuple[Any, ...] = ...,
    /,
) -> tuple[int, int, bool]: ...
def stride_responses(
    data: bytes | memoryview,
    at: int,
    end: int,
    most: int,
    queue: Queue,
    chosen: bytes,
    quiet: tuple[Any, ...] = ...,
    now: int = ...,
    bones: tuple[Any, ...] = ...,
    /,
) -> tuple[int, int, int]: ...
def skeleton(reader: Reader, header_version: int, request: bool, data: bytes | memoryview, /) -> bytes | None:
    """As `skeleton.skeleton_of`; `reader`: of `skeleton.asked_paths`."""

def packet(
    head: bytes, sequence: int, acknowledged: int, flags: int, payload: bytes, interface: int, time_ns: int, direction: int, /
) -> bytes: ...

class Side:
    """As `captures.reassembly.PlainSide`."""

    acked: int
    acked_first: int
    empty: int
    empty_first: int
    next: int | None
    synced: bool
    finished: bool
    quick: bool
    skipped: int
    waiting: dict[int, Any]
    waiting_bytes: int
    way: Any

class Talk:
    """As `captures.skimming.PlainTalk`."""

class Way:
    """As `captures.skimming.PlainWay`."""

class Asked:
    """As `captures.skimming.PlainAsked`."""

class Frames:
    """Takes ordinary packets and frames; calls the Skimmer `owner` for all others. `records` takes index records; with
    None, the owner is told of every request and answer."""

    def __new__(
        cls, owner: Any, records: bytearray | None, most_waiting: int, most_frame: int, most_name: int, /
    ) -> Frames: ...
    rows: int
    writes: bool
    """It writes ordinary frames into the segment of `write_to`. The owner is asked (`_pen`) for that at a size of `stop`."""
    stop: int
    frames: int
    exchanges: int
    def write_to(self, buffer: Buffer, records: bytearray, number: int, flushed: int, stop: int, /) -> None: ...
    def attach(self, talk: Talk, next: Any, client_head: bytes, broker_head: bytes, /) -> None: ...
    def interfaces(self, known: int, stamps: list[tuple[int, int, int]], /) -> None:
        """Of each interface behind the first `known`: nanoseconds of a tick (0: no whole number), nanoseconds to add, link
        type."""

    def walk(
        self,
        window: bytes,
        at: int,
        base: int,
        big_endian: bool,
        unit_ns: int,
        linktype: int,
        due_ns: int,
        sides: dict[bytes, Side],
        cut: Callable[[Side, int], object],
        /,
    ) -> tuple[int, int, int, int, int, int, int]:
        """Take packets from `at` on: of a classic pcap with ticks of `unit_ns`, or of a pcapng (0). `base`: the window's
        file offset. Gives why it stopped, where, and the packet: (why, at, time, start, end, size on the wire, link
        type). Why: 0 the window ends; 1 a packet for the careful road, `at` is behind it; 2 another block at `at`, or one
        that is not whole; 3 the packet at `at` is of `due_ns` or later. The time is -1 when there was no packet.
        """

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
    """Takes chunks of a ring onto tracks, for `proxy.reading`. `reader`: its number; `bell`: the writer's."""

    def __init__(
        self, map: Any, area: memoryview, slots_at: int, slots: int, data_at: int, data_size: int, reader: int, bell: int, /
    ) -> None: ...
    def feed(
        self,
        cursor: int,
        total: int,
        streams: dict[int, Any],
        tracks: dict[int, Track],
        barred: set[int],
        base: int,
        stop: int,
        most: int,
        /,
    ) -> tuple[
        int, int, int, int, tuple[int, int], tuple[int, int, int, bytes | memoryview, int, Exception | None] | None
    ]:
        """(cursor, total, bytes lost, chunks, bytes of both directions, rest): what a track has left of the last chunk, as
        (connection, direction, time_ns, data, position of its end, error). Then that chunk's end is not published."""

class LaneState:
    """As `proxy.sift.PlainState`."""

class Pair:
    """Attributes of a `proxy.connection.Connection`: inline, draining, number, changes, doubtful, in_flight, overtaken, watch,
    blinded."""

class Mover:
    """Moves the bytes of lanes whose sockets are of the type `plain`; `fault(connection, error)` hears of exceptions. `most`:
    bytes of a frame. `editor`: whose `asked` says what rules ask (`proxy.editing`). See `proxy.moving`."""

    def __init__(
        self,
        pen: RingPen,
        data: memoryview,
        fault: Callable[[Any, Exception], object],
        plain: type,
        lossless: bool,
        switchable: bool,
        most: int,
        editor: Any = None,
        /,
    ) -> None: ...

    share: int
    clock: int
    def pump(self, lane: LaneState, /) -> bool | None:
        """As `proxy.lane.Lane.pump`; None: that has to go on, nothing is lost."""

    def turn(
        self, epoll: int, seconds: float, ends: dict[int, tuple[Any, Any]], ready: list[Any], /
    ) -> list[tuple[int, int]]:
        """Wait and move until the time is up or there is something for others: events (file descriptor, bits), which
        are given, or lanes in `ready`. Those that are there go on at once; who has more is put there."""
