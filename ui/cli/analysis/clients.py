"""The clients in captures, from the index; only a few messages are decoded."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ....captures import Row
from ....decoder.compat import ClientTracker, ObservedClient, Request
from ....decoder.compat.client_tracker import API_VERSIONS, NEWEST_OLD_FORMAT, PRODUCE
from ..common.opening import open_or_fail


def watch(paths: Iterable[Path]) -> tuple[list[ObservedClient], list[str]]:
    """The clients of all these captures together, and what is not right with the files. Raises Failure."""
    seen = ClientTracker()
    notes: list[str] = []
    for path in paths:
        with open_or_fail(path) as capture:
            own = [segment.own is not None for segment in capture.segments]
            seen.capture(all(own))
            for row in capture.rows():
                request = _request(row)
                seen.request(request)
                if row.api_key == API_VERSIONS:
                    seen.api_versions(request, capture.exchange(row))
                elif row.api_key == PRODUCE and row.api_version <= NEWEST_OLD_FORMAT:
                    seen.produced(request, capture.exchange(row))
            if capture.note:
                notes.append(capture.note)
    return seen.clients(), notes


def _request(row: Row) -> Request:
    return Request(
        row.connection, row.client, row.broker, row.client_id, row.api_key, row.api_version,
        row.time_ns, row.error, row.state, row.correlation_id,
    )  # fmt: skip
