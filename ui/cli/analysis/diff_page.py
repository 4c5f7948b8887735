"""The page of ``barnabas diff --html``."""

from __future__ import annotations

from collections.abc import Callable

from ....captures.diff import Difference, Latency, Level, Report
from ..common.html_page import page, row, table, text


def html(report: Report, group: Callable[[Difference], str], everything: bool) -> str:
    """The page. `group` names what a difference is put under; `everything`: noise as well."""
    sides = []
    for letter, side in (("A", report.a), ("B", report.b)):
        errors = ", ".join(f"{count} {name}" for name, count in side.errors.most_common())
        counts = (str(count) for count in (side.exchanges, side.clients, side.connections))
        sides.append(row(f"{letter}: {text(side.name)}", *counts, text(errors)))
    parts = [
        f"<h1>{text(report.a.name)} and {text(report.b.name)}</h1>",
        table(("recording", "exchanges", "clients", "connections", "errors"), sides),
    ]
    if report.names:
        pairs = ", ".join(f"{text(b)} = {text(a)}" for b, a in sorted(report.names.items()))
        parts.append(f"<p class=dim>Names of B and what they are taken for in A: {pairs}")
    shown = report.above(Level.NOISE if everything else Level.LOW)
    groups: dict[str, list[Difference]] = {}
    for found in shown:
        groups.setdefault(group(found), []).append(found)
    for name, differences in groups.items():
        heads = ("level", "what", "A", "B", "times", "where", "numbers")
        parts.append(f"<h2>{text(name)}</h2>" + table(heads, map(_row, differences)))
    if not shown:
        parts.append("<p>No difference above what timing explains.")
    noise = len(report.differences) - len(report.above(Level.LOW))
    if noise and not everything:
        parts.append(f"<p class=dim>{noise} differences that timing explains are left out.")
    parts += [f"<p>{text(note)}" for note in report.notes]
    latencies = []
    for api in sorted({*report.a.apis, *report.b.apis}):
        cells: list[tuple[str, str]] = []
        for side in (report.a, report.b):
            latency = side.latencies.get(api, Latency())
            count = str(side.apis[api]) if api in side.apis else "-"
            cells += ((cell, "number") for cell in (count, _ms(latency.p50), _ms(latency.p99)))
        latencies.append(row(text(api), *cells))
    heads = ("API", "A", "p50 ms", "p99 ms", "B", "p50 ms", "p99 ms")
    return page("barnabas diff", [*parts, "<h2>Requests and latencies</h2>", table(heads, latencies)])


def _row(found: Difference) -> str:
    numbers = "; ".join(
        f"{letter} {', '.join(map(str, of))}" for letter, of in (("A", found.in_a), ("B", found.in_b)) if of
    )
    where = ", ".join(filter(None, (found.client, found.scope)))
    return row(
        (found.level.word, found.level.word),
        f"{text(found.api)} {text(found.what)}",
        text(found.a) or "-",
        text(found.b) or "-",
        (str(found.count), "number"),
        text(where),
        (numbers, "dim"),
    )


def _ms(ns: int | None) -> str:
    return "-" if ns is None else f"{ns / 1e6:.1f}"
