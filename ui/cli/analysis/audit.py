"""``barnabas audit``: known bugs of the clients in captures, by their versions and by what the captures show."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from ...safe import visible
from ..common.completion import choices
from ..common.failure import Failure, choice_of, write_text
from ..common.ignore_file import IgnoredClient, IgnoreFile, IgnoreOption, ignoring
from ..common.options import HtmlFile, OptionalCaptures
from ..common.output import counted, print_json, warn
from .clients import watch
from .finding_lines import findings_console, indented, severity_style
from .findings import inspected

if TYPE_CHECKING:
    from rich.console import Console

    from ....decoder.compat import ObservedClient
    from ....decoder.findings import Finding
    from ....decoder.reference.bugs import BugStatus, ClientBug, Status

_SEVERITIES = choices("high", "medium", "low", "info")
_SHOWN = 4
"""Client ids in the heading of a program."""
NOT_COMPLETE = "The table is not complete: a client that is not in it can have bugs, too."


class Verdict(StrEnum):
    """What is known of a bug for a client. `SEEN`: the capture shows it; `PRESENT`: its version has it."""

    SEEN = "seen"
    PRESENT = "present"
    MAY_BE = "may be"
    """Its version is not on the wire."""
    FIXED = "fixed"
    """Its version has it no more, or not yet."""


@dataclass(slots=True)
class BugVerdict:
    """One known bug of a program. `traces`: the findings that show it."""

    bug: ClientBug
    version: str
    verdict: Verdict
    fixed_in: str
    traces: list[Finding] = field(default_factory=list)


@dataclass(slots=True)
class AuditedProgram:
    """Clients with the same software. `covered`: whether the table has bugs of it."""

    name: str
    version: str
    label: str
    covered: bool
    clients: list[ObservedClient]
    verdicts: list[BugVerdict]

    def of(self, *verdicts: Verdict) -> list[BugVerdict]:
        """Its bugs with one of these verdicts."""
        return [each for each in self.verdicts if each.verdict in verdicts]

    @property
    def client_ids(self) -> list[str]:
        """The ids of its clients, each once."""
        return list(dict.fromkeys(client.client_id or "(no client id)" for client in self.clients))

    def asked(self) -> list[IgnoredClient]:
        """Its clients, for a file of what is ignored."""
        return [IgnoredClient(client.client_id, client.software_label, client.host) for client in self.clients]


def audit(
    captures: OptionalCaptures = None,
    attach: Annotated[
        str,
        typer.Option("--attach", help="A running proxy: http://HOST:PORT, unix:PATH, or newest.", metavar="URL"),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    html_file: HtmlFile = None,
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

    Clients are known by the name and version they send (ApiVersions v3), or else by their client ids. The table is
    not complete: a client that is not in it can have bugs, too. The exit status is 0, 1 if --fail-on applies, or 2 for errors.
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

        write_text(html_file, html(where, programs, _summary(programs)), "--html")
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


def judged(clients: Iterable[ObservedClient], findings: Iterable[Finding]) -> list[AuditedProgram]:
    """The programs of these clients and their known bugs: the worst programs first, and seen bugs first."""
    from ....decoder.compat import java_releases
    from ....decoder.findings.known_bugs import seen_bugs
    from ....decoder.reference.bugs import named, statuses, tables

    traces: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        for bug, version in seen_bugs(finding):
            traces.setdefault((bug.id, version), []).append(finding)
    programs = []
    for group in _programs(clients):
        first = group[0]
        sent = first.software_name, first.software_version, first.client_id, java_releases(first)
        libraries, found = named(*sent), statuses(*sent)
        verdicts = [_verdict(each, traces.get((each.bug.id, each.version), [])) for each in found]
        verdicts.sort(key=lambda each: list(Verdict).index(each.verdict))
        covered = any(each.client in tables() for each in libraries)
        programs.append(
            AuditedProgram(first.software_name, first.software_version, _label(first), covered, group, verdicts)
        )
    return sorted(programs, key=_worst_first)


def _programs(clients: Iterable[ObservedClient]) -> list[list[ObservedClient]]:
    """Clients of the same software. Some libraries send their name on the first connection only: the others of the same
    host and client id belong to it."""
    from ....decoder.compat import java_releases
    from ....decoder.reference.bugs import NamedVersion, named

    every = sorted(clients, key=lambda client: not client.software_name)
    software: dict[tuple[str, str], set[tuple[str, str]]] = {}
    groups: dict[tuple[str, str, tuple[NamedVersion, ...]], list[ObservedClient]] = {}
    for client in every:
        who, name, version = (client.host, client.client_id), client.software_name, client.software_version
        libraries = named(name, version, client.client_id, java_releases(client))
        if name:
            software.setdefault(who, set()).add((name, version))
        elif len(theirs := software.get(who, set())) == 1:
            ((name, version),) = theirs
            guessed, libraries = libraries, named(name, version, client.client_id)
            if guessed and guessed[0].client not in (each.client for each in libraries):
                name, version, libraries = "", "", guessed
        groups.setdefault((name, version, libraries), []).append(client)
    return list(groups.values())


def _verdict(found: BugStatus, traces: list[Finding]) -> BugVerdict:
    from ....decoder.reference.bugs import Status

    verdicts: dict[Status, Verdict] = {Status.PRESENT: Verdict.PRESENT, Status.UNKNOWN: Verdict.MAY_BE}
    verdict = Verdict.SEEN if traces else verdicts.get(found.status, Verdict.FIXED)
    return BugVerdict(found.bug, found.version, verdict, found.bug.fixed_for(found.version), traces)


def _worst_first(program: AuditedProgram) -> tuple[object, ...]:
    from ....decoder.findings import Severity

    def worst(verdict: Verdict) -> int:
        return max((Severity(each.bug.severity).rank + 1 for each in program.of(verdict)), default=0)

    return -worst(Verdict.SEEN), -worst(Verdict.PRESENT), not program.covered, program.label


def _label(client: ObservedClient) -> str:
    from ....decoder.compat import java_releases
    from ....decoder.reference.bugs import named

    if client.software_label:
        return client.software_label
    guess = named("", "", client.client_id, java_releases(client))
    text = client.software.text if client.software else "unknown software"
    if not guess or not guess[0].version:
        return text
    oldest, _, newest = guess[0].version.partition(" to ")
    return f"{text} {oldest if oldest == newest else guess[0].version}"


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


def _summary(programs: list[AuditedProgram]) -> str:
    seen, present = (
        sum(len(program.of(verdict)) for program in programs) for verdict in (Verdict.SEEN, Verdict.PRESENT)
    )
    found = f"{seen} seen in the traffic, {present} present in their versions"
    return f"{counted(len(programs), 'client program')}; known bugs: {found}"


def table_dates() -> str:
    """How many bugs the table has, and of when it is."""
    from ....decoder.reference.bugs import tables

    dates = sorted(table.date for table in tables().values())
    number = sum(len(table.bugs) for table in tables().values())
    sources = f"from sources up to {dates[-1]} (the oldest of {dates[0]})"
    return f"the table has {number} bugs of {len(dates)} clients, {sources}"


def _print(programs: list[AuditedProgram], all_: bool) -> None:
    console = findings_console()
    console.print(_summary(programs))
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


def traces_of(each: BugVerdict) -> list[str]:
    """What findings say of it, with their ids."""
    from ....decoder.findings.known_bugs import as_found

    return [f"{trace.id}: {as_found(trace)}" for trace in each.traces]


def fixed_text(each: BugVerdict) -> str:
    """``fixed in 2.6.1``, or that no release has fixed it, or that this version does not have it."""
    from ....decoder.reference.bugs import tables

    if each.verdict is Verdict.FIXED:
        return "not in this version"
    return (
        f"fixed in {each.fixed_in}" if each.fixed_in else f"no release had fixed it on {tables()[each.bug.client].date}"
    )


def lines_of(program: AuditedProgram) -> list[str]:
    """What is to be said of a program besides its bugs."""
    from ....decoder.reference.bugs import bug_tables_before, version_order

    if not program.covered:
        return ["not in the table of bugs"]
    first = program.clients[0]
    lines = [
        f"newer than the table, whose newest release of {table.client} is {table.newest}"
        for table in bug_tables_before(first.software_name, first.software_version, first.client_id)
    ]
    present, may_be, fixed = (
        program.of(Verdict.SEEN, Verdict.PRESENT),
        program.of(Verdict.MAY_BE),
        program.of(Verdict.FIXED),
    )
    if may_be:
        lines.append(
            f"its version is not known exactly: it may have {counted(len(may_be), 'known bug')} (--all lists them)"
        )
    if not present and not may_be:
        lines.append(f"none of {counted(len(program.verdicts), 'known bug')} is in this version")
    elif fixed:
        lines.append(f"{counted(len(fixed), 'other known bug')} of the table: not in this version")
    for client in dict.fromkeys(each.bug.client for each in present):
        fixes = [each.fixed_in for each in present if each.bug.client == client and each.fixed_in]
        if fixes:
            lines.append(
                f"do: upgrade {client} to {max(fixes, key=version_order)} or newer, which has {_without(present, client)}"
            )
    return lines


def _without(present: list[BugVerdict], client: str) -> str:
    open_ = [each.bug.id for each in present if each.bug.client == client and not each.fixed_in]
    return f"all of these but {', '.join(open_)} fixed" if open_ else "all of these fixed"


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


def versions_text(bug: ClientBug) -> list[str]:
    """``2.6.0 until 2.6.1``, as in the table."""
    return [
        f"{each.first or 'any'} until {each.fixed}" if each.fixed else f"{each.first or 'any'} on"
        for each in bug.affected
    ]


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
