"""A replay in words: its plan, how far it is, and what it found. Everything from traffic goes through `visible`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import typer

from ....captures.replay.dry_run import PlannedRequest
from ....captures.replay.report import Report
from ....proxy.replay.player import Player
from ...safe import visible

_ERASE = "\r\x1b[K"
_EXAMPLES = 20


def planned_line(planned: PlannedRequest) -> str:
    """``12.3 ms  conn 4  Produce v9  as v11; producer id``."""
    exchange = planned.call.exchange
    head = f"{planned.call.due_ns / 1e6:10.1f} ms  conn {exchange.connection:<4} {exchange.api} v{exchange.api_version}"
    if planned.version is None:
        return f"{head}  left out: {planned.why}"
    said = [] if planned.version == exchange.api_version else [f"as v{planned.version}"]
    said += planned.renamed
    if planned.mapped:
        said.append("the target's " + ", ".join(planned.mapped))
    return f"{head}  {'; '.join(said)}" if said else head


def progress_line() -> Callable[[Player], None]:
    """Shows how far a replay is, on a terminal, twice a second."""
    shown = 0.0
    terminal = sys.stderr.isatty()
    begun = time.monotonic()

    def tick(player: Player) -> None:
        nonlocal shown
        now = time.monotonic()
        if not terminal or now - shown < 0.5:
            return
        shown = now
        report = player.report
        print(
            f"{_ERASE}{now - begun:.0f} s: {report.sent} sent, {report.answered} answered, {report.count} differences",
            end="", file=sys.stderr, flush=True,
        )  # fmt: skip

    return tick


def print_report(report: Report) -> None:
    """The summary, then differences with examples, then what was left out."""
    if sys.stderr.isatty():
        print(_ERASE, end="", file=sys.stderr, flush=True)
    told = report.to_dict()
    say = typer.echo
    ended = " (ended early)" if report.interrupted else ""
    say(
        f"{report.sent} requests sent in {report.seconds:.1f} s ({told['requests_per_second']:.0f}/s), "
        f"{report.answered} answered{ended}"
    )
    if told["timing_error_ms"]:
        timing = told["timing_error_ms"]
        held = f"; {report.held_back} waited for answers of the target" if report.held_back else ""
        say(f"sent late by: median {timing['p50']} ms, 99 % {timing['p99']} ms, most {timing['max']} ms{held}")
    say(f"{report.equal} answers as recorded, {report.count} differences")
    _table("Differences, by field", report.different)
    _table("Failures", report.failed)
    for example in report.differences[:_EXAMPLES]:
        where = f"request {example['request']}, " if "request" in example else ""
        say(
            visible(
                f"  {where}{example['api']} {example['path']}: recorded {_short(example['recorded'])}, "
                f"got {_short(example['got'])}"
            )
        )
    if len(report.differences) > _EXAMPLES:
        say(f"  ... {len(report.differences) - _EXAMPLES} more with --report FILE")
    _table("Left out", report.skipped)
    _table("At other versions", report.versions)
    _table("Worth knowing", report.notes)
    _latencies(told["latency"])
    for warning in report.warnings:
        print(f"barnabas: {visible(warning)}", file=sys.stderr)


def _table(title: str, rows: dict[str, int]) -> None:
    if rows:
        typer.echo(f"{title}:")
        for what, count in sorted(rows.items(), key=lambda item: -item[1]):
            typer.echo(f"  {count:>7}  {visible(what)}")


def _latencies(rows: dict[str, Any]) -> None:
    if not rows:
        return
    width = max(len(name) for name in rows)
    typer.echo(f"{'Latency (ms)':{width + 2}}  recorded: median      99 %   replayed: median      99 %")
    for name, row in rows.items():
        sides = [row[side] for side in ("recorded_ms", "replayed_ms")]
        cells = [(f"{side['p50']:.2f}", f"{side['p99']:.2f}") if side else ("-", "-") for side in sides]
        typer.echo(f"  {name:{width}}  {cells[0][0]:>16}{cells[0][1]:>10}{cells[1][0]:>19}{cells[1][1]:>10}")


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 100 else text[:97] + "..."
