"""Print findings: in full with their evidence, or in one line. Plain text where there is no terminal.

Whatever comes from the traffic goes through `visible`: a client id cannot move the cursor.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ... import times
from ...safe import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from ....decoder import Exchange
    from ....decoder.findings import Finding

_STYLES = {"high": "bold red", "medium": "bold yellow", "low": "cyan", "info": "dim"}
_WIDEST = 120


def findings_console() -> Console:
    """Where findings are printed: with colours on a terminal, unless NO_COLOR is set; else without any style, and
    without breaking lines."""
    from rich.console import Console

    console = Console(highlight=False, emoji=False, markup=False, soft_wrap=True)
    if not console.is_terminal or os.environ.get("NO_COLOR"):
        console = Console(highlight=False, emoji=False, markup=False, soft_wrap=True, color_system=None)
    return console


def headline(findings: Iterable[Finding]) -> str:
    """One sentence about them, from the traffic in part; "" if none is above info."""
    from ....decoder.findings import summary

    return summary(findings, times.moment)


def severity_style(severity: str) -> str:
    """The style of a severity's name."""
    return _STYLES.get(severity, "")


def one_line(severity: str, id_: str, count: int, seen: str) -> Text:
    """``high  unsupported-version x12  what was seen``."""
    from rich.text import Text

    often = f" x{count}" if count > 1 else ""
    return Text.assemble((f"{visible(severity):6}", _STYLES.get(severity, "")), f" {visible(id_)}{often}: {visible(seen)}")


def indented(text: str, label: str = "", indent: int = 7) -> Text:
    """A further line about it."""
    from rich.text import Text

    return Text.assemble(" " * indent, (label, "dim"), visible(text))


def print_finding(console: Console, finding: Finding, opened: str | None = None) -> None:
    """In full. `opened`: the capture, to say how its evidence is opened and what its messages hold."""
    from rich.table import Table
    from rich.text import Text

    often = f"{finding.count} times" if finding.count > 1 else "once"
    head = Text.assemble(
        (f"{str(finding.severity).upper():6}", _STYLES[finding.severity]), " ", (visible(finding.id), "bold"), f"  {often}"
    )
    if finding.first_ns is not None:
        head.append(f"  {times.period(finding.first_ns, finding.last_ns)}", "dim")
    console.print(head)
    rows = [("seen", visible(finding.seen)), ("why", visible(finding.why)), ("do", visible(finding.remedy))]
    rows += [("" if i else "such as", line) for i, line in enumerate(evidence_lines(finding))]
    if finding.effects:
        rows.append(("causes", ", ".join(finding.effects)))
    if finding.done_by:
        rows.append(("rules", visible(finding.done_by)))
    if opened is not None and finding.exchanges:
        rows.append(("open", visible(how_to_open(opened, finding.exchanges))))
        rows += [("layout", command) for command in layout_commands(finding)]
    if not console.is_terminal:
        for label, text in rows:
            console.print(f"  {label:8}{text}")
    else:
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=9, justify="left", style="dim" if console.color_system else "")
        grid.add_column(overflow="fold", max_width=_WIDEST)
        for label, text in rows:
            grid.add_row(f"  {label}", Text(text))
        console.print(grid, soft_wrap=False)
    console.print()


def evidence_lines(finding: Finding) -> list[str]:
    """Its exchanges, one in each line, with their dates if they are of several days."""
    examples = list({id(exchange): exchange for exchange in finding.exchanges}.values())
    days = set(map(_day, examples)) | ({times.day(finding.first_ns)} if finding.first_ns is not None else set())
    return [evidence(exchange, len(days) > 1) for exchange in examples]


def layout_commands(finding: Finding) -> list[str]:
    """The commands that show the fields of its messages, one for each API and version that is known."""
    from ....decoder.schema import facts

    known = {
        (exchange.api_key, exchange.api_version): None
        for exchange in finding.exchanges
        if exchange.api_key in facts.api_keys() and exchange.api_version in facts.api(exchange.api_key).versions
    }
    return [f"barnabas schema show {facts.api_name(key)} {version}" for key, version in known]


def _began(exchange: Exchange) -> int | None:
    return exchange.request_time_ns if exchange.request_time_ns is not None else exchange.response_time_ns


def _day(exchange: Exchange) -> str:
    time_ns = _began(exchange)
    return "" if time_ns is None else times.day(time_ns)


def evidence(exchange: Exchange, dated: bool = False) -> str:
    """One exchange in one line: time (`dated`: with its date), connection, API, correlation id, client, error or state."""
    from ....decoder.schema.facts import error_name

    time_ns = _began(exchange)
    words = [
        "?" if time_ns is None else times.moment(time_ns, 3) if dated else times.clock(time_ns) + times.mark(),
        f"conn {exchange.connection}",
        f"{exchange.api or 'a response without request'} v{exchange.api_version}" if exchange.api_key >= 0 else "?",
        f"corr {exchange.correlation_id}",
    ]
    if exchange.client_id is not None:
        words.append(visible(repr(exchange.client_id)))
    error = exchange.error
    words.append(error_name(error) if error else str(exchange.state).replace("_", " "))
    return "  ".join(words)


def how_to_open(capture: str, exchanges: Iterable[Exchange]) -> str:
    """The command that shows the evidence on the first one's connection."""
    here = list(exchanges)
    ids = sorted({e.correlation_id for e in here if e.connection == here[0].connection})
    which = f"corr == {ids[0]}" if len(ids) == 1 else f"corr in {{{', '.join(map(str, ids))}}}"
    condition = f"conn == {here[0].connection} and {which}"
    return f"barnabas decode {shlex.quote(capture)} --filter {shlex.quote(condition)}"


def severity_counts(findings: Iterable[Finding]) -> dict[str, int]:
    """How many there are of each severity, the worst first."""
    from ....decoder.findings import Severity

    counts = {str(severity): 0 for severity in reversed(Severity)}
    for finding in findings:
        counts[finding.severity] += 1
    return counts
