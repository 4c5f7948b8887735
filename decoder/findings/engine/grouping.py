"""Findings that differ only in the client become one that lists the clients."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, zip_longest
from typing import Any

from .finding import KEPT, Finding
from .formatting import some
from .host import split

CLIENT = ("client_id", "software", "client")
"""What `Finding.about` says of the client."""
_OF_CLIENT = {*CLIENT, "client_ids"}
_NAMES = {"partition", "api_key", "api_version", "node", "node_id", "replica"}
"""Numbers that name something. All others are measured, and may differ."""
_SHOWN = 5


def grouped(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, where those that are alike (same id, why, remedy and subject) for several clients are one.

    It is the worst of them, with the counts, times, rules and evidence of all, and ``about["clients"]`` lists the clients in the
    order in which they were first seen.
    """
    alike: defaultdict[object, list[Finding]] = defaultdict(list)
    found = list(findings)
    several = Counter(finding.id for finding in found)
    for finding in found:
        alone = several[finding.id] == 1 or finding.about.get("client_id", finding.about.get("client")) is None
        alike[id(finding) if alone else _subject(finding)].append(finding)
    return [each for same in alike.values() for each in _merged(same)]


def _subject(finding: Finding) -> object:
    about = [(name, repr(value)) for name, value in finding.about.items() if name not in _OF_CLIENT and not _measured(name, value)]
    return finding.id, finding.why, finding.remedy, finding.injected, *sorted(about)


def _measured(name: str, value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and name not in _NAMES


def _merged(same: list[Finding]) -> Iterator[Finding]:
    same.sort(key=lambda finding: finding.first_ns or 0)
    clients = {_identity(finding): {name: finding.about[name] for name in CLIENT if name in finding.about} for finding in same}
    if len(clients) == 1:
        yield from same
        return
    worst = max(same, key=lambda finding: (finding.severity.rank, finding.count))
    ids = {client_id for client_id, _ in clients}
    names = [repr(client_id) if len(ids) == len(clients) else f"{client_id!r} at {host}" for client_id, host in clients]
    evidence = chain.from_iterable(zip_longest(*(finding.exchanges for finding in same)))
    yield replace(
        worst,
        seen=f"{len(clients)} clients ({some(names, _SHOWN)}), for example: {worst.seen}",
        count=sum(finding.count for finding in same),
        exchanges=[exchange for exchange in evidence if exchange is not None][:KEPT],
        about=worst.about | {"clients": list(clients.values())},
        first_ns=min((finding.first_ns for finding in same if finding.first_ns is not None), default=None),
        last_ns=max((finding.last_ns for finding in same if finding.last_ns is not None), default=None),
        rules=list(dict.fromkeys(rule for finding in same for rule in finding.rules)),
        others=sum(finding.others for finding in same),
        failures=sum(finding.failures for finding in same),
    )


def _identity(finding: Finding) -> tuple[Any, str]:
    return finding.about.get("client_id"), split(str(finding.about.get("client") or ""))[0]
