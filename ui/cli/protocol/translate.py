"""``barnabas translate``: what ``barnabas proxy --translate`` can and cannot convert between two releases."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from ..common.completion import release_names

if TYPE_CHECKING:
    from ....plugins.translation import Bridge

ENDED = "the broker does not have it"


def translate(
    client: Annotated[str, typer.Argument(help="The Kafka release of the clients.", metavar="CLIENT-RELEASE", autocompletion=release_names)],
    broker: Annotated[str, typer.Argument(help="The Kafka release of the brokers.", metavar="BROKER-RELEASE", autocompletion=release_names)],
    everything: Annotated[
        bool, typer.Option("--all", help="Show everything, including what passes unchanged, and APIs that the broker does not have.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what the proxy's --translate converts between clients of one Kafka release and brokers of another."""
    from ....decoder.reference.releases import release
    from ....plugins.translation import bridges

    found = bridges(release(client), release(broker))
    if as_json:
        typer.echo(json.dumps({"client": client, "broker": broker, "apis": [_as_dict(each) for each in found]}))
        return
    typer.echo(f"clients of Kafka {client} on brokers of {broker}, with barnabas proxy --translate")
    for each in found:
        lines = _lines(each, everything)
        if lines:
            typer.echo(f"\n{each.api}")
            for line in lines:
                typer.echo(f"  {line}")
    missing = [each.api for each in found if not each.served and not each.translated and each.refused]
    if missing and not everything:
        typer.echo(f"\nnot on these brokers, answered with UNSUPPORTED_VERSION:\n  {', '.join(missing)}")


def _lines(bridge: Bridge, everything: bool) -> list[str]:
    lines = []
    if everything and bridge.served:
        lines.append(f"{_ranges(bridge.served)} unchanged")
    own = [version for version, target in bridge.translated if version == target]
    if own:
        lines.append(f"{_ranges(own)} answered by the proxy")
    for target in dict.fromkeys(target for version, target in bridge.translated if version != target):
        lines.append(f"{_ranges(version for version, to in bridge.translated if to == target)} as {target}")
    lines += bridge.changes
    for path, why in bridge.left_out:
        lines.append(f"without {path}: {why}")
    if bridge.only_if_unused:
        lines.append(f"refused unless empty: {', '.join(bridge.only_if_unused)}")
    for why in dict.fromkeys(why for _, why in bridge.refused):
        if everything or why != ENDED:
            lines.append(f"{_ranges([version for version, reason in bridge.refused if reason == why])} refused: {why}")
    return lines


def _ranges(versions: Iterable[int]) -> str:
    """``v0-2``; versions of one kind follow on each other."""
    listed = sorted(versions)
    return f"v{listed[0]}" if len(listed) == 1 else f"v{listed[0]}-{listed[-1]}"


def _as_dict(bridge: Bridge) -> dict[str, object]:
    return {
        "api": bridge.api,
        "served": list(bridge.served),
        "translated": [{"version": version, "as": target} for version, target in bridge.translated],
        "refused": [{"version": version, "why": why} for version, why in bridge.refused],
        "refused_if_used": list(bridge.only_if_unused),
        "changes": list(bridge.changes),
        "left_out": [{"field": path, "why": why} for path, why in bridge.left_out],
    }
