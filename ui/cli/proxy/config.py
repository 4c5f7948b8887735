"""``--config`` of ``barnabas proxy``, and ``barnabas config example``. The keys are the options of the command."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

from ....proxy.settings import config_file
from ....proxy.settings.config_file import ConfigError
from ..common.failure import Failure
from .running import Cluster

app = typer.Typer(help="The config file of the proxy.", no_args_is_help=True)

PANEL = "Config file"
OF_THE_COMMAND = {"config", "check", "ui", "json", "quiet"}
"""Options that say how the command behaves, and not what a cluster is like."""
OF_ONE = ("broker", "listen", "record", "flight", "transparent")
"""Options that cannot be the same for several clusters."""

File = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="Options from a TOML file, for one or several clusters; those given here win. See `barnabas config example`.",
        metavar="FILE",
        rich_help_panel=PANEL,
    ),
]
Check = Annotated[
    bool, typer.Option("--check", help="Only say whether the config file is fine.", rich_help_panel=PANEL)
]


@app.callback()
def _root() -> None:
    """So that `example` stays a command of its own."""


@app.command()
def example() -> None:
    """Print a config file with comments: a beginning for one of your own."""
    typer.echo(EXAMPLE, nl=False)


def keys_of(command: Callable[..., None]) -> dict[str, tuple[str, type]]:
    """The keys of a config file: key -> (parameter of the command, kind of value), from the command's options."""
    hints = get_type_hints(command, include_extras=True)
    found: dict[str, tuple[str, type]] = {}
    for name in inspect.signature(command).parameters:
        hint = hints[name]
        if get_origin(hint) is not Annotated:
            continue
        kind, *extras = get_args(hint)
        option = next(each for each in extras if hasattr(each, "param_decls"))
        key = option.param_decls[0].split("/")[0].removeprefix("--") if option.param_decls else name.replace("_", "-")
        if key not in OF_THE_COMMAND:
            found[key] = (name, _plain(kind))
    return found


def _plain(kind: Any) -> type:
    """`str` for `str | None`, `list` for `list[str] | None`."""
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(each for each in get_args(kind) if each is not type(None))
    origin = get_origin(kind) or kind
    return origin if isinstance(origin, type) else str


def clusters(
    path: Path,
    command: Callable[..., None],
    given: Mapping[str, Any],
    context: typer.Context,
    build: Callable[[str, dict[str, Any]], Cluster],
) -> list[Cluster]:
    """The clusters of a config file, as `build` makes them from the command's options, which win where they were
    given. Failure with file and line of what is wrong."""
    keys = keys_of(command)
    try:
        found = config_file.read(path, {key: kind for key, (_, kind) in keys.items()})
    except ConfigError as error:
        raise Failure(str(error)) from None
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror or error}") from None
    from_flags = {
        name: given[name]
        for name, _ in keys.values()
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    }
    for name in OF_ONE:
        if name in from_flags and len(found) > 1:
            raise Failure(f"--{name} cannot be the same for all {len(found)} clusters of {path}: leave it out")
    made = []
    for each in found:
        options = dict(given) | {keys[key][0]: value for key, value in each.values.items()} | from_flags
        try:
            made.append(build(each.name, options))
        except Failure as failure:
            raise Failure(str(each.wrong(str(failure)))) from None
    return made


EXAMPLE = """\
# Barnabas in front of two clusters:  barnabas proxy --config barnabas.toml
# Is it right?                        barnabas proxy --config barnabas.toml --check
#
# Keys are the options of `barnabas proxy` without the dashes in front; `barnabas proxy --help` explains them.
# Paths are relative to this file. What stands before the first [[cluster]] holds for all of them.

connect-seconds = 10          # for a connection to a broker
idle-seconds = 0              # close connections without a byte for so long; 0: never
max-connections = 0           # of each cluster, more clients wait; 0: as many as the system allows
# max-brokers = 1000          # brokers that get a listener
# broker-expiry = 900         # close listeners of brokers that no response has named for so long; 0: never
# upstream-allow = ["10.0.0.0/8:9092"]  # connect to brokers there only, besides `broker`
# workers = 4                 # relay processes of each cluster, for machines with many cores

[[cluster]]
name = "orders"               # in front of every line about this cluster
broker = "127.0.0.1:9092"     # some of its brokers ("a:9092,b:9092"); the others are found
listen = "127.0.0.1:19092"    # clients' bootstrap.servers; brokers get the ports that follow
record = "recordings/orders"  # leave out to record nothing
# keep-size = "10GB"           # of the recording: the oldest segments are removed
# keep-time = "7d"
# snaplen = "4KiB"             # keep only the beginning of every frame
# flight = "flights/orders"    # keep the last minutes, and write them out when something happens
# flight-on = ["err == NOT_LEADER_OR_FOLLOWER"]
# rules = "orders-rules.yaml" # read again on SIGHUP
# lossless = true             # rather slow traffic down than miss any of it in the recording
# pretend = "2.8"             # to clients, brokers are of this release; cap = ["Fetch=11"], translate = true
# findings = true             # print what is wrong in the traffic

[[cluster]]
name = "payments"
broker = "127.0.0.1:9093"
listen = "127.0.0.1:19192"
# broker-tls = true           # TLS to the brokers ...
# broker-ca = "ca.pem"        # ... whose certificates this authority has signed

# Without any address rewriting, for the clients that `barnabas transparent up` brings here (Linux):
# [[cluster]]
# name = "all"
# transparent = "redirect"
# listen = "[::]:19292"
"""
