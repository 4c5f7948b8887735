"""The order of findings: the worst first, causes before their effects, and then those that explain most failures.

A detector lists the findings that its own would cause (`Detector.explains`). Where both are found of one client, connection or broker,
the cause is raised to the severity of its worst effect.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .finding import Finding
from .host import split

Subject = tuple[str, object]
"""Something that findings may have in common: a connection, a client, or a broker."""


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """The findings in their order, with `Finding.effects` set. Given ones are not changed."""
    found = list(findings)
    subjects = [_subjects(finding) for finding in found]
    caused = [_effects(at, found, subjects) for at in range(len(found))]
    explained = {at for effects in caused for at in effects}
    ordered = []
    for at, finding in enumerate(found):
        effects = _reachable(at, caused)
        failures = finding.failures + sum(found[effect].failures for effect in effects)
        severity = max([finding.severity, *(found[effect].severity for effect in effects)], key=lambda each: each.rank)
        ids = tuple(dict.fromkeys(found[effect].id for effect in effects))
        shown = replace(finding, severity=severity, effects=ids) if effects else finding
        ordered.append(((-severity.rank, at in explained, -failures, -finding.count), shown))
    ordered.sort(key=lambda each: each[0])
    return [finding for _, finding in ordered]


def _effects(at: int, found: list[Finding], subjects: list[frozenset[Subject]]) -> list[int]:
    """The findings that this one explains, by their places."""
    cause = found[at]
    if not cause.explains:
        return []
    return [
        i
        for i, other in enumerate(found)
        if i != at and other.id in cause.explains and other.injected == cause.injected and subjects[at] & subjects[i]
    ]


def _reachable(start: int, caused: list[list[int]]) -> list[int]:
    """The effects of a finding, and theirs, without itself."""
    known, waiting = {start: None}, list(caused[start])
    while waiting:
        at = waiting.pop(0)
        if at not in known:
            known[at] = None
            waiting += caused[at]
    return list(known)[1:]


def _subjects(finding: Finding) -> frozenset[Subject]:
    """What a finding is about. Brokers count only where no client is named: most findings of a cluster share one."""
    about = finding.about
    clients = about.get("clients") or [about]
    named = {
        ("client", (each.get("client_id"), split(str(each["client"]))[0])) for each in clients if each.get("client") is not None
    }
    if not named and about.get("broker") is not None:
        named = {("broker", about["broker"])}
    return frozenset(named | {("connection", exchange.connection) for exchange in finding.exchanges})
