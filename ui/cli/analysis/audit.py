"""``barnabas audit``: known bugs of the clients in captures, by their versions and by what the captures show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from ...safe import visible
from ..common.completion import choices
from ..common.existing import Force, refuse_existing, write_text
from ..common.failure import Failure, choice_of
from ..common.ignore_file import IgnoreFile, IgnoreOption, ignoring
from ..common.options import HtmlFile, OptionalCaptures
from ..common.output import counted, print_json, warn
from .audited_programs import (
    NOT_COMPLETE,
    AuditedProgram,
    Verdict,
    fixed_text,
    judged,
    lines_of,
    summary,
    table_dates,
    traces_of,
    versions_text,
)
from .clients import watch
from .finding_lines import findings_console, indented, severity_style
from .findings import inspected

if TYPE_CHECKING:
    from rich.console import Console

    from ....decoder.compat import ObservedClient
    from ....decoder.findings import Finding

_SEVERITIES = choices("high", "medium", "low", "info")
_SHOWN = 4
"""Client ids in the heading of a program."""


def audit(
    captures: OptionalCaptures = None,
    attach: Annotated[
        str,
        typer.Option("--attach", help="A running proxy: http://HOST:PORT, unix:PATH, or newest.", metavar="URL"),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    html_file: HtmlFile = None,
    force: Force = False,
    fail_on: Annotated[
        str | None,
        typer.Option(
            "--fail-on", help="Exit with status 1 if a bug of this severity or worse is there.", **_SEVERITIES
        ),
    ] = None,
    ignore: IgnoreOption = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Show everything: also bugs that a client may have, or does not have.")
    ] = False,
    listing: Annotated[bool, typer.Option("--list", help="List the known bugs: id, severity, versions.")] = False,
) -> None:
    """Print the published bugs of the clients in captures: seen in the traffic, or present in their versions.

    Clients are known by the name and version they send (ApiVersions v3), or else by their client ids. The table is not
    complete: a client that is not in it can have bugs, too. The exit status is 0, 1 if --fail-on applies, or 2 for
    errors.
    """
    from ....decoder.findings import Severity

    if listing:
        _list(as_json)
        return
    captures = captures or []
    if bool(captures) == bool(attach):
        raise Failure(
            "which capture? Give a recording's directory or a file, or --attach newest for a running proxy "
            "(or --list to list the known bugs)"
        )
    if Path("-") in captures:
        raise Failure("audit reads a capture twice, and standard input can be read only once: save it to a file first")
    refuse_existing(html_file, force, "--html")
    failing = None if fail_on is None else choice_of(Severity, fail_on, "--fail-on")
    ignored = ignoring(ignore)
    if attach:
        clients, findings, notes = attached(attach)
        programs = judged(clients, findings)
    else:
        clients, notes = watch(captures)
        programs = judged(clients, (finding for path in captures for finding in inspected(path)))
    where = list(map(str, captures)) or [attach]
    left_out = _leave_out(programs, ignored)
    if html_file is not None:
        from .audit_page import html

        write_text(html_file, html(where, programs, summary(programs)), "--html")
    if as_json:
        print_json(_document(where, programs, left_out, notes))
    else:
        _print(programs, all_)
    warn(notes)
    if ignored is not None:
        warn(ignored.notes(left_out, "known bug"))
    there = [each.bug for program in programs for each in program.of(Verdict.SEEN, Verdict.PRESENT)]
    if failing is not None and any(Severity(bug.severity).rank >= failing.rank for bug in there):
        raise typer.Exit(1)


def attached(url: str) -> tuple[list[ObservedClient], list[Finding], list[str]]:
    """The clients that are connected to a running proxy, its findings, and a note. Raises Failure."""
    from ....decoder.compat import ObservedClient
    from ....decoder.findings import Finding, Severity
    from ....proxy.control import Control, ControlError
    from ..proxy.control import access_to, failure_of

    found = access_to("" if url == "newest" else url)
    try:
        control = Control(found.url, found.token)
        connections, told = control.connections(), control.findings()
    except ControlError as error:
        raise failure_of(error) from None
    clients: dict[tuple[str, str, str], ObservedClient] = {}
    for each in connections:
        host = str(each["client"]).rpartition(":")[0].strip("[]")
        client_id, software = str(each.get("client_id") or ""), str(each.get("software") or "")
        name, _, version = software.partition(" ")
        client = clients.setdefault((host, client_id, software), ObservedClient(host, client_id, name, version))
        client.connections += 1
    findings = [
        Finding(
            each["id"], Severity(each["severity"]), each["seen"], each["why"], each["remedy"], each["count"],
            about=each["about"],
        )
        for each in told
        if not each["injected"]
    ]  # fmt: skip
    return list(clients.values()), findings, ["clients with open connections only; a recording has all of them"]


def _leave_out(programs: list[AuditedProgram], ignored: IgnoreFile | None) -> int:
    if ignored is None:
        return 0
    left_out = 0
    for program in programs:
        kept = [
            each
            for each in program.verdicts
            if each.verdict not in (Verdict.SEEN, Verdict.PRESENT) or not ignored.covers([each.bug.id], program.asked())
        ]
        left_out += len(program.verdicts) - len(kept)
        program.verdicts = kept
    return left_out


# -- text --------------------------------------------------------------------------------------------------------


def _print(programs: list[AuditedProgram], all_: bool) -> None:
    console = findings_console()
    console.print(summary(programs))
    console.print(f"{table_dates()}. {NOT_COMPLETE}", end="\n\n" if programs else "\n")
    for program in programs:
        _print_program(console, program, all_)
        console.print()


def _print_program(console: Console, program: AuditedProgram, all_: bool) -> None:
    from rich.text import Text

    ids = program.client_ids
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    connections = counted(sum(client.connections for client in program.clients), "connection")
    who = f"{', '.join(visible(each) for each in ids[:_SHOWN])}{more}; {connections}"
    console.print(Text.assemble((visible(program.label), "bold"), f"  {who}"))
    for line in lines_of(program):
        console.print(indented(line, "", 2))
    wanted = tuple(Verdict) if all_ else (Verdict.SEEN, Verdict.PRESENT)
    for each in program.of(*wanted):
        text = f"{each.verdict:8} {each.bug.id}  {each.bug.what} ({fixed_text(each)})"
        console.print(
            Text.assemble("  ", (f"{each.bug.severity:6}", severity_style(each.bug.severity)), f" {visible(text)}")
        )
        if each.traces or all_:
            console.print(indented(each.bug.wire, "wire: ", 18))
            for line in traces_of(each):
                console.print(indented(line, "seen: ", 18))
            console.print(indented(each.bug.source, "source: ", 18))


# -- JSON --------------------------------------------------------------------------------------------------------


class BugDocument(TypedDict):
    """A bug of a client as JSON. `seen`: what findings say of it."""

    id: str
    client: str
    severity: str
    verdict: str
    version: str
    fixed_in: str | None
    what: str
    wire: str
    source: str
    seen: list[str]


class ProgramDocument(TypedDict):
    """A program as JSON. `counts`: bugs by verdict."""

    software: str
    software_name: str | None
    software_version: str | None
    in_table: bool
    client_ids: list[str]
    hosts: list[str]
    connections: int
    counts: dict[str, int]
    bugs: list[BugDocument]


class AuditDocument(TypedDict):
    """What ``--json`` prints. `tables`: the date of the table, by client."""

    captures: list[str]
    tables: dict[str, str]
    ignored: int
    programs: list[ProgramDocument]
    notes: list[str]


def _document(captures: list[str], programs: list[AuditedProgram], left_out: int, notes: list[str]) -> AuditDocument:
    from ....decoder.reference.bugs import tables

    return {
        "captures": captures,
        "tables": {name: table.date for name, table in tables().items()},
        "ignored": left_out,
        "programs": list(map(_program_document, programs)),
        "notes": [*notes, NOT_COMPLETE],
    }


def _program_document(program: AuditedProgram) -> ProgramDocument:
    return {
        "software": program.label,
        "software_name": program.name or None,
        "software_version": program.version or None,
        "in_table": program.covered,
        "client_ids": program.client_ids,
        "hosts": sorted({client.host for client in program.clients}),
        "connections": sum(client.connections for client in program.clients),
        "counts": {str(verdict): len(program.of(verdict)) for verdict in Verdict},
        "bugs": [
            {
                "id": each.bug.id,
                "client": each.bug.client,
                "severity": each.bug.severity,
                "verdict": str(each.verdict),
                "version": each.version,
                "fixed_in": each.fixed_in or None,
                "what": each.bug.what,
                "wire": each.bug.wire,
                "source": each.bug.source,
                "seen": traces_of(each),
            }
            for each in program.verdicts
        ],
    }


# -- the table ---------------------------------------------------------------------------------------------------


class ListedBug(TypedDict):
    """A row of the table as JSON."""

    id: str
    client: str
    severity: str
    versions: list[str]
    what: str
    wire: str
    source: str
    date: str


def _list(as_json: bool) -> None:
    from rich.text import Text

    from ....decoder.reference.bugs import SEVERITIES, tables

    listed = [(table, bug) for table in tables().values() for bug in table.bugs]
    if as_json:
        rows: list[ListedBug] = [
            {
                "id": bug.id, "client": bug.client, "severity": bug.severity, "versions": versions_text(bug),
                "what": bug.what,
                "wire": bug.wire, "source": bug.source, "date": table.date,
            }
            for table, bug in listed
        ]  # fmt: skip
        print_json(rows)
        return
    console = findings_console()
    width = max(len(bug.id) for _, bug in listed)
    for _, bug in sorted(listed, key=lambda each: (each[1].client, -SEVERITIES.index(each[1].severity))):
        text = f" {bug.id:{width}}  {', '.join(versions_text(bug))}: {bug.what}"
        console.print(Text.assemble((f"{bug.severity:6}", severity_style(bug.severity)), text))
    console.print(f"\n{table_dates()}. {NOT_COMPLETE}")
