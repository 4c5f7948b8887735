"""``barnabas replay``: send what a capture recorded to a broker again, and compare the answers."""

from __future__ import annotations

import json
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ....captures import NotACapture
from ....captures.export.text import json_visible
from ....captures.replay.dry_run import plan_of
from ....captures.replay.mapping import IdMapping, Names
from ....captures.replay.policy import Policy
from ....captures.replay.preparer import Preparer
from ....captures.replay.report import Report
from ....proxy.replay.dialing import DialFailed
from ....proxy.replay.session import Replay
from ....proxy.replay.settings import Order, Pace, Settings
from ....proxy.replay.target import TargetFailed
from ...safe import visible
from ..common.address import parse
from ..common.failure import Failure
from ..common.option_groups import with_option_groups
from ..protocol.filter import compiled
from ..proxy.options import BrokerTlsOptions, SaslOptions, tls_config
from .replay_text import planned_line, print_report, progress_line

_PLAN = "What is sent"
_NAMES = "Other names at the target"
_PACE = "When"


class FailOn(StrEnum):
    """What ends the command with status 1."""

    DIFFERENCES = "differences"


@with_option_groups
def replay(
    capture: Annotated[Path, typer.Argument(help="A segment, a directory of segments, or any pcap or pcapng file.")],
    to: Annotated[str, typer.Option("--to", help="A bootstrap broker of the target.", metavar="HOST:PORT")],
    speed: Annotated[
        str,
        typer.Option(
            "--speed", help="1x, 10x, 0.5x; max; or N/s, requests a second.", metavar="SPEED", rich_help_panel=_PACE
        ),
    ] = "1x",
    order: Annotated[
        Order,
        typer.Option(
            "--order",
            help="What a request waits for: all answers that were recorded before it; those of its connection; or only "
            "those that tell an id it needs.",
            rich_help_panel=_PACE,
        ),
    ] = Order.RECORDED,
    connections: Annotated[
        str,
        typer.Option("--connections", help="as-recorded, or a number.", metavar="N", rich_help_panel=_PACE),
    ] = "as-recorded",
    loop: Annotated[int, typer.Option("--loop", help="So many times in a row.", min=1, rich_help_panel=_PACE)] = 1,
    patience: Annotated[
        float,
        typer.Option("--patience", help="How long to wait for an answer, in seconds.", min=0.1, rich_help_panel=_PACE),
    ] = 10.0,
    filter_: Annotated[
        str | None,
        typer.Option(
            "--filter",
            help="Only requests that this is true of; see: barnabas filter fields.",
            metavar="FILTER",
            rich_help_panel=_PLAN,
        ),
    ] = None,
    include_admin: Annotated[
        bool, typer.Option("--include-admin", help="Also what alters or deletes.", rich_help_panel=_PLAN)
    ] = False,
    include_internal: Annotated[
        bool, typer.Option("--include-internal", help="Also what brokers say to each other.", rich_help_panel=_PLAN)
    ] = False,
    include_sasl: Annotated[
        bool, typer.Option("--include-sasl", help="Also logins as recorded (unless masked).", rich_help_panel=_PLAN)
    ] = False,
    include_refused: Annotated[
        bool,
        typer.Option(
            "--include-refused",
            help="Also what was refused of Produce requests and joins, and sent again by the client.",
            rich_help_panel=_PLAN,
        ),
    ] = False,
    create_topics: Annotated[
        bool, typer.Option("--create-topics", help="Make topics that the target lacks.", rich_help_panel=_PLAN)
    ] = False,
    topic_map: Annotated[
        list[str] | None, typer.Option("--topic-map", help="Topic A is B there.", metavar="A=B", rich_help_panel=_NAMES)
    ] = None,
    group_map: Annotated[
        list[str] | None, typer.Option("--group-map", help="Group A is B there.", metavar="A=B", rich_help_panel=_NAMES)
    ] = None,
    transactional_id_map: Annotated[
        list[str] | None,
        typer.Option("--transactional-id-map", help="Likewise.", metavar="A=B", rich_help_panel=_NAMES),
    ] = None,
    client_id_map: Annotated[
        list[str] | None, typer.Option("--client-id-map", help="Likewise.", metavar="A=B", rich_help_panel=_NAMES)
    ] = None,
    *,
    tls: BrokerTlsOptions,
    sasl: SaslOptions,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be sent, re-mapped and left out; connect to nobody.")
    ] = False,
    report: Annotated[
        Path | None, typer.Option("--report", help="Write the whole report as JSON.", metavar="FILE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report (or the plan) as JSON.")] = False,
    fail_on: Annotated[FailOn | None, typer.Option("--fail-on", help="End with status 1 when there are some.")] = None,
) -> None:
    """Send what a capture recorded to a broker again, and compare the answers with the recorded ones.

    Ids, epochs, offsets, sessions and versions are made the target's own. Logins are left out (the replay logs in by
    itself), and so is what alters or deletes. Ctrl-C ends it early, with a report.
    """
    wanted = None if filter_ is None else compiled(filter_)
    plan = Replay(
        capture=capture,
        to=parse(to, "--to", port=9092),
        names=Names(
            _pairs(topic_map, "--topic-map"),
            _pairs(group_map, "--group-map"),
            _pairs(transactional_id_map, "--transactional-id-map"),
            _pairs(client_id_map, "--client-id-map"),
        ),
        policy=Policy(include_admin, include_internal, include_sasl, include_refused),
        settings=Settings(pace_of(speed), order, _connections(connections), patience),
        wanted=None if wanted is None else wanted.__call__,
        create_topics=create_topics,
        rounds=loop,
        tls=tls_config(tls),
        sasl=sasl.config(),
    )
    try:
        if dry_run:
            _dry(plan, as_json)
            return
        found = plan.run(progress_line())
    except NotACapture as error:
        raise Failure(visible(str(error))) from None
    except FileNotFoundError:
        raise Failure(
            f"{visible(str(capture))} does not exist; recordings are made by: barnabas proxy --record DIR"
        ) from None
    except (TargetFailed, DialFailed) as error:
        raise Failure(visible(str(error))) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failure(f"{visible(str(capture))} cannot be read: {error.strerror or error}") from None
    _hand_over(found, report, as_json)
    if fail_on is FailOn.DIFFERENCES and found.count:
        raise typer.Exit(1)
    if found.interrupted:
        raise typer.Exit(130)


