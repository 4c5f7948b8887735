"""Exchanges that belong to another one: what was tried again, what stands before and behind it on its connection."""

from __future__ import annotations

from ...captures import Capture, Row
from ...captures.selection import select
from ...decoder import facts
from ...decoder.filter import compile

AROUND = 3000
"""Rows that are looked at on either side."""
_API_VERSIONS = facts.api_key("ApiVersions")


def related(capture: Capture, row: Row) -> list[tuple[str, int]]:
    """(what it is, row number), the most telling first."""
    rows = capture.rows()
    before = rows[max(row.number - AROUND, 0) : row.number]
    behind = rows[row.number + 1 : row.number + 1 + AROUND]
    found: list[tuple[str, int]] = []

    def add(what: str, row_found: Row | None) -> None:
        if row_found is not None and row_found.number not in (number for _, number in found):
            found.append((what, row_found.number))

    same = [r for r in behind if r.api_key == row.api_key and r.client_id == row.client_id]
    later = [r for r in same if r.time_ns > row.time_ns]
    if row.error or row.state == "no_response":
        for again in later[:1]:
            add(f"tried again{'' if again.error or again.state != 'paired' else ', with success'}", again)
        add("tried again, with success", next((r for r in later if not r.error and r.state == "paired"), None))
        if row.api_key != _API_VERSIONS:
            add("tried again with another version", next((r for r in later if r.api_version != row.api_version), None))
    else:
        failed = [r for r in before if r.error and r.api_key == row.api_key and r.client_id == row.client_id]
        add("failed before", failed[-1] if failed else None)
    on = row.connection
    add("before it on this connection", next((r for r in reversed(before) if r.connection == on), None))
    add("behind it on this connection", next((r for r in behind if r.connection == on), None))
    add("the error before, anywhere", next((r for r in reversed(before) if r.error), None))
    add("the next error, anywhere", next((r for r in behind if r.error), None))
    first = next(iter(select(capture, compile(f"conn == {on} and api == ApiVersions"))), None)
    if first is not None and first != row.number:
        add("what this connection was offered", rows[first])
    return found
