"""The compatibility report as a page (HTML) and as Markdown.

Client ids and software names are whatever a client sent: made visible, then escaped for where they stand.
"""

from __future__ import annotations

import re

from ....decoder.compat import ClientReport, ObservedClient, Reason, Report, Verdict
from ...safe import visible
from ...times import moment
from ..common.html_page import page, row, table, text

_MARKDOWN = re.compile(r"([\\`*_\[\]|~])")


def counted(found: Report) -> str:
    """``"2 break, 1 may break, 5 work"``"""
    breaks, may, work = (found.count(v) for v in (Verdict.BREAKS, Verdict.MAY_BREAK, Verdict.WORKS))
    return f"{breaks} break{'s' * (breaks == 1)}, {may} may break, {work} work{'s' * (work == 1)}"


def seen_when(client: ObservedClient) -> str:
    """When a client was there."""
    return f"from {moment(client.first_ns)} to {moment(client.last_ns)}"


def _software(client: ObservedClient) -> str:
    return visible(client.software_label) or (client.software.text if client.software else "not said")


def often_when(reason: Reason) -> str:
    """``"3 requests, 1 refused, from ... to ..."``"""
    use = reason.use
    if use is None:
        return ""
    refused = f", {use.refused} refused" if use.refused else ""
    return f"{use.count} request{'s' * (use.count != 1)}{refused}, from {moment(use.first_ns)} to {moment(use.last_ns)}"


# --- Markdown ----------------------------------------------------------------------------------------------


def _md(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", visible(text)).replace("&", "&amp;").replace("<", "&lt;")


def _code(text: str) -> str:
    """What a client sent, as a code span: trackers make no links and mentions of it."""
    return "`" + visible(text).replace("`", "'").replace("|", "\\|") + "`"


def markdown(found: Report) -> str:
    """The report for a ticket: a table of the clients, and a section for each that does not simply work."""
    lines = [f"# Clients against Kafka {found.against.name}", "", f"{counted(found)}.", ""]
    lines += ["| verdict | client id | software | address | requests | last seen |", "|---|---|---|---|---|---|"]
    for of in found.clients:
        client = of.client
        said = _code(client.software_label) if client.software_label else _md(_software(client))
        cells = [of.verdict.text, _code(client.client_id) if client.client_id else "(none)", said, _md(client.host)]
        cells += [str(client.requests), moment(client.last_ns)]
        lines.append("| " + " | ".join(cells) + " |")
    for of in found.clients:
        if of.verdict is Verdict.WORKS and not of.notes:
            continue
        name = _code(of.client.client_id) if of.client.client_id else "(no client id)"
        lines += ["", f"## {of.verdict.text}: {name}", "", f"{_md(of.certainty)}.", ""]
        lines += [
            f"- **{r.verdict.text}**: {_md(r.text)}" + (f" ({often_when(r)})" if r.use else "") for r in of.reasons
        ]
        lines += [f"- remedy: {_md(remedy)}" for remedy in of.remedies]
        lines += [f"- note: {_md(note)}" for note in of.notes]
    return "\n".join(lines) + "\n"


# --- HTML --------------------------------------------------------------------------------------------------


def _mark(verdict: Verdict) -> str:
    return f'<span class="{verdict.text.split()[0]}">{verdict.text}</span>'


def html(found: Report) -> str:
    """The report as one page."""
    title = f"Clients against Kafka {found.against.name}"
    heads = ("verdict", "client id", "software", "address", "requests", "last seen")
    sections = (_html_section(of) for of in found.clients if of.verdict or of.notes)
    clients = table(heads, map(_html_row, found.clients))
    return page(title, [f"<h1>{text(title)}</h1>\n<p>{counted(found)}.</p>", clients, *sections])


def _html_row(of: ClientReport) -> str:
    client = of.client
    cells = [client.client_id or "(none)", _software(client), client.host, str(client.requests), moment(client.last_ns)]
    return row(_mark(of.verdict), *map(text, cells))


def _html_section(of: ClientReport) -> str:
    items = [
        f"<li>{_mark(r.verdict)}: {text(r.text)}" + (f" <span class=dim>({often_when(r)})</span>" if r.use else "")
        for r in of.reasons
    ]
    items += [f"<li><b>remedy</b>: {text(remedy)}" for remedy in of.remedies]
    items += [f"<li>note: {text(note)}" for note in of.notes]
    name = text(of.client.client_id or "(no client id)")
    return (
        f"<section>\n<h2>{name} {_mark(of.verdict)}</h2>\n<p>{text(of.certainty)}. "
        f"<span class=dim>{seen_when(of.client)}</span></p>\n<ul>\n" + "\n".join(items) + "\n</ul>\n</section>"
    )
