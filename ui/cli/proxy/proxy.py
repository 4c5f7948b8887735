"""``barnabas proxy``: run the proxy between clients and a cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..common.address import parse, parse_all
from ..common.failure import Failure
from ..common.option_groups import with_option_groups
from ..common.options import Local, Quiet
from . import config as config_file
from .options import ProxyOptions, snaplen, tls_config

if TYPE_CHECKING:
    from ....proxy import ProxyConfig
    from .running import RunningCluster

LISTEN = "127.0.0.1:19092"
TRANSPARENT_LISTEN = "[::]:19092"
CONFIG_FILE = "Config file"


@with_option_groups
def proxy(
    context: typer.Context,
    options: ProxyOptions,
    screen: Annotated[bool, typer.Option("--ui", help="Show the traffic on the screen (needs --record).")] = False,
    allow_edit: Annotated[
        bool, typer.Option("--allow-edit", help="Allow changes of traffic and rules, with --ui.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per event.")] = False,
    quiet: Quiet = False,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            help="Read options from a TOML file, for one or several clusters; the command line takes precedence. See `barnabas config example`.",
            metavar="FILE",
            rich_help_panel=CONFIG_FILE,
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only validate the config file.", rich_help_panel=CONFIG_FILE)
    ] = False,
    local: Local = False,
) -> None:
    """Forward traffic between clients and a cluster, and observe it.

    Point clients at the --listen address: every broker of the cluster gets its own listener, and the addresses in
    responses are rewritten so that clients stay on the proxy. Ctrl-C stops it; SIGHUP reloads --rules and plugins;
    SIGUSR1 writes a flight recording.
    """
    from .running import RunningCluster, run

    print_findings = sys.stdout.isatty() and not (screen or as_json or quiet)

    def cluster(name: str, options: ProxyOptions) -> RunningCluster:
        return RunningCluster(name, proxy_config(options, print_findings), options.rules)

    if config is None:
        if check:
            raise Failure("--check validates a config file: give it with --config FILE")
        clusters = [cluster("", options)]
    else:
        given = {name for name in context.params if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"}
        clusters = config_file.clusters(config, options, given, cluster)
    if check:
        print(f"{config}: valid, {len(clusters)} cluster{'' if len(clusters) == 1 else 's'}")
        return
    if screen and len(clusters) > 1:
        raise Failure("--ui shows one cluster, but the config file has several")
    if screen and clusters[0].config.record is None:
        raise Failure("--ui shows what is recorded: add --record DIR")
    if allow_edit and not screen:
        raise Failure("--allow-edit needs --ui")
    if allow_edit and clusters[0].config.control is None:
        raise Failure("--allow-edit needs the control API: remove --control off")
    run(clusters, as_json, quiet, screen, allow_edit)


def proxy_config(options: ProxyOptions, print_findings: bool) -> ProxyConfig:
    """The settings of one cluster's proxy; raises Failure for wrong options. `print_findings`: the default
    of --findings."""
    from ....proxy import ProxyConfig
    from ....proxy.relay.addressing.transparent import EVERYWHERE
    from .running import rules_of_file

    brokers = parse_all(options.broker or (), "--broker", port=9092)
    sni_suffix = options.tls_with_clients.sni_suffix
    transparent = options.transparent.config(bool(brokers), sni_suffix)
    return ProxyConfig(
        upstream=brokers[0] if brokers else EVERYWHERE,
        more_upstreams=tuple(brokers[1:]),
        listen=parse(options.listen or (TRANSPARENT_LISTEN if transparent else LISTEN), "--listen"),
        transparent=transparent,
        record=options.record,
        recording=options.recording.config(),
        snaplen=snaplen(options.snaplen),
        flight=options.flight.config(),
        rules=rules_of_file(options.rules),
        reloadable=options.rules is not None,
        lossless=options.lossless,
        findings=print_findings if options.findings is None else options.findings,
        tls=tls_config(options.tls_with_brokers, options.tls_with_clients),
        sasl=options.sasl.config(),
        meter=options.meter.config(),
        workers=options.limits.worker_count(),
        plugins=options.plugins.config(),
        versions=options.versions.config(),
        control=options.control.config(),
        limits=options.limits.config(),
    )
