"""A proxy's live feed as a capture: summaries of exchanges, which come over UDP without their bytes, and how many were lost.

Summaries become records of an index in an unnamed file, so that lists, filters and counts work as on a recording.
"""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path
from typing import ClassVar

from ..captures import Capture, Row
from ..captures.recording.index import RECORD, STATE_MASK, STATES, Head, Index, IndexEncoder
from ..decoder import Exchange, State
from ..proxy.events import Address, show
from ..proxy.metrics.feed.client import Batch, FeedError, FeedReader, Joined, Missed, Totals, subscribe

MOST = 10_000_000
"""Rows that are kept (640 MB of a file). Later ones are only counted."""


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
        self._index = Index.of_files(self._records.fileno(), self._strings.fileno())
        self.segments = [_FeedSegment(self._index)]  # type: ignore[list-item]
        self.starts = [0, 0]
        self.title = f"feed {show(address)}"
        self.missed = self.left_out = self._kept = 0
        """`missed`: exchanges that were sent and did not arrive; `left_out`: that arrived behind the first `MOST`."""
        self.totals = Totals()
        self.fault = ""
        self._offset = self._highest = 0
        self._connections_seen: set[int] = set()
        self._write()

    # --- from the feed -------------------------------------------------------------------------------------

    def receive(self, event: object) -> None:
        """Take an event of the feed."""
        if isinstance(event, Batch):
            self._batch(event)
        elif isinstance(event, Missed):
            self.missed += event.records
        elif isinstance(event, Totals):
            self.totals = event
        elif isinstance(event, Joined):
            # A proxy that was started again counts its connections from the beginning.
            self._offset, self._connections_seen = self._highest, set()

    def _batch(self, batch: Batch) -> None:
        if self._kept + len(batch) > MOST:
            self.left_out += len(batch)
            return
        encoder = self._encoder
        for record in batch:
            number = record.connection + self._offset
            if number not in self._connections_seen and (ends := batch.connection(record)) is not None:
                self._connections_seen.add(number)
                self._highest = max(self._highest, number)
                encoder.connection(number, ends.opened_ns, ends.client, ends.broker)
            state = STATES[record.flags & STATE_MASK]
            # The offsets point nowhere: 0 means that there is such a frame, -1 that there is none.
            request_at = -1 if state is State.ORPHAN else 0
            response_at = 0 if state in (State.PAIRED, State.ORPHAN) else -1
            encoder.records += RECORD.pack(
                record.time_ns, record.latency_ns, request_at, response_at, record.request_size, record.response_size,
                record.correlation_id, number, *record[8:12], encoder.string(batch.client_id(record)), 0,
            )  # fmt: skip
        self._kept += len(batch)
        self._write()

    def _write(self) -> None:
        """Strings first: a record must not name one that is not written yet."""
        entries, records = bytes(self._encoder.entries), bytes(self._encoder.records)
        self._encoder.entries.clear()
        self._encoder.records.clear()
        self._strings.write(entries)
        self._records.write(records)

    # --- as a capture --------------------------------------------------------------------------------------

    def refresh(self) -> int:
        before = self.starts[-1]
        self._index.refresh()
        self.starts = [0, self._index.count]
        return self.starts[-1] - before

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
