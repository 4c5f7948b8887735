"""The options of ``barnabas proxy`` in groups, which other commands and the config file share, and the settings made of them.

Every group has its panel in the help. Its methods turn texts into settings of the proxy; each raises Failure for options
that make no sense, and imports what it needs: `barnabas replay` loads no recorder for the sake of its TLS options.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ... import times
from ..common import amounts
from ..common.address import parse
from ..common.completion import choices, detector_names, filter_words, release_names
from ..common.failure import Failure, read_text, value_of
from ..common.option_groups import option

if TYPE_CHECKING:
    from ....proxy.control import ControlConfig
    from ....proxy.metrics.settings import MeterConfig
    from ....proxy.observers.settings import FlightConfig, RecordingConfig
    from ....proxy.relay.addressing.transparent import TransparentConfig
    from ....proxy.relay.interception.plugin_host import PluginsConfig
    from ....proxy.relay.limits import Limits
    from ....proxy.relay.negotiation.sasl import SaslConfig
    from ....proxy.relay.negotiation.security import TlsConfig
    from ....proxy.relay.negotiation.version_negotiation import VersionsConfig

PASSWORD_VARIABLE = "BARNABAS_SASL_PASSWORD"
TOKEN_VARIABLE = "BARNABAS_FEED_TOKEN"


@dataclass(frozen=True, slots=True)
class ClientTlsOptions:
    """TLS with clients."""

    PANEL = "TLS with clients"

    tls_ca: Annotated[
        Path | None, option("Issue certificates from the CA in this directory; the CA is created on first use.", "DIR")
    ] = None
    tls_cert: Annotated[Path | None, option("Your own certificate, with its chain (PEM).", "FILE")] = None
    tls_key: Annotated[Path | None, option("The key of --tls-cert (PEM, without a password).", "FILE")] = None
    sni_suffix: Annotated[
        str,
        option(
            "Use one listener for all brokers: clients connect to broker-ID.DOMAIN, and the server name in the TLS hello "
            "selects the broker.",
            "DOMAIN",
        ),
    ] = ""
    tls_keylog: Annotated[Path | None, option("Append the TLS session keys of both sides, for Wireshark.", "FILE")] = None


@dataclass(frozen=True, slots=True)
class BrokerTlsOptions:
    """TLS with brokers."""

    PANEL = "TLS with brokers"

    broker_tls: Annotated[bool, option("Use TLS to brokers. The options below imply it.")] = False
    broker_ca: Annotated[Path | None, option("CAs to trust (PEM) instead of the system's.", "FILE")] = None
    broker_cert: Annotated[Path | None, option("The proxy's own certificate, for brokers that require one (PEM).", "FILE")] = None
    broker_key: Annotated[Path | None, option("The key of --broker-cert (PEM, without a password).", "FILE")] = None
    broker_name: Annotated[str, option("The name in the brokers' certificates, if it differs from their host name.", "NAME")] = ""
    broker_insecure: Annotated[bool, option("Do not verify certificates. For tests only.")] = False


def tls_config(brokers: BrokerTlsOptions, clients: ClientTlsOptions | None = None) -> TlsConfig | None:
    """TLS on both sides; None without any option."""
    from ....proxy.relay.negotiation.security import TlsConfig

    clients = clients or ClientTlsOptions()
    config = TlsConfig(
        certificate=clients.tls_cert, key=clients.tls_key, ca=clients.tls_ca, sni_suffix=clients.sni_suffix,
        keylog=clients.tls_keylog, broker=brokers.broker_tls, broker_ca=brokers.broker_ca,
        broker_certificate=brokers.broker_cert, broker_key=brokers.broker_key, broker_name=brokers.broker_name,
        broker_insecure=brokers.broker_insecure,
    )  # fmt: skip
    return None if config == TlsConfig() else config


@dataclass(frozen=True, slots=True)
class SaslOptions:
    """A login at brokers."""

    PANEL = "Log in to brokers (for clients that do not)"

    sasl_mechanism: Annotated[str, option("The SASL mechanism.", **choices("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"))] = ""
    sasl_username: Annotated[str, option("The user name.", "NAME")] = ""
    sasl_password_file: Annotated[
        Path | None, option(f"A file with the password, or with OAUTHBEARER's token (or set {PASSWORD_VARIABLE}).", "FILE")
    ] = None

    def config(self) -> SaslConfig | None:
        """With the password from its file or the environment; None without a mechanism."""
        from ....proxy.relay.negotiation.sasl import MECHANISMS, SaslConfig

        password = os.environ.pop(PASSWORD_VARIABLE, "")  # the proxy's processes need not inherit it
        file = self.sasl_password_file
        if not self.sasl_mechanism:
            if self.sasl_username or file:
                raise Failure("--sasl-username and --sasl-password-file need --sasl-mechanism: " + ", ".join(MECHANISMS))
            return None
        if file is not None:
            password = read_text(file, f"--sasl-password-file {file}").rstrip("\r\n")
        return SaslConfig(self.sasl_mechanism.upper(), self.sasl_username, password)


@dataclass(frozen=True, slots=True)
class MeterOptions:
    """The live feed and the metrics."""

    PANEL = "Live feed and metrics"

    feed: Annotated[
        str, option("Address of the live feed (UDP): summaries of exchanges for subscribers, such as barnabas feed.", "HOST:PORT")
    ] = ""
    feed_token_file: Annotated[
        Path | None, option(f"A file with the subscribers' token (or set {TOKEN_VARIABLE}). By default, a new token is generated.", "FILE")
    ] = None
    metrics: Annotated[str, option("Serve GET /metrics for Prometheus.", "HOST:PORT")] = ""
    metrics_by: Annotated[list[str] | None, option("Also count by client or topic. May be repeated.", **choices("client", "topic"))] = None

    def config(self) -> MeterConfig | None:
        """None without any option."""
        from ....proxy.metrics.settings import BY, MeterConfig

        for what in self.metrics_by or ():
            if what not in BY:
                raise Failure(f"--metrics-by {what!r} is not known: give {' or '.join(BY)}")
        for name, given, needed, needs in (
            ("--feed-token-file", self.feed_token_file, self.feed, "--feed"),
            ("--metrics-by", self.metrics_by, self.metrics, "--metrics"),
        ):
            if given and not needed:
                raise Failure(f"{name} needs more: add {needs} HOST:PORT")
        config = MeterConfig(
            feed=parse(self.feed, "--feed") if self.feed else None,
            feed_token=read_token(self.feed_token_file) or "" if self.feed else "",
            metrics=parse(self.metrics, "--metrics") if self.metrics else None,
            metrics_by=tuple(self.metrics_by or ()),
        )
        return config if config.wanted else None


def token_in(path: Path) -> str:
    """The token of a feed or a control API that a file contains."""
    from ....proxy.metrics.feed.layout import MAX_TOKEN

    token = read_text(path, f"the token of {path}").strip()
    if not 0 < len(token.encode()) <= MAX_TOKEN or not token.isprintable():
        raise Failure(f"{path} does not contain a token: write one line of up to {MAX_TOKEN} characters")
    return token


def read_token(path: Path | None) -> str | None:
    """The feed's token from a file, or from the environment; None when there is neither."""
    return token_in(path) if path is not None else os.environ.get(TOKEN_VARIABLE) or None


