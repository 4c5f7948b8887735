"""Work on the session between requests: new rows, filters that search, counts, findings; in slices on the event loop.

Counts and findings are read on only while a page shows them (`Work.want`), as in the terminal.
"""

from __future__ import annotations

import asyncio
from time import monotonic, perf_counter
from typing import Protocol

from ...diagnostics import contained
from ..tui.model.session import Session
from ..tui.views.versions import Clients
from .queries import Queries
from .traffic import RecordsOverTime, TrafficOverTime

SLICE_SECONDS = 0.02
IDLE_SECONDS = 0.1
REFRESH_SECONDS = 0.25
"""Between two looks for new rows."""
WANTED_SECONDS = 5.0
"""So long after a page has asked for something it is worked on."""
SMALL = 5_000
"""Rows up to which a capture is analysed without being asked."""


class Counter(Protocol):
    """What is counted over the rows of a capture."""

    @property
    def pending(self) -> int:
        """Rows that have not been counted yet."""

    def step(self, seconds: float) -> None:
        """Count for about so long."""


class Work:
    """Keeps one session up to date for all pages."""

    def __init__(self, session: Session, queries: Queries) -> None:
        self.session, self.queries = session, queries
        self.clients = Clients(session.capture)
        self.traffic = TrafficOverTime(session.capture)
        self.records = RecordsOverTime(session.capture)
        self._wanted: dict[str, float] = {}
        self._refreshed = 0.0

    def want(self, *names: str) -> None:
        """Work on "statistics", "analysis", "clients", "traffic", "records" or "infos" for a while."""
        for name in names:
            self._wanted[name] = monotonic()

    def _wants(self, name: str) -> bool:
        return monotonic() < self._wanted.get(name, -1e9) + WANTED_SECONDS

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            more = False
            try:
                more = self.slice()
                if self.session.held.due():
                    self._take(await asyncio.to_thread(self.session.held.ask))
            except Exception as error:
                contained("the work beside the pages", error)
            await asyncio.sleep(0.002 if more else IDLE_SECONDS)

    def slice(self) -> bool:
        """Do a slice of work. Returns whether there is more."""
        session, now = self.session, monotonic()
        if session.live and now >= self._refreshed + REFRESH_SECONDS:
            self._refreshed = now
            session.refresh()
        until = perf_counter() + SLICE_SECONDS
        more = self.queries.search(SLICE_SECONDS / 2)
        if (self._wants("analysis") or len(session.capture.rows()) <= SMALL) and session.analysis.unread:
            session.analysis.step(max(until - perf_counter(), 0.005))
            more = more or (session.analysis.unread and not session.live)
        counters: tuple[tuple[str, Counter], ...] = (
            ("statistics", session.statistics), ("traffic", self.traffic), ("clients", self.clients), ("records", self.records)
        )  # fmt: skip
        for name, counter in counters:
            if self._wants(name) and counter.pending:
                counter.step(max(until - perf_counter(), 0.005))
                more = more or counter.pending > 0
        if self._wants("infos") and self.queries.infos.unlearned:
            self.queries.infos.learn(max(until - perf_counter(), 0.005))
            more = more or self.queries.infos.unlearned
        return more

    def _take(self, answer: object) -> None:
        new, gone = self.session.held.update(answer)  # type: ignore[arg-type]
        for frame in new:
            self.session.add_to_log(f"held: {frame.name()}, connection {frame.connection}")
        for frame in gone:
            if frame.left() < 1:
                self.session.add_to_log(f"held {frame.name()}: no decision in time, so it was passed on unchanged", True)
