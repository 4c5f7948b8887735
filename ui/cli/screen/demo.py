"""``barnabas demo``: an embedded cluster, clients, and the proxy between them."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ....errors import install
from ..common.failure import Failure, make_directory
from ..common.options import Seconds
from ..common.output import counted
from ..common.signals import stopping_on_signals

if TYPE_CHECKING:
    from ....plugins.rules.rules import Rule
    from ....proxy import Proxy
    from ....proxy.control import Control
    from ....proxy.events import FindingSeen
    from ...demo.child import ChildProcess
    from ...live import EventListener

BROKERS = 3
PATIENCE, HEADLESS_PATIENCE = 1.2, 12.0
"""Seconds that the clients have to leave: somebody at a terminal waits, a script wants their counts."""
DRAIN = 0.5
"""Seconds that the proxy waits for responses in flight, after the clients."""


def demo(
    headless: Annotated[
        bool, typer.Option("--headless", help="Show a live table instead of the screen. Needs no terminal.")
    ] = False,
    seconds: Seconds = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", help="Record into this directory (default ./recordings/demo-TIME).", metavar="DIR"),
    ] = None,
) -> None:
    """Start three mock brokers, the proxy in front of them and real clients; show, record and break the traffic.

    One rule answers three Produce requests with NOT_LEADER_OR_FOLLOWER: look for them, and for the producer's retry.
    """
    missing = [name for name in ("confluent_kafka", "aiokafka") if importlib.util.find_spec(name) is None]
    if missing:
        raise Failure(f"the demo needs {' and '.join(missing)}: {install('demo')}")
    directory = record or Path("recordings") / f"demo-{datetime.now():%Y%m%d-%H%M%S}"
    make_directory(directory)
    from ...tui.app import on_terminal

    with stopping_on_signals():
        _run(directory, headless or not on_terminal(), seconds)


def _run(directory: Path, headless: bool, seconds: float | None) -> None:
    from ....proxy import Proxy, ProxyConfig, ProxyError
    from ....proxy.control import Control, ControlConfig
    from ....proxy.events import show
    from ...demo.child import ChildFailed, ChildProcess
    from ...demo.table import LiveTable
    from ...live import EventListener, open_when_started, show_live
    from ..common.address import parse

    print(f"starting {BROKERS} mock brokers ...", flush=True)
    cluster = ChildProcess("cluster", str(BROKERS))
    traffic: ChildProcess | None = None
    proxy: Proxy | None = None
    watch: EventListener | None = None
    clients: dict[str, int] = {}
    try:
        upstream = parse(cluster.line(30)["bootstrap"], "bootstrap")
        # The proxy looks for problems while the traffic runs, so that the summary has them at once.
        config = ProxyConfig(
            upstream=upstream, record=directory, rules=[_rule()], findings=True,
            control=None if headless else ControlConfig(), drain_seconds=DRAIN,
        )  # fmt: skip
        proxy = Proxy(config).start()
        watch = EventListener(proxy)
        print(f"brokers at {show(upstream)}; clients use bootstrap.servers={show(proxy.address)}", flush=True)
        traffic = ChildProcess("traffic", show(proxy.address))
        if headless:
            with open_when_started(directory) as capture:
                LiveTable(capture, watch.status).run(seconds)
        else:
            title = f"demo  bootstrap.servers={show(proxy.address)}  REC {directory}"
            show_live(proxy, directory, title=title, allow_edit=True, seconds=seconds, listener=watch)
    except KeyboardInterrupt:
        pass
    except (ChildFailed, ProxyError) as error:
        raise Failure(f"the demo could not start: {error}") from None
    finally:
        print("stopping the clients ...", flush=True)
        if proxy is not None and proxy.control is not None:
            _switch_rules_off(Control(proxy.control.access.url, proxy.control.access.token))
        clients = _end(traffic, HEADLESS_PATIENCE if headless else PATIENCE)
        if proxy is not None:
            proxy.stop()
        cluster.stop(0.1)
    _summary(directory, watch, clients)


def _rule() -> Rule:
    """What the demonstration breaks on purpose."""
    from ....plugins.rules.rules import Rule
    from ...demo.traffic import TOPIC

    return Rule.of(
        f"api == Produce and topic == {TOPIC}",
        {"error": "NOT_LEADER_OR_FOLLOWER"},
        name="leader moved",
        when={"after": 20, "times": 3},
    )


def _switch_rules_off(control: Control) -> None:
    """So that no rule keeps the clients from leaving."""
    from ....proxy.control import ControlError

    with suppress(ControlError):  # the proxy has ended
        for rule in control.rules():
            control.enable_rule(rule["name"], False)


def _end(traffic: ChildProcess | None, patience: float) -> dict[str, int]:
    """Stop the clients. Returns what they counted, if they leave within `patience` seconds."""
    from ...demo.child import ChildFailed

    if traffic is None:
        return {}
    try:
        traffic.close_input()
        return traffic.line(patience)
    except ChildFailed:
        return {}
    finally:
        traffic.stop(0.1)


def _summary(directory: Path, watch: EventListener | None, clients: dict[str, int]) -> None:
    from ....captures import open_capture
    from ....decoder.findings import Severity
    from ...demo.table import TrafficTable
    from ..analysis.finding_lines import findings_console, indented, one_line

    traffic = TrafficTable()
    with open_capture(directory) as capture:
        traffic.read(capture)
    print()
    traffic.print()
    counts = f"{counted(traffic.requests, 'exchange')}, {traffic.errors} with an error code, {traffic.undecoded} undecoded"
    print(f"\n{counts}", end="")
    found: list[FindingSeen] = []
    if watch is not None:
        watch.join(2.0)
        found = sorted(watch.findings.values(), key=lambda event: (-Severity(event.severity).rank, -event.count))
        print(f", {watch.lost} bytes not observed")
        for name, hits in watch.hits.items():
            print(f"rule {name!r} fired {counted(hits, 'time')}")
        for warning in dict.fromkeys(watch.warnings):
            print(f"! {warning}")
    if clients:
        print("clients: " + ", ".join(f"{count} {what}" for what, count in clients.items()))
    print(f"\n{counted(len(found), 'finding')}", flush=True)
    console = findings_console()
    for event in found:
        console.print(one_line(event.severity, event.finding, event.count, event.seen))
        console.print(indented(event.why, "why "))
        console.print(indented(event.remedy, "do: "))
    # As this was called: `make demo` runs a command that is not on the user's PATH.
    me = sys.argv[0] if Path(sys.argv[0]).name == "barnabas" else "python -m barnabas"
    commands = (f"ui {directory}", f"findings {directory}", f"decode {directory} --json")
    print("\nopen it again:  " + "\n                ".join(f"{me} {command}" for command in commands), flush=True)
