"""``barnabas plugins``: list installed plugins, and check whether a plugin loads."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from ...safe import visible
from ..common.output import print_json

app = typer.Typer(
    help="Plugins: list installed ones, check whether one can be loaded.",
    no_args_is_help=True,
)


@app.command("list")
def list_() -> None:
    """List the plugins that installed packages offer (entry points of the group barnabas.plugins), without loading them."""
    from ....plugins.hooks import installed
    from ....plugins.hooks.sources import GROUP

    found = installed()
    for name, point in sorted(found.items()):
        package = point.dist.name if point.dist is not None else "?"
        typer.echo(f"{visible(name)}: {visible(point.value)} ({visible(package)})")
    if not found:
        typer.echo(f"no plugins installed: no package has an entry point in the group {GROUP}; --plugin also takes files")


@app.command()
def check(
    plugin: Annotated[list[str], typer.Argument(help="Plugins, as for --plugin of `barnabas proxy`.", metavar="PLUGIN...")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Load plugins in a separate process, and show what they do. The exit status is 2 if something is wrong."""
    from ....decoder.schema import facts
    from ....plugins.hooks import parse
    from ....proxy.relay.interception.plugin_host import PluginsConfig
    from ....proxy.relay.interception.plugin_host.forkserver_client import check as load_once

    found = load_once(PluginsConfig(tuple(parse(each) for each in plugin)))
    if as_json:
        print_json({"plugins": [asdict(each) for each in found]})
        return
    for each in found:
        typer.echo(f"{visible(each.name)}: {', '.join(each.hooks)}")
        keys = sorted({facts.api_name(key) for key in (*each.request, *each.response, *each.exchange)})
        if keys:
            of = "every API" if len(keys) == len(facts.api_keys()) else ", ".join(keys)
            match = f"; {visible(each.match)}" if each.match else ""
            typer.echo(f"    {of}{match}")
    typer.echo(f"ok: {len(found)} plugin{'s' if len(found) != 1 else ''}")
