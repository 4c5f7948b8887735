"""``barnabas proxy``: stand between clients and a cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ....proxy import ProxyConfig
from ..common.address import parse, parse_all
from ..common.failure import Failure
from ..common.local_time import Local
from . import config as config_file
from . import control_options as steering
from . import limit_options as limits
from . import metrics_options as metering
from . import plugin_options as extending
from . import recording_options as keeping
from . import security_options as options
from . import transparent_options as interception
from . import version_options as speaking
from .running import Cluster, load_rules, run

LISTEN = "127.0.0.1:19092"
TRANSPARENT_LISTEN = "[::]:19092"


def proxy(
    context: typer.Context,
    broker: Annotated[
        list[str] | None,
        typer.Option(
            "--broker",
            help="Bootstrap brokers, as clients have them: HOST:PORT,... or again and again. When one is down the next is "
            "tried, then those that have been found since.",
            metavar="HOST:PORT,...",
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            help="Where clients connect (default 127.0.0.1:19092). Brokers get the ports that follow; with port 0 all "
            "get free ones.",
            metavar="HOST:PORT",
            show_default=False,
        ),
    ] = None,
    record: Annotated[
        Path | None, typer.Option("--record", help="Record all traffic into this directory.", metavar="DIR")
    ] = None,
    rules: Annotated[
        Path | None, typer.Option("--rules", help="Rules that break traffic on purpose (YAML).", metavar="FILE")
    ] = None,
    lossless: Annotated[
        bool, typer.Option("--lossless", help="Slow traffic down rather than miss any of it in the recording.")
    ] = False,
    findings: Annotated[
        bool | None,
        typer.Option(
            "--findings/--no-findings",
            help="Print what is wrong in the traffic, as it happens. On by default on a terminal.",
            show_default=False,
        ),
    ] = None,
    tls_ca: options.TlsCa = None,
    tls_cert: options.TlsCertificate = None,
    tls_key: options.TlsKey = None,
    sni_suffix: options.SniSuffix = "",
    tls_keylog: options.Keylog = None,
    broker_tls: options.BrokerTls = False,
    broker_ca: options.BrokerCa = None,
    broker_cert: options.BrokerCertificate = None,
    broker_key: options.BrokerKey = None,
    broker_name: options.BrokerName = "",
    broker_insecure: options.BrokerInsecure = False,
    sasl_mechanism: options.SaslMechanism = "",
    sasl_username: options.SaslUsername = "",
    sasl_password_file: options.SaslPasswordFile = None,
    feed: metering.Feed = "",
    feed_token_file: metering.FeedTokenFile = None,
    metrics: metering.Metrics = "",
    metrics_by: metering.MetricsBy = None,
    statsd: metering.Statsd = "",
    statsd_prefix: metering.StatsdPrefix = "",
    statsd_tags: metering.StatsdTags = False,
    control: steering.Where = "",
    control_values: steering.Values = False,
    screen: Annotated[bool, typer.Option("--ui", help="Show the traffic on the screen (needs --record).")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print events as JSON, one object per line.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings only.")] = False,
    transparent: interception.Mode = None,
    keep_source: interception.KeepSource = False,
    connect_seconds: limits.ConnectSeconds = limits.DEFAULT.connect_seconds,
    idle_seconds: limits.IdleSeconds = limits.DEFAULT.idle_seconds,
    max_connections: limits.MaxConnections = limits.DEFAULT.max_connections,
    max_frame: limits.MaxFrame = limits.DEFAULT.max_frame,
    oversize: limits.Oversize = limits.DEFAULT.oversize,
    max_brokers: limits.MaxBrokers = limits.DEFAULT.max_brokers,
    broker_expiry: limits.BrokerExpiry = limits.DEFAULT.broker_expiry,
    upstream_allow: limits.UpstreamAllow = None,
    rotate_size: keeping.RotateSize = "",
    rotate_time: keeping.RotateTime = "",
    keep_size: keeping.KeepSize = "",
    keep_time: keeping.KeepTime = "",
    snaplen: keeping.Snaplen = "",
    flight: keeping.Directory = None,
    flight_keep: keeping.FlightKeep = "",
    flight_after: keeping.FlightAfter = "",
    flight_on: keeping.FlightOn = None,
    flight_on_finding: keeping.FlightOnFinding = None,
    flight_every: keeping.FlightEvery = "",
    flight_most: keeping.FlightMost = None,
    workers: limits.Workers = 1,
    plugin: extending.Plugins = None,
    plugin_budget: extending.Budget = "",
    plugin_faults: extending.Faults = None,
    plugin_memory: extending.Memory = "",
    cap: speaking.Cap = None,
    pretend: speaking.Pretend = "",
    translate: speaking.Translate = False,
    config: config_file.File = None,
    check: config_file.Check = False,
    local: Local = False,
) -> None:
    """Pass traffic between clients and a cluster, and see it.

    Point clients at the --listen address: every broker of the cluster gets a listener of its own, and the addresses
    in responses are rewritten, so that clients stay on this side. Ctrl-C stops it; SIGHUP reads --rules and loads plugins
    again, SIGUSR1 writes out what the flight recorder holds.
    """
    given = dict(locals())
    if config is None:
        if check:
            raise Failure("--check looks at a config file: give one with --config FILE")
        clusters = [cluster_config("", given)]
    else:
        clusters = config_file.clusters(config, proxy, given, context, cluster_config)
    if check:
        print(f"{config}: fine, {len(clusters)} cluster{'' if len(clusters) == 1 else 's'}")
        return
    if screen and len(clusters) > 1:
        raise Failure("--ui shows one cluster, and the config file has several")
    if screen and clusters[0].config.record is None:
        raise Failure("--ui shows what is recorded: add --record DIR")
    run(clusters, as_json, quiet, screen)


def cluster_config(name: str, given: dict[str, Any]) -> Cluster:
    """The proxy of one cluster, from the command's options by their names here; Failure for what is wrong in them."""
    findings = given["findings"]
    if findings is None:
        findings = sys.stdout.isatty() and not (given["screen"] or given["as_json"] or given["quiet"])
    tls = options.tls_config(
        certificate=given["tls_cert"], key=given["tls_key"], ca=given["tls_ca"], sni_suffix=given["sni_suffix"],
        keylog=given["tls_keylog"], broker=given["broker_tls"], broker_ca=given["broker_ca"],
        broker_certificate=given["broker_cert"], broker_key=given["broker_key"], broker_name=given["broker_name"],
        broker_insecure=given["broker_insecure"],
    )  # fmt: skip
    meter = metering.meter_config(
        feed=given["feed"], token_file=given["feed_token_file"], metrics=given["metrics"], by=given["metrics_by"],
        statsd=given["statsd"], prefix=given["statsd_prefix"], tags=given["statsd_tags"],
    )  # fmt: skip
    brokers = parse_all(given["broker"] or (), "--broker", port=9092)
    intercept = interception.config(given["transparent"], given["keep_source"], bool(brokers), given["sni_suffix"])
    config = ProxyConfig(
        upstream=brokers[0] if brokers else interception.EVERYWHERE,
        more_upstreams=tuple(brokers[1:]),
        listen=parse(given["listen"] or (TRANSPARENT_LISTEN if intercept else LISTEN), "--listen"),
        transparent=intercept,
        record=given["record"],
        recording=keeping.recording_config(
            given["rotate_size"], given["rotate_time"], given["keep_size"], given["keep_time"]
        ),
        snaplen=keeping.snaplen(given["snaplen"]),
        flight=keeping.flight_config(
            given["flight"], given["flight_keep"], given["flight_after"], given["flight_on"],
            given["flight_on_finding"], given["flight_every"], given["flight_most"],
        ),
        rules=load_rules(given["rules"]),
        reloadable=given["rules"] is not None,
        lossless=given["lossless"],
        findings=findings,
        tls=tls,
        sasl=options.sasl_config(given["sasl_mechanism"], given["sasl_username"], given["sasl_password_file"]),
        meter=meter,
        workers=limits.workers(given["workers"]),
        plugins=extending.plugins_config(
            given["plugin"], given["plugin_budget"], given["plugin_faults"], given["plugin_memory"]
        ),
        versions=speaking.config(given["cap"], given["pretend"], given["translate"]),
        control=steering.control_config(given["control"], given["control_values"]),
        limits=limits.config(
            given["connect_seconds"], given["idle_seconds"], given["max_connections"], given["max_frame"],
            given["oversize"], given["max_brokers"], given["broker_expiry"], given["upstream_allow"],
        ),
    )  # fmt: skip
    return Cluster(name, config, given["rules"])
