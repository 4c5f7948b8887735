"""Counts of what a conversion could not take along."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """Sums over all conversions it was given to. Everything but `records` is a loss, or a change that shows."""

    records: int = 0
    """Records that were converted (those that could stay as they were do not count)."""
    headers_lost: int = 0
    """Record headers: magic 0 and 1 have none."""
    times_lost: int = 0
    """Records whose time magic 0 cannot hold."""
    control_dropped: int = 0
    """Control records (transaction markers): older formats have none, and their consumers must not see any."""
    zstd_replaced: int = 0
    """Batches in zstd, which older formats do not have, that went on in another codec."""

    @property
    def lost(self) -> bool:
        """Whether anything was lost that an application could miss."""
        return bool(self.headers_lost or self.times_lost)
