"""HTML reports: one file, everything escaped, no scripts, no external resources, light and dark."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from ...safe import visible

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --dim: #777; --bad: #b00020; --open: #9a6700; --good: #1a7f37; --low: #0a6175; }
@media (prefers-color-scheme: dark) { :root { --bad: #ff6b7d; --open: #e3b341; --good: #56d364; --low: #56c2d6; } }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; display: block; overflow-x: auto; }
th, td { text-align: left; padding: .3rem .6rem; vertical-align: top; }
th { border-bottom: 2px solid #999; } td { border-bottom: 1px solid var(--line); } td, li { overflow-wrap: anywhere; }
td.number { text-align: right; white-space: nowrap; } .dim, .noise { color: var(--dim); }
.high, .breaks { color: var(--bad); font-weight: 600; } .medium, .may { color: var(--open); font-weight: 600; }
.low { color: var(--low); } .works { color: var(--good); font-weight: 600; }
svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: var(--dim); }
section { border: 1px solid var(--line); border-radius: .4rem; padding: 0 1rem .6rem; margin: 1rem 0; }
"""


def page(title: str, parts: Iterable[str], style: str = "") -> str:
    """A page with this title, of parts that are HTML. Class names: high, medium, low, breaks, may, works, dim, number, and those
    of `style`."""
    return "\n".join((
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width">',
        f"<title>{text(title)}</title>\n<style>{_STYLE}{style}</style>",
        *parts,
        "</html>\n",
    ))  # fmt: skip


def text(value: str) -> str:
    """Text that came from anywhere, made visible and escaped."""
    return escape(visible(value))


def table(heads: Iterable[str], rows: Iterable[str]) -> str:
    """A table: its headings as text, its rows as `row` makes them."""
    return "<table><tr>" + "".join(f"<th>{text(head)}</th>" for head in heads) + "</tr>\n" + "\n".join(rows) + "</table>"


def row(*cells: str | tuple[str, str]) -> str:
    """A row of a table: cells that are HTML, each perhaps with its class."""
    pairs = ((cell, "") if isinstance(cell, str) else cell for cell in cells)
    return "<tr>" + "".join(f"<td class={kind}>{cell}</td>" if kind else f"<td>{cell}</td>" for cell, kind in pairs) + "</tr>"
