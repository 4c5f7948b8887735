"""``barnabas findings``: problems in a capture, the worst first, with reasons, remedies and evidence."""

from __future__ import annotations

import difflib
import sys
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import typer

from ...safe import visible
from ..common.completion import choices, detector_names
from ..common.existing import Force, refuse_existing, write_text
from ..common.failure import Failure, choice_of
from ..common.ignore_file import IgnoreFile, IgnoreOption, ignoring
from ..common.opening import cannot_read
from ..common.options import FilterText, HtmlFile, Local, OptionalCaptures
from ..common.output import counted, print_json, warn
from ..common.progress import Progress
from ..common.signals import stopping_on_signals
from ..protocol.filter import compiled
from .finding_lines import findings_console, headline, indented, one_line, print_finding, severity_counts

if TYPE_CHECKING:
    from ....captures.reading.events import EventReader
    from ....captures.transform.cut import CutSelection
    from ....decoder.connection.events import ConnectionEvent
    from ....decoder.findings import Finding, Severity

FOLLOW_SECONDS = 0.5
_SEVERITIES = choices("high", "medium", "low", "info")
_BETWEEN = 256  # events between two readings of the clock


def findings(
    captures: OptionalCaptures = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object (with --follow: one per line).")] = False,
    html_file: HtmlFile = None,
    force: Force = False,
    filter_: FilterText = None,
    fail_on: Annotated[
        str | None,
        typer.Option("--fail-on", help="Exit with status 1 if there is a finding of this severity or worse.", **_SEVERITIES),
    ] = None,
    min_severity: Annotated[
        str, typer.Option("--min-severity", help="Leave out less severe findings.", **_SEVERITIES)
    ] = "info",
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Only these detectors; see --list.", metavar="NAME,...", autocompletion=detector_names),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", help="Run all detectors except these.", metavar="NAME,...", autocompletion=detector_names),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep running, and print new findings; Ctrl-C stops it.")
    ] = False,
    injected: Annotated[
        bool, typer.Option("--injected", help="Include the effects of fault rules and plugins, as noted in the recording.")
    ] = False,
    ignore: IgnoreOption = None,
    listing: Annotated[bool, typer.Option("--list", help="List the detectors: id, severity, and what each looks for.")] = False,
    local: Local = False,
) -> None:
    """Print the problems in a capture: what was seen, why it matters, what to do, and where.

    Severities: high = something fails now; medium = costs much, or will fail; low = costs something; info = worth
    knowing. The exit status is 0, 1 if --fail-on applies, or 2 for errors.
    """
    from ....captures.transform.cut import CutSelection
    from ....decoder.findings import Severity

    if listing:
        _list(as_json)
        return
    if not captures:
        raise Failure("which capture? Give a recording's directory or a file (or --list to list the detectors)")
    refuse_existing(html_file, force, "--html")
    wanted, least = _detector_ids(only, exclude), choice_of(Severity, min_severity, "--min-severity")
    failing = None if fail_on is None else choice_of(Severity, fail_on, "--fail-on")
    part = None if filter_ is None else CutSelection(compiled(filter_))
    ignored = ignoring(ignore)
    if follow:
        if html_file is not None:
            raise Failure("--html writes a page when everything has been read, but --follow never reaches the end: give only one of them")
        if len(captures) > 1:
            raise Failure("--follow takes one capture")
        if part is not None:
            raise Failure("--filter reads a capture twice, but --follow never reaches the end: give only one of them")
        found = _follow(captures[0], wanted, least, as_json, injected, ignored)
    else:
        found = _inspect(captures, wanted, least, as_json, injected, part, html_file, ignored)
    if failing is not None and any(finding.severity.rank >= failing.rank for finding in found):
        raise typer.Exit(1)


def _detector_ids(only: list[str] | None, exclude: list[str] | None) -> set[str]:
    """The ids of the detectors to run. Raises Failure for one that does not exist."""
    from ....decoder.findings import detectors

    known = {kind.id for kind in detectors()}
    chosen, left_out = _ids(only, "--only", known), _ids(exclude, "--exclude", known)
    return (chosen if only else known) - left_out


