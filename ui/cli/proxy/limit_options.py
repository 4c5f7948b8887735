"""The options of ``barnabas proxy`` for limits, and for how many processes the traffic may use."""

from __future__ import annotations

from typing import Annotated

import typer

from ....proxy.settings.limits import Limits
from ....proxy.supervisor.worker_shared_state import MOST_WORKERS
from ..common.failure import Failure

PANEL = "Limits"

ConnectSeconds = Annotated[
    float,
    typer.Option(
        "--connect-seconds", help="How long connecting to a broker may take.", metavar="S", rich_help_panel=PANEL
    ),
]
IdleSeconds = Annotated[
    float,
    typer.Option(
        "--idle-seconds",
        help="Close connections without a byte for so long; 0: never.",
        metavar="S",
        rich_help_panel=PANEL,
    ),
]
MaxConnections = Annotated[
    int,
    typer.Option(
        "--max-connections",
        help="Most connections at one time; more clients wait. 0: as many as the system allows.",
        metavar="N",
        rich_help_panel=PANEL,
    ),
]
MaxFrame = Annotated[
    int,
    typer.Option(
        "--max-frame",
        help="Largest size of a frame; what claims more is taken for damage.",
        metavar="BYTES",
        rich_help_panel=PANEL,
    ),
]
Oversize = Annotated[
    str,
    typer.Option(
        "--oversize",
        help="What is done then: pass the connection on unread, or close it.",
        metavar="pass|close",
        rich_help_panel=PANEL,
    ),
]
MaxBrokers = Annotated[
    int,
    typer.Option(
        "--max-brokers",
        help="Most brokers that get a listener; never more than half of the files that may be open.",
        metavar="N",
        rich_help_panel=PANEL,
    ),
]
BrokerExpiry = Annotated[
    float,
    typer.Option(
        "--broker-expiry",
        help="Close the listener of a broker that no response has named for so long; 0: never.",
        metavar="S",
        rich_help_panel=PANEL,
    ),
]
UpstreamAllow = Annotated[
    list[str] | None,
    typer.Option(
        "--upstream-allow",
        help="Connect to brokers in this network only, besides --broker: 10.0.0.0/8, 10.0.0.0/8:9092-9094, [fd00::/8]:9092. "
        "May be repeated. Default: everywhere.",
        metavar="NETWORK[:PORTS]",
        rich_help_panel=PANEL,
    ),
]
Workers = Annotated[
    int,
    typer.Option(
        "--workers",
        help="So many relay processes share the connections, for machines with many cores.",
        metavar="N",
        rich_help_panel=PANEL,
    ),
]
DEFAULT = Limits()


def config(
    connect_seconds: float, idle_seconds: float, max_connections: int, max_frame: int, oversize: str, max_brokers: int,
    broker_expiry: float, upstream_allow: list[str] | None,
) -> Limits:  # fmt: skip
    """Failure for limits that make no sense."""
    try:
        return Limits(
            connect_seconds, idle_seconds, max_connections, max_frame, oversize, max_brokers, broker_expiry,
            tuple(upstream_allow or ()),
        )  # fmt: skip
    except ValueError as error:
        raise Failure(str(error)) from None


def workers(count: int) -> int:
    """Failure for a number of workers that makes no sense."""
    if not 1 <= count <= MOST_WORKERS:
        raise Failure(f"--workers goes from 1 to {MOST_WORKERS}, not {count}")
    return count
