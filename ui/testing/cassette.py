"""A recording that replaces the cluster of a test, and when it fails the test."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...captures.serving import Unused
    from ...proxy.serve import Served
    from ...proxy.serve.events import Miss, ProducedOtherwise

SHOWN = 10
"""How many unused answers, or differing records, are listed in a failure."""


class CassetteOutcome(StrEnum):
    """What something means for the test."""

    FAIL = "fail"
    ALLOW = "allow"


@dataclass(slots=True)
class Cassette:
    """`unmatched`: requests that no recorded answer matches. `unused`: recorded answers that were never asked for."""

    served: Served
    unmatched: CassetteOutcome = CassetteOutcome.FAIL
    unused: CassetteOutcome = CassetteOutcome.ALLOW
    _reported: tuple[int, int] = (0, 0)
    """How many misses and differences were faults already."""

    def faults(self, ended: bool = True) -> list[str]:
        """Why the test fails: a line for each reason that was not given before; [] if it did what was recorded. `ended`:
        the test is over, so unused answers count."""
        served, (misses, differences) = self.served, self._reported
        self._reported = len(served.misses), len(served.differences)
        lines = unmatched_lines(served.misses[misses:]) if self.unmatched is CassetteOutcome.FAIL else []
        lines += differing_lines(served.differences[differences:])
        if ended and self.unused is CassetteOutcome.FAIL:
            lines += unused_lines(self.served.unused())
        return lines

    def report(self) -> list[str]:
        """Requests without a recorded answer and differing records, for the report of a failed test."""
        return unmatched_lines(self.served.misses) + differing_lines(self.served.differences)


def unmatched_lines(misses: list[Miss]) -> list[str]:
    """Requests without a recorded answer: a line for each kind."""
    counts = Counter((miss.what, miss.nearest, miss.nearest_number, miss.done) for miss in misses)
    return [
        f"not in the cassette: {what}{f', most similar: {nearest} (number {number})' if nearest else ''}: {done} ({count}x)"
        for (what, nearest, number, done), count in counts.items()
    ]


def differing_lines(differences: list[ProducedOtherwise]) -> list[str]:
    """The records that were produced otherwise than recorded."""
    return _some([f"not as recorded: {each.text}" for each in differences])


def unused_lines(unused: list[Unused]) -> list[str]:
    """What of the cassette was not used."""
    return _some([f"in the cassette, but not used: {each.text}" for each in unused])


def _some(lines: list[str]) -> list[str]:
    return lines[:SHOWN] + ([f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else [])
