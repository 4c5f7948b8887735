"""The clients in captures, from the index; only a few messages are decoded."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from ...safe import visible
from ..common.opening import open_or_fail

if TYPE_CHECKING:
    from ....captures import Row
    from ....decoder.compat import IndexedRequest, ObservedClient
    from ....decoder.filter import Filter


def watch(paths: Iterable[Path], wanted: Filter | None = None) -> tuple[list[ObservedClient], list[str]]:
    """The clients of all these captures together, and notes on damaged files. Raises Failure.

    `wanted`: only the exchanges that it selects, and the ApiVersions exchanges of their connections, which say what was
    negotiated.
    """
    from ....captures.reading.selection import select
    from ....decoder.compat import ClientTracker
    from ....decoder.compat.client_tracker import API_VERSIONS, NEWEST_OLD_FORMAT, PRODUCE

    seen = ClientTracker()
    notes: list[str] = []
    for path in paths:
        with open_or_fail(path) as capture:
            own = [segment.own is not None for segment in capture.segments]
            seen.capture(all(own))
            rows = capture.rows()
            chosen = range(len(rows)) if wanted is None else set(select(capture, wanted))
            connections = None if wanted is None else {rows[number].connection for number in chosen}
            for row in rows:
                negotiates = row.api_key == API_VERSIONS and (connections is None or row.connection in connections)
                if not negotiates and row.number not in chosen:
                    continue
                request = _request(row)
                seen.request(request)
                if row.api_key == API_VERSIONS:
                    seen.api_versions(request, capture.exchange(row))
                elif row.api_key == PRODUCE and row.api_version <= NEWEST_OLD_FORMAT:
                    seen.produced(request, capture.exchange(row))
            if capture.note:
                notes.append(capture.note)
    return seen.clients(), notes


def _request(row: Row) -> IndexedRequest:
    from ....decoder.compat import IndexedRequest

    return IndexedRequest(
        row.connection, row.client, row.broker, row.client_id, row.api_key, row.api_version,
        row.time_ns, row.error, row.state, row.correlation_id,
    )  # fmt: skip


def client_line(client: ObservedClient) -> str:
    """A client in one line, safe for a terminal."""
    name = f"'{visible(client.client_id)}'" if client.client_id else "(no client id)"
    software = visible(client.software_label) or (client.software.text if client.software else "unknown software")
    return f"{name}  {software}  {client.host or 'address unknown'}"


class IdentityDocument(TypedDict):
    """Who a client is and when it was there, as JSON. `old_formats`: batches by magic, as text."""

    client_id: str | None
    software_name: str | None
    software_version: str | None
    software: str | None
    address: str
    negotiation: str
    connections: int
    requests: int
    first_seen_ns: int
    last_seen_ns: int
    old_formats: dict[str, int]


def client_identity(client: ObservedClient) -> IdentityDocument:
    """The client for JSON."""
    return {
        "client_id": client.client_id or None,
        "software_name": client.software_name or None,
        "software_version": client.software_version or None,
        "software": client.software.text if client.software else None,
        "address": client.host,
        "negotiation": str(client.negotiation),
        "connections": client.connections,
        "requests": client.requests,
        "first_seen_ns": client.first_ns,
        "last_seen_ns": client.last_ns,
        "old_formats": {str(magic): count for magic, count in sorted(client.formats.items()) if count},
    }
