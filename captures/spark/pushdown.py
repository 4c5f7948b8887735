"""Filters that Spark pushes down, as text of the filter language (docs/filter.md), for what the index of a segment can answer.

A row of a table belongs to an exchange; the text is true of every exchange with a row that passes. So a test of the first
error's code is passed on for `exchanges`, but for `errors`, whose rows have any error, only that there is one.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ...decoder.schema import facts

_OF_EXCHANGE = {"exchanges", "frames", "errors", "batches", "records", "groups", "throttles"}
_NUMBERS = {"api_version": "ver", "correlation_id": "corr", "connection": "conn"}
_COMPARISONS = {
    "EqualTo": "==",
    "EqualNullSafe": "==",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}


def text_of(table: str, pushed: Any) -> str:
    """The filter for a `pyspark.sql.datasource.Filter`; "" where the index cannot use it."""
    if table not in _OF_EXCHANGE or len(getattr(pushed, "attribute", ())) != 1:
        return ""
    column, kind = pushed.attribute[0], type(pushed).__name__
    value = getattr(pushed, "value", None)
    if kind == "In":
        parts = [_compared(table, column, "==", each) for each in value or ()]
        return " or ".join(f"({part})" for part in parts) if parts and all(parts) else ""
    if kind == "StringStartsWith" and column == "client_id":
        return f"client startswith {_quoted(str(value))}"
    if kind in _COMPARISONS and value is not None:
        return _compared(table, column, _COMPARISONS[kind], value)
    return ""


def _compared(table: str, column: str, sign: str, value: Any) -> str:
    equal = sign == "=="
    if column == "time_ns" and isinstance(value, int) and table != "frames":  # a response is later than its request
        return f"time {sign} {_time(value)}" if 0 <= value < 1 << 62 else ""
    if column in _NUMBERS and isinstance(value, int):
        return f"{_NUMBERS[column]} {sign} {value}"
    if column == "client_id" and equal and isinstance(value, str):
        return f"client == {_quoted(value)}"
    if column == "api" and equal and isinstance(value, str):
        return _api(value)
    if column == "api_key" and equal and isinstance(value, int):
        return f"api == {value}" if value >= 0 else ""
    if equal and ((column == "error" and isinstance(value, str)) or (column == "error_code" and isinstance(value, int))):
        return _error(table, value)
    if column == "latency_ns" and table == "exchanges" and isinstance(value, int) and value >= 0:
        return f"latency {sign} {value}ns"
    return ""


def _api(name: str) -> str:
    try:
        return f"api == {facts.api_key(name)}"
    except KeyError:  # no API has that name: nothing passes, which Spark finds out
        return ""


def _error(table: str, value: str | int) -> str:
    try:
        code = facts.error_code(value) if isinstance(value, str) else value
    except KeyError:
        return ""
    if table == "errors":
        return "err != 0" if code else ""
    return f"err == {code}" if table == "exchanges" else ""


def _time(ns: int) -> str:
    seconds, fraction = divmod(ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'
