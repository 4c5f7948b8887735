"""``barnabas versions``: which versions clients use, from captures, or which versions a broker and its cluster offer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from ...safe import visible
from ..common.address import parse
from ..common.failure import Failure
from ..common.options import FilterText
from ..common.output import table_console, warn
from ..protocol.filter import compiled
from .clients import IdentityDocument, client_identity, client_line, watch

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ....decoder.compat import MatrixRow, ObservedBroker, ObservedClient
    from ....proxy.events import Address
    from .broker_versions import ClusterVersions

_HOST_PORT = re.compile(r"\[[^\]/]+\]:\d+|[^:/]+:\d+")


def versions(
    what: Annotated[
        list[str],
        typer.Argument(
            help="Segments, directories of segments, or any pcap or pcapng files (.gz and .zst too); or one broker.",
            metavar="CAPTURE...|HOST:PORT",
        ),
    ],
    filter_: FilterText = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object: clients and brokers.")] = False,
) -> None:
    """Show for each client and API which versions were used, and what the broker offers; or ask a broker itself.

    A broker, and every other broker of its cluster, is sent an ApiVersions request. The Kafka release is inferred
    from the versions they offer.
    """
    from ....decoder.compat import brokers

    broker = _address(what)
    if broker is not None:
        if filter_ is not None:
            raise Failure(f"--filter selects exchanges of a capture, but {visible(what[0])} is a broker")
        _of_broker(broker, as_json)
        return
    clients, notes = watch(map(Path, what), None if filter_ is None else compiled(filter_))
    found = brokers(clients)
    if as_json:
        rows = [_client_document(client) for client in clients]
        typer.echo(json.dumps({"clients": rows, "brokers": [_broker_document(broker) for broker in found]}))
    else:
        console = table_console()
        for client in clients:
            console.print(_title(client))
            console.print(_table(client))
        _print_brokers(console, found, {})
        if not clients:
            console.print("no requests")
    warn(notes)


def _address(what: list[str]) -> Address | None:
    if len(what) != 1 or not _HOST_PORT.fullmatch(what[0]) or Path(what[0]).exists():
        return None
    return parse(what[0], "versions")


def _title(client: ObservedClient) -> Text:
    from rich.text import Text

    asks = {
        "asks": "negotiates",
        "unanswered": "sends ApiVersions, gets no response",
        "never": "never sends ApiVersions",
        "unknown": "began before the capture",
    }[client.negotiation]
    return Text.assemble(
        (f"\n{client_line(client)}", "bold"), f"  {client.connections} connection{'s' * (client.connections != 1)}, {asks}"
    )


def _table(client: ObservedClient) -> Table:
    from rich.table import Table

    from ....decoder.compat import matrix

    table = Table(box=None, pad_edge=False, header_style="dim")
    for name, justify in (("key", "right"), ("API", "left"), ("used (requests)", "left"), ("offered", "left")):
        table.add_column(name, justify=justify, no_wrap=name != "used (requests)")  # type: ignore[arg-type]
    for name in ("known here", "highest common", "limit", "refused"):
        table.add_column(name)
    for row in matrix(client):
        table.add_row(*_cells(row), style="red" if row.refused else None)
    return table


def _cells(row: MatrixRow) -> tuple[str, ...]:
    from ....decoder.compat import Limit

    used = ", ".join(f"v{use.version} ({use.count})" for use in row.uses)
    highest = "" if row.highest is None else f"v{row.highest}"
    limit = {Limit.BROKER: "broker's", Limit.CLIENT: "client's", Limit.UNKNOWN: ""}[row.limit]
    refused = ", ".join(f"v{use.version} ({use.refused})" for use in row.uses if use.refused)
    offered = ", ".join(f"{low}-{high}" for low, high in row.offered) or "?"
    known = f"{row.known[0]}-{row.known[1]}" if row.known else "none"
    return str(row.api_key), row.api, used, offered, known, highest, limit, refused


class ApiUse(TypedDict):
    """What a client uses of an API, as JSON: requests by version, as text; ranges as [first, last]."""

    api: str
    api_key: int
    versions: dict[str, int]
    refused: dict[str, int]
    unanswered: dict[str, int]
    offered: list[list[int]]
    known: list[int] | None
    highest: int | None
    limit: str


class ClientVersions(IdentityDocument):
    """A client and the APIs it uses, as JSON."""

    apis: list[ApiUse]


class BrokerOffers(TypedDict):
    """What a broker offers, as JSON: its possible releases, the likeliest first; ranges [first, last] by API key, as text."""

    address: str
    releases: list[str]
    exact: bool
    offered: dict[str, list[int]]


def _client_document(client: ObservedClient) -> ClientVersions:
    from ....decoder.compat import matrix

    return {
        **client_identity(client),
        "apis": [
            {
                "api": row.api,
                "api_key": row.api_key,
                "versions": {str(use.version): use.count for use in row.uses},
                "refused": {str(use.version): use.refused for use in row.uses if use.refused},
                "unanswered": {str(use.version): use.unanswered for use in row.uses if use.unanswered},
                "offered": [list(ends) for ends in row.offered],
                "known": list(row.known) if row.known else None,
                "highest": row.highest,
                "limit": str(row.limit),
            }
            for row in matrix(client)
        ],
    }


# --- brokers -----------------------------------------------------------------------------------------------


def _of_broker(where: Address, as_json: bool) -> None:
    from .broker_versions import ask_cluster

    cluster = ask_cluster(where)
    if as_json:
        found = [{**_broker_document(b), "node_id": cluster.node_ids.get(b.address)} for b in cluster.brokers]
        mixed = bool(_differing(cluster.brokers))
        typer.echo(json.dumps({"brokers": found, "mixed": mixed, "problems": cluster.problems}))
        return
    console = table_console()
    _print_brokers(console, cluster.brokers, cluster.node_ids)
    console.print(_offers(cluster))
    warn(cluster.problems)


def _print_brokers(console: Console, found: list[ObservedBroker], node_ids: dict[str, int]) -> None:
    from rich.text import Text

    if found:
        console.print(Text("\nbrokers", "bold"))
    for broker in found:
        node = f"  node {node_ids[broker.address]}" if broker.address in node_ids else ""
        guess = f"Kafka {broker.guess}" if broker.guess else "only refused"
        console.print(f"{visible(broker.address)}{node}  {guess}, inferred from what it offers ({len(broker.offered)} APIs)")
    differing = _differing(found)
    if differing:
        console.print(
            Text(f"they differ in {len(differing)} APIs: brokers of different releases or settings", "yellow")
        )


def _offers(cluster: ClusterVersions) -> Table:
    from rich.table import Table

    from ....decoder.schema import facts

    differing = _differing(cluster.brokers)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("key", justify="right")
    table.add_column("API", no_wrap=True)
    names = [visible(broker.address) for broker in cluster.brokers] if differing else ["offered"]
    for name in names:
        table.add_column(name)
    table.add_column("known here")
    for key in sorted({key for broker in cluster.brokers for key in broker.offered}):
        ranges = [_range(broker.offered.get(key)) for broker in cluster.brokers[: len(names)]]
        known = facts.api(key).versions if key in facts.api_keys() else "none"
        table.add_row(str(key), facts.api_name(key), *ranges, str(known), style="yellow" if key in differing else None)
    return table


def _range(ends: tuple[int, int] | None) -> str:
    return "-" if ends is None else f"{ends[0]}-{ends[1]}" if ends[0] != ends[1] else str(ends[0])


def _differing(found: Iterable[ObservedBroker]) -> set[int]:
    """The api keys of which brokers offer different ranges."""
    tables = [broker.offered for broker in found]
    keys = {key for table in tables for key in table}
    return {key for key in keys if len({table.get(key) for table in tables}) > 1}


def _broker_document(broker: ObservedBroker) -> BrokerOffers:
    return {
        "address": broker.address,
        "releases": [match.name for match in broker.releases],
        "exact": bool(broker.releases) and broker.releases[0].exact,
        "offered": {str(key): list(ends) for key, ends in broker.offered.items()},
    }
