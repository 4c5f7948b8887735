"""The problems view: findings, the worst first. Enter opens an exchange that shows one."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from ....captures import Row
from ....captures.reading.selection import select
from ....decoder import Exchange
from ....decoder.filter import compile
from ....decoder.findings import Finding
from ...safe import fit, visible
from ...times import period
from ..keys import bindings
from ..model.rows import RowView, row_summary
from ..widgets.line_list import LineList, Table
from ..widgets.palette import Cell, Role
from ..widgets.styled import TextPane, TitleLine
from .view import View

ROLES: dict[str, Role] = {"high": "error", "medium": "undecoded", "low": "waiting", "info": "muted"}


class ProblemsScreen(View):
    """The findings, and below them an explanation of the one under the cursor."""

    DEFAULT_CSS = """
    ProblemsScreen Table { height: 40%; max-height: 40%; }
    ProblemsScreen TextPane { height: 1fr; padding: 0 1; border-top: solid $border-blurred; }
    """
    BINDINGS: ClassVar[list[BindingType]] = bindings("problems")
    number = 5
    context = "problems"
    needs_analysis = True

    def __init__(self) -> None:
        super().__init__()
        self.findings: list[Finding] = []
        self._rows: dict[int, Row | None] = {}

    def body(self) -> Iterable[Widget]:
        self.titles, self.table, self.text = TitleLine(), Table(), TextPane()
        return self.titles, self.table, self.text

    def empty_text(self) -> str:
        result = self.session.analysis.result
        if result.fault:
            return f"Findings are not available.\n\n{visible(result.fault)}"
        if result.findings:
            return ""
        if self.session.unread:
            return f"Reading: {result.progress:.0%}, nothing found so far."
        return "Nothing found: no detector reports a problem in this traffic."

    def state_cells(self) -> list[Cell]:
        result = self.session.analysis.result
        high, medium = result.high, result.medium
        cells: list[Cell] = [(f"{len(result.findings)} finding{'s' * (len(result.findings) != 1)}", "")]
        if high:
            cells.append((f" {high} high", "error"))
        if medium:
            cells.append((f" {medium} medium", "undecoded"))
        if self.session.unread:
            cells.append((f" {result.progress:.0%}", "waiting"))
        return cells

    def update_rows(self) -> None:
        self.titles.show("  Severity  Times  What was seen")
        self.findings = self.session.analysis.result.findings
        self.table.show([
            [(f" {f.severity!s:<8} ", ROLES[f.severity]), (f"{f.count:>6}  ", "muted"),
             (f"{visible(f.id)}  ", "title"), (visible(f.seen), "")]
            for f in self.findings
        ])  # fmt: skip
        if self.findings:  # a short list leaves more room for the explanation
            self.table.styles.height = len(self.findings)
        self._show_details()

    @property
    def current(self) -> Finding | None:
        """The finding under the cursor."""
        return self.findings[self.table.cursor] if self.table.cursor < len(self.findings) else None

    def _show_details(self) -> None:
        finding = self.current
        if finding is None:
            self.text.show([])
            self.about.show([])
            return
        width = max(self.size.width - 12, 30)
        lines: list[list[Cell]] = []
        texts = [("seen", finding.seen), ("why", finding.why), ("do", finding.remedy)]
        more = [("causes", ", ".join(finding.effects)), ("rules", finding.done_by)]
        for label, text in texts + [each for each in more if each[1]]:
            for i, part in enumerate(textwrap.wrap(visible(text), width) or [""]):
                lines.append([(fit(label if not i else "", 8), "key"), (part, "" if label != "why" else "muted")])
        for i, (exchange, row) in enumerate(self._evidence(finding)):
            cells = row_summary(row) if row is not None else [(_words(exchange), "muted")]
            lines.append([(fit("such as" if not i else "", 8), "key"), *cells])
        self.text.show(lines)
        when = "" if finding.first_ns is None else period(finding.first_ns, finding.last_ns)
        self.about.show([(" Enter: ", "key"), ("opens its exchange  ", "muted"), ("f: ", "key"),
                         ("all of them in the list", "muted")], [(f"{when} ", "muted")])  # fmt: skip

    def _evidence(self, finding: Finding) -> list[tuple[Exchange, Row | None]]:
        unique = {id(exchange): exchange for exchange in finding.exchanges}
        return [(exchange, self._row(exchange)) for exchange in unique.values()]

    def _row(self, exchange: Exchange) -> Row | None:
        """The row of an exchange."""
        known = self._rows.get(id(exchange))
        if known is None:
            rows = self.session.capture.rows()
            wanted = compile(f"conn == {exchange.connection} and corr == {exchange.correlation_id}")
            time_ns = exchange.request_time_ns if exchange.request_time_ns is not None else exchange.response_time_ns
            for number in select(self.session.capture, wanted):
                if rows[number].time_ns == time_ns and rows[number].api_key == exchange.api_key:
                    known = self._rows[id(exchange)] = rows[number]
                    break
        return known

    def on_line_list_moved(self) -> None:
        self._show_details()

    def on_resize(self) -> None:
        self._show_details()

    def on_line_list_opened(self, event: LineList.Opened) -> None:
        finding = self.current
        if finding is None:
            return
        found = sorted({row.number for _, row in self._evidence(finding) if row is not None})
        if not found:
            self.notify("It has no exchanges: it is about connections. 2 shows them.", timeout=3)
            return
        first = next(row.number for _, row in self._evidence(finding) if row is not None)
        view = RowView(self.session.capture.rows(), found)
        self.barnabas.open_exchange(view, view.position(first) or 0)

    def action_evidence(self) -> None:
        finding = self.current
        if finding is None or not finding.exchanges:
            self.notify("It has no exchanges.", timeout=2)
            return
        self.barnabas.show_exchanges(evidence_filter(finding))


def evidence_filter(finding: Finding) -> str:
    """The filter for the exchanges that show a finding."""
    by_connection: dict[int, set[int]] = {}
    for exchange in finding.exchanges:
        by_connection.setdefault(exchange.connection, set()).add(exchange.correlation_id)
    parts = [
        f"conn == {connection} and corr in {{{', '.join(map(str, sorted(ids)))}}}" for connection, ids in by_connection.items()
    ]
    return parts[0] if len(parts) == 1 else " or ".join(f"({part})" for part in parts)


def _words(exchange: Exchange) -> str:
    return visible(
        f"conn {exchange.connection}  {exchange.api} v{exchange.api_version}  corr {exchange.correlation_id}"
    )
