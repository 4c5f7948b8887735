"""``barnabas replay``: send recorded requests to a broker again, and compare the responses."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ....proxy.replay.settings import Order
from ...safe import visible
from ..common.address import parse
from ..common.completion import filter_words
from ..common.existing import Force, refuse_existing, write_text
from ..common.failure import Failure
from ..common.opening import cannot_read
from ..common.option_groups import option, with_option_groups
from ..common.options import CapturePath
from ..common.output import counted, json_text, warn
from ..protocol.filter import compiled
from ..proxy.options import BrokerTlsOptions, SaslOptions, tls_config

if TYPE_CHECKING:
    from ....captures.replay.dry_run import PlannedRequest, PlanSummary
    from ....captures.replay.mapping import NameMap
    from ....captures.replay.policy import Policy
    from ....captures.replay.report import ReplayReport
    from ....proxy.replay.player import Player
    from ....proxy.replay.session import Replay
    from ....proxy.replay.settings import Pace, Settings

_ERASE = "\r\x1b[K"
_EXAMPLES = 20
_IN_MEMORY = 64 << 20
"""Bytes of a plan that are kept in memory until its first line is known."""


class FailOnResult(StrEnum):
    """What ends the command with status 1."""

    DIFFERENCES = "differences"


@dataclass(frozen=True, slots=True)
class PaceOptions:
    """When requests are sent."""

    PANEL = "When"

    speed: Annotated[str, option("1x, 10x, 0.5x; max; or N/s, requests per second.", "SPEED", show_default=True)] = "1x"
    order: Annotated[
        Order,
        option(
            "What a request waits for: all answers recorded before it; those of its connection; or only those with "
            "an id it needs.",
            show_default=True,
        ),
    ] = Order.RECORDED
    connections: Annotated[str, option("How many connections: as-recorded, or a number.", "as-recorded|N", show_default=True)] = "as-recorded"
    loop: Annotated[int, option("Replay this many times in a row.", "N", min=1, show_default=True)] = 1
    patience: Annotated[float, option("How long to wait for an answer, in seconds.", "SECONDS", min=0.1, show_default=True)] = 10.0

    def settings(self) -> Settings:
        """Failure for a speed or a number that makes no sense."""
        from ....proxy.replay.settings import Settings

        return Settings(pace_of(self.speed), self.order, _connections(self.connections), self.patience)


@dataclass(frozen=True, slots=True)
class SelectionOptions:
    """Which requests are sent."""

    PANEL = "What is sent"

    filter: Annotated[str | None, option(
        "Only exchanges that match this filter; see: barnabas filter fields.", "FILTER", autocompletion=filter_words
    )] = None
    include_admin: Annotated[bool, option("Also send requests that alter or delete.")] = False
    include_internal: Annotated[bool, option("Also send requests between brokers.")] = False
    include_sasl: Annotated[bool, option("Also send logins as recorded (unless masked).")] = False
    include_refused: Annotated[
        bool, option("Also send refused parts of Produce requests and refused joins, which the client sent again itself.")
    ] = False
    create_topics: Annotated[bool, option("Create topics that the target lacks.")] = False

    def policy(self) -> Policy:
        """The extra requests to send."""
        from ....captures.replay.policy import Policy

        return Policy(self.include_admin, self.include_internal, self.include_sasl, self.include_refused)


@dataclass(frozen=True, slots=True)
class NameOptions:
    """Names at the target."""

    PANEL = "Other names at the target"

    topic_map: Annotated[list[str] | None, option("Topic A is called B at the target.", "A=B")] = None
    group_map: Annotated[list[str] | None, option("Group A is called B at the target.", "A=B")] = None
    transactional_id_map: Annotated[list[str] | None, option("Transactional id A is called B at the target.", "A=B")] = None
    client_id_map: Annotated[list[str] | None, option("Client id A is called B at the target.", "A=B")] = None

    def names(self) -> NameMap:
        """Parse the pairs. Raises Failure."""
        from ....captures.replay.mapping import NameMap

        return NameMap(
            _pairs(self.topic_map, "--topic-map"),
            _pairs(self.group_map, "--group-map"),
            _pairs(self.transactional_id_map, "--transactional-id-map"),
            _pairs(self.client_id_map, "--client-id-map"),
        )


@with_option_groups
def replay(
    capture: CapturePath,
    broker: Annotated[str, typer.Option("--broker", help="A bootstrap broker of the target cluster.", metavar="HOST:PORT")],
    pace: PaceOptions,
    selection: SelectionOptions,
    names: NameOptions,
    tls: BrokerTlsOptions,
    sasl: SaslOptions,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be sent, mapped and left out; connect to nothing.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the whole report as JSON into this file.", metavar="PATH")
    ] = None,
    force: Force = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, the report; with --dry-run a summary, then one per request.")] = False,
    fail_on: Annotated[FailOnResult | None, typer.Option("--fail-on", help="Exit with status 1 if there are differences.")] = None,
) -> None:
    """Send recorded requests to a broker again, and compare its answers with the recorded ones.

    Ids, epochs, offsets, sessions and versions are adapted to the target. Logins are left out (the replay logs in
    by itself), as are requests that alter or delete. Ctrl-C stops it early, with a report.
    """
    from ....proxy.replay.session import Replay

    refuse_existing(output, force, "--output")
    wanted = None if selection.filter is None else compiled(selection.filter)
    plan = Replay(
        capture=capture,
        to=parse(broker, "--broker", port=9092),
        names=names.names(),
        policy=selection.policy(),
        settings=pace.settings(),
        wanted=None if wanted is None else wanted.__call__,
        create_topics=selection.create_topics,
        rounds=pace.loop,
        tls=tls_config(tls),
        sasl=sasl.config(),
    )
    with cannot_read(capture):
        if dry_run:
            _dry_run(plan, as_json)
            return
        found = plan.run(progress_line())
    _output(found, output, as_json)
    if fail_on is FailOnResult.DIFFERENCES and found.count:
        raise typer.Exit(1)
    if found.interrupted:
        raise typer.Exit(130)


def _output(found: ReplayReport, file: Path | None, as_json: bool) -> None:
    document = json_text(found.to_dict())
    if file is not None:
        write_text(file, f"{document}\n", "--output")
    if as_json:
        typer.echo(document)
    else:
        print_report(found)


def _dry_run(plan: Replay, as_json: bool) -> None:
    import shutil
    import tempfile

    from ....captures.replay.dry_run import PlanSummary, planned_requests
    from ....captures.replay.mapping import IdMapping
    from ....captures.replay.preparer import Preparer

    script = plan.script()
    mapping = IdMapping(plan.names, script.recorded)
    warn(["versions are as recorded: a dry run does not ask the brokers which ones they offer"])
    summary = PlanSummary()
    with tempfile.SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="utf-8", errors="surrogatepass") as lines:
        for planned in planned_requests(script, mapping, Preparer(mapping, None)):
            summary.take(planned)
            lines.write((json_text(_planned_row(planned)) if as_json else visible(planned_line(planned))) + "\n")
        lines.seek(0)
        sys.stdout.write((json_text(_plan_row(plan, summary)) if as_json else plan_line(plan, summary)) + "\n")
        shutil.copyfileobj(lines, sys.stdout)
    sys.stdout.flush()


def _planned_row(planned: PlannedRequest) -> dict[str, Any]:
    exchange = planned.call.exchange
    return {
        "request": planned.call.number, "at_ns": planned.call.due_ns, "connection": exchange.connection,
        "api": exchange.api, "api_version": exchange.api_version, "send_version": planned.version,
        "skipped": planned.why or None, "renamed": planned.renamed, "mapped": planned.mapped,
    }  # fmt: skip


def _plan_row(plan: Replay, summary: PlanSummary) -> dict[str, Any]:
    from ....proxy.events import show

    return {
        "requests": summary.requests, "left_out": summary.left_out, "clients": len(summary.clients),
        "connections": len(summary.connections), "broker": show(plan.to), "seconds": _seconds(plan, summary), "rounds": plan.rounds,
    }  # fmt: skip


def _seconds(plan: Replay, summary: PlanSummary) -> float | None:
    """When the last request is due; None for as fast as possible."""
    pace = plan.settings.pace
    return pace.due(summary.last_ns, max(summary.requests - 1, 0)) / 1e9 if pace.factor or pace.rate else None


def pace_of(text: str) -> Pace:
    """``1x``, ``max`` or ``500/s``; Failure for anything else."""
    from ....proxy.replay.settings import Pace

    if text == "max":
        return Pace(0.0)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(x|/s)", text)
    if not match or float(match[1]) <= 0:
        raise Failure(f"--speed {text!r} is not 1x (or another factor), max, or N/s (requests per second)")
    return Pace(float(match[1])) if match[2] == "x" else Pace(0.0, float(match[1]))


def _connections(text: str) -> int:
    if text == "as-recorded":
        return 0
    if not text.isdecimal() or not 0 < int(text) <= 10_000:
        raise Failure(f"--connections {text!r} is neither as-recorded nor a number from 1 to 10000")
    return int(text)


def _pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    found = {}
    for text in texts or ():
        old, equals, new = text.partition("=")
        if not equals or not old or not new:
            raise Failure(f"{option} {text!r} is not A=B: the recorded name and the name at the target")
        found[old] = new
    return found


# --- in words ----------------------------------------------------------------------------------------------


def plan_line(plan: Replay, summary: PlanSummary) -> str:
    """``would send 90 requests of 2 clients on 4 connections to kafka:9092 in 12.3 s, 3 times; 7 left out``."""
    from ....proxy.events import show

    seconds = _seconds(plan, summary)
    time_ = "as fast as responses arrive" if seconds is None else f"in {seconds:.1f} s"
    rounds = f", {plan.rounds} times" if plan.rounds > 1 else ""
    left_out = f"; {summary.left_out} left out" if summary.left_out else ""
    return (
        f"would send {counted(summary.requests, 'request')} of {counted(len(summary.clients), 'client')} on "
        f"{counted(len(summary.connections), 'connection')} to {show(plan.to)} {time_}{rounds}{left_out}"
    )


def planned_line(planned: PlannedRequest) -> str:
    """``12.3 ms  conn 4  Produce v9  as v11; producer id``."""
    exchange = planned.call.exchange
    head = f"{planned.call.due_ns / 1e6:10.1f} ms  conn {exchange.connection:<4} {exchange.api} v{exchange.api_version}"
    if planned.version is None:
        return f"{head}  left out: {planned.why}"
    changes = [] if planned.version == exchange.api_version else [f"as v{planned.version}"]
    changes += planned.renamed
    if planned.mapped:
        changes.append("the target's " + ", ".join(planned.mapped))
    return f"{head}  {'; '.join(changes)}" if changes else head


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
            f"{_ERASE}{now - begun:.0f} s: {report.sent} sent, {report.answered} answered, {counted(report.count, 'difference')}",
            end="", file=sys.stderr, flush=True,
        )  # fmt: skip

    return tick


def print_report(report: ReplayReport) -> None:
    """The summary, then differences with examples, then what was left out."""
    if sys.stderr.isatty():
        print(_ERASE, end="", file=sys.stderr, flush=True)
    document, echo = report.to_dict(), typer.echo
    ended = " (ended early)" if report.interrupted else ""
    echo(
        f"{counted(report.sent, 'request')} sent in {report.seconds:.1f} s ({document['requests_per_second']:.0f}/s), "
        f"{report.answered} answered{ended}"
    )
    if document["timing_error_ms"]:
        timing = document["timing_error_ms"]
        held = f"; {report.held_back} waited for responses of the target" if report.held_back else ""
        echo(f"delay in sending: median {timing['p50']} ms, 99 % {timing['p99']} ms, maximum {timing['max']} ms{held}")
    echo(f"{counted(report.equal, 'answer')} as recorded, {counted(report.count, 'difference')}")
    _table("Differences, by field", report.different)
    _table("Failures", report.failed)
    for example in report.differences[:_EXAMPLES]:
        where = f"request {example['request']}, " if "request" in example else ""
        echo(
            visible(
                f"  {where}{example['api']} {example['path']}: recorded {_short(example['recorded'])}, "
                f"got {_short(example['got'])}"
            )
        )
    if len(report.differences) > _EXAMPLES:
        echo(f"  ... {len(report.differences) - _EXAMPLES} more with --output FILE")
    _table("Left out", report.skipped)
    _table("In other versions", report.versions)
    _table("Notes", report.notes)
    _latencies(document["latency"])
    warn(report.warnings)


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
