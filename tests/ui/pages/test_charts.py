"""Charts as SVG: what is drawn where nothing was recorded, where nothing happened, and what names can do."""

from __future__ import annotations

import re
import sys
from xml.etree import ElementTree

import pytest
from barnabas.ui.pages import charts
from barnabas.ui.pages.charts import Intervals, Unit

MINUTE = 60 * 10**9
START = 1_790_000_040 * 10**9  # 2026-09-21 14:14:00
EVIL = "</text><script>alert(1)</script>\x1b[31m\u202e\"'"


def over(recorded: set[int], last: int = 9) -> Intervals:
    """Intervals of a minute, of which these were recorded."""
    return Intervals(START, START + last * MINUTE, MINUTE, frozenset(START + each * MINUTE for each in recorded))


def at(values: dict[int, float | None]) -> dict[int, float | None]:
    return {START + minute * MINUTE: value for minute, value in values.items()}


def drawings(figure: str) -> list[ElementTree.Element]:
    """The wide and the narrow drawing, read as XML."""
    return [ElementTree.fromstring(each) for each in re.findall(r"<svg.*?</svg>", figure, re.S)]


def hints(drawing: ElementTree.Element) -> list[str]:
    """What stands at the pointer."""
    return [title.text or "" for title in drawing.iter("title")]


def texts(drawing: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in drawing.iter("text")]


def subpaths(drawing: ElementTree.Element) -> list[int]:
    """Of each line, how many pieces it has."""
    paths = (path for group in drawing.iter("g") if "mark-line" in group.get("class", "") for path in group.iter("path"))
    return [path.get("d", "").count("M") for path in paths]


def test_an_interval_without_traffic_is_zero_and_one_that_was_not_recorded_is_a_gap() -> None:
    figure = charts.columns("Requests", "", Unit.COUNT, over({0, 1, 2, 6, 7, 8, 9}), {"requests": {START: 3, START + 7 * MINUTE: 4}})
    for drawing in drawings(figure):
        said = hints(drawing)
        assert [hint for hint in said if "not recorded" in hint] == ["2026-09-21 14:17:00.000 to 14:20:00.000Z: not recorded"]
        minutes = {hint[11:16]: hint.rpartition(": ")[2] for hint in said if "not recorded" not in hint}
        assert minutes == {"14:14": "3", "14:15": "0", "14:16": "0", "14:20": "0", "14:21": "4", "14:22": "0", "14:23": "0"}


def test_a_line_breaks_where_there_is_no_value() -> None:
    values = at({0: 1.0, 1: 2.0, 4: 3.0, 5: 1.0, 9: 2.0})
    wide, narrow = drawings(charts.lines("Latency", "", Unit.DURATION, over(set(range(10))), {"p99": values}))
    assert subpaths(wide) == subpaths(narrow) == [3]
    (whole, _) = drawings(charts.lines("Latency", "", Unit.DURATION, over(set(range(10))), {"p99": at(dict.fromkeys(range(10), 1.0))}))
    assert subpaths(whole) == [1]


def test_a_log_axis_has_every_power_of_ten_with_its_unit() -> None:
    values = at({0: 2e5, 1: 3e6, 2: 4e7, 3: 2e9})
    wide, _ = drawings(charts.lines("Latency", "", Unit.DURATION, over(set(range(10))), {"p99": values}, log=True))
    assert [text for text in texts(wide) if text.endswith("s")] == ["100 µs", "1 ms", "10 ms", "100 ms", "1 s", "10 s"]


def test_names_stay_text() -> None:
    zero = at({0: 1.0, 1: 2.0})
    figures = [
        charts.lines(EVIL, EVIL, Unit.COUNT, over({0, 1}, 1), {EVIL: zero, "b": zero}),
        charts.columns(EVIL, EVIL, Unit.COUNT, over({0, 1}, 1), {EVIL: {START: 1}, "b": {START: 1}}),
        charts.bars(EVIL, EVIL, Unit.COUNT, [(EVIL, 1), (EVIL, 2)]),
        charts.ranges(EVIL, EVIL, Unit.DURATION, [(EVIL, 1e6, 2e6, 3e6)]),
        charts.spans(EVIL, EVIL, (START, START + MINUTE), [(EVIL, START, START + MINUTE, "high")]),
    ]
    for figure in figures:
        assert "<script" not in figure and "\x1b" not in figure and "\u202e" not in figure
        for drawing in drawings(figure):
            assert {element.tag for element in drawing.iter()} <= {"svg", "g", "path", "line", "rect", "text", "title"}
            assert any("</text><script>" in text for text in (*hints(drawing), *texts(drawing)))


def test_the_same_name_twice_has_two_rows() -> None:
    wide, _ = drawings(charts.bars("Bytes", "", Unit.BYTES, [("a", 12_000), ("a", 1)]))
    assert hints(wide) == ["a: 12 kB", "a (2): 1 B"]


def test_nothing_is_drawn_of_nothing() -> None:
    nothing = at({0: None})
    assert charts.lines("x", "", Unit.COUNT, over({0}), {"a": nothing}) == charts.columns("x", "", Unit.COUNT, over({0}), {"a": {}}) == ""
    assert charts.bars("x", "", Unit.COUNT, [("a", 0)]) == charts.ranges("x", "", Unit.COUNT, []) == charts.spans("x", "", (0, 1), []) == ""


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert not charts.drawable()
    with pytest.raises(charts.MissingCharts, match=r"\.\[report\]"):
        charts.bars("x", "", Unit.COUNT, [("a", 1)])


def test_both_sides_are_drawn_also_where_one_has_no_value() -> None:
    wide, narrow = drawings(charts.pairs("Latency", "", Unit.DURATION, [("Fetch", 1e6, 2e6), ("Produce", None, 3e6)], ("A", "B")))
    for drawing in (wide, narrow):
        assert texts(drawing)[-2:] == ["A", "B"]
        assert sorted(hints(drawing)) == ["Fetch: A: 1.0 ms, B: 2.0 ms"] * 2 + ["Produce: A: -, B: 3.0 ms"]


def test_values_have_their_units() -> None:
    assert [Unit.BYTES.of(each) for each in (0, 999, 1500, 2_000_000)] == ["0 B", "999 B", "1.5 kB", "2 MB"]
    assert [Unit.DURATION.of(each) for each in (5e5, 2.5e6, 1.5e9, 90e9, 7200e9)] == ["500 µs", "2.5 ms", "1.50 s", "1.5 min", "2.0 h"]
    assert (Unit.SHARE.of(0.0382), Unit.COUNT.of(12_345), Unit.FACTOR.of(2.54)) == ("3.82 %", "12.3k", "2.5×")
