"""Findings that are traces of published client bugs: the client's version has the bug, and the finding fits it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ..reference import bugs
from .engine.finding import Finding

KNOWN_BUGS = "known_bugs"
"""The key in `Finding.about`: the ids of the bugs that a finding is a trace of."""


_FITS = "; this fits the known client bug "


class SeenBug(NamedTuple):
    """A bug whose trace a finding is, and the client's library and version."""

    bug: bugs.ClientBug
    version: str


def name_known_bugs(findings: Iterable[Finding]) -> list[Finding]:
    """The findings; those that are traces of published bugs name them and the version that fixes them."""
    return [_named(finding, seen) if (seen := seen_bugs(finding)) else finding for finding in findings]


def seen_bugs(finding: Finding) -> list[SeenBug]:
    """The published bugs that a finding is a trace of; none unless the client's version is known to have them."""
    if finding.injected:
        return []
    found: dict[str, SeenBug] = {}
    for client in clients_of(finding):
        name, _, version = str(client.get("software") or "").partition(" ")
        for each in bugs.named(name, version, str(client.get("client_id") or "")):
            for bug in bugs.bugs_of(each.client):
                if (
                    any(_fits(pattern, finding) for pattern in bug.patterns)
                    and bug.status(each.version) is bugs.Status.PRESENT
                ):
                    found.setdefault(bug.id, SeenBug(bug, each.version))
    return list(found.values())


def clients_of(finding: Finding) -> list[Mapping[str, Any]]:
    """What the finding says of each client: `client_id`, `software`, `client`."""
    several = finding.about.get("clients")
    return several if isinstance(several, list) else [finding.about]


def _fits(pattern: bugs.FindingPattern, finding: Finding) -> bool:
    if pattern.finding != finding.id:
        return False
    about = {"severity": finding.severity, **finding.about}
    return all(name in about and str(about[name]) in values for name, values in pattern.conditions.items())


def _named(finding: Finding, seen: list[SeenBug]) -> Finding:
    short = " and ".join(
        f"{published(bug)} of {bug.client} {version} ({_until(bug, version)})" for bug, version in seen
    )
    fixes = [(bug.client, bug.fixed_for(version)) for bug, version in seen]
    upgrades = [f"upgrade {client} to {fixed} or newer" for client, fixed in dict.fromkeys(fixes) if fixed]
    return replace(
        finding,
        seen=f"{finding.seen}{_FITS}{short}",
        why=" ".join([finding.why, *(f"{published(bug)}: {bug.what}" for bug, _ in seen)]),
        remedy="; ".join([*upgrades, finding.remedy]),
        about=finding.about | {KNOWN_BUGS: [bug.id for bug, _ in seen]},
    )


def as_found(finding: Finding) -> str:
    """What was seen, without the known bugs that it fits."""
    return finding.seen.rpartition(_FITS)[0] if KNOWN_BUGS in finding.about else finding.seen


def published(bug: bugs.ClientBug) -> str:
    """What people call it: ``librdkafka#4870``, ``CVE-2026-35554``."""
    client, dash, number = bug.id.rpartition("-")
    return f"{client}#{number}" if dash and client == bug.client and number.isdecimal() else bug.id


def _until(bug: bugs.ClientBug, version: str) -> str:
    fixed = bug.fixed_for(version)
    return f"fixed in {fixed}" if fixed else f"no release had fixed it on {bugs.tables()[bug.client].date}"
