"""``barnabas compat``: which clients of a capture work with another Kafka release, and how to fix the others."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer
from markupsafe import Markup

from ...pages.page import sections_page, text
from ...pages.parts import Card, Cell, Line, Section, Table, names
from ...safe import visible
from ...times import moment, period
from ..common.completion import release_names
from ..common.existing import Force, refuse_existing, write_text
from ..common.failure import Failure
from ..common.options import CapturePaths, FilterText, HtmlFile, Local
from ..common.output import counted, table_console, warn
from ..protocol.filter import compiled
from .clients import IdentityDocument, client_identity, client_line, watch

if TYPE_CHECKING:
    from rich.console import Console

    from ....decoder.compat import ClientReport, CompatReport, ObservedClient, Reason, VersionUse

_MARKDOWN = re.compile(r"([\\`*_\[\]|~])")
_STYLES = {"works": "green", "may break": "yellow", "breaks": "bold red"}


class FailOnVerdict(StrEnum):
    """Which verdict makes the exit status 1."""

    BREAKS = "breaks"
    MAY_BREAK = "may-break"


def compat(
    captures: CapturePaths,
    against: Annotated[
        str,
        typer.Option(
            "--against",
            help="Check clients against brokers of this release, e.g. 4.0, 0.10.2, 3.5-zk.",
            metavar="RELEASE",
            autocompletion=release_names,
        ),
    ],
    filter_: FilterText = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    html_file: HtmlFile = None,
    md_file: Annotated[
        Path | None, typer.Option("--md", help="Write Markdown, for a ticket; - prints it.", metavar="FILE")
    ] = None,
    force: Force = False,
    fail_on: Annotated[
        FailOnVerdict | None, typer.Option("--fail-on", help="Exit with status 1 if a client has this verdict or a worse one.")
    ] = None,
    local: Local = False,
) -> None:
    """Check every client of the captures against brokers of a release: works, may break, breaks; why, and what helps.

    The release may also be older: --against 0.10.2 shows which problems a new client would have there.
    """
    from ....decoder.compat import Verdict, report

    refuse_existing(html_file, force, "--html")
    refuse_existing(md_file, force, "--md")
    clients, notes = watch(captures, None if filter_ is None else compiled(filter_))
    try:
        found = report(clients, against)
    except KeyError as error:
        raise Failure(f"--against: {error.args[0]}") from None
    if as_json:
        typer.echo(json.dumps(_document(found)))
    if html_file is not None:
        write_text(html_file, html(found, captures), "--html")
    if md_file is not None:
        if str(md_file) == "-":
            typer.echo(markdown(found), nl=False)
        else:
            write_text(md_file, markdown(found), "--md")
    if not as_json and str(md_file) != "-":
        _print(table_console(), found)
    warn(notes)
    limit = {FailOnVerdict.BREAKS: Verdict.BREAKS, FailOnVerdict.MAY_BREAK: Verdict.MAY_BREAK}
    if fail_on is not None and found.worst >= limit[fail_on]:
        raise typer.Exit(1)


def counts(found: CompatReport) -> str:
    """``"2 break, 1 may break, 5 work"``"""
    from ....decoder.compat import Verdict

    breaks, may, work = (found.count(v) for v in (Verdict.BREAKS, Verdict.MAY_BREAK, Verdict.WORKS))
    return f"{breaks} break{'s' * (breaks == 1)}, {may} may break, {work} work{'s' * (work == 1)}"


def _presence(client: ObservedClient) -> str:
    """When a client was there."""
    return f"from {moment(client.first_ns)} to {moment(client.last_ns)}"


def _software(client: ObservedClient) -> str:
    return visible(client.software_label) or (client.software.text if client.software else "unknown")


def _usage(reason: Reason) -> str:
    """``"3 requests, 1 refused, from ... to ..."``"""
    use = reason.use
    if use is None:
        return ""
    refused = f", {use.refused} refused" if use.refused else ""
    return f"{use.count} request{'s' * (use.count != 1)}{refused}, from {moment(use.first_ns)} to {moment(use.last_ns)}"


# --- on a terminal -----------------------------------------------------------------------------------------


def _print(console: Console, found: CompatReport) -> None:
    from rich.text import Text

    console.print(Text(f"against brokers of Kafka {found.against.name}: {counts(found)}", "bold"))
    for client in found.clients:
        _print_client(console, client)


def _print_client(console: Console, of: ClientReport) -> None:
    from rich.text import Text

    console.print(Text.assemble("\n", (f"{of.verdict.text:<9}", _STYLES[of.verdict.text]), "  ", (client_line(of.client), "bold")))
    console.print(f"  {of.certainty}")
    console.print(f"  {counted(of.client.requests, 'request')}, {_presence(of.client)}")
    for reason in of.reasons:
        often = f" ({_usage(reason)})" if reason.use else ""
        console.print(
            Text.assemble("  ", (reason.verdict.text, _STYLES[reason.verdict.text]), f": {visible(reason.text)}{often}")
        )
    for remedy in of.remedies:
        console.print(f"  -> {visible(remedy)}")
    for note in of.notes:
        console.print(f"  note: {visible(note)}")


class ReasonDocument(TypedDict):
    """One reason of a verdict, as JSON; None where it is not about one version of an API."""

    verdict: str
    text: str
    api: str | None
    api_key: int | None
    version: int | None
    served: list[int] | None
    dropped_in: str | None
    came_with: str | None
    kip: str | None
    requests: int | None
    refused: int | None
    first_seen_ns: int | None
    last_seen_ns: int | None


class ClientDocument(IdentityDocument):
    """A client and its verdict, as JSON."""

    verdict: str
    certainty: str
    reasons: list[ReasonDocument]
    remedies: list[str]
    notes: list[str]


class CompatDocument(TypedDict):
    """What ``--json`` prints. `counts`: clients by verdict."""

    against: str
    worst: str
    counts: dict[str, int]
    clients: list[ClientDocument]


def _document(found: CompatReport) -> CompatDocument:
    from ....decoder.compat import Verdict

    return {
        "against": found.against.name,
        "worst": found.worst.text,
        "counts": {verdict.text: found.count(verdict) for verdict in Verdict},
        "clients": [
            {
                **client_identity(of.client),
                "verdict": of.verdict.text,
                "certainty": of.certainty,
                "reasons": [_reason_document(reason) for reason in of.reasons],
                "remedies": of.remedies,
                "notes": of.notes,
            }
            for of in found.clients
        ],
    }


def _reason_document(reason: Reason) -> ReasonDocument:
    use = reason.use
    return {
        "verdict": reason.verdict.text,
        "text": reason.text,
        "api": use.api if use else None,
        "api_key": use.api_key if use else None,
        "version": use.version if use else None,
        "served": list(reason.served) if reason.served else None,
        "dropped_in": reason.dropped_in or None,
        "came_with": reason.came_with or None,
        "kip": reason.kip or None,
        "requests": use.count if use else None,
        "refused": use.refused if use else None,
        "first_seen_ns": use.first_ns if use else None,
        "last_seen_ns": use.last_ns if use else None,
    }


# --- Markdown ----------------------------------------------------------------------------------------------


def _md(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", visible(text)).replace("&", "&amp;").replace("<", "&lt;")


def _code(text: str) -> str:
    """Text of a client as a code span, in which issue trackers make no links and mentions."""
    return "`" + visible(text).replace("`", "'").replace("|", "\\|") + "`"


def markdown(found: CompatReport) -> str:
    """The report for a ticket: a table of the clients, and a section for each that does not simply work."""
    from ....decoder.compat import Verdict

    lines = [f"# Clients against Kafka {found.against.name}", "", f"{counts(found)}.", ""]
    lines += ["| verdict | client id | software | address | requests | last seen |", "|---|---|---|---|---|---|"]
    for of in found.clients:
        client = of.client
        software = _code(client.software_label) if client.software_label else _md(_software(client))
        cells = [of.verdict.text, _code(client.client_id) if client.client_id else "(none)", software, _md(client.host)]
        cells += [str(client.requests), moment(client.last_ns)]
        lines.append("| " + " | ".join(cells) + " |")
    for of in found.clients:
        if of.verdict is Verdict.WORKS and not of.notes:
            continue
        name = _code(of.client.client_id) if of.client.client_id else "(no client id)"
        lines += ["", f"## {of.verdict.text}: {name}", "", f"{_md(of.certainty)}.", ""]
        lines += [
            f"- **{r.verdict.text}**: {_md(r.text)}" + (f" ({_usage(r)})" if r.use else "") for r in of.reasons
        ]
        lines += [f"- remedy: {_md(remedy)}" for remedy in of.remedies]
        lines += [f"- note: {_md(note)}" for note in of.notes]
    return "\n".join(lines) + "\n"


# --- HTML --------------------------------------------------------------------------------------------------

_COLORS = {"breaks": "high", "may break": "medium", "works": "good"}
_MOST_SPANS = 24


def html(found: CompatReport, captures: Sequence[Path] = ()) -> str:
    """The report as one page: verdicts, reasons and remedies, when clients were seen, and a table of all clients."""
    rows = [[Cell(of.verdict.text, of.verdict.text.split()[0]), *_row(of)] for of in found.clients]
    heads = [*map(Cell, ("verdict", "client id", "software", "address")), Cell("requests", "number"), Cell("last seen", "time")]
    table = Table(heads, rows, counted(len(rows), "client") if len(rows) > _MOST_SPANS else "")
    return sections_page(
        f"Clients against Kafka {found.against.name}",
        [Section(cards=_cards(found), charts=_spans(found)), Section("Clients", tables=[table])],
        notes=[names(map(str, captures))],
        overview=[Line(found.worst.text.split()[0], f"{counts(found)}.")],
    )


def _row(of: ClientReport) -> list[Cell]:
    client = of.client
    words = (client.client_id or "(none)", _software(client), client.host)
    return [*map(Cell.of, words), Cell(f"{client.requests:,}", "number"), Cell(moment(client.last_ns), "time")]


def _cards(found: CompatReport) -> list[Card]:
    """A card for all clients with the same verdict for the same reasons."""
    alike: dict[tuple[object, ...], list[ClientReport]] = {}
    for of in found.clients:
        reasons = tuple((reason.verdict, reason.text) for reason in of.reasons)
        alike.setdefault((of.verdict, reasons, *of.remedies, *of.notes), []).append(of)
    return [_card(group) for group in alike.values()]


def _card(group: Sequence[ClientReport]) -> Card:
    of = group[0]
    same = zip(*(each.reasons for each in group), strict=True)
    clients = [each.client for each in group]
    first, last = min(client.first_ns for client in clients), max(client.last_ns for client in clients)
    facts: list[tuple[str, Sequence[str]]] = [
        ("why", [_reason(reasons) for reasons in same]),
        ("do", of.remedies),
        ("note", of.notes),
        ("certainty", sorted({each.certainty for each in group})),
        ("software", [names(_software(client) for client in clients)]),
        ("clients", [names((client.client_id or None for client in clients), _MOST_SPANS)]),
        ("when", [period(first, last)]),
    ]
    often = counted(sum(client.requests for client in clients), "request")
    title = names(client.client_id or None for client in clients)
    return Card(of.verdict.text, counted(len(group), "client"), title, often, facts, bool(of.verdict))


def _reason(same: Sequence[Reason]) -> Markup:
    """What it is, how often it was seen in all clients, and the command that shows the layout of this version."""
    uses = [reason.use for reason in same if reason.use]
    words = f"{same[0].verdict.text}: {same[0].text}"
    if not uses:
        return Markup(text(words))
    use = replace(uses[0], count=sum(each.count for each in uses), refused=sum(each.refused for each in uses))
    use.first_ns, use.last_ns = min(each.first_ns for each in uses), max(each.last_ns for each in uses)
    return Markup(f"{text(words)} <span class=\"dim\">({_usage(replace(same[0], use=use))}{_layout(use)})</span>")


def _layout(use: VersionUse) -> str:
    """The command that shows this version of the API, if it is known."""
    from ....decoder.schema import facts

    if use.api_key not in facts.api_keys() or use.version not in facts.api(use.api_key).versions:
        return ""
    return f"; its layout: <code>barnabas schema show {use.api} {use.version}</code>"


def _spans(found: CompatReport) -> list[Markup]:
    """When each client was seen, the worst first."""
    from ...pages import charts

    if not found.clients or not charts.drawable():
        return []
    clients = [(of.client, _COLORS[of.verdict.text]) for of in found.clients]
    over = min(client.first_ns for client, _ in clients), max(client.last_ns for client, _ in clients)
    of = [(f"{client.client_id or '(none)'} {client.host}", client.first_ns, client.last_ns, color) for client, color in clients]
    shown = f"; {_MOST_SPANS} of {len(of)} clients" if len(of) > _MOST_SPANS else ""
    return [charts.spans("Clients", f"from the first request to the last{shown}", over, of[:_MOST_SPANS])]
