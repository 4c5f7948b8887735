"""Graphs of letters: bars of eighths over time, bars to the side."""

from __future__ import annotations

from collections.abc import Sequence

EIGHTHS = " ▁▂▃▄▅▆▇█"


def bars(values: Sequence[float], width: int, height: int, top: float | None = None) -> list[str]:
    """`height` lines of `width` cells, the highest first; each value is the mean of what falls into its cell's width.

    `top`: the value of a full column, by default the highest one.
    """
    if not values or not width or not height:
        return [" " * width] * height
    top = max(values) if top is None else top
    lines = []
    cells = [min(v / top, 1.0) * height if top > 0 else 0.0 for v in values]
    for line in range(height, 0, -1):
        text = []
        for cell in cells[:width]:
            filled = cell - (line - 1)
            eighth = 8 if filled >= 1 else 0 if filled <= 0 else max(int(filled * 8 + 0.5), 1 if line == 1 else 0)
            text.append(EIGHTHS[eighth])
        lines.append("".join(text).ljust(width))
    return lines


def side_bar(share: float, width: int) -> str:
    """A bar of `width` cells, filled to `share` (0 to 1) in eighths."""
    eighths = round(max(0.0, min(share, 1.0)) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width)
