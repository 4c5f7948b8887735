"""Which batches of a Fetch response belong to aborted transactions.

A broker returns them too, with a list of the producers whose transactions were aborted, and from which offset on; consumers
that read committed records only skip them. Source: Kafka's CompletedFetch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .area import batches
from .batch import Batch
from .errors import RecordsError

ABORT = "abort"


class Aborted(NamedTuple):
    """A transaction that was aborted: its producer and the offset of its first record."""

    producer_id: int
    first_offset: int


def aborted_in(partition: Mapping[str, Any]) -> list[Aborted]:
    """The aborted transactions that a partition of a Fetch response lists; none in another struct."""
    return [Aborted(each["producer_id"], each["first_offset"]) for each in partition.get("aborted_transactions") or ()]


def aborted_batches(data: bytes, transactions: Iterable[Aborted]) -> frozenset[int]:
    """Where the batches of aborted transactions start in a records area. Damaged bytes end it; no exception is raised."""
    waiting = sorted(transactions, key=lambda each: each.first_offset, reverse=True)
    if not waiting:
        return frozenset()
    open_of: set[int] = set()
    """Producers whose transaction is aborted, until their marker comes."""
    found: set[int] = set()
    try:
        for batch in batches(data):
            if not isinstance(batch, Batch):
                continue
            while waiting and waiting[-1].first_offset <= batch.last_offset:
                open_of.add(waiting.pop().producer_id)
            if not batch.transactional:
                continue
            if not batch.control:
                found |= {batch.start} if batch.producer_id in open_of else set()
            elif any(record.control is not None and record.control.name == ABORT for record in batch.records()):
                open_of.discard(batch.producer_id)
    except RecordsError:
        pass  # what follows cannot be read
    return frozenset(found)
