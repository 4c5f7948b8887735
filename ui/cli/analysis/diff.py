"""``barnabas diff``: the differences between two recordings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from markupsafe import Markup

from ...pages.page import sections_page
from ...pages.parts import Cell, Line, Section, Table
from ...safe import visible
from ..common.existing import Force, refuse_existing, write_text
from ..common.opening import open_or_fail
from ..common.options import FilterText, HtmlFile
from ..common.output import counted, print_json, table_console, warn
from ..protocol.filter import compiled

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from ....captures.diff import Difference, DiffReport
    from ....decoder.filter import Filter

_HEADINGS = ("level", "what", "A", "B", "times", "where", "numbers")
_OPEN = 40
"""Rows of a table that is not folded on a page."""
_NAMED = 4
"""Clients and scopes that a row names."""
_CHARTED = 16
_STYLES = {"high": "bold red", "medium": "yellow", "low": "cyan", "noise": "dim"}


class GroupBy(StrEnum):
    """How differences are put together."""

    API = "api"
    CLIENT = "client"
    SCOPE = "scope"
    """by what requests belong to: a group, a transaction, the records of a topic, the cluster"""


class FailOnLevel(StrEnum):
    """Which differences make the exit status 1."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


GROUPS: dict[GroupBy, Callable[[Difference], str]] = {
    GroupBy.API: lambda found: found.api,
    GroupBy.CLIENT: lambda found: found.client or "(all clients)",
    GroupBy.SCOPE: lambda found: found.scope or "(everywhere)",
}


def diff(
    a: Annotated[Path, typer.Argument(help="A segment, a directory of segments, or any pcap or pcapng file.", metavar="CAPTURE")],
    b: Annotated[Path, typer.Argument(help="The capture to compare it with.", metavar="CAPTURE")],
    by: Annotated[
        GroupBy, typer.Option("--by", help="Group differences by API, by client, or by scope (what they belong to).")
    ] = GroupBy.API,
    filter_: FilterText = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    html_file: HtmlFile = None,
    force: Force = False,
    fail_on: Annotated[
        FailOnLevel | None, typer.Option("--fail-on", help="Exit with status 1 if there is a difference of this level or worse.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Show everything, including differences that timing explains, such as polls, retries and offsets.")
    ] = False,
) -> None:
    """Compare two recordings: the same program with two brokers, two versions of one client, before and after a change.

    Levels: high = fails on one side only, or different records; medium = different requests or responses; low =
    slower, or different versions offered. Ids, addresses, times and other values that always differ between two runs
    are ignored.
    """
    from ....captures.diff import Level

    refuse_existing(html_file, force, "--html")
    report = _compare(a, b, None if filter_ is None else compiled(filter_))
    if as_json:
        print_json(report.to_dict())
    if html_file is not None:
        write_text(html_file, html(report, by, everything), "--html")
    if not as_json:
        _print(table_console(), report, by, everything)
    if fail_on is not None and report.worst >= Level[fail_on.name]:
        raise typer.Exit(1)


def _compare(a: Path, b: Path, wanted: Filter | None) -> DiffReport:
    from ....captures.diff import compare_captures

    with open_or_fail(a) as first, open_or_fail(b) as second:
        report = compare_captures(first, second, wanted)
        warn((first.note, second.note))
        return report


def _grouped(report: DiffReport, by: GroupBy, everything: bool) -> dict[str, list[Difference]]:
    from ....captures.diff import Level

    groups: dict[str, list[Difference]] = {}
    for found in report.above(Level.NOISE if everything else Level.LOW):
        groups.setdefault(GROUPS[by](found), []).append(found)
    return groups


def _noise(report: DiffReport) -> int:
    from ....captures.diff import Level

    return len(report.differences) - len(report.above(Level.LOW))


LATENCIES = ("API", "A", "p50 ms", "p99 ms", "B", "p50 ms", "p99 ms")


def _latencies(report: DiffReport) -> Iterator[list[str]]:
    """Rows under `LATENCIES`: requests and latencies of every API on both sides."""
    from ....captures.diff import Latency

    for api in sorted({*report.a.apis, *report.b.apis}):
        cells = [api]
        for side in (report.a, report.b):
            latency = side.latencies.get(api, Latency())
            cells.append(str(side.apis[api]) if api in side.apis else "-")
            cells += ("-" if ns is None else f"{ns / 1e6:.1f}" for ns in (latency.p50, latency.p99))
        yield cells


def _numbers(found: Difference, label: str) -> str:
    """The numbers of the exchanges in both recordings: ``A 1, 2; B 3``."""
    sides = (("A", found.in_a), ("B", found.in_b))
    return "; ".join(f"{letter}{label} {', '.join(map(str, numbers))}" for letter, numbers in sides if numbers)


# --- on a terminal -----------------------------------------------------------------------------------------


