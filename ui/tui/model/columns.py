"""The columns of an exchange in one line, for the exchange list and for plain lines: their widths, and the text of each cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ....captures import Row
from ....decoder.schema import facts
from ...safe import visible
from ...times import clock
from ..widgets.palette import Cell


@dataclass(frozen=True, slots=True)
class ListColumn:
    """One column. `width`: in cells, 0 for what the others leave; `cell(number, row)`; `from_width`: the narrowest list that
    shows it; `optional`: shown only where it is chosen; `field`: its name in filters."""

    title: str
    width: int
    cell: Callable[[int, Row], Cell]
    right: bool = False
    from_width: int = 0
    optional: bool = False
    field: str = ""


def duration(ns: int) -> str:
    """``850us``, ``4.2ms``, ``183ms``, ``12.4s``: at most 6 cells."""
    if ns < 1_000_000:
        return f"{ns // 1000}us"
    ms = ns / 1e6
    if ms < 1000:
        return f"{ms:.1f}ms" if ms < 100 else f"{ms:.0f}ms"
    return f"{ms / 1000:.1f}s"


def size(octets: int) -> str:
    """``64``, ``4.3k``, ``12M``: decimal, at most 4 cells below 10 GB."""
    for unit, step in (("", 1), ("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)):
        amount = octets / step
        if amount < 999.5:
            return f"{octets}" if not unit else f"{amount:.1f}{unit}" if amount < 9.95 else f"{amount:.0f}{unit}"
    return f"{octets / 1e9:.0f}G"


def client_name(row: Row) -> str:
    """The client id, or the client's address where the client gave none."""
    return visible(row.client_id or row.client)


def sizes(row: Row) -> str:
    """Request and response size; the side that is missing stays empty."""
    request = "" if row.request_size is None else size(row.request_size)
    response = "" if row.response_size is None else size(row.response_size)
    return f"{request}>{response}"


def api(row: Row) -> str:
    """The API's name; an orphan response has none."""
    return "(unknown)" if row.state == "orphan" else facts.api_name(row.api_key)


EXPECTED = {
    (facts.api_key("ApiVersions"), facts.error_code("UNSUPPORTED_VERSION")): "the client is to fall back to an older version",
    (facts.api_key("JoinGroup"), facts.error_code("MEMBER_ID_REQUIRED")): "the client is to join again with the id it got",
}
"""Errors by which a broker asks for the next step (KIP-511, KIP-394), and this step."""


def expected(row: Row) -> str:
    """Why its error is part of an ordinary exchange, or ""."""
    return EXPECTED.get((row.api_key, row.error), "") if row.error else ""


def result(row: Row) -> Cell:
    """How it ended: a sign and a word, so that nothing rests on the colour. The second sign, ``+``: a rule, a plugin or a
    person answered or changed it."""
    text, role = _outcome(row)
    if row.noted:
        return f"{text[0]}+{text[2:]}", "waiting" if role in ("ok", "muted") else role
    return text, role


def _outcome(row: Row) -> Cell:
    if row.undecoded:
        return "? undecoded", "undecoded"
    if row.error:
        return (f"< {facts.error_name(row.error)}", "waiting") if expected(row) else (f"! {facts.error_name(row.error)}", "error")
    if row.cut and row.state == "paired":
        return "~ cut", "muted"
    if row.state == "pending":
        return ". waiting", "waiting"
    if row.state == "no_response":
        return "- no response", "muted"
    if row.state == "orphan":
        return "? no request seen", "undecoded"
    return "  ok", "ok"


def is_problem(row: Row) -> bool:
    """Whether "errors only" shows it: an error code, a frame that could not be read, a response to nothing."""
    return bool(row.error) or row.undecoded or row.state == "orphan"


def _latency(_: int, row: Row) -> Cell:
    if row.state == "pending":
        return ("..." if row.waiting_ns is None else duration(row.waiting_ns)), "waiting"
    return ("" if row.latency_ns is None else duration(row.latency_ns)), ""


INFO, WITH_INFO, RESULT_WIDTH = "Info", 140, 28
"""The column of `exchange_info`, the narrowest screen that shows it unless other columns are chosen, and the width of the
result beside it."""
COLUMNS = (
    ListColumn("No", 6, lambda number, _: (str(number), "muted"), right=True),
    ListColumn("Time", 12, lambda _, row: (clock(row.time_ns), "muted"), from_width=100, field="time"),
    ListColumn("Time", 8, lambda _, row: (clock(row.time_ns, 0), "muted"), field="time"),
    ListColumn("Client", 18, lambda _, row: (client_name(row), ""), from_width=120, field="client"),
    ListColumn("Client", 11, lambda _, row: (client_name(row), ""), field="client"),
    ListColumn("Address", 21, lambda _, row: (visible(row.client), "muted"), optional=True, field="addr"),
    ListColumn("Broker", 15, lambda _, row: (visible(row.broker), "muted"), from_width=130, field="broker"),
    ListColumn("Broker", 6, lambda _, row: (":" + visible(row.broker).rpartition(":")[2], "muted"), field="broker"),
    ListColumn("Conn", 5, lambda _, row: (str(row.connection), "muted"), right=True, optional=True, field="conn"),
    ListColumn("Corr", 6, lambda _, row: (str(row.correlation_id), "muted"), right=True, optional=True, field="corr"),
    ListColumn("API", 20, lambda _, row: (api(row), "title"), from_width=120, field="api"),
    ListColumn("API", 13, lambda _, row: (api(row), "title"), field="api"),
    ListColumn(
        "Ver", 3, lambda _, row: ("" if row.state == "orphan" else f"v{row.api_version}", ""), right=True, field="ver"
    ),
    ListColumn("Latency", 7, _latency, right=True, field="latency"),
    ListColumn("Req>Resp", 9, lambda _, row: (sizes(row), ""), from_width=100, field="size"),
    ListColumn("Result", 0, lambda _, row: result(row), field="err"),
    ListColumn(INFO, 0, lambda _, row: ("", "muted"), optional=True, field="info"),
)

TITLES = tuple(dict.fromkeys(column.title for column in COLUMNS))
USUAL = tuple(dict.fromkeys(column.title for column in COLUMNS if not column.optional))


def layout(
    screen: int, width: int | None = None, wanted: Sequence[str] = USUAL, with_info: bool = False
) -> tuple[tuple[ListColumn, int], ...]:
    """The columns for a screen of `screen` cells, each with its width, `width` cells together (by default all). `with_info`: add
    `INFO` to the usual columns where there is room.

    Where several columns share a title, the first that fits the screen is taken.
    """
    info = (INFO,) if with_info and screen >= WITH_INFO and tuple(wanted) == USUAL else ()
    return _layout(screen, width, (*wanted, *info))


@lru_cache(64)
def _layout(screen: int, width: int | None, wanted: tuple[str, ...]) -> tuple[tuple[ListColumn, int], ...]:
    chosen: dict[str, ListColumn] = {}
    for column in COLUMNS:
        if screen >= column.from_width and column.title in wanted:
            chosen.setdefault(column.title, column)
    left = max((width or screen) - sum(c.width + 1 for c in chosen.values()) - 1, 8)
    rest = {title: left for title, column in chosen.items() if not column.width}
    if len(rest) > 1:
        rest["Result"] = min(RESULT_WIDTH, left // 2)
        rest[INFO] = left - rest["Result"]
    return tuple((c, c.width or rest[title]) for title, c in chosen.items())