@dataclass(frozen=True, slots=True)
class ControlOptions:
    """The control API."""

    PANEL = "Control"

    control: Annotated[
        str,
        option(
            "Serve the control API here: HOST:PORT on loopback, unix:PATH, or off. The default is a free port on a "
            "terminal, otherwise off.",
            "HOST:PORT|unix:PATH|off",
        ),
    ] = ""
    control_values: Annotated[bool, option("Let the control API show keys and values of records.")] = False

    def config(self) -> ControlConfig | None:
        """None if it is off."""
        from ....proxy.control import ControlConfig

        where = self.control or ("127.0.0.1:0" if sys.stdout.isatty() else "off")
        if where == "off":
            if self.control_values:
                raise Failure("--control-values needs a control API: add --control 127.0.0.1:8090")
            return None
        if where.startswith("unix:"):
            path = where.removeprefix("unix:")
            if not path:
                raise Failure("--control unix:PATH needs a path, such as unix:/run/user/1000/barnabas.sock")
            return ControlConfig(path=Path(path).absolute(), show_values=self.control_values)
        return ControlConfig(parse(where, "--control"), show_values=self.control_values)


@dataclass(frozen=True, slots=True)
class TransparentOptions:
    """Transparent mode."""

    PANEL = "Transparent mode (Linux)"

    transparent: Annotated[
        str | None,
        option(
            "Accept connections that clients open to the brokers and `barnabas transparent up` redirects here: "
            "redirect or tproxy. Replaces --broker.",
            **choices("redirect", "tproxy"),
        ),
    ] = None
    keep_source: Annotated[bool, option("Connect to brokers from the clients' own addresses (tproxy).")] = False

    def config(self, broker: bool, sni_suffix: str) -> TransparentConfig | None:
        """None without transparent mode; `broker`: whether there is a --broker."""
        from ....proxy.relay.addressing.transparent import TransparentConfig

        if self.transparent is None:
            if self.keep_source:
                raise Failure("--keep-source needs --transparent tproxy")
            if not broker:
                raise Failure("which cluster? Give one of its brokers with --broker HOST:PORT")
            return None
        if broker:
            raise Failure("--transparent uses each client's own destination: leave --broker out")
        if sni_suffix:
            raise Failure("--transparent keeps the brokers' own names, and --sni-suffix changes them: leave one out")
        with value_of("--transparent"):
            return TransparentConfig(self.transparent, self.keep_source)


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """Limits, with the defaults of `Limits`, and how many processes the traffic may use."""

    PANEL = "Limits"

    connect_seconds: Annotated[float, option("Time limit for connecting to a broker.", "SECONDS", show_default=True)] = 10.0
    idle_seconds: Annotated[
        float, option("Close connections that have been idle for this long; 0: never.", "SECONDS", show_default=True)
    ] = 0.0
    max_connections: Annotated[
        int,
        option("Maximum number of open connections; more clients wait. 0: as many as the system allows.", "N", show_default=True),
    ] = 0
    max_frame: Annotated[
        int, option("Maximum size of a frame; a larger size is treated as damage.", "BYTES", show_default=True)
    ] = 512 << 20
    oversize: Annotated[
        str, option("What to do with a connection whose frame is larger: forward it unread, or close it.", show_default=True, **choices("pass", "close"))
    ] = "pass"
    max_brokers: Annotated[
        int,
        option(
            "Maximum number of brokers with a listener; never more than half of the open-file limit.", "N", show_default=True
        ),
    ] = 1000
    broker_expiry: Annotated[
        float,
        option("Close the listener of a broker that no response has named for this long; 0: never.", "SECONDS", show_default=True),
    ] = 900.0
    upstream_allow: Annotated[
        list[str] | None,
        option(
            "Connect only to --broker and to brokers in this network: 10.0.0.0/8, 10.0.0.0/8:9092-9094, [fd00::/8]:9092. "
            "May be repeated. Default: no restriction.",
            "NETWORK[:PORTS]",
        ),
    ] = None
    workers: Annotated[
        int, option("Number of relay processes that share the connections, for machines with many cores.", "N", show_default=True)
    ] = 1

    def config(self) -> Limits:
        """The limits of the relay."""
        from ....proxy.relay.limits import Limits

        try:
            return Limits(
                self.connect_seconds, self.idle_seconds, self.max_connections, self.max_frame, self.oversize,
                self.max_brokers, self.broker_expiry, tuple(self.upstream_allow or ()),
            )  # fmt: skip
        except ValueError as error:
            raise Failure(str(error)) from None

    def worker_count(self) -> int:
        """The number of relay processes."""
        from ....proxy.processes.worker_shared_state import MOST_WORKERS

        if not 1 <= self.workers <= MOST_WORKERS:
            raise Failure(f"--workers must be from 1 to {MOST_WORKERS}, not {self.workers}")
        return self.workers


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """How a recording is cut into segments, and how much of it is kept."""

    PANEL = "Recording"

    rotate_size: Annotated[str, option("Size of a segment (default 64MiB, or an eighth of --keep-size).", "SIZE")] = ""
    rotate_time: Annotated[str, option("Duration of a segment (default 1h, or an eighth of --keep-time).", "DURATION")] = ""
    keep_size: Annotated[
        str, option("Keep at most this much of the recording, such as 10GB; the oldest segments are removed.", "SIZE")
    ] = ""
    keep_time: Annotated[str, option("Keep segments for this long, such as 24h or 7d.", "DURATION")] = ""

    def config(self) -> RecordingConfig:
        """The settings of a recorder."""
        from ....proxy.observers.settings import RecordingConfig

        try:
            return RecordingConfig(
                amounts.size(self.rotate_size, "--rotate-size") if self.rotate_size else 0,
                amounts.seconds(self.rotate_time, "--rotate-time") if self.rotate_time else 0.0,
                amounts.size(self.keep_size, "--keep-size") if self.keep_size else None,
                amounts.seconds(self.keep_time, "--keep-time") if self.keep_time else None,
            )
        except ValueError as error:
            raise Failure(f"{error} (--rotate-size, --rotate-time, --keep-size, --keep-time)") from None