def _print(console: Console, report: DiffReport, by: GroupBy, everything: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    from ....captures.diff import Level

    for letter, side in (("A", report.a), ("B", report.b)):
        errors = ", ".join(f"{count} {name}" for name, count in side.errors.most_common(4))
        words = f"{counted(side.exchanges, 'exchange')} of {counted(side.clients, 'client')}"
        words += f" on {counted(side.connections, 'connection')}"
        console.print(Text(f"{letter}  {visible(side.name)}: {words}" + (f"; errors: {errors}" if errors else "")))
    for theirs, ours in sorted(report.names.items()):
        console.print(Text(f"   {visible(theirs)} in B corresponds to {visible(ours)} in A", "dim"))
    for name, differences in _grouped(report, by, everything).items():
        console.print(Text(f"\n{visible(name)}", "bold"))
        for found in differences:
            console.print(_line(found, by))
    if (noise := _noise(report)) and not everything:
        console.print(Text(f"\n{counted(noise, 'difference')} caused by timing not shown; --all shows everything", "dim"))
    if not report.above(Level.LOW):
        console.print(Text("\nno differences other than those caused by timing", "green"))
    for note in report.notes:
        console.print(Text(f"\n{visible(note)}"))
    latencies = Table(box=None, pad_edge=False, title_justify="left")
    for heading in LATENCIES:
        latencies.add_column(heading, justify="left" if heading == "API" else "right")
    for cells in _latencies(report):
        latencies.add_row(*cells)
    console.print()
    console.print(latencies)


def _line(found: Difference, by: GroupBy) -> Text:
    from rich.text import Text

    from ....captures.diff import DifferenceKind

    words = found.what if by is GroupBy.API else f"{found.api} {found.what}"
    client, belongs_to = found.client if by is not GroupBy.CLIENT else "", found.scope if by is not GroupBy.SCOPE else ""
    where, numbers = ", ".join(filter(None, (client, belongs_to))), _numbers(found, ": number")
    return Text.assemble(
        ("  " + f"{found.level.word:<7}", _STYLES[found.level.word]), visible(words),
        ": ", (visible(found.a) or "-", "bold"), " → ", (visible(found.b) or "-", "bold"),
        f" ({found.count}×)" if found.count > 1 and found.kind is not DifferenceKind.ONLY else "",
        (f"  {visible(where)}" if where else "", "dim"), (f"  {numbers}" if numbers else "", "dim"),
    )  # fmt: skip


# --- as a page ---------------------------------------------------------------------------------------------


def html(report: DiffReport, by: GroupBy, everything: bool) -> str:
    """The report as one page; `everything`: noise as well."""
    from ....captures.diff import Level

    groups = _grouped(report, by, everything)
    counts = Counter(found.level.word for found in report.above(Level.LOW))
    words = ", ".join(f"{counts[level.word]} {level.word}" for level in reversed(Level) if counts[level.word])
    worst = report.worst.word if counts else "works"
    overview = [Line(worst, f"{counted(counts.total(), 'difference')}: {words}." if counts else "No differences other than those caused by timing.")]
    if (noise := _noise(report)) and not everything:
        overview.append(Line("info", f"{counted(noise, 'difference')} caused by timing not shown."))
    notes = list(report.notes)
    if report.names:
        pairs = ", ".join(f"{b} = {a}" for b, a in sorted(report.names.items()))
        notes.append(f"Names in B and the corresponding ones in A: {pairs}")
    sides = [
        [Cell.of(f"{letter}: {side.name}"), *(Cell(f"{count:,}", "number") for count in (side.exchanges, side.clients, side.connections)),
         Cell.listed([f"{count} {name}" for name, count in side.errors.most_common()])]
        for letter, side in (("A", report.a), ("B", report.b))
    ]  # fmt: skip
    numbers = [Cell(each, "number") for each in ("exchanges", "clients", "connections")]
    parts = [Section(overview=overview, tables=[Table([Cell("recording"), *numbers, Cell("errors")], sides)])]
    for name, differences in groups.items():
        rows = _rows(differences)
        folded = counted(len(differences), "difference") if len(rows) > _OPEN else ""
        parts.append(Section(name, tables=[Table(list(map(Cell, _HEADINGS)), rows, folded)]))
    latencies = [[Cell(api), *(Cell(cell, "number") for cell in cells)] for api, *cells in _latencies(report)]
    heads = [Cell(LATENCIES[0]), *(Cell(each, "number") for each in LATENCIES[1:])]
    parts.append(Section("Requests and latencies", charts=_charts(report), tables=[Table(heads, latencies)]))
    return sections_page(f"{report.a.name} and {report.b.name}", parts, notes=notes)


def _rows(differences: Sequence[Difference]) -> list[list[Cell]]:
    """A row for the same difference of several clients or scopes."""
    alike: dict[tuple[object, ...], list[Difference]] = {}
    for found in differences:
        alike.setdefault((found.level, found.api, found.what, found.a, found.b), []).append(found)
    rows = []
    for same in alike.values():
        first = same[0]
        where = [", ".join(filter(None, (found.client, found.scope))) for found in same]
        more = f" and {len(same) - _NAMED} more" if len(same) > _NAMED else ""
        cells = [
            Cell(first.level.word, first.level.word),
            *map(Cell.of, (f"{first.api} {first.what}", first.a or "-", first.b or "-")),
            Cell(f"{sum(found.count for found in same):,}", "number"),
            Cell.of("; ".join(dict.fromkeys(where[:_NAMED])) + more),
            Cell(_numbers(first, ""), "dim"),
        ]
        rows.append(cells)
    return rows


def _charts(report: DiffReport) -> list[Markup]:
    """Both sides of each API."""
    from ...pages import charts
    from ...pages.charts import Unit

    if not charts.drawable():
        return []
    a, b = report.a, report.b
    apis = sorted({*a.apis, *b.apis}, key=lambda api: -(a.apis[api] + b.apis[api]))[:_CHARTED]
    p99 = [{api: latency.p99 for api, latency in side.latencies.items()} for side in (a, b)]
    latencies = [(api, p99[0].get(api), p99[1].get(api)) for api in apis]
    drawn = [
        charts.pairs("Requests", "number by API", Unit.COUNT, [(api, a.apis[api], b.apis[api]) for api in apis], ("A", "B")),
        charts.pairs("Latency", "p99 by API", Unit.DURATION, latencies, ("A", "B")),
    ]
    return [chart for chart in drawn if chart]
