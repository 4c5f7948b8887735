"""The options of ``barnabas proxy`` for transparent mode."""

from __future__ import annotations

from typing import Annotated

import typer

from ....proxy.addressing.transparent import EVERYWHERE, TransparentConfig
from ..common.failure import Failure

PANEL = "Transparent mode (Linux)"

Mode = Annotated[
    str | None,
    typer.Option(
        "--transparent",
        help="Clients connect to the brokers themselves, and `barnabas transparent up` brings them here: redirect or "
        "tproxy. No --broker then.",
        metavar="MODE",
        rich_help_panel=PANEL,
    ),
]
KeepSource = Annotated[
    bool,
    typer.Option(
        "--keep-source", help="Go to the brokers with the clients' own addresses (tproxy).", rich_help_panel=PANEL
    ),
]

__all__ = ["EVERYWHERE", "KeepSource", "Mode", "config"]


def config(mode: str | None, keep_source: bool, broker: bool, sni_suffix: str = "") -> TransparentConfig | None:
    """None without transparent mode; Failure for options that do not go together."""
    if mode is None:
        if keep_source:
            raise Failure("--keep-source belongs to --transparent tproxy")
        if not broker:
            raise Failure("which cluster? Give one of its brokers with --broker HOST:PORT")
        return None
    if broker:
        raise Failure("--transparent goes to where each client wanted to go: leave --broker out")
    if sni_suffix:
        raise Failure("--transparent leaves the brokers their own names, --sni-suffix gives them others: leave one out")
    try:
        return TransparentConfig(mode, keep_source)
    except ValueError as error:
        raise Failure(f"--transparent: {error}") from None
