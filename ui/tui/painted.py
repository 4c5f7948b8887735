"""What every widget that draws its own lines has: the palette of the application's theme."""

from __future__ import annotations

from textual.widget import Widget

from .palette import DARK, Palette


class Painted(Widget):
    """A widget whose styles come from `palette`, by role."""

    @property
    def palette(self) -> Palette:
        """That of the theme that is on now."""
        found: Palette = getattr(self.app, "palette", DARK)
        return found
