"""The demonstration without a screen: a live table of APIs and clients, and the newest exchanges."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ...captures import Capture
from ...decoder.schema.facts import api_name
from ..tui.plain import line

NEWEST = 8
KEPT = 4096  # latencies kept per row for the percentiles
PRINT_EVERY = 5.0


class TrafficTable:
    """Requests, errors and latencies by API and client."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        self._latencies: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.requests = self.errors = self.undecoded = 0

    def read(self, capture: Capture) -> None:
        """Count the rows that were not counted yet; `capture` is always the same."""
        capture.refresh()
        rows = capture.rows()
        for number in range(self.requests, len(rows)):
            row = rows[number]
            self.add(api_name(row.api_key) if row.api_key >= 0 else "", row.client_id or "", row.latency_ns, bool(row.error))
            self.undecoded += row.undecoded

    def add(self, api: str, client: str, latency_ns: int | None, error: bool) -> None:
        """Count one exchange; latency in nanoseconds or None."""
        row = self._rows[api, client]
        row[0] += 1
        row[1] += error
        self.requests += 1
        self.errors += error
        latencies = self._latencies[api, client]
        if latency_ns is not None and latency_ns >= 0:
            if len(latencies) >= KEPT:
                del latencies[: KEPT // 2]
            latencies.append(latency_ns)

    def table(self) -> Table:
        """The rows, busiest API first."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name, right in (
            ("API", False),
            ("client", False),
            ("requests", True),
            ("errors", True),
            ("p50 ms", True),
            ("p99 ms", True),
        ):
            table.add_column(name, justify="right" if right else "left", no_wrap=True)
        for key, (requests, errors) in sorted(self._rows.items(), key=lambda item: (item[0][0], -item[1][0])):
            found = sorted(self._latencies[key])
            p50, p99 = (f"{found[int(len(found) * q)] / 1e6:.1f}" if found else "-" for q in (0.5, 0.99))
            table.add_row(Text(key[0]), Text(key[1]), str(requests), str(errors) if errors else "-", p50, p99)
        return table

    def print(self) -> None:
        """The table as plain text of any width."""
        Console(file=sys.stdout, width=100, highlight=False, soft_wrap=True).print(self.table())


class LiveTable:
    """Follows a recording and shows it until the time is up or Ctrl-C."""

    def __init__(self, capture: Capture, status: Callable[[], str]):
        self._capture, self._status = capture, status
        self._table = TrafficTable()

    def run(self, seconds: float | None) -> None:
        """Until `seconds` are over or Ctrl-C. On a terminal the table is drawn in place, else printed now and then."""
        until = time.monotonic() + seconds if seconds else float("inf")
        if sys.stdout.isatty():
            with Live(self._render(), refresh_per_second=4, transient=True) as live:
                while time.monotonic() < until:
                    time.sleep(0.25)
                    self._table.read(self._capture)
                    live.update(self._render())
            return
        shown = time.monotonic()
        while time.monotonic() < until:
            time.sleep(min(0.25, max(0.0, until - time.monotonic())))
            self._table.read(self._capture)
            if time.monotonic() - shown >= PRINT_EVERY:
                shown = time.monotonic()
                for text in self._newest():
                    print(text)
                print(f"-- {self._table.requests} exchanges, {self._table.errors} errors  {self._status()}", flush=True)

    def _newest(self) -> Iterable[str]:
        rows = self._capture.rows()
        return [line(rows[number]) for number in range(max(0, len(rows) - NEWEST), len(rows))]

    def _render(self) -> Group:
        return Group(
            Text(self._status(), style="bold"),
            Text(),
            self._table.table(),
            Text(),
            *(Text(text) for text in self._newest()),
        )
