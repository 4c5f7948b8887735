"""From frame to frame through a chunk of a stream, without looking at more than the heads.

For a relay, whose only cost beside the kernel's is what it does per frame. With the accelerator these are loops in C
(`native/strides.c`), without it the ones below, which are the reference: both give the same results for any bytes.

All take `data`, the place `at` of a frame's size bytes in it, the `end` of what is there and the `most` bytes that a
frame may have, and give first the place where they stopped: a head that is not all there, a size above `most`, or
what the function says. It lies behind `end` when the last frame goes on there. `queue`: the requests that wait for
their responses, in order, each a number (api key 16 bits, version 16, correlation id 32) or an object with an
attribute `correlation`. Frames that are too small to be requests or responses are passed over.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from . import facts
from .accelerator import native
from .acks import ACKS_REACH, acks_end
from .decode import FAULTS
from .skeleton import Bones, thinned

PASSED, WATCHED, OVERSIZE, AWAITED, FOLLOWED = range(5)
"""Why `stride_responses` stopped; PASSED: nothing but the end of the bytes."""
UNKNOWN, ANSWERED, SILENT, UNCLEAR = range(4)
"""What `known_head` gives."""
HEAD_WAIT = 600
"""Bytes of a Produce request's head that are waited for."""
VERSIONS = 64
"""Versions that a selection has room for, per api key."""
KEPT_LARGEST = 1 << 16
"""Bytes of a frame that is waited for, where requests are kept."""
Quiet = tuple[tuple[tuple[Callable[[bytes, int], Any] | None, int, int, int] | None, ...] | None, ...]
"""By api key and version: (reader, header version, latency, size). A response to a request that was kept is of no concern if
it comes within this latency (nanoseconds), is not larger than this size, and if all that the reader (see `skim`) finds is 0;
without reader, nothing needs to be read."""
_ENTRY_BYTES = 40
"""Of memory that a number takes in a queue."""
_PRODUCE = facts.api_key("Produce")
_FETCH = facts.api_key("Fetch")
_LEAST = 30
"""A smaller Fetch response has no room for an endpoint: header 5, throttle time 4, error 2, session 4, an empty list
1; then tags with one endpoint 4, its node id 4, a host of one letter 2, port 4, rack 1, tags 1."""

_SIZE = struct.Struct(">I").unpack_from
_SIZE_WORD = struct.Struct(">II").unpack_from
"""A frame's size and the four bytes behind it: a response's correlation id, or a request's key and version."""
_HEAD = struct.Struct(">IQ").unpack_from
_SHORT_INT = struct.Struct(">HI").unpack_from
_ENDING = struct.Struct(">HHH").unpack_from
_ENTRY = struct.Struct("=5I")
_NOTHING = struct.Struct("0s").unpack_from