def _ids(given: list[str] | None, option: str, known: set[str]) -> set[str]:
    ids = {part.strip() for text in given or () for part in text.split(",") if part.strip()}
    for unknown in sorted(ids - known):
        near = difflib.get_close_matches(unknown, known, 1)
        hint = f"; did you mean {near[0]}?" if near else "; see: barnabas findings --list"
        raise Failure(f"{option}: there is no detector {visible(unknown)}{hint}")
    return ids


def _list(as_json: bool) -> None:
    from ....decoder.findings import detectors

    kinds = sorted(detectors(), key=lambda kind: (-kind.severity.rank, kind.id))
    if as_json:
        rows = [{"id": kind.id, "severity": str(kind.severity), "title": kind.title} for kind in kinds]
        print_json(rows)
        return
    console = findings_console()
    width = max(len(kind.id) for kind in kinds)
    for kind in kinds:
        line = one_line(str(kind.severity), kind.id, 1, "")
        line.right_crop(2)
        line.append(" " * (width - len(kind.id)) + "  " + kind.title)
        console.print(line)


class FindingsDocument(TypedDict):
    """What ``--json`` prints of one capture. `summary`: one sentence, "" without findings above info; `findings`: as `Finding.to_dict`; `counts`: of findings by severity, connections,
    exchanges and lost bytes; `notes`: damage and losses."""

    capture: str
    summary: str
    findings: list[dict[str, Any]]
    counts: dict[str, int]
    notes: list[str]


class _Inspection:
    """The detectors at work on one capture."""

    def __init__(self, path: Path, wanted: set[str], part: CutSelection | None = None) -> None:
        """`part`: look at these exchanges only, and at the handshakes of their connections."""
        from ....decoder.findings import Inspector

        self.path, self._part = path, part
        self.events = _open(path)
        self.note = ""
        self.inspector = Inspector(wanted)
        self.counts = {"connections": 0, "exchanges": 0, "lost_bytes": 0}

    def take(self, event: ConnectionEvent) -> None:
        """Feed the detectors and count."""
        from ....decoder import ExchangeDone
        from ....decoder.connection.events import Missing, Opened

        if isinstance(event, ExchangeDone):
            self.counts["exchanges"] += 1
        elif isinstance(event, Opened):
            self.counts["connections"] += 1
        elif isinstance(event, Missing):
            self.counts["lost_bytes"] += event.size
        self.inspector.feed(event)

    def everything(self) -> None:
        """Read the capture to its end."""
        with Progress(self.path.name) as progress:
            for event in self._all(progress) if self._part is None else self._cut(self._part, progress):
                self.take(event)

    def _all(self, progress: Progress) -> Iterator[ConnectionEvent]:
        for number, event in enumerate(chain(self.events.read(), self.events.end())):
            yield event
            if number % _BETWEEN == 0:
                progress.show(self.events.bytes_read, self.events.bytes_known)
        self.note = self.events.note or ""

    def _cut(self, part: CutSelection, progress: Progress) -> Iterator[ConnectionEvent]:
        from ....captures.transform.cut import Cut

        if str(self.path) == "-":
            raise Failure("--filter reads a capture twice, and standard input can be read only once: save it to a file first")
        cut = Cut(self.path, part, tick=progress.show)
        yield from cut.events()
        self.note = cut.note or ""

    def findings(self, ignored: IgnoreFile | None) -> list[Finding]:
        """What has been found so far, less what is ignored."""
        found = self.inspector.findings()
        return found if ignored is None else ignored.without(found)

    def notes(self) -> list[str]:
        """Damage and losses, which can hide findings or cause them."""
        notes = [self.note] if self.note else []
        if self.counts["lost_bytes"]:
            notes.append(f"{self.counts['lost_bytes']} bytes are missing from connections: findings may be missing, too")
        return notes

    def document(self, shown: list[Finding]) -> FindingsDocument:
        """For ``--json``."""
        return {
            "capture": str(self.path),
            "summary": headline(shown),
            "findings": [finding.to_dict() for finding in shown],
            "counts": severity_counts(shown) | self.counts,
            "notes": self.notes(),
        }


def inspected(path: Path) -> list[Finding]:
    """The findings of all detectors in a capture, without those that fault rules and plugins caused. Raises Failure."""
    inspection = _Inspection(path, _detector_ids(None, None))
    inspection.everything()
    return [finding for finding in inspection.inspector.findings() if not finding.injected]


