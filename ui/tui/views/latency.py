"""The latency view: percentiles and a histogram per API, and graphs over time in which a period can be chosen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.widget import Widget

from ....decoder.findings.engine.counters import DurationHistogram
from ....decoder.findings.models.response_times import ResponseTimes, own_time_ns
from ....decoder.schema import facts
from ...safe import fit
from ...times import clock, iso
from ..keys import bindings
from ..model.columns import duration
from ..model.filter_terms import api_term, combine
from ..model.statistics import ALL, ApiCount, Bin
from ..widgets.line_list import LineList, Table
from ..widgets.palette import Cell, Role
from ..widgets.styled import TextPane, TitleLine, bars, side_bar
from .view import View

GRAPHS: dict[str, Role] = {"rate": "name", "heat": "number", "p99": "number", "errors": "error"}
"""The graphs over time, with the roles of their marks."""
SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
NARROW_SHARES = ("p50", "p90", "p99", "max")
WIDE = 120
"""Columns of the screen from which all percentiles and the broker's own time are shown."""
TWO_COLUMNS = 110
"""Columns of the screen from which the histogram has two columns of steps."""
_LABEL, _HEIGHT, _STEPS_HEIGHT = 9, 7, 8


_NOTES = {
    "p99": "p99 to within a factor of two",
    "heat": "each row: latencies from here to the next; the darker, the more exchanges",
}
_SHADES = " ░▒▓█"