class PythonQueue(deque[Any]):
    """The queue of the pure Python functions. It also knows the last Produce that gets a response, from its client id
    to the acks: a request that begins like it gets one, too, which is quicker to see than to read."""

    like_keyver = -1
    like = b""
    like_end = 12
    like_bytes = staticmethod(_NOTHING)
    watch: Any = frozenset()
    doubtful = -1
    out_of_order = unsure = False
    """What whoever moves bytes has to know of the order: see `proxy.correlation`."""

    def __init__(self) -> None:
        super().__init__()
        self.objects = 0
        """Entries that are no number."""
        self._first = 0
        """The first entry's place among all that have been here: two requests may have the same number."""
        self._frames: deque[tuple[int, tuple[bytes, int, int]]] = deque()
        """What was kept, with the places of the entries."""
        self._kept = 0

    def append_kept(self, number: int, frame: bytes, time_ns: int, size: int) -> None:
        """A number with its request (size first) or that one's skeleton, when it came, and its size."""
        self._frames.append((self._first + len(self), (frame, time_ns, size)))
        self._kept += len(frame)
        self.append(number)

    def kept(self) -> tuple[bytes, int, int] | None:
        """The request of the first entry, if it was kept, when it came, and its size."""
        return self._frames[0][1] if self._frames and self._frames[0][0] == self._first else None

    def popleft(self) -> Any:
        entry = super().popleft()
        self._kept -= _weight(entry)
        self.objects -= entry.__class__ is not int
        if self._frames and self._frames[0][0] == self._first:
            self._kept -= len(self._frames.popleft()[1][0])
        self._first += 1
        return entry

    def appendleft(self, entry: Any) -> None:
        super().appendleft(entry)
        self._kept += _weight(entry)
        self.objects += entry.__class__ is not int
        self._first -= 1

    def clear(self) -> None:
        super().clear()
        self._frames.clear()
        self._kept = self.objects = 0

    def memory(self) -> int:
        """Bytes of memory that what waits here takes, with the requests that are kept. What an object keeps it says in an
        attribute `weight`, which stays as it is while it waits."""
        return self._kept + _ENTRY_BYTES * len(self)

    def append(self, entry: Any) -> None:
        super().append(entry)
        self._kept += _weight(entry)
        self.objects += entry.__class__ is not int

    def resembles(self, keyver: int, like: bytes) -> None:
        self.like_keyver, self.like, self.like_end = keyver, like, 12 + len(like)
        self.like_bytes = struct.Struct(f"{len(like)}s").unpack_from

    def alike(self, data: Any, at: int, end: int, size: int, keyver: int) -> bool:
        like_end = self.like_end
        return (
            keyver == self.like_keyver
            and at + like_end <= end
            and like_end <= size + 4
            and self.like_bytes(data, at + 12)[0] == self.like
        )


def _weight(entry: Any) -> int:
    return 0 if entry.__class__ is int else getattr(entry, "weight", 0)


def selection_table(numbers: Iterable[int]) -> bytes:
    """A selection of requests (api key << 16 | version) as the accelerator takes it: a bit for each."""
    chosen = {number for number in numbers if number & 0xFFFF < VERSIONS}
    table = bytearray(8 * ((max(chosen, default=0) >> 16) + 1))
    for number in chosen:
        key, version = number >> 16, number & 0xFFFF
        table[key * 8 + (version >> 3)] |= 1 << (version & 7)
    return bytes(table)


def place_of(queue: Iterable[Any], correlation: int) -> int:
    """Where the first entry of a queue with this correlation id (unsigned) stands, or -1."""
    for place, entry in enumerate(queue):
        if (entry & 0xFFFFFFFF if entry.__class__ is int else entry.correlation) == correlation:
            return place
    return -1


def ends_clean(api_key: int, data: Any, end: int, size: int) -> bool:
    """Whether the response of `size` bytes that ends at `end` surely has no node endpoints (KIP-951); False says
    nothing.

    The last endpoint ends with its port (4 bytes, of which the first two are 0 and the others are not both), its rack
    (one 0 for null, else a length and letters) and a 0 for its tags. A Produce response without endpoints ends with a
    0 for its last topic's tags, the throttle time and a 0 for the body's tags: with six zeros there is no port. A
    Fetch response without endpoints ends with records and three zeros; if the one in the middle were a rack, the port
    in front of it would begin with two zeros.
    """
    if api_key == _PRODUCE:
        if size < 6:
            return False
        one, two = _SHORT_INT(data, end - 6)
        return bool(one == 0 and two == 0)
    if api_key == _FETCH:
        if size < _LEAST:
            return True
        high, _, low = _ENDING(data, end - 6)
        return bool(high != 0 and low == 0)
    return False


def python_stride(data: Any, at: int, end: int, most: int) -> tuple[int, int]:
    """Responses that nobody waits for: (where it stopped, the last one's correlation id or -1)."""
    last = -1
    while at + 8 <= end:
        (size,) = _SIZE(data, at)
        if size > most:
            break
        if size >= 4:
            last = at
        at += size + 4
    return at, _SIZE(data, last + 4)[0] if last >= 0 else -1


