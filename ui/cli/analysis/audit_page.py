"""The page of ``barnabas audit --html``: the programs in captures, and the known bugs of each."""

from __future__ import annotations

from collections.abc import Sequence

from ....decoder.findings import Severity
from ...pages.page import sections_page
from ...pages.parts import Card, Line, Section, names
from .audited_programs import (
    NOT_COMPLETE,
    AuditedProgram,
    BugVerdict,
    Verdict,
    fixed_text,
    lines_of,
    table_dates,
    traces_of,
    versions_text,
)


def html(captures: Sequence[str], programs: Sequence[AuditedProgram], summary: str) -> str:
    """The page."""
    worst = max(
        (Severity(each.bug.severity) for program in programs for each in program.of(Verdict.SEEN, Verdict.PRESENT)),
        key=lambda severity: severity.rank,
        default=None,
    )
    overview = [Line(str(worst) if worst else "works", summary), Line("info", f"{table_dates()}. {NOT_COMPLETE}")]
    sections = [Section("", overview=overview), *map(_section, programs)]
    return sections_page(
        f"Known bugs of clients: {captures[0] if len(captures) == 1 else f'{len(captures)} captures'}", sections
    )


def _section(program: AuditedProgram) -> Section:
    notes = [names(program.client_ids), *lines_of(program)]
    return Section(program.label, notes=notes, cards=list(map(_card, program.of(Verdict.SEEN, Verdict.PRESENT))))


def _card(each: BugVerdict) -> Card:
    facts: list[tuple[str, Sequence[str]]] = [
        ("versions", [f"{', '.join(versions_text(each.bug))} ({fixed_text(each)})"]),
        ("wire", [each.bug.wire]),
        ("seen", traces_of(each)),
        ("source", [each.bug.source]),
    ]
    return Card(each.bug.severity, each.bug.id, each.bug.what, str(each.verdict), facts, each.verdict is Verdict.SEEN)
