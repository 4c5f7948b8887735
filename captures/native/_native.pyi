"""The optional accelerator of captures (captures/native): what pcap/packets.py, reading/indexing and recording/ do, in C."""

from collections.abc import Callable
from typing import Any

from ...decoder.codec.project import Skim
from ...decoder.native._native import Reader

def batches(
    data: Any,
    frames: Any,
    ways: tuple[tuple[Reader, bool, int, int, int], ...],
    topics: dict[bytes, int],
    topic_ids: dict[bytes, int],
    transactional_ids: dict[bytes, int],
    /,
) -> tuple[bytes, bytes, bytes]:
    """See captures/tables/bulk_batches.py."""

def frames(data: Any, offsets: Any, sizes: Any, /) -> bytes:
    """Where frames are (i64), behind their size bytes, by the offsets of their blocks (i64) and their sizes (u32); -1: not one whole
    packet whose checksums fit. See captures/recording/bulk_frames.py."""

def names(
    data: Any, frames: Any, owners: Any, count: int, ways: tuple[tuple[Reader, bool, int, int, int], ...], known: dict[bytes, int], /
) -> bytes:
    """See captures/recording/bulk_names.py."""

class Buffer:
    """Bytes that gather until they are written; keeps its memory when it is cleared."""

    def __new__(cls, start: bytes = b"", /) -> Buffer: ...
    def __len__(self) -> int: ...
    def __iadd__(self, data: bytes | bytearray | memoryview, /) -> Buffer: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def clear(self) -> None: ...

class RecorderContext:
    """What the recorders of a recording share. `find(direction, api key, version)` says how codes are read; None for
    messages that need care."""

    frames: int
    exchanges: int
    errors: int
    reason: int
    counting: int
    """Not 0: recorders write nothing, need no segment, and keep the beginnings of requests only. Set before the first."""
    def __new__(cls, find: Callable[[int, int, int], Skim | None], keep: int = 0, /) -> RecorderContext: ...
    def knows(self, api_key: int, api_version: int, /) -> bool: ...
    def waiting(self, recorders: list[ConnectionRecorder], /) -> bytes: ...

class ConnectionRecorder:
    """One connection of a recording, taken without objects for its frames; see captures/recording/native_recorder.py."""

    attached: int
    chunks: int
    """Chunks that came by `RingFeed`."""
    def __new__(cls, context: RecorderContext, number: int, /) -> ConnectionRecorder: ...
    def attach(
        self, next: Any, client: bytes, broker: bytes, buffer: Buffer | bytearray, records: bytearray, names: Callable[[str], int], /
    ) -> None: ...
    def feed(
        self, direction: int, data: bytes | bytearray | memoryview, start: int, time_ns: int, base: int, stop: int, /
    ) -> int:
        """The position behind what was taken; `RecorderContext.reason` says why not all was."""
    def skip(self, direction: int, count: int, base: int, stop: int, /) -> bool:
        """Bytes of a frame that are not there; whether that was taken."""
    def awaits(self, correlation_id: int, /) -> bool: ...
    def lost(self, direction: int, /) -> None: ...
    def push(self, frame: bytes, time_ns: int, offset: int, flags: int, cut: int, /) -> bool:
        """Add a request that waits; whether it is plain."""
    def hold(self, direction: int, data: bytes, time_ns: int, /) -> None:
        """The beginning of a frame."""
    def waiting(self) -> list[tuple[int, int, int, int, int, int, int, int, str | None]]:
        """(offset, time_ns, size, cut, correlation id, api key, api version, flags, client id) of each request that waits."""
    def frame(self, place: int, /) -> bytes:
        """The frame of the `place`-th request that waits, with its size bytes."""
    def moved(self, place: int, offset: int, flags: int, /) -> None: ...
    def detach(self) -> None: ...
    def give_up(self, records: bytearray, names: Callable[[str], int], /) -> None:
        """The requests that wait get no response."""
    def release(self) -> tuple[list[tuple[bytes, int, int, int, int]], tuple[bytes, int, int], tuple[bytes, int, int]]:
        """The requests that wait, as (frame, time_ns, offset, flags, cut), and by direction (bytes held, time_ns, skipped)."""

def packet(
    head: bytes, sequence: int, acknowledged: int, flags: int, payload: bytes, interface: int, time_ns: int, direction: int, /
) -> bytes: ...

class Side:
    """As `captures.pcap.flows.PlainSide`."""

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
    half: Any

class Conversation:
    """As `captures.reading.indexing.skim.PlainConversation`."""

class HalfConversation:
    """As `captures.reading.indexing.skim.PlainHalf`."""

class PendingRequest:
    """As `captures.reading.indexing.skim.PlainRequest`."""

class Frames:
    """Takes ordinary packets. With `records`, which takes index records, also ordinary frames; `owner` is the Skimmer, which gets all
    others. Without, the streams go to the recorders of `record_to`, and what these leave to `owner.data`."""

    def __new__(cls, owner: Any, records: bytearray = ..., most_waiting: int = 0, /) -> Frames: ...
    rows: int
    taken: int
    """Bytes that recorders took."""
    def record_to(self, recorders: dict[int, ConnectionRecorder], flushed: int, stop: int, /) -> None:
        """What `NativeFeed` holds."""
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
        type). Why: 0 the window ends; 1 a packet for the reference path, `at` is behind it; 2 another block at `at`, or one
        that is not whole; 3 the packet at `at` is of `due_ns` or later. The time is -1 when there was no packet.
        """
