"""``barnabas demo``: an embedded cluster, clients, and the proxy between them."""

from __future__ import annotations

import importlib.util
import sys
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
    from ...demo.child import ChildProcess
    from ...live import EventListener

BROKERS = 3


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
    from ....proxy.events import show
    from ...demo.child import ChildFailed, ChildProcess
    from ...demo.table import LiveTable
    from ...live import EventListener, open_when_started
    from ..common.address import parse

    print(f"starting {BROKERS} mock brokers ...", flush=True)
    cluster = ChildProcess("cluster", str(BROKERS))
    traffic: ChildProcess | None = None
    proxy: Proxy | None = None
    watch: EventListener | None = None
    clients: dict[str, int] = {}
    try:
        upstream = parse(cluster.line(30)["bootstrap"], "bootstrap")
        proxy = Proxy(ProxyConfig(upstream=upstream, record=directory, rules=[_rule()])).start()
        watch = EventListener(proxy)
        print(f"brokers at {show(upstream)}; clients use bootstrap.servers={show(proxy.address)}", flush=True)
        traffic = ChildProcess("traffic", show(proxy.address))
        with open_when_started(directory) as capture:
            if headless:
                LiveTable(capture, watch.status).run(seconds)
            else:
                from ...tui.app import run

                run(
                    capture,
                    title=f"demo  bootstrap.servers={show(proxy.address)}  REC {directory}",
                    live=True,
                    status=watch.status,
                    seconds=seconds,
                )
    except KeyboardInterrupt:
        pass
    except (ChildFailed, ProxyError) as error:
        raise Failure(f"the demo could not start: {error}") from None
    finally:
        print("stopping the clients ...", flush=True)
        clients = _end(traffic)
        if proxy is not None:
            proxy.stop()
        cluster.stop()
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


def _end(traffic: ChildProcess | None) -> dict[str, int]:
    from ...demo.child import ChildFailed

    if traffic is None:
        return {}
    try:
        traffic.close_input()
        return traffic.line(12)
    except ChildFailed:
        return {}
    finally:
        traffic.stop()


def _summary(directory: Path, watch: EventListener | None, clients: dict[str, int]) -> None:
    from ....captures import open_capture
    from ....decoder import ExchangeDone
    from ....decoder.findings import Inspector, Severity
    from ...demo.table import TrafficTable
    from ..analysis.finding_lines import findings_console, print_finding

    inspector, traffic = Inspector(), TrafficTable()
    undecoded = 0
    with open_capture(directory) as capture:
        for event in capture.events():
            inspector.feed(event)
            if isinstance(event, ExchangeDone):
                exchange = event.exchange
                traffic.add(exchange.api, exchange.client_id or "", exchange.latency_ns, bool(exchange.error))
                undecoded += exchange.undecoded is not None
    print()
    traffic.print()
    print(f"\n{counted(traffic.requests, 'exchange')}, {traffic.errors} with an error code, {undecoded} undecoded", end="")
    if watch is not None:
        watch.join(2.0)
        print(f", {watch.lost} bytes not observed")
        for name, hits in watch.hits.items():
            print(f"rule {name!r} fired {counted(hits, 'time')}")
        for warning in dict.fromkeys(watch.warnings):
            print(f"! {warning}")
    if clients:
        print("clients: " + ", ".join(f"{count} {what}" for what, count in clients.items()))
    found = inspector.findings()
    shown = [finding for finding in found if finding.severity is not Severity.INFO]
    print(f"\n{counted(len(found), 'finding')}, {len(found) - len(shown)} of them for information only", flush=True)
    for finding in shown:
        print_finding(findings_console(), finding)
    # As this was called: `make demo` runs a command that is not on the user's PATH.
    me = sys.argv[0] if Path(sys.argv[0]).name == "barnabas" else "python -m barnabas"
    commands = (f"ui {directory}", f"findings {directory}", f"decode {directory} --json")
    print("\nopen it again:  " + "\n                ".join(f"{me} {command}" for command in commands), flush=True)
