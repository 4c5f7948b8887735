"""An exchange in one line, long and short; what was noted on it; and what lists are sorted by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...captures import Row
from ...decoder import Exchange, facts
from ..times import clock
from .columns import Cell, api, client_name, duration, result, sizes
from .safe import fit, visible

SORTS: dict[str, Callable[[Row], Any]] = {
    "No": lambda row: row.number,
    "Time": lambda row: row.time_ns,
    "Client": lambda row: row.client_id or row.client,
    "Address": lambda row: row.client,
    "Broker": lambda row: row.broker,
    "Conn": lambda row: row.connection,
    "Corr": lambda row: row.correlation_id,
    "API": lambda row: (row.api_key, row.api_version),
    "Ver": lambda row: row.api_version,
    "Latency": lambda row: -1 if row.latency_ns is None else row.latency_ns,
    "Req>Resp": lambda row: (row.request_size or 0) + (row.response_size or 0),
    "Result": lambda row: (row.undecoded, row.error, row.state),
}
"""By column title."""


def about_row(row: Row) -> list[Cell]:
    """Everything about a row, in one line."""
    outcome, role = result(row)
    fact = facts.errors().get(row.error) if row.error else None
    retriable = "" if fact is None else " (retriable)" if fact.retriable else " (not retriable)"
    took = "" if row.latency_ns is None else f"{duration(row.latency_ns)} "
    return [
        (f" #{row.number + 1} ", "muted"),
        (f"{api(row)} v{row.api_version} ", "title"),
        (f"{outcome.strip()}{retriable} ", role),
        (f" {took}{client_name(row)} ", ""),
        (f" {visible(row.client)} -> {visible(row.broker)}  {sizes(row)} B", "muted"),
        (f"  conn {row.connection}  correlation id {row.correlation_id}", "muted"),
    ]


def brief(row: Row) -> list[Cell]:
    """A row in a few words."""
    outcome, role = result(row)
    return [
        (f" #{row.number + 1:<7}", "muted"),
        (f"{clock(row.time_ns)} ", "muted"),
        (fit(client_name(row), 14), ""),
        (f" {api(row)} v{row.api_version} ", "title"),
        (outcome, role),
    ]


def notes_on(exchange: Exchange) -> list[Any]:
    """What rules have noted on either leg."""
    marks = exchange.marks
    names = ("notes", "broker_request_notes", "broker_response_notes")
    return [note for name in names for note in marks.get(name) or ()]
