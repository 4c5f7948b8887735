"""The options of ``barnabas proxy`` for plugins."""

from __future__ import annotations

from typing import Annotated

import typer

from ....plugins.hooks import PluginError, parse
from ....proxy.interception.plugin_host import PluginsConfig
from ..common.amounts import seconds, size
from ..common.failure import Failure

PANEL = "Plugins"

Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        help="A class of yours that sees and changes messages: my.py, my.py:CLASS, or the name of an installed one; "
        "settings behind it as ?NAME=VALUE&.... May be repeated; the first is nearest to the clients. Loaded again when "
        "the file is saved.",
        metavar="PLUGIN",
        rich_help_panel=PANEL,
    ),
]
Budget = Annotated[
    str,
    typer.Option(
        "--plugin-budget",
        help="How long a message waits for plugins before it goes on as it came (default 250ms).",
        metavar="TIME",
        rich_help_panel=PANEL,
    ),
]
Faults = Annotated[
    int | None,
    typer.Option(
        "--plugin-faults",
        help="A plugin with so many faults within a minute is disabled (default 5).",
        metavar="N",
        rich_help_panel=PANEL,
    ),
]
Memory = Annotated[
    str,
    typer.Option(
        "--plugin-memory",
        help="Memory that plugins may use (default 512MiB).",
        metavar="SIZE",
        rich_help_panel=PANEL,
    ),
]


def plugins_config(given: list[str] | None, budget: str, faults: int | None, memory: str) -> PluginsConfig | None:
    """None without plugins; Failure for options that make no sense."""
    if not given:
        if budget or faults is not None or memory:
            raise Failure("--plugin-budget, --plugin-faults and --plugin-memory belong to --plugin")
        return None
    try:
        config = PluginsConfig(tuple(parse(each) for each in given))
    except PluginError as error:
        raise Failure(str(error)) from None
    if faults is not None and faults < 1:
        raise Failure(f"--plugin-faults goes from 1 on, not {faults}")
    return PluginsConfig(
        config.sources,
        seconds(budget, "--plugin-budget") if budget else config.budget,
        config.faults if faults is None else faults,
        size(memory, "--plugin-memory") if memory else config.memory,
    )
