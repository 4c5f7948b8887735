"""The compatibility report as a page (HTML, nothing from elsewhere) and as Markdown.

Client ids and software names are whatever a client sent: made visible, then escaped for where they stand.
"""

from __future__ import annotations

import re
from html import escape

from ...decoder.compat import ClientReport, ClientSeen, Reason, Report, Verdict
from ..times import moment
from ..tui.safe import visible

_MARKDOWN = re.compile(r"([\\`*_\[\]|~])")


def counted(found: Report) -> str:
    """``"2 break, 1 may break, 5 work"``"""
    breaks, may, work = (found.count(v) for v in (Verdict.BREAKS, Verdict.MAY_BREAK, Verdict.WORKS))
    return f"{breaks} break{'s' * (breaks == 1)}, {may} may break, {work} work{'s' * (work == 1)}"


def seen_when(client: ClientSeen) -> str:
    """When a client was there."""
    return f"from {moment(client.first_ns)} to {moment(client.last_ns)}"


def _software(client: ClientSeen) -> str:
    return visible(client.said) or (client.software.text if client.software else "not said")


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
        said = _code(client.said) if client.said else _md(_software(client))
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

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --bad: #c2241c; --open: #9a6700; --good: #1a7f37; }
@media (prefers-color-scheme: dark) { :root { --bad: #ff7b72; --open: #e3b341; --good: #56d364; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; }
th, td { text-align: left; padding: .3rem .7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td, li { overflow-wrap: anywhere; }
section { border: 1px solid var(--line); border-radius: .4rem; padding: 0 1rem .6rem; margin: 1rem 0; }
.verdict { font-weight: 600; white-space: nowrap; }
.breaks { color: var(--bad); } .may-break { color: var(--open); } .works { color: var(--good); }
.when { opacity: .75; font-size: .9em; }
""".strip()


def _html(text: str) -> str:
    return escape(visible(text))


def _mark(verdict: Verdict) -> str:
    return f'<span class="verdict {verdict.text.replace(" ", "-")}">{verdict.text}</span>'


def html(found: Report) -> str:
    """The report as one page: no scripts, nothing from elsewhere, readable in light and dark."""
    title = f"Clients against Kafka {_html(found.against.name)}"
    rows = "\n".join(_html_row(of) for of in found.clients)
    sections = "\n".join(_html_section(of) for of in found.clients if of.verdict or of.notes)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f'<meta name="viewport" content="width=device-width">\n<title>{title}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n'
        f"<body>\n<h1>{title}</h1>\n<p>{counted(found)}.</p>\n<table>\n<tr><th>verdict</th><th>client id</th>"
        "<th>software</th><th>address</th><th>requests</th><th>last seen</th></tr>\n"
        f"{rows}\n</table>\n{sections}\n</body>\n</html>\n"
    )


def _html_row(of: ClientReport) -> str:
    client = of.client
    cells = [client.client_id or "(none)", _software(client), client.host, str(client.requests), moment(client.last_ns)]
    return f"<tr><td>{_mark(of.verdict)}</td>" + "".join(f"<td>{_html(cell)}</td>" for cell in cells) + "</tr>"


def _html_section(of: ClientReport) -> str:
    items = [
        f"<li>{_mark(r.verdict)}: {_html(r.text)}"
        + (f' <span class="when">({often_when(r)})</span>' if r.use else "")
        + "</li>"
        for r in of.reasons
    ]
    items += [f"<li><b>remedy</b>: {_html(remedy)}</li>" for remedy in of.remedies]
    items += [f"<li>note: {_html(note)}</li>" for note in of.notes]
    name = _html(of.client.client_id or "(no client id)")
    return (
        f"<section>\n<h2>{name} {_mark(of.verdict)}</h2>\n<p>{_html(of.certainty)}. "
        f'<span class="when">{seen_when(of.client)}</span></p>\n<ul>\n' + "\n".join(items) + "\n</ul>\n</section>"
    )
