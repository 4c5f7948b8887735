"""What each rule has done lately: a line per hit, so that a hit leads to its exchange.

The newest `HITS_KEPT` of a rule are kept; how many there were in all is the rule's count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import replace

from .....decoder import Exchange
from .....plugins.actions.fault_plan import FaultPlan
from ....processes.control_messages import HITS_KEPT, Hit


class Hits:
    """The newest hits of every rule, by its name."""

    def __init__(self, kept: int = HITS_KEPT) -> None:
        self._kept = kept
        self._of: dict[str, deque[Hit]] = {}

    def add(self, faults: FaultPlan, exchange: Exchange, now_ns: int) -> None:
        """A rule has fired for an exchange."""
        known = self._of.get(faults.rule)
        if known is None:
            known = self._of[faults.rule] = deque(maxlen=self._kept)
        known.append(
            Hit(
                faults.hits, now_ns, exchange.connection, exchange.client, exchange.client_id, exchange.broker,
                exchange.api_key, exchange.api, exchange.api_version, exchange.correlation_id, list(faults.notes), faults.note,
            )
        )  # fmt: skip

    def correct(self, faults: FaultPlan) -> None:
        """Correct what a hit is recorded to have done."""
        known = self._of.get(faults.rule, deque())
        for place in range(len(known) - 1, -1, -1):
            if known[place].hit == faults.hits:
                known[place] = replace(known[place], done=list(faults.notes), note=faults.note)
                return

    def of(self, name: str, since: int = 0) -> list[Hit]:
        """Those of a rule after its `since`-th, oldest first."""
        return [hit for hit in self._of.get(name, ()) if hit.hit > since]

    def keep(self, names: Collection[str]) -> None:
        """Forget the hits of all other rules."""
        for name in self._of.keys() - set(names):
            del self._of[name]
