"""Programs in captures and the verdicts on their known bugs: what ``barnabas audit`` prints, and its page shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from ..common.ignore_file import IgnoredClient
from ..common.output import counted

if TYPE_CHECKING:
    from ....decoder.compat import ObservedClient
    from ....decoder.findings import Finding
    from ....decoder.reference.bugs import BugStatus, ClientBug, Status

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


def summary(programs: list[AuditedProgram]) -> str:
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
            newest = max(fixes, key=version_order)
            lines.append(f"do: upgrade {client} to {newest} or newer, which has {_without(present, client)}")
    return lines


def _without(present: list[BugVerdict], client: str) -> str:
    open_ = [each.bug.id for each in present if each.bug.client == client and not each.fixed_in]
    return f"all of these but {', '.join(open_)} fixed" if open_ else "all of these fixed"


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


def versions_text(bug: ClientBug) -> list[str]:
    """``2.6.0 until 2.6.1``, as in the table."""
    return [
        f"{each.first or 'any'} until {each.fixed}" if each.fixed else f"{each.first or 'any'} on"
        for each in bug.affected
    ]
