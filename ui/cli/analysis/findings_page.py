"""The page of ``barnabas findings --html``: findings, the worst first, with evidence and remedies, and when each was seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from ....decoder.findings import Severity
from ...pages import charts
from ...pages.page import sections_page, text
from ...pages.parts import Card, Line, Section
from ...times import period
from .finding_lines import evidence_lines, how_to_open, layout_commands

if TYPE_CHECKING:
    from ....decoder.findings import Finding

_MOST_SPANS = 24


class InspectedCapture(NamedTuple):
    """A capture: its path, one sentence about it (may be empty) and the counts that the terminal shows, its findings, and notes about damage."""

    path: str
    sentence: str
    counts: str
    findings: Sequence[Finding]
    notes: Sequence[str]


def html(captures: Sequence[InspectedCapture]) -> str:
    """The page."""
    title = captures[0].path if len(captures) == 1 else f"Findings in {len(captures)} captures"
    return sections_page(title, [_section(each, each.path if len(captures) > 1 else "") for each in captures])


def _section(capture: InspectedCapture, title: str) -> Section:
    worst = max((finding.severity for finding in capture.findings), key=lambda severity: severity.rank, default=None)
    summary = f"{capture.sentence} {capture.counts}" if capture.sentence else capture.counts
    lines = [Line(str(worst) if worst else "works", summary), *(Line("low", note) for note in capture.notes)]
    return Section(title, overview=lines, charts=_spans(capture.findings), cards=[_card(each, capture.path) for each in capture.findings])


def _card(finding: Finding, capture: str) -> Card:
    often = f"{finding.count:,} times" if finding.count > 1 else "once"
    when = [period(finding.first_ns, finding.last_ns)] if finding.first_ns is not None else []
    commands = [how_to_open(capture, finding.exchanges)] if finding.exchanges else []
    facts: list[tuple[str, Sequence[str]]] = [
        ("why", [finding.why]),
        ("do", [finding.remedy]),
        ("when", when),
        ("such as", evidence_lines(finding)),
        ("causes", [", ".join(finding.effects)]),
        ("rules", [finding.done_by]),
        ("open", list(map(_code, commands))),
        ("layout", list(map(_code, layout_commands(finding)))),
    ]
    return Card(str(finding.severity), finding.id, finding.seen, often, facts, finding.severity.rank >= Severity.MEDIUM.rank)


def _code(command: str) -> Markup:
    return Markup(f"<code>{text(command)}</code>")


def _spans(findings: Sequence[Finding]) -> list[Markup]:
    dated = [
        (finding.id, finding.first_ns, finding.first_ns if finding.last_ns is None else finding.last_ns, str(finding.severity))
        for finding in findings
        if finding.first_ns is not None
    ]
    if not dated or not charts.drawable():
        return []
    over = min(first for _, first, _, _ in dated), max(last for _, _, last, _ in dated)
    shown = f"; {_MOST_SPANS} of {len(dated)} findings" if len(dated) > _MOST_SPANS else ""
    return [charts.spans("Findings", f"from the first time to the last{shown}", over, dated[:_MOST_SPANS])]
