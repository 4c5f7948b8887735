"""The page of ``barnabas diff --html``: one file, everything escaped, nothing loaded from anywhere."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from ...captures.diffing import Difference, Latency, Level, Report
from ..tui.safe import visible

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #222; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .3rem .6rem; vertical-align: top; }
th { border-bottom: 2px solid #999; } td { border-bottom: 1px solid #ddd; overflow-wrap: anywhere; }
.high { color: #b00020; font-weight: bold; } .medium { color: #9a6700; font-weight: bold; } .low { color: #0a6175; }
.noise, .dim { color: #777; } td.number { text-align: right; white-space: nowrap; }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd; } td { border-color: #444; }
.high { color: #ff6b7d; } .medium { color: #e3b341; } .low { color: #56c2d6; } }
"""


def html(report: Report, group: Callable[[Difference], str], everything: bool) -> str:
    """The page. `group` names what a difference is put under; `everything`: noise as well."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>barnabas diff</title>",
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<style>{_STYLE}</style>",
        f"<h1>{_text(report.a.name)} and {_text(report.b.name)}</h1>",
        "<table><tr><th>recording<th>exchanges<th>clients<th>connections<th>errors",
    ]
    for letter, side in (("A", report.a), ("B", report.b)):
        errors = ", ".join(f"{count} {name}" for name, count in side.errors.most_common())
        parts.append(
            f"<tr><td>{letter}: {_text(side.name)}<td>{side.exchanges}<td>{side.clients}<td>{side.connections}<td>{_text(errors)}"
        )
    parts.append("</table>")
    if report.names:
        pairs = ", ".join(f"{_text(b)} = {_text(a)}" for b, a in sorted(report.names.items()))
        parts.append(f"<p class=dim>Names of B and what they are taken for in A: {pairs}")
    shown = report.above(Level.NOISE if everything else Level.LOW)
    groups: dict[str, list[Difference]] = {}
    for found in shown:
        groups.setdefault(group(found), []).append(found)
    for name, differences in groups.items():
        parts.append(f"<h2>{_text(name)}</h2><table><tr><th>level<th>what<th>A<th>B<th>times<th>where<th>numbers")
        parts += [_row(found) for found in differences]
        parts.append("</table>")
    if not shown:
        parts.append("<p>No difference above what timing explains.")
    noise = len(report.differences) - len(report.above(Level.LOW))
    if noise and not everything:
        parts.append(f"<p class=dim>{noise} differences that timing explains are left out.")
    parts += [f"<p>{_text(note)}" for note in report.notes]
    parts.append("<h2>Requests and latencies</h2><table><tr><th>API<th>A<th>p50 ms<th>p99 ms<th>B<th>p50 ms<th>p99 ms")
    for api in sorted({*report.a.apis, *report.b.apis}):
        cells = ""
        for side in (report.a, report.b):
            latency = side.latencies.get(api, Latency())
            count = str(side.apis[api]) if api in side.apis else "-"
            cells += "".join(f"<td class=number>{cell}" for cell in (count, _ms(latency.p50), _ms(latency.p99)))
        parts.append(f"<tr><td>{_text(api)}{cells}")
    parts.append("</table></html>")
    return "\n".join(parts) + "\n"


def _row(found: Difference) -> str:
    numbers = "; ".join(
        f"{letter} {', '.join(map(str, of))}" for letter, of in (("A", found.in_a), ("B", found.in_b)) if of
    )
    where = ", ".join(filter(None, (found.client, found.lane)))
    return (
        f"<tr><td class={found.level.word}>{found.level.word}<td>{_text(found.api)} {_text(found.what)}"
        f"<td>{_text(found.a) or '-'}<td>{_text(found.b) or '-'}<td class=number>{found.count}"
        f"<td>{_text(where)}<td class=dim>{numbers}"
    )


def _text(value: str) -> str:
    return escape(visible(value))


def _ms(ns: int | None) -> str:
    return "-" if ns is None else f"{ns / 1e6:.1f}"
