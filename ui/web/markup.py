"""Field trees and bytes as HTML: elements that fold without a script, every text escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from ..safe import visible
from ..tui.widgets.field_tree import Tree, TreeField

MOST_FIELDS = 5_000
"""Fields of one tree that are written."""
WINDOW = 4096
"""Bytes that are shown at once."""
_LINE = 16


def tree_html(tree: Tree) -> str:
    """The fields of a tree as nested ``<details>``. A field has its position in `data-field`."""
    if not tree.fields:
        return f"<p class=muted>{_text(tree.note)}</p>"
    parts: list[str] = ["<div class=tree>"]
    ends: list[int] = []
    at = 0
    while at < len(tree.fields):
        while ends and ends[-1] <= at:
            parts.append("</details>")
            ends.pop()
        if at >= MOST_FIELDS:
            parts.append(f"<div class=muted>{len(tree.fields) - at:,} more fields are not shown here: export the exchange as JSON</div>")
            break
        field = tree.headed(at)
        if field.later is not None:
            parts.append(f'<details data-later={at}><summary data-field={at}>{_words(field)}</summary><div class=muted>…</div></details>')
        elif field.below:
            parts.append(f"<details{'' if field.folded else ' open'}><summary data-field={at}>{_words(field)}</summary>")
            ends.append(at + 1 + field.below)
        else:
            parts.append(f"<div data-field={at}>{_words(field)}</div>")
        at += 1
    parts.extend("</details>" for _ in ends)
    return "".join([*parts, "</div>"])


def _words(field: TreeField) -> str:
    name = "error" if field.error else "muted" if field.name.startswith("[") else "name"
    value = f': <span class="{field.role}">{_text(field.value)}</span>' if field.value else ""
    return f"<span class={name}>{_text(field.name)}</span>{value}"


def hex_html(frame: bytes, hidden: Iterable[tuple[int, int]], span: tuple[int, int] | None) -> str:
    """A window of the bytes around `span`, which is marked. Hidden bytes are dots. A byte has its place in `data-byte`."""
    start = 0
    if span is not None and span[0] >= WINDOW // 2:
        start = (span[0] - WINDOW // 4) // _LINE * _LINE
    stop = min(start + WINDOW, len(frame))
    covered: set[int] = set()
    for low, high in hidden:
        covered.update(range(max(low, start), min(high, stop)))
    low, high = span or (-1, -1)
    lines = []
    for line in range(start, stop, _LINE):
        places = range(line, min(line + _LINE, stop))
        octets = "".join(
            f"<b data-byte={at}{' class=in' if low <= at < high else ''}>{'··' if at in covered else f'{frame[at]:02x}'}</b> " for at in places
        )
        letters = "".join("·" if at in covered else chr(frame[at]) if 32 <= frame[at] < 127 else "." for at in places)
        lines.append(f"<span class=muted>{line:06x}</span>  {octets}{'   ' * (_LINE - len(places))} {escape(letters)}")
    if start or stop < len(frame):
        lines.append(f"<span class=muted>bytes {start:,} to {stop:,} of {len(frame):,}</span>")
    return "\n".join(lines)


def _text(words: str) -> str:
    return escape(visible(words))
