"""What is known of the connections of a foreign capture while their frames are found: see skimming.py.

The accelerator reads and writes the same: its types take the place of the plain ones.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from ..native.accelerator import native


class PlainAsked:
    """A request that waits for its response; None in place of one stands for a raw SASL token."""

    __slots__ = ("api_key", "api_version", "client_id", "correlation_id", "flags", "kept", "place", "row", "size", "time_ns")

    def __init__(
        self, time_ns: int, place: int, size: int, correlation_id: int, key: int, version: int, client_id: int, flags: int
    ) -> None:
        self.time_ns, self.place, self.size, self.correlation_id = time_ns, place, size, correlation_id
        self.api_key, self.api_version, self.client_id, self.flags = key, version, client_id, flags
        self.row = -1  # of its record, once it was shown as pending
        self.kept: Any = None  # what else is to be known of it when its response is there


class PlainTalk:
    """What is to be known of a connection. The accelerator has the same."""

    __slots__ = ("began", "ids", "lossy", "number", "raw_sasl", "waiting", "ways")

    number: int
    waiting: deque[PlainAsked | None]
    ids: Counter[int] | None
    """of the requests that wait, from the first oddity on"""
    began: bool
    raw_sasl: bool
    lossy: bool
    """a loss is to be told with the next frame"""
    ways: tuple[Way, Way]


class PlainWay:
    """What is to be known of a direction. The accelerator has the same."""

    __slots__ = ("began", "direction", "head", "holed", "missing", "opaque", "pieces", "size", "started_ns", "talk")

    talk: Talk
    direction: int
    began: bool
    opaque: bool
    head: bytes
    missing: int
    """bytes of the frame that are still to come; 0 also while its size is not known"""
    size: int
    started_ns: int
    holed: bool
    """not all of the frame's bytes are in the capture"""
    pieces: list[tuple[int, int]]


if TYPE_CHECKING or native is None:
    Asked = PlainAsked
    _Talk = PlainTalk
    _Way = PlainWay
else:
    Asked, _Talk, _Way = native.Asked, native.Talk, native.Way


class Talk(_Talk):
    """One connection."""

    __slots__ = ()

    def __init__(self, number: int) -> None:
        self.number = number
        self.waiting = deque()
        self.ids = None
        self.began = self.raw_sasl = self.lossy = False
        self.ways = (Way(self, 0), Way(self, 1))


class Way(_Way):
    """One direction of a connection: the frame that is being read."""

    __slots__ = ()

    def __init__(self, talk: Talk, direction: int) -> None:
        self.talk, self.direction = talk, direction
        self.began = self.opaque = False
        self.reset()

    def reset(self) -> None:
        """The next byte starts a frame."""
        self.head = b""
        self.missing = self.size = self.started_ns = 0
        self.holed = False
        self.pieces = []