def snaplen(size: str) -> int | None:
    """Most bytes of a frame that are kept, from --snaplen; None for all."""
    from ....captures.recording.recorder import LEAST_SNAPLEN, MOST_SNAPLEN

    if not size:
        return None
    found = int(size) if size.strip().isdecimal() else amounts.size(size, "--snaplen")
    if not LEAST_SNAPLEN <= found <= MOST_SNAPLEN:
        raise Failure(
            f"--snaplen {size}: give {LEAST_SNAPLEN} bytes (a request's header) to {MOST_SNAPLEN >> 10} KiB; "
            "leave it out to keep whole frames"
        )
    return found


@dataclass(frozen=True, slots=True)
class FlightOptions:
    """The flight recorder."""

    PANEL = "Flight recorder"

    flight: Annotated[
        Path | None,
        option(
            "Keep the last minutes of traffic, and write them here when triggered: barnabas control flight, "
            "SIGUSR1, --flight-on, --flight-on-finding.",
            "DIR",
        ),
    ] = None
    flight_keep: Annotated[str, option("How much to keep: 5m, 512MB, or 5m,2GB (default 5m, at most 1GiB).", "DURATION,SIZE")] = ""
    flight_after: Annotated[str, option("Also write the traffic that follows, for this long (default 10s; 0s: none).", "DURATION")] = ""
    flight_on: Annotated[list[str] | None, option("Write a flight recording when an exchange matches. May be repeated.", "FILTER", autocompletion=filter_words)] = (
        None
    )
    flight_on_finding: Annotated[
        list[str] | None, option("Write a flight recording on a finding: its id, or high, medium, low. May be repeated.", "NAME", autocompletion=detector_names)
    ] = None
    flight_every: Annotated[
        str,
        option(
            "Shortest time between automatic flight recordings (default: the duration of --flight-keep); more triggers "
            "are only counted.",
            "DURATION",
        ),
    ] = ""
    flight_most: Annotated[int | None, option("Write no automatic flight recordings while DIR contains this many (default 20).", "N")] = None

    def config(self) -> FlightConfig | None:
        """None without --flight."""
        from ....proxy.observers.settings import FlightConfig

        if self.flight is None:
            for field in fields(self):
                if getattr(self, field.name):
                    raise Failure(f"--{field.name.replace('_', '-')} needs a flight recorder: add --flight DIR")
            return None
        seconds, size = amounts.window(self.flight_keep or "5m", "--flight-keep")
        default, after = FlightConfig(self.flight), self.flight_after.strip()
        with value_of("the flight recorder"):
            return FlightConfig(
                self.flight,
                seconds,
                default.bytes if size is None else size,
                default.after if not after else 0.0 if after in ("0", "0s") else amounts.seconds(after, "--flight-after"),
                amounts.seconds(self.flight_every, "--flight-every") if self.flight_every else 0.0,
                default.most if self.flight_most is None else self.flight_most,
                tuple(self.flight_on or ()),
                tuple(self.flight_on_finding or ()),
                times.zone() is None,
            )


