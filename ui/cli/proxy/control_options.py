"""The options of ``barnabas proxy`` for the control API, and the settings made of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ....proxy.control import ControlConfig
from ..common.address import parse
from ..common.failure import Failure

_PANEL = "Control"
OFF = "off"

Where = Annotated[
    str,
    typer.Option(
        "--control",
        help="Offer the control API here: HOST:PORT on loopback, unix:PATH, or off. On a terminal the default is a free "
        "port; without one it is off.",
        metavar="WHERE",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
Values = Annotated[
    bool,
    typer.Option("--control-values", help="Let it tell keys and values of records, too.", rich_help_panel=_PANEL),
]


def control_config(where: str, values: bool) -> ControlConfig | None:
    """What `--control` asks for; None where there is to be none."""
    if not where:
        where = "127.0.0.1:0" if sys.stdout.isatty() else OFF
    if where == OFF:
        if values:
            raise Failure("--control-values goes with a control API: add --control 127.0.0.1:8090")
        return None
    if where.startswith("unix:"):
        path = where.removeprefix("unix:")
        if not path:
            raise Failure("--control unix:PATH needs a path, such as unix:/run/user/1000/barnabas.sock")
        return ControlConfig(path=Path(path).absolute(), show_values=values)
    return ControlConfig(parse(where, "--control"), show_values=values)
