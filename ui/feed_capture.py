"""The screen on a proxy's live feed alone: summaries of exchanges over UDP, without their bytes, and what was missed.

Summaries become the records of an index in a file without a name, so lists, filters and counts work as on a recording.
"""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path
from typing import ClassVar

from ..captures import RECORD, Capture, Row
from ..captures.recording.index import STATE_MASK, STATES, Head, Index, IndexEncoder
from ..decoder import Exchange, State
from ..proxy.events import Address, show
from ..proxy.metrics.feed.client import Batch, FeedError, FeedReader, Joined, Missed, Totals, subscribe

MOST = 10_000_000
"""Rows that are kept: 640 MB of a file. What comes then is counted."""


class _Segment:
    """What a `Capture` asks of a file, for summaries."""

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
    """The rows of a feed. `receive` takes its events, in any one thread; `refresh` shows what has come."""

    has_frames: ClassVar[bool] = False

    def __init__(self, address: Address):
        self.path = Path(os.devnull, "feed")  # where no marks can be kept
        self._notes, self._encoder = [], IndexEncoder()
        self._records = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  closed with the capture
        self._strings = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        self._records.write(Head(0, 0, "0" * 32, -1, -1, -1).pack())
        self._index = Index.of_files(self._records.fileno(), self._strings.fileno())
        self.segments = [_Segment(self._index)]  # type: ignore[list-item]
        self.starts = [0, 0]
        self.title = f"feed {show(address)}"
        self.missed = self.left_out = self._kept = 0
        """Exchanges that were sent and did not arrive; that arrived and were not kept, as there were `MOST`."""
        self.totals = Totals()
        self.fault = ""
        self._offset = self._highest = 0
        self._told: set[int] = set()
        self._write()

    # --- from the feed -------------------------------------------------------------------------------------

    def receive(self, event: object) -> None:
        """Take one event of the feed."""
        if isinstance(event, Batch):
            self._batch(event)
        elif isinstance(event, Missed):
            self.missed += event.records
        elif isinstance(event, Totals):
            self.totals = event
        elif isinstance(event, Joined):
            # Another start of the proxy counts its connections anew.
            self._offset, self._told = self._highest, set()

    def _batch(self, batch: Batch) -> None:
        if self._kept + len(batch) > MOST:
            self.left_out += len(batch)
            return
        encoder = self._encoder
        for record in batch:
            number = record.connection + self._offset
            if number not in self._told and (ends := batch.connection(record)) is not None:
                self._told.add(number)
                self._highest = max(self._highest, number)
                encoder.connection(number, ends.opened_ns, ends.client, ends.broker)
            state = STATES[record.flags & STATE_MASK]
            # An offset says that there is such a frame, somewhere.
            asked = -1 if state is State.ORPHAN else 0
            answered = 0 if state in (State.PAIRED, State.ORPHAN) else -1
            encoder.records += RECORD.pack(
                record.time_ns, record.latency_ns, asked, answered, record.request_size, record.response_size,
                record.correlation_id, number, *record[8:12], encoder.string(batch.client_id(record)), 0,
            )  # fmt: skip
        self._kept += len(batch)
        self._write()

    def _write(self) -> None:
        """Strings first: whatever a record names is there."""
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
        """One line: connections, what is missing here, what went wrong."""
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
    """Hears a feed in a thread of its own. The first answer is waited for: FeedError when none comes."""

    def __init__(self, address: Address, token: str):
        self.capture = FeedCapture(address)
        self._events = subscribe(address, token, reader=FeedReader(token))
        first = next(self._events)
        self.capture.receive(first)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._hear, name="feed", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Hear no more. Totals come every second, so that is noticed soon."""
        self._ended.set()

    def _hear(self) -> None:
        try:
            for event in self._events:
                if self._ended.is_set():
                    self._events.close()  # type: ignore[attr-defined]
                    return
                self.capture.receive(event)
        except (FeedError, OSError, ValueError) as error:
            self.capture.fault = str(error)
