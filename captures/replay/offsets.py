"""Where records of the recording lie in the target's logs: an offset there for every offset here."""

from __future__ import annotations

from bisect import bisect_right


class OffsetMap:
    """One partition. Points are learnt from answers; between two points, offsets go on as they did when recorded.

    `start` is the distance from the recording's log to the target's before anything was learnt.
    """

    __slots__ = ("_points", "_recorded", "shifts", "start")

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.shifts = 0
        self._recorded: list[int] = []
        self._points: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._recorded)

    def point(self, recorded: int, target: int) -> None:
        """What lay at `recorded` lies at `target`."""
        if recorded < 0 or target < 0:
            return
        at = bisect_right(self._recorded, recorded)
        distance = target - recorded
        if at and self._points[at - 1] - self._recorded[at - 1] == distance:
            return  # nothing new: the points stay few
        if (at or self.start is not None) and distance != self._distance(at):
            self.shifts += 1
        if at and self._recorded[at - 1] == recorded:
            self._points[at - 1] = target
            return
        self._recorded.insert(at, recorded)
        self._points.insert(at, target)

    def _distance(self, at: int) -> int:
        return self._points[at - 1] - self._recorded[at - 1] if at else self.start

    def target(self, recorded: int) -> int:
        """Where an offset of the recording is; negative numbers (-1: none) stay."""
        if recorded < 0:
            return recorded
        at = bisect_right(self._recorded, recorded)
        return max(0, recorded + self._distance(at))