def _open(path: Path) -> EventReader:
    """Raises Failure with the next step if there is no capture."""
    from ....captures.reading.events import EventReader

    with cannot_read(path):
        return EventReader(path)


def _inspect(
    paths: list[Path], wanted: set[str], least: Severity, as_json: bool, injected: bool, part: CutSelection | None,
    html_file: Path | None, ignored: IgnoreFile | None,
) -> list[Finding]:  # fmt: skip
    from .findings_page import InspectedCapture, html

    everything: list[Finding] = []
    on_page: list[InspectedCapture] = []
    documents = []
    left_out_by_file = 0
    inspections = [_Inspection(path, wanted, part) for path in paths]  # all are opened first, so that a wrong name fails at once
    console = findings_console()
    for inspection in inspections:
        inspection.everything()
        every = inspection.inspector.findings()
        if ignored is not None:
            every = ignored.without(all_ := every)
            left_out_by_file += len(all_) - len(every)
        found = [finding for finding in every if injected or not finding.injected]
        everything += found
        shown = [finding for finding in found if finding.severity.rank >= least.rank]
        counts, sentence = _counts(inspection, found, shown, len(wanted)), headline(shown)
        if html_file is not None:
            on_page.append(InspectedCapture(str(inspection.path), sentence, counts, shown, inspection.notes()))
        if as_json:
            documents.append(inspection.document(shown))
            continue
        if len(inspections) > 1:
            console.print(f"== {visible(str(inspection.path))}\n")
        if sentence:
            console.print(visible(sentence), end="\n\n")
        console.print(counts, end="\n\n" if shown else "\n")
        for finding in shown:
            print_finding(console, finding, str(inspection.path))
        if left_out := len(every) - len(found):
            console.print(f"{counted(left_out, 'finding')} caused by fault rules and plugins: --injected shows them")
        warn(inspection.notes())
    if html_file is not None:
        write_text(html_file, html(on_page), "--html")
    if as_json:
        print_json(documents[0] if len(documents) == 1 else {"captures": documents})
    if ignored is not None:
        warn(ignored.notes(left_out_by_file))
    return everything


def _counts(inspection: _Inspection, found: list[Finding], shown: list[Finding], number: int) -> str:
    seen = f"{counted(inspection.counts['exchanges'], 'exchange')} on {counted(inspection.counts['connections'], 'connection')}"
    hidden = len(found) - len(shown)
    less = f" ({hidden} less severe not shown)" if hidden else ""
    if not shown:
        return f"nothing found in {seen} by {counted(number, 'detector')}{less}"
    counts = ", ".join(f"{count} {severity}" for severity, count in severity_counts(shown).items() if count)
    return f"{counted(len(shown), 'finding')} in {seen}: {counts}{less}"


def _follow(
    path: Path, wanted: set[str], least: Severity, as_json: bool, injected: bool, ignored: IgnoreFile | None
) -> list[Finding]:
    from ....proxy.observers.finding_reports import FindingReports

    inspection, reports = _Inspection(path, wanted), FindingReports(least, injected)
    console = findings_console()
    known: set[int] = set()
    if not as_json:
        print(f"following {visible(str(path))}; Ctrl-C stops it", file=sys.stderr)
    with stopping_on_signals():
        try:
            while True:
                for event in chain(inspection.events.read(), inspection.events.half_closed()):
                    inspection.take(event)
                if inspection.events.live:
                    inspection.inspector.traffic.at(time.time_ns())  # what has not come by now is late now
                for due in reports.due(inspection.findings(ignored)):
                    reports.reported(due)
                    finding, number = due.finding, due.number
                    if as_json:
                        print_json(finding.to_dict())
                        continue
                    console.print(one_line(str(finding.severity), finding.id, finding.count, finding.seen))
                    if number not in known:
                        console.print(indented(finding.remedy, "do: "))
                    known.add(number)
                time.sleep(FOLLOW_SECONDS)
        except KeyboardInterrupt:
            pass
    found = [finding for finding in inspection.findings(ignored) if injected or not finding.injected]
    if not as_json:
        shown = [finding for finding in found if finding.severity.rank >= least.rank]
        if sentence := headline(shown):
            console.print(visible(sentence))
        console.print(_counts(inspection, found, shown, len(wanted)))
    return found
