"""What Apache Kafka never answers: a table of facts (`ROWS`), and their checks.

    context = Context("kafka-1:9092", memory=memory)   # one for each connection; the memory is shared
    requested(request, context)                        # every request of `REQUESTS`, as soon as it is seen
    violations(Pair(request, response, context), concerned(api_key, version), failed)

A new fact is one `Row` in the module of its subject, with a function if no other row has its form.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ...codec.message_view import MessageView
from ...schema import facts
from . import admin, connections, fetching, groups, metadata, producing
from .row import Check, Context, Memory, Owner, Pair, Row, Violation

__all__ = [
    "REQUESTS",
    "ROWS",
    "Checks",
    "Context",
    "Memory",
    "Owner",
    "Pair",
    "Row",
    "Violation",
    "concerned",
    "requested",
    "violations",
]

ROWS: tuple[Row, ...] = (
    *metadata.ROWS, *fetching.ROWS, *producing.ROWS, *groups.ROWS, *admin.ROWS, *connections.ROWS,
)  # fmt: skip

_REQUESTED = {facts.api_key("SyncGroup"): groups.sync_requested}
REQUESTS = frozenset(_REQUESTED)
"""APIs whose requests `requested` needs."""


class _Served(NamedTuple):
    """A check, and the rows of one version that it serves: by id, `only` if it is one."""

    check: Check
    rows: dict[str, Row]
    only: Row | None
    errors: bool


class Checks(NamedTuple):
    """The checks of one version of an API: of responses without an error code, and of those with one."""

    usual: tuple[_Served, ...]
    failed: tuple[_Served, ...]


@lru_cache(1024)  # clients may make up 2^32 pairs
def concerned(api_key: int, version: int) -> Checks:
    """The checks of an API at a version."""
    found: dict[Check, dict[str, Row]] = {}
    name = facts.api_name(api_key) if api_key in facts.api_keys() else ""
    for row in ROWS:
        if row.since <= version <= row.until and name in row.apis.split():
            found.setdefault(row.check, {})[row.id] = row
    failed = tuple(
        _Served(
            check, rows, next(iter(rows.values())) if len(rows) == 1 else None, any(r.errors for r in rows.values())
        )
        for check, rows in found.items()
    )
    return Checks(tuple(served for served in failed if served.check is not connections.check_errors), failed)


def requested(request: MessageView, context: Context) -> None:
    """A request was sent: what later responses are compared with is remembered."""
    learn = _REQUESTED.get(request.plan.api_key)
    if learn is not None:
        learn(request, context)


def violations(pair: Pair, checks: Checks, failed: bool) -> list[Violation]:
    """What contradicts the rows of a response. `checks`: those of its version, as `concerned` has them. `failed`: it has an
    error code, anywhere."""
    whole = failed and bool(getattr(pair.response.values, "error_code", 0))
    found: list[Violation] = []
    for check, rows, only, errors in checks.failed if failed else checks.usual:
        if whole and not errors:
            continue
        for seen in check(pair):
            row = rows.get(seen.row) if seen.row else only
            if row is not None:
                found.append(Violation(row, seen.path, seen.text))
    return found
