"""``barnabas serve``: answer clients from a recording instead of a cluster."""

from __future__ import annotations

import json
import signal
import sys
import threading
from dataclasses import asdict
from enum import StrEnum
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from ...safe import visible
from ..common.address import parse
from ..common.completion import choices
from ..common.failure import choice_of
from ..common.opening import cannot_read
from ..common.options import CapturePath, Quiet
from ..common.output import counted
from ..common.signals import stopping_on_signals

if TYPE_CHECKING:
    from ....proxy.serve import Served
    from ....proxy.serve.events import ServeEvent

_POLL_SECONDS = 0.2
_UNUSED_SHOWN = 20


class Timing(StrEnum):
    """When responses are sent."""

    NOW = "now"
    RECORDED = "recorded"


class OfferedRecords(StrEnum):
    """Which records are there that recorded clients produced."""

    PRODUCED = "produced"
    ALL = "all"


def serve(
    capture: CapturePath,
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            help="Where clients connect. More brokers get the following ports; with port 0, all get free ports.",
            metavar="HOST:PORT",
        ),
    ] = "127.0.0.1:19092",
    on_miss: Annotated[
        str,
        typer.Option(
            "--on-miss",
            help="What happens to a request without a recorded answer: fail = an error for the client, passthrough = a "
            "real broker answers it, record = the same, and it is added to the recording.",
            **choices("fail", "passthrough", "record"),
        ),
    ] = "fail",
    broker: Annotated[
        str | None, typer.Option("--broker", help="A bootstrap broker of the real cluster, for --on-miss.", metavar="HOST:PORT")
    ] = None,
    timing: Annotated[
        str,
        typer.Option(
            "--timing", help="now = answer immediately, recorded = answer after the recorded time.", **choices("now", "recorded")
        ),
    ] = "now",
    records: Annotated[
        str,
        typer.Option(
            "--records",
            help="Records that recorded clients produced: produced = available once they are produced again, all = "
            "available from the start (for consumers alone).",
            **choices("produced", "all"),
        ),
    ] = "produced",
    offer: Annotated[
        str,
        typer.Option(
            "--offer",
            help="The versions to offer to clients: recorded = those of the recorded broker, answerable = only "
            "what is in the recording.",
            **choices("recorded", "answerable"),
        ),
    ] = "recorded",
    contents: Annotated[
        str,
        typer.Option(
            "--contents",
            help="Whether to compare produced records with the recorded ones: check = report each whose key, value "
            "and headers match no recorded record of its topic.",
            **choices("ignore", "check"),
        ),
    ] = "ignore",
    all_used: Annotated[
        bool, typer.Option("--all-used", help="Also exit with status 1 if recorded answers were not used.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per event.")] = False,
    quiet: Quiet = False,
) -> None:
    """Answer clients from a recording, without a broker, so that a test recorded once can run offline.

    Ctrl-C stops it; the summary lists the recorded answers that were not used. Exit status 0, or 1 when requests had no recorded
    answer (misses), or records differed (--contents check), or 2 for errors.
    """
    from ....captures.serving import OfferMode
    from ....proxy.serve import Contents, OnMiss, Served
    from ....proxy.serve.config import ServeConfig

    config = ServeConfig(
        capture=capture,
        listen=parse(listen, "--listen"),
        on_miss=choice_of(OnMiss, on_miss, "--on-miss"),
        broker=None if broker is None else parse(broker, "--broker", port=9092),
        recorded_times=choice_of(Timing, timing, "--timing") is Timing.RECORDED,
        everything=choice_of(OfferedRecords, records, "--records") is OfferedRecords.ALL,
        offer=choice_of(OfferMode, offer, "--offer"),
        contents=choice_of(Contents, contents, "--contents"),
    )
    served = Served(config)
    with stopping_on_signals():
        try:
            with cannot_read(capture):
                served.start()
                stop_requested = _stop_event()
                while not stop_requested.is_set():
                    event = served.next_event(_POLL_SECONDS)
                    if event is not None:
                        _print(event, as_json, quiet)
        except KeyboardInterrupt:
            if not served.started:
                raise
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            served.stop()
    for event in served.events():
        _print(event, as_json, quiet)
    _print_summary(served, as_json, quiet)
    if served.misses or served.differences or (all_used and served.unused()):
        raise typer.Exit(1)


def _stop_event() -> threading.Event:
    """Set by Ctrl-C and SIGTERM from now on: an exception could come when an event is taken and not yet printed. A second
    Ctrl-C interrupts at once."""
    stop_requested = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stop_requested.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    return stop_requested


def _print(event: ServeEvent, as_json: bool, quiet: bool) -> None:
    if as_json:
        print(json.dumps({"event": _kind(event), "text": event.text, **asdict(event)}), flush=True)
    elif event.warning:
        print(f"barnabas: {visible(event.text)}", file=sys.stderr, flush=True)
    elif not quiet:
        print(visible(event.text), flush=True)


def _kind(event: ServeEvent) -> str:
    return "".join("_" + c.lower() if c.isupper() else c for c in type(event).__name__).lstrip("_")


def _print_summary(served: Served, as_json: bool, quiet: bool) -> None:
    if as_json:
        print(json.dumps({"event": "summary", **asdict(served.summary())}), flush=True)
    elif not quiet:
        for line in summary_lines(served):
            print(visible(line))


def summary_lines(served: Served) -> list[str]:
    """The summary at the end."""
    summary, unused = served.summary(), served.unused()
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(summary.by_kind.items()))
    lines = [counted(summary.answers, 'answer') + (f": {kinds}" if kinds else "")]
    if unused:
        lines.append("recorded, but not used:")
        lines += [f"  {each.text}" for each in unused[:_UNUSED_SHOWN]]
        if len(unused) > _UNUSED_SHOWN:
            lines.append(f"  and {len(unused) - _UNUSED_SHOWN} more (--json lists all)")
    if served.differences:
        lines.append(f"{counted(len(served.differences), 'record')} different from the recorded ones")
    total = len(served.misses)
    lines.append(
        f"{total} miss{'es' * (total != 1)}" + (": " + ", ".join(f"{n} {api}" for api, n in summary.misses.items()) if total else "")
    )
    return lines
