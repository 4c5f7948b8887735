"""A proxy's live feed as a capture: summaries of exchanges, which come over UDP without their bytes, and how many were lost.

Summaries become records of an index in an unnamed file, so that lists, filters and counts work as on a recording.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path
from typing import ClassVar

from ..captures import Capture, Row
from ..captures.recording.index import HEADER, RECORD, Head, Index, IndexEncoder, Record
from ..decoder import Exchange
from ..proxy.events import Address, show
from ..proxy.metrics.feed.client import Batch, FeedError, FeedReader, Joined, Missed, Totals, Waiting, subscribe
from ..proxy.metrics.feed.reader import without_places

MOST = 10_000_000
"""Rows that are kept (640 MB of a file). Later ones are only counted."""
MOST_WAITING = 10_000
"""Requests in flight that are kept."""


class _FeedSegment:
    """What a `Capture` needs of a segment."""

    own = None
    note = None
    gone = False
    live = True

    def __init__(self, index: Index):
        self.index = index

    def visible(self, successor: bool) -> int:
        """Rows."""
        return self.index.count


class FeedCapture(Capture):
    """The rows of a feed. One thread, any one, calls `receive` with its events; `refresh` makes them visible."""

    has_frames: ClassVar[bool] = False

    def __init__(self, address: Address):
        self.path = Path(os.devnull, "feed")  # marks cannot be saved here
        self._notes, self._encoder = [], IndexEncoder()
        self._records = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  closed with the capture
        self._strings = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        self._records.write(Head(0, 0, "0" * 32, -1, -1, -1).pack())
        self._index = Index.of_files(self._records.fileno(), self._strings.fileno(), self._size)
        self.segments = [_FeedSegment(self._index)]  # type: ignore[list-item]
        self.starts = [0, 0]
        self.title = f"feed {show(address)}"
        self.missed = self.left_out = self._kept = 0
        """`missed`: exchanges that were sent and did not arrive; `left_out`: that arrived behind the first `MOST`."""
        self.totals = Totals()
        self.fault = ""
        self._offset = self._highest = 0
        self._connections_seen: set[int] = set()
        self._lock = threading.Lock()
        self._arrived: list[tuple[Record, str | None]] = []
        self._waiting: list[tuple[Record, str | None]] = []
        """Requests in flight with their client ids: those since the last totals, and those before them."""
        self._write()

    # --- from the feed -------------------------------------------------------------------------------------

    def receive(self, event: object) -> None:
        """Take an event of the feed."""
        if isinstance(event, Batch):
            self._batch(event)
        elif isinstance(event, Waiting) and len(self._arrived) < MOST_WAITING:
            self._arrived += ((self._located(event, record), event.client_id(record)) for record in event)
        elif isinstance(event, Missed):
            self.missed += event.records
        elif isinstance(event, Totals):
            self.totals = event
            self._waiting, self._arrived = self._arrived, []
        elif isinstance(event, Joined):
            # A proxy that was started again counts its connections from the beginning.
            self._offset, self._connections_seen = self._highest, set()

    def _batch(self, batch: Batch) -> None:
        if self._kept + len(batch) > MOST:
            self.left_out += len(batch)
            return
        encoder = self._encoder
        for record in batch:
            located = self._located(batch, record)
            encoder.records += RECORD.pack(*located._replace(client_id=encoder.string(batch.client_id(record)), spare=0))
        self._write()

    def _located(self, records: Batch | Waiting, record: Record) -> Record:
        """A record with the number of its connection here, which is introduced if it is new."""
        number = record.connection + self._offset
        if number not in self._connections_seen and (ends := records.connection(record)) is not None:
            self._connections_seen.add(number)
            self._highest = max(self._highest, number)
            self._encoder.connection(number, ends.opened_ns, ends.client, ends.broker)
        return without_places(record)._replace(connection=number)

    def _size(self) -> int:
        return HEADER.size + self._kept * RECORD.size

    def _write(self) -> None:
        """Strings first: a record must not name one that is not written yet."""
        entries, records = bytes(self._encoder.entries), bytes(self._encoder.records)
        self._encoder.entries.clear()
        self._encoder.records.clear()
        self._strings.write(entries)
        with self._lock:
            os.pwrite(self._records.fileno(), records, self._size())
            self._kept += len(records) // RECORD.size

    # --- as a capture --------------------------------------------------------------------------------------

    def refresh(self) -> int:
        before = self.done
        with self._lock:  # or the requests in flight would be written over records that were just added
            self._index.refresh()
            waiting = self._waiting
            self._index.show_waiting((record for record, _ in waiting), (client for _, client in waiting), time.time_ns())
        self.starts = [0, self._index.count]
        return self.done - before

    def exchange(self, row: Row | int) -> Exchange:
        """The exchange without its frames."""
        row = row if isinstance(row, Row) else self.rows()[row]
        return Exchange(
            connection=row.connection, client=row.client, broker=row.broker, api_key=row.api_key,
            api_version=row.api_version, correlation_id=row.correlation_id, client_id=row.client_id, state=row.state,
            request_time_ns=row.time_ns,
        )  # fmt: skip

    def status(self) -> str:
        """One line: connections, what was lost or left out, what failed."""
        words = [f"conns {self.totals.connections}", f"lost {self.missed:,}"]
        if self.totals.lost_bytes:
            words.append(f"not summarised {self.totals.lost_bytes:,} B")
        if self.left_out:
            words.append(f"not kept {self.left_out:,}")
        return "  ".join([*words, f"! {self.fault}"] if self.fault else words)

    @property
    def live(self) -> bool:
        return True

    @property
    def note(self) -> str | None:
        return None

    @property
    def about(self) -> str | None:
        return None

    def close(self) -> None:
        self._records.close()
        self._strings.close()


class FeedListener:
    """Receives a feed in a thread. The constructor waits for the first event; raises FeedError when none comes."""

    def __init__(self, address: Address, token: str):
        self.capture = FeedCapture(address)
        self._events = subscribe(address, token, reader=FeedReader(token))
        first = next(self._events)
        self.capture.receive(first)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._receive, name="feed", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread at the next event. Totals come every second."""
        self._ended.set()

    def _receive(self) -> None:
        try:
            for event in self._events:
                if self._ended.is_set():
                    self._events.close()  # type: ignore[attr-defined]
                    return
                self.capture.receive(event)
        except (FeedError, OSError, ValueError) as error:
            self.capture.fault = str(error)
