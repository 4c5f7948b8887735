"""What every client program in this folder sends, and a bound for what it waits for.

A workload is a plain function ``(bootstrap, run) -> dict``: it does its work against the brokers at ``bootstrap``
with names made from ``run`` (so that two runs on one cluster do not meet) and gives back plain values without
anything that changes from run to run. The same workload against the broker and through a proxy must give the same.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from harness.waiting import PATIENCE

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PER_CODEC = 20
PARTITIONS = 3
FIRST_TIMESTAMP_MS = 1_700_000_000_000


class Sent(NamedTuple):
    """One record as it is produced and as it must come back."""

    partition: int
    timestamp_ms: int
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


def records(codec: str) -> list[Sent]:
    """The records of one codec: compressible, with headers (one of them empty), spread over all partitions."""
    return [
        Sent(
            partition=number % PARTITIONS,
            timestamp_ms=FIRST_TIMESTAMP_MS + number,
            key=f"{codec}-{number}".encode(),
            value=f"{codec} value {number} ".encode() * (1 + number * 7),
            headers=(("codec", codec.encode()), ("empty", b"")),
        )
        for number in range(PER_CODEC)
    ]


def everything() -> list[Sent]:
    """The records of all codecs, sorted."""
    return sorted(record for codec in CODECS for record in records(codec))


class Deadline:
    """Ends what hangs, in loops that poll a client: ``check("what it waits for")`` raises once the time is up."""

    def __init__(self, seconds: float = PATIENCE) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def check(self, waiting_for: str) -> None:
        """Raise TimeoutError naming what was waited for, when the time is up."""
        if time.monotonic() > self._end:
            raise TimeoutError(f"waited {self.seconds:.0f} s for {waiting_for}")

    @property
    def left_ms(self) -> int:
        """Milliseconds that are left.

        kafka-python's members of a group poll with all of them: 3.0.12 never uses an assignment that arrives
        between two polls, so that a member whose ``poll`` gave up while it joined waits for ever. ``poll`` returns
        when there are records.
        """
        return max(0, int((self._end - time.monotonic()) * 1000))