def python_stride_watched(
    data: Any, at: int, end: int, most: int, queue: PythonQueue, chosen: frozenset[int], limit: int
) -> tuple[int, int, int, int]:
    """Requests, of which those of a selection are put into the queue if they get a response.

    Stops in front of a Produce whose acks are still to come. `limit`: at so many entries the first gives way; 0: none
    does. Gives also the place of the last request and its correlation id, and the id of the last one that was put
    there although nobody knows whether it gets a response: each is -1 if there is none.
    """
    last = doubtful = -1
    while at + 12 <= end:
        size, keyver = _SIZE_WORD(data, at)
        if size > most:
            break
        if size < 8:
            at += size + 4
            continue
        if keyver in chosen:
            awaited = True
            if keyver >> 16 == _PRODUCE and not queue.alike(data, at, end, size, keyver):
                place = acks_end(data, at, end)
                stop = at + size + 4
                if place > end and end < stop and place - at <= ACKS_REACH:
                    break
                if place > end or place > stop:
                    (doubtful,) = _SIZE(data, at + 8)
                elif data[place - 2] or data[place - 1]:
                    queue.resembles(keyver, bytes(data[at + 12 : place]))
                else:
                    awaited = False
            if awaited:
                if limit and len(queue) >= limit:
                    queue.popleft()
                queue.append(keyver << 32 | _SIZE(data, at + 8)[0])
        last = at
        at += size + 4
    return at, last, _SIZE(data, last + 8)[0] if last >= 0 else -1, doubtful


def known_head(heads: bytes, data: Any, at: int, end: int, size: int, keyver: int) -> int:
    """What is known of the request at `at` by how it begins: UNKNOWN, ANSWERED (it may pass, and gets a response), SILENT
    (it may pass and gets none), UNCLEAR (more of it is needed). `heads`: see `proxy.heads.ENTRY`."""
    place, found = 0, UNKNOWN
    while place + _ENTRY.size <= len(heads):
        own, number, wanted, count, answered = _ENTRY.unpack_from(heads, place)
        if number == keyver and (wanted == size if wanted else count + 8 <= size):
            there = min(count, end - at - 12)
            first = place + _ENTRY.size
            like = int.from_bytes(heads[first : first + there], "little")
            mask = int.from_bytes(heads[first + count : first + count + there], "little")
            same = not (int.from_bytes(bytes(data[at + 12 : at + 12 + there]), "little") ^ like) & mask
            if same and there == count:
                return ANSWERED if answered else SILENT
            found = UNCLEAR if same else found
        place += own
    return found


def python_stride_requests(
    data: Any,
    at: int,
    end: int,
    most: int,
    queue: PythonQueue,
    chosen: frozenset[int],
    heads: bytes,
    keeping: frozenset[int] = frozenset(),
    now: int = 0,
    bones: Bones = (),
) -> tuple[int, int, bool]:
    """Requests of which all are of a selection, or begin as one of a table does (`known_head`), those that get a response
    put into the queue, with the request (or its skeleton, if it is `LARGE`) and the time `now` if they are of the selection
    `keeping`; it stops at any other.

    Gives also the last one's correlation id or -1, and whether the bytes behind it are the beginning of a request of
    which more is needed (True), or of one that is for others to look at.
    """
    last = -1
    while at + 12 <= end:
        size, head = _HEAD(data, at)
        keyver = head >> 32
        stop = at + size + 4
        awaited = True
        if size > most or size < 8:
            return at, last, False
        if keyver not in chosen:
            known = known_head(heads, data, at, end, size, keyver)
            if known in (UNKNOWN, UNCLEAR):
                return at, last, known == UNCLEAR
            awaited = known == ANSWERED
        elif keyver >> 16 == _PRODUCE and not queue.alike(data, at, end, size, keyver):
            place = acks_end(data, at, end)
            if place > end or place > stop:
                return at, last, end - at < HEAD_WAIT and place > end
            awaited = bool(data[place - 2] or data[place - 1])
            if awaited:
                queue.resembles(keyver, bytes(data[at + 12 : place]))
        if awaited and keyver in keeping:
            kept = bytes(data[at:stop])
            if thin := thinned("request", bones, keyver, kept[: end - at], size):
                kept = thin
            elif stop > end:
                return at, last, size <= KEPT_LARGEST
            queue.append_kept(head, kept, now, size)
        elif awaited:
            queue.append(head)
        last = head & 0xFFFFFFFF
        at = stop
    return at, last, True


