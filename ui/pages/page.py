"""Pages from Jinja templates: everything escaped, nothing loaded, no scripts.

Jinja is the common template language of Python, and the templates beside this module are HTML that anybody can read. It escapes every value
(`autoescape`), after `visible` has made control characters harmless.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ..safe import visible
from .parts import Line, Section

if TYPE_CHECKING:
    import jinja2


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, ""),
        autoescape=True,
        finalize=_harmless,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = _code
    return environment


def _code(words: str) -> Markup:
    """Text of ours, in which backticks mark code."""
    return Markup(re.sub("`([^`]*)`", r"<code>\1</code>", text(words)))


def _harmless(value: Any) -> Any:
    """What stands in a template: HTML of ours as it is, text from anywhere without control characters."""
    return value if isinstance(value, Markup) else visible(str(value))


def render(template: str, **values: Any) -> str:
    """A page: the template of this name, which extends `page.html`, with these values."""
    return _environment().get_template(template).render(values)


def sections_page(
    title: str, sections: Sequence[Section], *, notes: Sequence[str] = (), overview: Sequence[Line] = (), tiles: Sequence[tuple[str, str]] = ()
) -> str:
    """A page of sections, under its title, notes, an overview, and numbers with what they are."""
    return render("sections.html", title=title, sections=sections, notes=notes, overview=overview, tiles=tiles)


def page(title: str, parts: Iterable[str], style: str = "") -> str:
    """A page with this title, of parts that are HTML. Class names: high, medium, low, breaks, may, works, dim, number, and those
    of `style`."""
    return render("any.html", title=title, parts=map(Markup, parts), more_style=Markup(style))


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
