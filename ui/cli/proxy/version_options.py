"""The options of ``barnabas proxy`` for versions: what clients are told, and what is translated."""

from __future__ import annotations

from typing import Annotated

import typer

from ....plugins.versions.profile import Profile, caps
from ....proxy.negotiation.version_negotiation import VersionsConfig
from ..common.failure import Failure

_PANEL = "Versions"

Cap = Annotated[
    list[str] | None,
    typer.Option(
        "--cap",
        help="Clients get no higher versions of these APIs: Fetch=11,Produce=7. May be repeated.",
        metavar="API=VERSION",
        rich_help_panel=_PANEL,
    ),
]
Pretend = Annotated[
    str,
    typer.Option(
        "--pretend",
        help="To clients, brokers are of this Kafka release, as far as they serve its versions: 0.10.2, 2.8, 3.9-zk.",
        metavar="RELEASE",
        rich_help_panel=_PANEL,
    ),
]
Translate = Annotated[
    bool,
    typer.Option(
        "--translate",
        help="Bring requests of versions that the broker does not serve into ones that it does: old clients on new "
        "brokers, and new clients on old ones.",
        rich_help_panel=_PANEL,
    ),
]


def config(cap: list[str] | None, pretend: str, translate: bool) -> VersionsConfig | None:
    """What they ask for, None if nothing; Failure for what cannot be."""
    if not (cap or pretend or translate):
        return None
    try:
        Profile.of(pretend)
    except ValueError as error:
        raise Failure(f"--pretend: {error}") from None
    try:
        profile = Profile.of(pretend, caps(cap or ()))
    except ValueError as error:
        raise Failure(f"--cap: {error}") from None
    return VersionsConfig(profile if pretend or cap else None, translate)