def is_quiet(quiet: Quiet, keyver: int, frame: bytes, latency: int, size: int | None = None) -> bool:
    """Whether a response (size first) is of no concern: see `Quiet`. False says nothing. `size`: if it is not the frame's,
    as that of a `skeleton`."""
    key, version = keyver >> 16, keyver & 0xFFFF
    row = quiet[key] if key < len(quiet) else None
    way = row[version] if row and version < len(row) else None
    if way is None:
        return False
    reader, header, patience, largest = way
    if latency > patience or (len(frame) - 4 if size is None else size) > largest:
        return False
    if reader is None:
        return True
    if len(frame) < 8 + header or (header and frame[8]):
        return False
    try:
        found, _ = reader(frame, 8 + header)
    except FAULTS:
        return False
    return not any(any(values) for values in found)


def python_stride_responses(
    data: Any,
    at: int,
    end: int,
    most: int,
    queue: PythonQueue,
    chosen: frozenset[int],
    quiet: Quiet = (),
    now: int = 0,
    bones: Bones = (),
) -> tuple[int, int, int]:
    """Responses, whose requests leave the queue. Gives also the last one's correlation id or -1, and why it stopped.

    WATCHED: the next one's request is the first in the queue, and of a selection, and it is not seen to be without
    node endpoints; or that request was kept, and the response, which came `now`, is not seen to be quiet. AWAITED: the next one's
    request is in the queue, but not the first or no number. FOLLOWED: as WATCHED, but that request was kept, and of the response
    only the beginning is here, and that is enough to see that it is quiet. OVERSIZE.
    """
    last = -1
    while at + 8 <= end:
        size, correlation = _SIZE_WORD(data, at)
        stop = at + size + 4
        if size < 4 or size > most:
            if size > most:
                return at, last, OVERSIZE
            at = stop
            continue
        if queue:
            head = queue[0]
            if head.__class__ is int and head & 0xFFFFFFFF == correlation:
                kept = queue.kept()
                if kept is not None:
                    said: bytes | None = bytes(data[at : min(stop, end)])
                    if stop > end:
                        said = thinned("response", bones, head >> 32, said or b"", size)
                    if said is None or not is_quiet(quiet, head >> 32, said, now - kept[1], size):
                        return at, last, WATCHED
                if head >> 32 in chosen and (stop > end or not ends_clean(head >> 48, data, stop, size)):
                    return at, last, FOLLOWED if kept is not None and stop > end else WATCHED
                queue.popleft()
            elif place_of(queue, correlation) >= 0:
                return at, last, AWAITED
        last = correlation
        at = stop
    return at, last, PASSED


Queue: Callable[[], Any] = PythonQueue
"""An empty queue, with the manners of `collections.deque`."""
selection: Callable[[Iterable[int]], Any] = frozenset
"""A selection of requests (api key << 16 | version, versions below 64) as these functions take it."""
stride: Callable[..., tuple[int, int]] = python_stride
stride_watched: Callable[..., tuple[int, int, int, int]] = python_stride_watched
stride_requests: Callable[..., tuple[int, int, bool]] = python_stride_requests
stride_responses: Callable[..., tuple[int, int, int]] = python_stride_responses
if native is not None and hasattr(getattr(native, "Queue", None), "watch"):  # one that was built before has none
    Queue, selection = native.Queue, selection_table
    stride, stride_watched = native.stride, native.stride_watched
    stride_requests, stride_responses = native.stride_requests, native.stride_responses
