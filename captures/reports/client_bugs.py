"""The report `client-bugs`: the clients of a fleet and their known bugs, as `barnabas audit` judges those of one capture."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any, NamedTuple

from ...decoder.findings.known_bugs import KNOWN_BUGS
from ...decoder.reference import bugs
from .queries import REPORTS, QueryEngine

NAME = "client-bugs"
NEEDS = ("exchanges", "connections")
TITLE = "Clients and their known bugs"
ABOUT = (
    "Published bugs that the version of a client has (present), or whose trace a finding is (seen). The table of bugs "
    "({bugs} of {clients} clients, sources up to {date}) is not complete: a client that is not in it can have bugs, too."
)
COLUMNS = (
    "cluster_id", "software", "client_ids", "example", "bug", "severity", "verdict", "findings", "fixed_in", "what", "source", "requests",
    "first_ns", "last_ns",
)  # fmt: skip
_SEEN = f"SELECT cluster_id, about, count FROM findings WHERE about LIKE '%{KNOWN_BUGS}%'"


class _Software(NamedTuple):
    """Clients with the same software in a cluster; of those that send no name, those with the same client id."""

    cluster_id: str | None
    name: str
    version: str
    client_id: str


class _Use:
    """What clients of one software did."""

    def __init__(self) -> None:
        self.client_ids: set[str | None] = set()
        self.requests = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None

    def add(self, row: dict[str, Any]) -> None:
        self.client_ids.add(row["client_id"])
        self.requests += row["requests"]
        self.first_ns = row["first_ns"] if self.first_ns is None else min(self.first_ns, row["first_ns"])
        self.last_ns = row["last_ns"] if self.last_ns is None else max(self.last_ns, row["last_ns"])


def about() -> str:
    """What the report says, and of when its table of bugs is."""
    tables = bugs.tables().values()
    number = sum(len(table.bugs) for table in tables)
    return ABOUT.format(bugs=number, clients=len(tables), date=max(table.date for table in tables))


def rows(engine: QueryEngine) -> list[dict[str, Any]]:
    """A row per software of a cluster and known bug of its version: seen ones first, then the worst."""
    uses: defaultdict[_Software, _Use] = defaultdict(_Use)
    for row in engine.query(REPORTS["clients"].sql):
        name, version = row["software_name"] or "", row["software_version"] or ""
        uses[_Software(row["cluster_id"], name, version, "" if name else row["client_id"] or "")].add(row)
    seen = _seen(engine) if "findings" in engine.tables else Counter()
    found = [
        _row(software, use, each, seen[software.cluster_id, f"{software.name} {software.version}".strip(), each.bug.id])
        for software, use in uses.items()
        for each in bugs.statuses(software.name, software.version, software.client_id)
        if each.status is bugs.Status.PRESENT
    ]
    return sorted(found, key=_worst_first)


def _seen(engine: QueryEngine) -> Counter[tuple[str | None, str, str]]:
    """How often findings name a bug, by cluster, software and bug."""
    counts: Counter[tuple[str | None, str, str]] = Counter()
    for row in engine.query(_SEEN):
        about = json.loads(row["about"]) if isinstance(row["about"], str) else row["about"]
        for client in about.get("clients") or [about]:
            for bug in about.get(KNOWN_BUGS, ()):
                counts[row["cluster_id"], str(client.get("software") or ""), bug] += row["count"]
    return counts


def _row(software: _Software, use: _Use, found: bugs.BugStatus, seen: int) -> dict[str, Any]:
    bug = found.bug
    ids = sorted(client_id for client_id in use.client_ids if client_id)
    label = f"{software.name} {software.version}".strip() or f"probably {bug.client} {found.version}"
    return {
        "cluster_id": software.cluster_id,
        "software": label,
        "client_ids": len(use.client_ids),
        "example": ids[0] if ids else None,
        "bug": bug.id,
        "severity": bug.severity,
        "verdict": "seen" if seen else "present",
        "findings": seen,
        "fixed_in": bug.fixed_for(found.version) or None,
        "what": bug.what,
        "source": bug.source,
        "requests": use.requests,
        "first_ns": use.first_ns,
        "last_ns": use.last_ns,
    }


def _worst_first(row: dict[str, Any]) -> tuple[object, ...]:
    worst = -bugs.SEVERITIES.index(row["severity"])
    return row["verdict"] != "seen", worst, row["software"], row["bug"], row["cluster_id"] or ""