def heat_map(columns: Sequence[Bin], height: int) -> list[tuple[str, str]]:
    """At most `height` lines, the slowest first: the latency that a line begins at, and for each column how many exchanges there
    are. Shades are logarithmic."""
    used = [octave for each in columns for octave, count in enumerate(each.octaves) if count]
    if not used:
        return []
    low, high = min(used), max(used) + 1
    per = -(-(high - low) // height)
    lines = [[sum(each.octaves[start : start + per]) for each in columns] for start in range(low, high, per)]
    most = max(map(max, lines))
    shades = len(_SHADES) - 1

    def shade(count: int) -> str:
        return _SHADES[0 if not count else shades if most == 1 else 1 + int((shades - 1) * log(count) / log(most))]

    labels = [duration(1 << (start + 7)) if start else "0us" for start in range(low, high, per)]
    return [(label, "".join(map(shade, line))) for label, line in zip(labels, lines, strict=True)][::-1]


class LatencyScreen(View):
    """A graph over time above, the APIs below it, and the histogram of the one under the cursor at the side."""

    DEFAULT_CSS = """
    LatencyScreen #graph { height: 10; }
    LatencyScreen Table { height: 1fr; }
    LatencyScreen #histogram { height: 9; border-top: solid $border-blurred; }
    LatencyScreen.low #histogram { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = bindings("latency")
    number = 6
    context = "latency"
    needs_statistics = True
    needs_analysis = True

    def __init__(self) -> None:
        super().__init__()
        self.graph = 0
        self.brush: tuple[int, int] | None = None
        """Columns of the graph, both ends included."""
        self._keys: list[int] = []
        self._held: dict[int | None, DurationHistogram] = {}

    def body(self) -> Iterable[Widget]:
        self.picture, self.titles = TextPane(id="graph"), TitleLine()
        self.table, self.histogram = Table(), TextPane(id="histogram")
        return self.picture, self.titles, self.table, self.histogram

    def empty_text(self) -> str:
        return "" if len(self.session.capture.rows()) else "Nothing to measure yet: no exchanges."

    def state_cells(self) -> list[Cell]:
        statistics = self.session.statistics
        return [(f"{statistics.done:,} exchange{'s' * (statistics.done != 1)}", ""), *statistics.progress_cells()]

    def update_rows(self) -> None:
        apis = self.session.statistics.apis
        shares = "".join(f"{name:>9}" for name in self._shares)
        self.titles.show(f"  API                     Requests Errors{shares}{'  work: p50      p99' if self._wide else ''}")
        self._held = self.session.analysis.result.traffic.model(ResponseTimes).by_api()
        self._keys = [ALL, *sorted((key for key in apis if key != ALL), key=lambda key: -apis[key].requests)]
        self.table.show([self._row(key, apis[key]) for key in self._keys])
        self._draw()

    def _row(self, key: int, count: ApiCount) -> list[Cell]:
        cells: list[Cell] = [
            (" " + fit("all" if key == ALL else facts.api_name(key), 22) + " ", "title"),
            (f"{count.requests:>8,} ", ""),
            (f"{count.errors or '-':>6} ", "error" if count.errors else "muted"),
        ]
        for share in self._shares.values():
            value = (
                count.latencies.highest if share == 1.0 and count.latencies.count else count.latencies.percentile(share)
            )
            cells.append((f"{'-' if value is None else duration(value):>8} ", ""))
        if self._wide:
            held = self._held.get(None if key == ALL else key)
            cells.append(("  ", ""))
            times = (own_time_ns(held, share) for share in (0.5, 0.99))
            cells += [(f"{'-' if each is None else duration(each):>8} ", "number") for each in times]
        return cells

    @property
    def _wide(self) -> bool:
        return self.app.size.width >= WIDE

    @property
    def _shares(self) -> dict[str, float]:
        return SHARES if self._wide else {name: SHARES[name] for name in NARROW_SHARES}

    @property
    def key(self) -> int:
        """The API under the cursor, `ALL` for all."""
        return self._keys[self.table.cursor] if self.table.cursor < len(self._keys) else ALL

    # --- the graph over time -------------------------------------------------------------------------------

    @property
    def _width(self) -> int:
        return max(self.size.width - _LABEL - 1, 8)

    def _columns(self) -> list[Bin]:
        statistics = self.session.statistics
        found = statistics.apis.get(self.key)
        columns = [Bin() for _ in range(self._width)]
        if found is None or not statistics.first_ns:
            return columns
        length = max(statistics.last_ns - statistics.first_ns + 1, 1)
        step = found.series.step_ns
        for at, each in found.series.bins.items():
            middle = at * step + step // 2 - statistics.first_ns
            columns[max(0, min(middle * self._width // length, self._width - 1))].take(each)
        return columns

    def _draw(self) -> None:
        statistics = self.session.statistics
        if not statistics.done:
            return
        columns = self._columns()
        counted = statistics.apis[self.key].series.step_ns if self.key in statistics.apis else 1
        seconds = max((statistics.last_ns - statistics.first_ns) / self._width, counted) / 1e9
        name = list(GRAPHS)[self.graph]
        role = GRAPHS[name]
        about = "all APIs" if self.key == ALL else facts.api_name(self.key)
        lines: list[list[Cell]] = [[
            (f" {'heat map' if name == 'heat' else name}", "title"), (f" of {about}", "muted"), (f"   {_NOTES.get(name, '')}", "muted"),
        ]]  # fmt: skip
        if name == "heat":
            lines += [[(f"{label:>{_LABEL - 1}} ", "muted"), *self._brushed(text, role)] for label, text in heat_map(columns, _HEIGHT)]
        else:
            lines += self._bars(name, columns, seconds)
        first, last = clock(statistics.first_ns), clock(statistics.last_ns)
        lines.append([(" " * _LABEL + first + " " * max(self._width - len(first) - len(last), 1) + last, "muted")])
        self.picture.show(lines)
        self._histogram()
        self._about(columns)

    def _bars(self, name: str, columns: list[Bin], seconds: float) -> list[list[Cell]]:
        """The lines of a bar chart; `seconds`: of a column."""
        if name == "rate":
            values = [each.count / seconds for each in columns]
            top = max(values, default=0)
            label = f"{top:,.0f}/s" if top >= 10 else f"{top:.1f}/s"
        elif name == "p99":
            values = [float(each.percentile(0.99)) for each in columns]
            label = duration(int(max(values, default=0)))
        else:
            values = [each.errors / seconds for each in columns]
            top = max(values, default=0)
            label = f"{top:.1f}/s"
        lines: list[list[Cell]] = []
        for y, text in enumerate(bars(values, self._width, _HEIGHT)):
            head = label if y == 0 else "0" if y == _HEIGHT - 1 else ""
            lines.append([(f"{head:>{_LABEL - 1}} ", "muted"), *self._brushed(text, GRAPHS[name])])
        return lines

    def _brushed(self, text: str, role: Role) -> list[Cell]:
        if self.brush is None:
            return [(text, role)]
        low, high = self.brush
        return [(text[:low], role), (text[low : high + 1], "span"), (text[high + 1 :], role)]

    def _times(self, low: int, high: int) -> tuple[int, int]:
        statistics = self.session.statistics
        length = statistics.last_ns - statistics.first_ns + 1
        return statistics.first_ns + length * low // self._width, statistics.first_ns + length * (high + 1) // self._width - 1

    def _about(self, columns: list[Bin]) -> None:
        if self.brush is None:
            self.about.show([(" left right: ", "key"), ("choose a time range  ", "muted"), ("Enter: ", "key"),
                             ("its exchanges  ", "muted"), ("v: ", "key"), ("rate, heat map, p99, errors", "muted"),
                             ("  work: without waits that requests allow" if self._wide else "", "muted")])  # fmt: skip
            return
        total = Bin()
        for each in columns[self.brush[0] : self.brush[1] + 1]:
            total.take(each)
        start, end = self._times(*self.brush)
        self.about.show([(f" {clock(start)} to {clock(end)}: ", "title"), (f"{total.count:,} exchange{'s' * (total.count != 1)}, ", ""),
                         (f"{total.errors} error{'s' * (total.errors != 1)}, ", "error" if total.errors else "muted"),
                         (f"p99 up to {duration(total.percentile(0.99))}  ", ""), ("Enter: ", "key"),
                         ("in the list", "muted")])  # fmt: skip

    # --- the histogram -------------------------------------------------------------------------------------

    def _histogram(self) -> None:
        found = self.session.statistics.apis.get(self.key)
        if found is None or not found.latencies.count:
            self.histogram.show([[(" no latency: no responses yet", "muted")]])
            return
        steps = found.latencies.steps()
        columns = 2 if self.size.width >= TWO_COLUMNS and len(steps) > _STEPS_HEIGHT else 1
        per = -(-len(steps) // (_STEPS_HEIGHT * columns))
        parts = [steps[i : i + per] for i in range(0, len(steps), per)]
        counts = [sum(step.exchanges for step in part) for part in parts]
        height, room = -(-len(parts) // columns), max(self.size.width // columns - 32, 8)
        lines: list[list[Cell]] = [[] for _ in range(height)]
        for i, (part, count) in enumerate(zip(parts, counts, strict=True)):
            label = f" {duration(part[0].start_ns):>7} to {duration(part[-1].end_ns):<7}"
            lines[i % height] += [(label, "muted"), (f"{count:>9,} ", ""), (side_bar(count / max(counts), room) + "  ", "number")]
        self.histogram.show(lines)

    # --- keys ----------------------------------------------------------------------------------------------

    def on_line_list_moved(self) -> None:
        self._draw()

    def on_resize(self) -> None:
        self.set_class(self.app.size.height < 32, "low")
        self.brush = None
        self._draw()

    def action_brush(self, step: int) -> None:
        low, high = self.brush or ((self._width - 1, self._width - 1) if step < 0 else (0, 0))
        if self.brush is not None:
            step = max(-low, min(step * max((high - low + 1) // 2, 1), self._width - 1 - high))
            low, high = low + step, high + step
        self.brush = low, high
        self._draw()

    def action_widen(self, step: int) -> None:
        low, high = self.brush or (self._width // 2, self._width // 2)
        if step > 0:
            low, high = max(low - 1, 0), min(high + 1, self._width - 1)
        elif high - low >= 2:
            low, high = low + 1, high - 1
        self.brush = low, high
        self._draw()

    def action_graph(self) -> None:
        self.graph = (self.graph + 1) % len(GRAPHS)
        self._draw()

    def action_unbrush(self) -> None:
        self.brush = None
        self._draw()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if event.widget is self.picture and event.x - _LABEL >= 0:
            at = min(event.x - _LABEL, self._width - 1)
            self.brush = at, at
            self._draw()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if event.button and event.widget is self.picture and self.brush is not None:
            at = max(0, min(event.x - _LABEL, self._width - 1))
            self.brush = min(self.brush[0], at), max(at, self.brush[0])
            self._draw()

    def on_line_list_opened(self, event: LineList.Opened) -> None:
        text = "" if self.key == ALL else api_term(self.key)
        if self.brush is not None:
            start, end = self._times(*self.brush)
            text = combine(text, f"time in {iso(start)}..{iso(end + 999)}")
        self.barnabas.show_exchanges(text)
