"""Charts of pages: Vega-Lite drawn to SVG when the page is made.

vl-convert (by the Vega-Altair project) brings Vega-Lite in one wheel that needs nothing else and draws without a browser. So a page holds
pictures and no program: it prints, opens in a mail reader, and can forbid all scripts. ECharts and Plotly would put 1 to 4.5 MB of JavaScript
into each page. Colors are variables of the page's style; every chart is drawn wide and narrow, and the style shows one of them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from markupsafe import Markup

from ...errors import BarnabasError, install
from .. import times
from ..safe import visible

COLORS = tuple(f"var(--c{number})" for number in range(1, 9))
_SIZES = (("wide", 520), ("narrow", 320))
"""The class of a drawing, and its width in pixels."""
_HEIGHT, _BAR = 170, 20
_NAMES = {"wide": 170, "narrow": 130}
"""Pixels for the names of bars."""
_SPARE = 24
"""Pixels for names in a wider font than the one that was measured."""
_FONT = "Arial, Liberation Sans, Helvetica, sans-serif"  # those that the drawing library measures have the same widths
_NAMESPACES = re.compile(r' xmlns(:xlink)?="[^"]*"')  # HTML needs none
_LABELED = re.compile(r'(<path aria-label="([^"]*)"[^>]*?)/>')


class MissingCharts(BarnabasError, ImportError):
    """The library that draws is not installed; the message has the command that installs it."""


class Unit(Enum):
    """What the numbers of an axis are; the value is the expression that Vega has for a label."""

    COUNT = "format(datum.value, '~s')"
    SHARE = "format(datum.value, '~%')"
    BYTES = "format(datum.value, '~s') + 'B'"
    BYTES_PER_SECOND = "format(datum.value, '~s') + 'B/s'"
    DURATION = (  # in nanoseconds
        "datum.value >= 1e9 ? format(datum.value / 1e9, '~s') + ' s' : datum.value >= 1e6 ? format(datum.value / 1e6, '~g') + ' ms' : "
        "format(datum.value / 1e3, '~g') + ' µs'"
    )
    FACTOR = "format(datum.value, '~g') + '×'"

    def of(self, value: float) -> str:
        """A value with its unit, for people: ``1.2 ms``, ``3.4 %``, ``12 kB``."""
        if self is Unit.DURATION:
            return times.duration(value)
        if self is Unit.SHARE:
            return f"{value * 100:.3g} %"
        if self is Unit.FACTOR:
            return f"{value:.2g}×"
        scaled, prefix = value, ""
        for prefix in ("", "k", "M", "G", "T"):
            if abs(scaled) < 1000 or prefix == "T":
                break
            scaled /= 1000
        number = f"{scaled:.0f}" if scaled == int(scaled) or scaled >= 100 else f"{scaled:.3g}"
        ends = {Unit.BYTES: f" {prefix}B", Unit.BYTES_PER_SECOND: f" {prefix}B/s"}
        return number + ends.get(self, prefix)


class Intervals(NamedTuple):
    """The time axis: intervals of `length` ns from `first` to `last` (their starts), and which of them were recorded at all."""

    first: int
    last: int
    length: int
    recorded: frozenset[int]

    def starts(self) -> range:
        return range(self.first, self.last + 1, self.length)

    def gaps(self) -> list[tuple[int, int]]:
        """From when to when nothing was recorded."""
        found: list[tuple[int, int]] = []
        for start in self.starts():
            if start not in self.recorded:
                began = found.pop()[0] if found and found[-1][1] == start else start
                found.append((began, start + self.length))
        return found


def lines(title: str, about: str, unit: Unit, over: Intervals, series: dict[str, dict[int, float | None]], *, log: bool = False) -> Markup:
    """Lines over time, by name: the value of each interval. One without a value is a gap in the line. "" without values."""
    values: list[dict[str, Any]] = []
    hints = []
    starts = list(over.starts())
    for name, points in series.items():
        for before, start, after in zip((None, *starts), starts, (*starts[1:], None)):
            value = points.get(start)
            if log and value is not None and value <= 0:
                value = None
            alone = value is not None and all(each is None or points.get(each) is None for each in (before, after))
            values.append({"t": times.clock_ms(start) + over.length / 2e6, "v": value, "s": visible(name), "alone": alone})
    if all(value["v"] is None for value in values):
        return Markup()
    for start in starts:
        known = [f"{name} {unit.of(value)}" for name, points in series.items() if (value := points.get(start)) is not None]
        if known:
            hints.append(_hint(start, over.length, ", ".join(known)))
    numbers: list[float] = [value["v"] for value in values if value["v"] is not None]
    linear = {"type": "quantitative", "title": None, "scale": {"zero": True}, "axis": _axis(unit)}
    y = {"field": "v", **(_log(unit, min(numbers), max(numbers)) if log else linear)}
    color = _color(list(series))
    x = {"field": "t", **_time(over)}
    layers = [
        *_shading(over),
        {"data": {"values": values}, "mark": {"type": "line", "strokeWidth": 1.8, "invalid": "break-paths-show-domains", "aria": False},
         "encoding": {"x": x, "y": y, "color": color}},
        {"data": {"values": [each for each in values if each["alone"]]}, "mark": {"type": "point", "filled": True, "size": 22, "aria": False},
         "encoding": {"x": x, "y": y, "color": color}},
        *_hints(over, hints),
    ]  # fmt: skip
    return _figure(title, about + ("; shaded: not recorded" if over.gaps() else ""), {"layer": layers}, series)


def columns(title: str, about: str, unit: Unit, over: Intervals, series: dict[str, dict[int, float]]) -> Markup:
    """Columns over time, by name, on top of each other. No value is 0 in an interval that was recorded. "" without values."""
    values, hints = [], []
    for start in over.starts():
        base = 0.0
        known = []
        for name, points in series.items():
            if value := points.get(start):
                stands = {"t": times.clock_ms(start), "u": times.clock_ms(start) + over.length / 1e6 * 0.94, "v": base, "w": base + value, "s": visible(name)}
                values.append(stands)
                known.append(f"{name} {unit.of(value)}" if len(series) > 1 else unit.of(value))
                base += value
        if known or start in over.recorded:
            hints.append(_hint(start, over.length, ", ".join(known) or unit.of(0)))
    if not values:
        return Markup()
    y = {"field": "v", "type": "quantitative", "title": None, "axis": _axis(unit)}
    layers = [
        *_shading(over),
        {"data": {"values": values}, "mark": {"type": "rect", "aria": False},
         "encoding": {"x": {"field": "t", **_time(over)}, "x2": {"field": "u"}, "y": y, "y2": {"field": "w"}, "color": _color(list(series))}},
        *_hints(over, hints),
    ]  # fmt: skip
    return _figure(title, about + ("; shaded: not recorded" if over.gaps() else ""), {"layer": layers}, series)


def bars(title: str, about: str, unit: Unit, of: Sequence[tuple[str, float]]) -> Markup:
    """A bar for each name, in this order, with its value. "" without values."""
    if not any(value for _, value in of):
        return Markup()
    values = [{"name": visible(name), "v": value, "text": unit.of(value)} for name, value in of]
    top = max(value for _, value in of)
    x = {"field": "v", "type": "quantitative", "title": None, "scale": {"domain": [0, top * 1.22]}, "axis": None}
    layers = [
        {"mark": {"type": "bar", "height": 13, "color": COLORS[0]}, "encoding": {"x": x, "description": {"field": "d"}}},
        {"mark": {"type": "text", "align": "left", "dx": 5, "color": "var(--text)", "aria": False}, "encoding": {"x": x, "text": {"field": "text"}}},
    ]  # fmt: skip
    return _figure(title, about, _rows(values, layers))


def pairs(title: str, about: str, unit: Unit, of: Sequence[tuple[str, float | None, float | None]], sides: tuple[str, str]) -> Markup:
    """For each name its values on both sides, joined by a line, on a log axis. "" without values."""
    both = [(name, a if a and a > 0 else None, b if b and b > 0 else None) for name, a, b in of]
    known = [value for _, *values in both for value in values if value is not None]
    if not known:
        return Markup()
    values: list[dict[str, Any]] = []
    for name, a, b in both:
        text = ", ".join(f"{side}: {'-' if value is None else unit.of(value)}" for side, value in zip(sides, (a, b)))
        values.append({"name": visible(name), "a": a, "b": b, "text": text})
    x = _log(unit, min(known), max(known))
    shape = {"type": "point", "filled": True, "size": 70, "opacity": 1}
    shared = {"description": {"field": "d"}}
    layers: list[dict[str, Any]] = [
        {"mark": {"type": "rule", "color": "var(--dim)", "aria": False}, "encoding": {"x": {**x, "field": "a"}, "x2": {"field": "b"}}},
        *(
            {"mark": shape, "encoding": shared | {"x": {**x, "field": field}, "color": {"datum": visible(side), **_color(list(sides), field=False)}}}
            for field, side in zip("ab", sides)
        ),
    ]  # fmt: skip
    return _figure(title, about, _rows(values, layers), sides)


def ranges(title: str, about: str, unit: Unit, of: Sequence[tuple[str, float, float, float]]) -> Markup:
    """For each name a line from its first value to its third with a mark at the second, on a log axis. "" without values."""
    known = [each for each in of if each[1] > 0]
    if not known:
        return Markup()
    values = [
        {"name": visible(name), "a": low, "b": middle, "c": high, "text": ", ".join(map(unit.of, (low, middle, high)))}
        for name, low, middle, high in known
    ]
    x = {"field": "a", **_log(unit, min(each[1] for each in known), max(each[3] for each in known))}
    layers: list[dict[str, Any]] = [
        {"mark": {"type": "bar", "height": 9, "color": COLORS[0], "opacity": 0.45},
         "encoding": {"x": x, "x2": {"field": "c"}, "description": {"field": "d"}}},
        {"mark": {"type": "tick", "thickness": 3, "height": 15, "color": COLORS[1], "aria": False}, "encoding": {"x": {**x, "field": "b"}}},
        {"mark": {"type": "tick", "thickness": 3, "height": 15, "color": COLORS[0], "aria": False}, "encoding": {"x": {**x, "field": "a"}}},
    ]  # fmt: skip
    return _figure(title, about, _rows(values, layers))


def spans(title: str, about: str, over: tuple[int, int], of: Sequence[tuple[str, int, int, str]]) -> Markup:
    """A bar from the first to the last time of each name, in the color of this name of the style. "" without names."""
    if not of:
        return Markup()
    length = max(over[1] - over[0], 10**6)
    intervals = Intervals(over[0], over[0], length, frozenset())
    least = length / 1e6 / 150  # or nobody sees it
    values = []
    for name, first, last, color in of:
        text = times.period(first, last)
        end = max(times.clock_ms(last), times.clock_ms(first) + least)
        start = min(times.clock_ms(first), times.clock_ms(over[1]) - least)
        values.append({"name": visible(name), "a": start, "b": end, "color": f"var(--{color})", "text": text})
    x = {"field": "a", **_time(intervals)}
    paint = {"field": "color", "type": "nominal", "scale": None}
    layers: list[dict[str, Any]] = [
        {"mark": {"type": "bar", "height": 11, "cornerRadius": 2},
         "encoding": {"x": x, "x2": {"field": "b"}, "color": paint, "description": {"field": "d"}}},
    ]  # fmt: skip
    return _figure(title, about, _rows(values, layers))


# --- parts of charts ---------------------------------------------------------------------------------------


def _time(over: Intervals) -> dict[str, Any]:
    """The axis of time."""
    seconds = (over.last + over.length - over.first) / 1e9
    form = "%H:%M:%S" if seconds < 300 else "%H:%M" if seconds <= 86400 else "%d %b %H:%M" if seconds <= 3 * 86400 else "%d %b"
    zone = "UTC" if times.mark() else "local time"
    scale: dict[str, Any] = {"type": "utc", "domain": [times.clock_ms(over.first), times.clock_ms(over.last + over.length)]}
    axis = {"format": form, "tickCount": 5, "title": zone if "H" in form else None, "labelFlush": True}
    return {"type": "temporal", "scale": scale, "axis": axis, "title": None}


def _axis(unit: Unit, ticks: list[float] | None = None) -> dict[str, Any]:
    return {"labelExpr": unit.value, "title": None, "grid": True} | ({"values": ticks} if ticks else {"tickCount": 4})


def _log(unit: Unit, least: float, most: float) -> dict[str, Any]:
    """An axis from a power of ten to another."""
    low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))
    high = max(high, low + 1)
    ticks = [10.0**each for each in range(low, high + 1)]
    return {"type": "quantitative", "title": None, "scale": {"type": "log", "domain": [ticks[0], ticks[-1]]}, "axis": _axis(unit, ticks)}


def _color(names: list[str], field: bool = True) -> dict[str, Any]:
    legend = None if len(names) == 1 else {"orient": "top", "title": None, "symbolType": "square", "labelLimit": 200}
    scale = {"domain": [visible(name) for name in names], "range": list(COLORS[: len(names)])}
    return {"type": "nominal", "scale": scale, "legend": legend} | ({"field": "s"} if field else {})


def _shading(over: Intervals) -> list[dict[str, Any]]:
    """Behind the chart: where nothing was recorded."""
    values = [{"t": times.clock_ms(first), "u": times.clock_ms(last), "d": f"{times.period(first, last)}: not recorded"} for first, last in over.gaps()]
    encoding = {"x": {"field": "t", **_time(over)}, "x2": {"field": "u"}, "description": {"field": "d"}}
    return [{"data": {"values": values}, "mark": {"type": "rect", "color": "var(--gap)"}, "encoding": encoding}] if values else []


def _hint(start: int, length: int, text: str) -> dict[str, Any]:
    return {"t": times.clock_ms(start), "u": times.clock_ms(start) + length / 1e6, "d": f"{times.moment(start)}: {visible(text)}"}


def _hints(over: Intervals, hints: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """In front of the chart: an invisible strip for each interval, which says its values."""
    encoding = {"x": {"field": "t", **_time(over)}, "x2": {"field": "u"}, "description": {"field": "d"}}
    return [{"data": {"values": hints}, "mark": {"type": "rect", "color": "transparent"}, "encoding": encoding}]


def _rows(values: list[dict[str, Any]], layers: list[dict[str, Any]]) -> dict[str, Any]:
    """Layers with a row for each value, under its name."""
    seen: Counter[str] = Counter()
    for value in values:
        seen[value["name"]] += 1
        if seen[value["name"]] > 1:
            value["name"] += f" ({seen[value['name']]})"
        value["d"] = f"{value['name']}: {value['text']}"
    axis = {"title": None, "ticks": False, "domain": False, "grid": False}
    y = {"field": "name", "type": "nominal", "sort": None, "title": None, "axis": axis}
    return {
        "data": {"values": values},
        "height": {"step": _BAR},
        "padding": {"left": 5 + _SPARE, "right": 5, "top": 5, "bottom": 5},
        "layer": [{**layer, "encoding": {**layer["encoding"], "y": y}} for layer in layers],
    }


def _figure(title: str, about: str, spec: dict[str, Any], names: Collection[str] = ()) -> Markup:
    drawings = Markup().join(
        Markup('<div class="{}">{}</div>').format(kind, _drawing({"width": width, "height": _HEIGHT} | spec, kind, names))
        for kind, width in _SIZES
    )
    small = Markup("<small>{}</small>").format(visible(about)) if about else ""
    return Markup("<figure><figcaption>{}{}</figcaption>{}</figure>\n").format(visible(title), small, drawings)


def _drawing(spec: dict[str, Any], kind: str, names: Collection[str]) -> Markup:
    convert = converter()
    columns = max(1, spec["width"] // (30 + 8 * max(map(len, names), default=1)))
    config = {
        "font": _FONT,
        "view": {"stroke": None},
        "axis": {
            "labelColor": "var(--dim)", "titleColor": "var(--dim)", "titleFontWeight": "normal", "gridColor": "var(--line)", "labelFontSize": 11,
            "titleFontSize": 11, "domainColor": "var(--line)", "tickColor": "var(--line)", "labelOverlap": "greedy", "labelPadding": 5,
        },
        "axisX": {"grid": False},
        "axisY": {"labelLimit": _NAMES[kind]},
        "legend": {"labelColor": "var(--text)", "labelFontSize": 11, "columns": columns, "rowPadding": 3, "columnPadding": 12, "offset": 8},
        "text": {"fontSize": 11},
    }  # fmt: skip
    document = {"$schema": "https://vega.github.io/schema/vega-lite/v5.json", "background": "transparent", "config": config} | spec
    svg = convert.vegalite_to_svg(document)
    svg = _NAMESPACES.sub("", svg, count=2)
    # Browsers show the title of a shape when the pointer is on it; Vega writes only the label for screen readers.
    return Markup(_LABELED.sub(r"\1><title>\2</title></path>", svg))  # Vega has escaped all text


def converter() -> Any:
    """The library that draws. Raises MissingCharts."""
    try:
        import vl_convert
    except ImportError as error:
        raise MissingCharts(f"charts need vl-convert: {install('report')}") from error
    return vl_convert


def drawable() -> bool:
    """Whether the library that draws is installed."""
    try:
        converter()
    except MissingCharts:
        return False
    return True


def names_first(values: Iterable[tuple[str, float]], most: int = 12) -> list[tuple[str, float]]:
    """The largest, at most so many."""
    return sorted(values, key=lambda pair: -pair[1])[:most]