@dataclass(frozen=True, slots=True)
class PluginOptions:
    """Plugins."""

    PANEL = "Plugins"

    plugin: Annotated[
        list[str] | None,
        option(
            "A plugin class that reads and changes messages: my.py, my.py:CLASS, or the name of an installed "
            "plugin; append settings as ?NAME=VALUE&.... May be repeated; the first is closest to the clients. "
            "Reloaded when the file is saved.",
            "PLUGIN",
        ),
    ] = None
    plugin_budget: Annotated[
        str, option("How long a message waits for plugins before it is forwarded unchanged (default 250ms).", "DURATION")
    ] = ""
    plugin_faults: Annotated[
        int | None, option("Disable a plugin after this many faults within a minute (default 5).", "N")
    ] = None
    plugin_memory: Annotated[str, option("Maximum memory for plugins (default 512MiB).", "SIZE")] = ""

    def config(self) -> PluginsConfig | None:
        """None without plugins."""
        from ....plugins.hooks import parse
        from ....proxy.relay.interception.plugin_host import PluginsConfig

        faults = self.plugin_faults
        if not self.plugin:
            if self.plugin_budget or faults is not None or self.plugin_memory:
                raise Failure("--plugin-budget, --plugin-faults and --plugin-memory need --plugin")
            return None
        default = PluginsConfig(tuple(parse(each) for each in self.plugin))
        if faults is not None and faults < 1:
            raise Failure(f"--plugin-faults must be at least 1, not {faults}")
        return PluginsConfig(
            default.sources,
            amounts.seconds(self.plugin_budget, "--plugin-budget") if self.plugin_budget else default.budget,
            default.faults if faults is None else faults,
            amounts.size(self.plugin_memory, "--plugin-memory") if self.plugin_memory else default.memory,
        )


