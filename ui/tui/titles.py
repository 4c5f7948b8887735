"""A line of column titles, and a line that parts what is above from what is below."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from .columns import Cell
from .painted import Painted
from .safe import fit


class Titles(Painted):
    """One underlined line."""

    DEFAULT_CSS = "Titles { height: 1; }"

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def show(self, text: str) -> None:
        """Another text."""
        if text != self.text:
            self.text = text
            self.refresh()

    def render_line(self, y: int) -> Strip:
        style = self.rich_style + self.palette.muted + Style(underline=True)
        return Strip([Segment(fit(self.text, self.size.width), style)])


class Picture(Painted):
    """Lines of cells that a view works out for the size it has: `draw(width, height)`."""

    DEFAULT_CSS = "Picture { height: 1fr; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.lines: list[list[Cell]] = []

    def show(self, lines: list[list[Cell]]) -> None:
        """Other lines; only those that changed are painted again."""
        old, self.lines = self.lines, lines
        for y in range(max(len(old), len(lines))):
            if (old[y] if y < len(old) else None) != (lines[y] if y < len(lines) else None):
                self.refresh_line(y)

    def refresh_line(self, y: int) -> None:
        """Paint a line again."""
        if 0 <= y < self.size.height:
            from textual.geometry import Region

            self.refresh(Region(0, y, self.size.width, 1))

    def render_line(self, y: int) -> Strip:
        base = self.rich_style
        cells = self.lines[y] if y < len(self.lines) else []
        strip = Strip([Segment(text, base + self.palette.of(role)) for text, role in cells])
        return strip.crop_extend(0, self.size.width, base)
