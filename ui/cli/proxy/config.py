"""``barnabas config``, and the config file of ``barnabas proxy``. Its keys are the options in `ProxyOptions`."""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

import typer

from ....errors import BarnabasError
from ..common.failure import Failure
from ..common.option_groups import options_of, with_values
from .options import ProxyOptions

if TYPE_CHECKING:
    from .running import RunningCluster

app = typer.Typer(help="The config file of the proxy.", no_args_is_help=True)

OF_ONE = ("broker", "listen", "record", "flight", "transparent")
"""Options that cannot be the same for several clusters."""


@app.callback()
def _root() -> None:
    """An example, and a schema for editors."""


@app.command()
def example() -> None:
    """Print an example config file with comments, to start from."""
    typer.echo(EXAMPLE, nl=False)


@app.command()
def schema() -> None:
    """Print the JSON Schema of the config file, for editors that complete and check TOML."""
    typer.echo(json.dumps(config_schema(), indent=2))


_JSON_TYPES: dict[type, dict[str, Any]] = {
    bool: {"type": "boolean"},
    str: {"type": "string"},
    Path: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    list: {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
}


def config_schema() -> dict[str, Any]:
    """The config file as a JSON Schema (draft 2020-12). What depends on several keys is left to ``barnabas proxy --check``."""
    from ....proxy.supervisor import config_file

    keys = {}
    for parameter in options_of(ProxyOptions):
        key = {**_JSON_TYPES[_plain(parameter.annotation)], "description": get_args(parameter.annotation)[1].help}
        if isinstance(parameter.default, bool | int | float) or (isinstance(parameter.default, str) and parameter.default):
            key["default"] = parameter.default
        keys[parameter.name.replace("_", "-")] = key
    name = {"type": "string", "pattern": f"^{config_file.NAME.pattern}$", "description": "Precedes every line about this cluster."}
    cluster = {
        "type": "object", "required": ["name"], "additionalProperties": False,
        "properties": {"name": name} | {key: {"$ref": f"#/$defs/{key}"} for key in keys},
    }  # fmt: skip
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The config file of barnabas proxy",
        "description": f"Keys before the first [[{config_file.CLUSTER}]] apply to all clusters.",
        "type": "object", "required": [config_file.CLUSTER], "additionalProperties": False,
        "properties": {key: {"$ref": f"#/$defs/{key}"} for key in keys}
        | {config_file.CLUSTER: {"type": "array", "minItems": 1, "items": cluster}},
        "$defs": keys,
    }  # fmt: skip


def key_kinds() -> dict[str, type]:
    """The keys of a config file, and which kind of value each has."""
    return {option.name.replace("_", "-"): _plain(option.annotation) for option in options_of(ProxyOptions)}


def _plain(annotation: Any) -> type:
    """`str` for ``Annotated[str | None, ...]``, `list` for ``Annotated[list[str] | None, ...]``."""
    kind = get_args(annotation)[0]
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(each for each in get_args(kind) if each is not type(None))
    plain: type = get_origin(kind) or kind
    return plain


def clusters(
    path: Path, options: ProxyOptions, on_command_line: Set[str], build: Callable[[str, ProxyOptions], RunningCluster]
) -> list[RunningCluster]:
    """The clusters of a config file, made by `build`. `options`: those of the command line; options named in
    `on_command_line` win over the file. Raises BarnabasError with file and line of what is wrong."""
    from ....proxy.supervisor import config_file

    try:
        found = config_file.read(path, key_kinds())
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror or error}") from None
    for name in OF_ONE:
        if name in on_command_line and len(found) > 1:
            raise Failure(f"--{name} cannot be the same for all {len(found)} clusters of {path}: leave it out")
    made = []
    for each in found:
        values = {key.replace("-", "_"): value for key, value in each.values.items()}
        own = {name: value for name, value in values.items() if name not in on_command_line}
        try:
            made.append(build(each.name, with_values(options, own)))
        except BarnabasError as failure:
            raise each.wrong(str(failure)) from None
    return made


EXAMPLE = """\
# Barnabas in front of two clusters:  barnabas proxy --config barnabas.toml
# Validate this file:                 barnabas proxy --config barnabas.toml --check
#
# Keys are the options of `barnabas proxy` without the dashes in front; `barnabas proxy --help` explains them.
# Paths are relative to this file. Keys before the first [[cluster]] apply to all clusters.

connect-seconds = 10          # time limit for connecting to a broker
idle-seconds = 0              # close connections that have been idle for this long; 0: never
max-connections = 0           # per cluster; more clients wait; 0: as many as the system allows
# max-brokers = 1000          # brokers that get a listener
# broker-expiry = 900         # close the listener of a broker that no response has named for this long; 0: never
# upstream-allow = ["10.0.0.0/8:9092"]  # connect only to `broker` and to brokers in these networks
# workers = 4                 # relay processes of each cluster, for machines with many cores

[[cluster]]
name = "orders"               # precedes each line of output about this cluster
broker = "127.0.0.1:9092"     # some of its brokers ("a:9092,b:9092"); the others are discovered
listen = "127.0.0.1:19092"    # clients' bootstrap.servers; brokers get the ports that follow
record = "recordings/orders"  # omit to record nothing
# keep-size = "10GB"           # limit of the recording; the oldest segments are removed
# keep-time = "7d"
# snaplen = "4KiB"             # keep only the beginning of every frame
# flight = "flights/orders"    # keep the last minutes, and write them here when triggered
# flight-on = ["err == NOT_LEADER_OR_FOLLOWER"]
# rules = "orders-rules.yaml" # read again on SIGHUP
# lossless = true             # slow traffic down rather than lose any of it from the recording
# pretend = "2.8"             # present brokers to clients as this release; also: cap = ["Fetch=11"], translate = true
# findings = true             # report problems live

[[cluster]]
name = "payments"
broker = "127.0.0.1:9093"
listen = "127.0.0.1:19192"
# broker-tls = true           # TLS to the brokers ...
# broker-ca = "ca.pem"        # ... whose certificates this authority has signed

# Without any address rewriting, for the clients that `barnabas transparent up` redirects here (Linux):
# [[cluster]]
# name = "all"
# transparent = "redirect"
# listen = "[::]:19292"
"""