def _hand_over(found: Report, file: Path | None, as_json: bool) -> None:
    document = json_visible(json.dumps(found.to_dict(), ensure_ascii=False, default=str))
    if file is not None:
        from ....captures.export import written

        try:
            with written(file, force=True) as out:
                out.write(f"{document}\n".encode("utf-8", "replace"))
        except OSError as error:
            raise Failure(f"--report {file} cannot be written: {error.strerror or error}") from None
    if as_json:
        typer.echo(document)
    else:
        print_report(found)


def _dry(plan: Replay, as_json: bool) -> None:
    script = plan.script()
    mapping = IdMapping(plan.names, script.recorded)
    print("barnabas: versions as recorded: a dry run asks no broker which ones it offers", file=sys.stderr)
    for planned in plan_of(script, mapping, Preparer(mapping, None)):
        if as_json:
            exchange = planned.call.exchange
            row: dict[str, Any] = {
                "request": planned.call.number, "at_ms": planned.call.due_ns / 1e6, "connection": exchange.connection,
                "api": exchange.api, "version": exchange.api_version, "send_version": planned.version,
                "skipped": planned.why or None, "renamed": planned.renamed, "mapped": planned.mapped,
            }  # fmt: skip
            sys.stdout.write(json_visible(json.dumps(row, ensure_ascii=False)) + "\n")
        else:
            sys.stdout.write(visible(planned_line(planned)) + "\n")
    sys.stdout.flush()


def pace_of(text: str) -> Pace:
    """``1x``, ``max`` or ``500/s``; Failure for anything else."""
    if text == "max":
        return Pace(0.0)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(x|/s)", text)
    if not match or float(match[1]) <= 0:
        raise Failure(f"--speed {text!r} is none of 1x (or another factor), max, and N/s (requests a second)")
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
            raise Failure(f"{option} {text!r} is no A=B: the recorded name, and the name at the target")
        found[old] = new
    return found
