"""The log view: events of the proxy, and messages of the screens."""

from __future__ import annotations

from collections.abc import Iterable

from textual.widget import Widget

from ...safe import visible
from ...times import clock
from ..widgets.line_list import Table
from ..widgets.palette import Cell
from .view import View


class LogScreen(View):
    """The log, with the newest line at the end."""

    number = 8
    context = "log"

    def body(self) -> Iterable[Widget]:
        self.table = Table()
        self.table.following = True
        return (self.table,)

    def update_rows(self) -> None:
        rows: list[list[Cell]] = [
            [(f" {clock(line.time_ns)} ", "muted"), ("! " if line.warning else "  ", "error"),
             (line.text, "error" if line.warning else "")]
            for line in self.session.log
        ]  # fmt: skip
        if self.session.capture.note:
            rows.append([(" capture      ", "muted"), ("? ", "undecoded"), (visible(self.session.capture.note), "")])
        self.table.show(rows)

    def empty_text(self) -> str:
        if self.session.log or self.session.capture.note:
            return ""
        return self.session.nothing_to_report()