@dataclass(frozen=True, slots=True)
class VersionOptions:
    """The versions that clients are offered, and translation."""

    PANEL = "Versions"

    cap: Annotated[
        list[str] | None,
        option(
            "Offer clients no higher versions of these APIs, and none that need them: Fetch=11,Produce=7. May be repeated.",
            "API=N",
        ),
    ] = None
    pretend: Annotated[
        str,
        option(
            "Present brokers to clients as this Kafka release, as far as they support its versions: 0.10.2, 2.8, 3.9-zk.",
            "RELEASE",
            autocompletion=release_names,
        ),
    ] = ""
    translate: Annotated[
        bool,
        option(
            "Convert requests in versions that the broker does not support to ones it does, and responses back: old "
            "clients on new brokers, and new clients on old ones."
        ),
    ] = False

    def config(self) -> VersionsConfig | None:
        """None without any option."""
        from ....plugins.versions.profile import Profile, caps
        from ....proxy.relay.negotiation.version_negotiation import VersionsConfig

        if not (self.cap or self.pretend or self.translate):
            return None
        with value_of("--pretend"):
            Profile.of(self.pretend)
        with value_of("--cap"):
            profile = Profile.of(self.pretend, caps(self.cap or ()))
        return VersionsConfig(profile if self.pretend or self.cap else None, self.translate)


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """The options of one cluster's proxy, which are also the keys of the config file."""

    broker: Annotated[
        list[str] | None,
        option(
            "A bootstrap broker, as in the clients' settings; separate several with commas, or repeat the option. "
            "If one is down, the proxy tries the next, then brokers it has found since.",
            "HOST:PORT",
        ),
    ] = None
    listen: Annotated[
        str | None,
        option(
            "Where clients connect (default 127.0.0.1:19092). Brokers get the following ports; with port 0, all get "
            "free ports.",
            "HOST:PORT",
        ),
    ] = None
    record: Annotated[Path | None, option("Record into this directory.", "DIR")] = None
    rules: Annotated[Path | None, option("Rules (YAML, JSON or TOML) to apply to the traffic.", "FILE")] = None
    lossless: Annotated[bool, option("Slow traffic down rather than lose any of it from the recording.")] = False
    findings: Annotated[
        bool | None, option("Print findings live. On by default on a terminal.")
    ] = None
    tls_with_clients: ClientTlsOptions = ClientTlsOptions()
    tls_with_brokers: BrokerTlsOptions = BrokerTlsOptions()
    sasl: SaslOptions = SaslOptions()
    meter: MeterOptions = MeterOptions()
    control: ControlOptions = ControlOptions()
    transparent: TransparentOptions = TransparentOptions()
    limits: LimitOptions = LimitOptions()
    recording: RecordingOptions = RecordingOptions()
    snaplen: Annotated[
        str,
        option(
            "Keep at most this many bytes of each frame, such as 4KiB. Large frames then cost less.",
            "SIZE",
            panel=RecordingOptions.PANEL,
        ),
    ] = ""
    flight: FlightOptions = FlightOptions()
    plugins: PluginOptions = PluginOptions()
    versions: VersionOptions = VersionOptions()
