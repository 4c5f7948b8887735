"""Filters from what the screen shows: the value of a cell or of a field; and the filter that a typed text means."""

from __future__ import annotations

import re

from ....captures import Row
from ....decoder.reference.fields import HEADER
from ....decoder.schema import facts
from ...safe import visible
from ...times import iso

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")
_WORD = re.compile(r"[^\s()\[\]{},\"'=!<>~&|@]+")
_HEADER_FIELDS = {"request_api_version": "ver", "correlation_id": "corr", "client_id": "client"}
PROBLEMS = "(err or undecoded or orphan)"
"""What "errors only" shows: as `columns.is_problem`."""


def quoted(text: str) -> str:
    """A text as a filter's string; what cannot be printed is escaped as on the screen (`visible`)."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{visible(escaped)}"'


def api_term(key: int) -> str:
    """``api == Produce``."""
    return f"api == {facts.api_name(key) if key in facts.api_keys() else key}"


def cell_term(row: Row, field: str) -> str:
    """The filter for rows with the same value in column `field`; "" where there is none."""
    if field == "client":
        return "not client" if row.client_id is None else f"client == {quoted(row.client_id)}"
    if field in ("addr", "broker"):
        address = row.client if field == "addr" else row.broker
        return f"{field} == {address}" if address else ""
    if field == "api":
        return "orphan" if row.state == "orphan" else api_term(row.api_key)
    if field == "err":
        return _result(row)
    if field == "time":
        second = row.time_ns // 1_000_000_000
        return f"time in {iso(second * 1_000_000_000)}..{iso(second * 1_000_000_000 + 999_999_999)}"
    if field == "latency":
        return "pending > 0" if row.latency_ns is None else f"latency >= {row.latency_ns // 1000}us"
    if field == "size":
        return f"size >= {(row.request_size or 0) + (row.response_size or 0)}"
    value = {"ver": row.api_version, "conn": row.connection, "corr": row.correlation_id}.get(field)
    return "" if value is None else f"{field} == {value}"


def _result(row: Row) -> str:
    if row.undecoded:
        return "undecoded"
    if row.error:
        return f"err == {facts.error_name(row.error) if row.error in facts.errors() else row.error}"
    return "not err and paired" if row.state == "paired" else f"state == {row.state}"


def negate(term: str) -> str:
    """The filter for all other rows."""
    return term.replace(" == ", " != ", 1) if term.count(" ") == 2 and " == " in term else f"not ({term})"


def combine(old: str, new: str) -> str:
    """The filter for rows that pass both."""
    if not old or old == new:
        return new
    return f"({old}) and {new}" if re.search(r"\bor\b|\|\|", old) else f"{old} and {new}"


def field_term(side: str, path: str, value: object) -> str:
    """The filter for a field's value: `side` is "req" or "resp", `path` as in `Message.map`, or ``header.client_id``; "" if there
    is none."""
    from ....decoder.filter import FilterError, compile

    if not path or isinstance(value, (bytes, list, tuple, dict)):
        return ""
    if path == f"{HEADER}request_api_key" and isinstance(value, int):
        return api_term(value)
    if path.startswith(HEADER):
        field = _HEADER_FIELDS.get(path.removeprefix(HEADER))
        return f"{field} == {quoted(value) if isinstance(value, str) else value}" if field is not None else ""
    general = re.sub(r"\[\d+\]", "[*]", path)
    written = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else None
    if written is None:
        written = quoted(str(value)) if not isinstance(value, (int, float)) else str(value)
    tests = [f"{side}.{general} == {written}"]
    name = general.rpartition(".")[2]
    if "topic" in general and name in ("name", "topic", "topic_name", "topics[*]"):
        tests.insert(0, f"topic == {written}")
    if name == "group_id" or general == "group_id":
        tests.insert(0, f"group == {written}")
    if "[*]" in general:
        tests = [t if not t.startswith(side) else f"any({t})" for t in tests]
    if isinstance(value, bool):
        plain = f"{side}.{general}"
        tests = [f"any({plain})" if "[*]" in general else plain]
        if not value:
            tests = [f"not {tests[0]}"]
    for test in tests:
        try:
            compile(test)
        except FilterError:
            continue
        return test
    return ""


def resolve_filter(text: str, saved: dict[str, str]) -> str:
    """The filter that a text in the filter bar means: itself, the saved one that it names (``@name``), or a search for it
    in API, client and error. Raises `FilterError` for any other text."""
    from ....decoder.filter import FilterError, compile

    text = text.strip()
    if text.startswith("@") and text[1:] in saved:
        return saved[text[1:]]
    try:
        compile(text)
    except FilterError:
        if not _WORD.fullmatch(text) or len(text) < 2:
            raise
        pattern = quoted("(?i)" + re.escape(text))
        wide = f"(api ~ {pattern} or client ~ {pattern} or err ~ {pattern})"
        compile(wide)
        return wide
    return text
