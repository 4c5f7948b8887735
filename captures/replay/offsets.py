"""Where records of the recording lie in the target's logs: an offset there for every offset here."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right


class OffsetMap:
    """One partition. Points are learnt from answers; between two points, offsets go on as they did when recorded.

    `start` is the distance from the recording's log to the target's before anything was learnt.
    """

    __slots__ = ("_implied", "_points", "_recorded", "shifts", "start")

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.shifts = 0
        self._recorded: list[int] = []
        self._points: list[int] = []
        self._implied = array("q")  # what was learnt and follows from the point before it

    def __bool__(self) -> bool:
        return bool(self._recorded)

    def point(self, recorded: int, target: int) -> None:
        """What lay at `recorded` lies at `target`."""
        if recorded < 0 or target < 0:
            return
        at = bisect_right(self._recorded, recorded)
        distance = target - recorded
        if at and self._points[at - 1] - self._recorded[at - 1] == distance:
            self._imply(recorded)  # nothing new: the points stay few
            return
        if (at or self.start is not None) and distance != self._distance(at):
            self.shifts += 1
        self._keep_next(at, recorded)
        if at and self._recorded[at - 1] == recorded:
            self._points[at - 1] = target
            return
        self._recorded.insert(at, recorded)
        self._points.insert(at, target)

    def _imply(self, recorded: int) -> None:
        at = bisect_left(self._implied, recorded)
        if at == len(self._implied) or self._implied[at] != recorded:
            self._implied.insert(at, recorded)

    def _keep_next(self, at: int, recorded: int) -> None:
        """A point at `recorded` comes before what followed from the one before it: the first of that is a point now."""
        nearest = bisect_right(self._implied, recorded)
        if at and nearest < len(self._implied):
            implied = self._implied[nearest]
            if at == len(self._recorded) or implied < self._recorded[at]:
                self._recorded.insert(at, implied)
                self._points.insert(at, implied + self._distance(at))

    def _distance(self, at: int) -> int:
        return self._points[at - 1] - self._recorded[at - 1] if at else self.start

    def target(self, recorded: int) -> int:
        """Where an offset of the recording is; negative numbers (-1: none) stay."""
        if recorded < 0:
            return recorded
        at = bisect_right(self._recorded, recorded)
        return max(0, recorded + self._distance(at))
