"""What charts share: colours that are readable on light and dark, axes, and tips that are drawn as text, never as HTML."""

from __future__ import annotations

from typing import Any

from ..times import heading

Options = dict[str, Any]
GREY, BLUE, GREEN, RED, ORANGE, VIOLET, PALE = "#7d8b99", "#2f8fd0", "#2ea36b", "#e0503a", "#d98324", "#9a6fd0", "#7d8b9966"
AXIS: Options = {
    "axisLabel": {"color": GREY, "fontFamily": "ui-monospace, Menlo, Consolas, monospace", "fontSize": 11},
    "axisLine": {"lineStyle": {"color": GREY}}, "axisTick": {"lineStyle": {"color": GREY}}, "splitLine": {"lineStyle": {"color": PALE}},
    "nameTextStyle": {"color": GREY, "align": "left"},
}  # fmt: skip
TOOLTIP: Options = {"renderMode": "richText", "trigger": "item", "confine": True}
LEGEND: Options = {"textStyle": {"color": GREY}, "top": 0, "type": "scroll", ":formatter": "barnabas.short"}


def zoom(axis: str, at: str = "filter") -> list[Options]:
    """Zoom of the axis "x" or "y" by the wheel, by pinching, and with a slider."""
    which: Options = {f"{axis}AxisIndex": 0, "filterMode": at}
    slider: Options = {"height": 16, "bottom": 4} if axis == "x" else {"width": 16, "right": 4}
    return [{"type": "inside"} | which, {"type": "slider", "showDetail": False, "orient": "horizontal" if axis == "x" else "vertical"} | which | slider]


def nothing(words: str) -> Options:
    """What stands in a chart without values; "" takes it away again."""
    return {"title": {"text": words, "left": "center", "top": "middle", "textStyle": {"color": GREY, "fontSize": 14, "fontWeight": "normal"}}}


def times_axis() -> Options:
    """An axis of times: their zone is its name."""
    return AXIS | {"name": heading("").strip(), "nameGap": 6}
