"""``barnabas proxy``: stand between clients and a cluster."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from ...plugins.rules import Rule, RuleError, load
from ...proxy import Proxy, ProxyConfig, ProxyError, events
from .address import parse, show
from .failure import Failure

COUNTS_EVERY = 10.0


def proxy(
    broker: Annotated[str, typer.Option("--broker", help="A bootstrap broker, HOST:PORT.", metavar="HOST:PORT")],
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            help="Where clients connect. Brokers get the ports that follow; with port 0 all get free ones.",
            metavar="HOST:PORT",
        ),
    ] = "127.0.0.1:19092",
    record: Annotated[
        Path | None, typer.Option("--record", help="Record all traffic into this directory.", metavar="DIR")
    ] = None,
    rules: Annotated[
        Path | None, typer.Option("--rules", help="Rules that break traffic on purpose (YAML).", metavar="FILE")
    ] = None,
    lossless: Annotated[
        bool, typer.Option("--lossless", help="Slow traffic down rather than miss any of it in the recording.")
    ] = False,
    screen: Annotated[bool, typer.Option("--ui", help="Show the traffic on the screen (needs --record).")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print events as JSON, one object per line.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings only.")] = False,
) -> None:
    """Pass traffic between clients and a cluster, and see it.

    Point clients at the --listen address: every broker of the cluster gets a listener of its own, and the addresses
    in responses are rewritten, so that clients stay on this side. Ctrl-C stops it.
    """
    if screen and record is None:
        raise Failure("--ui shows what is recorded: add --record DIR")
    config = ProxyConfig(
        upstream=parse(broker, "--broker", port=9092),
        listen=parse(listen, "--listen"),
        record=_directory(record),
        rules=load_rules(rules),
        lossless=lossless,
    )
    running = Proxy(config)
    with stopping_on_signals():
        try:
            running.start()
        except ProxyError as error:
            raise Failure(str(error)) from None
        try:
            if screen:
                assert record is not None
                _screen(running, record)
            else:
                _lines(running, as_json, quiet)
        except KeyboardInterrupt:
            if not quiet:
                print(
                    "stopping: responses in flight are waited for, 5 s at most; Ctrl-C again cuts them", file=sys.stderr
                )
        finally:
            running.stop()
    for event in running.events():
        if not isinstance(event, events.Counts) and (event.warning or not quiet) and not screen:
            _print(event, as_json)
    if record is not None and not as_json and not quiet:
        print(f"recorded to {record}; look at it with: barnabas ui {record}")


def load_rules(path: Path | None) -> list[Rule]:
    """The rules of a file; Failure with file, line and column of what is wrong in it."""
    if path is None:
        return []
    try:
        return load(path)
    except RuleError as error:
        raise Failure(str(error)) from None
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror or error}") from None


def _directory(path: Path | None) -> Path | None:
    if path is not None:
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Failure(f"cannot record into {path}: {error.strerror or error}; give --record another DIR") from None
    return path


@contextmanager
def stopping_on_signals() -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does: in order."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _lines(running: Proxy, as_json: bool, quiet: bool) -> None:
    if not as_json and not quiet:
        print(f"clients: bootstrap.servers={show(running.address)}", flush=True)
    last, said = 0.0, None
    for event in running.events():
        if isinstance(event, events.Counts) and not as_json:
            moved = (event.exchanges, event.request_bytes, event.response_bytes, event.connections)
            if moved == said or time.monotonic() - last < COUNTS_EVERY:
                continue
            last, said = time.monotonic(), moved
        if event.warning or not quiet:
            _print(event, as_json)


def _print(event: events.Event, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"event": type(event).__name__, **asdict(event)}), flush=True)
    else:
        stamp = time.strftime("%H:%M:%S")
        print(
            f"{stamp} {'! ' if event.warning else ''}{event.text}",
            file=sys.stderr if event.warning else sys.stdout,
            flush=True,
        )


def _screen(running: Proxy, record: Path) -> None:
    from ..live import watch

    watch(running, record, title=f"bootstrap.servers={show(running.address)}")
