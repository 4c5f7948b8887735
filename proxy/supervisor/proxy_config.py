"""What a proxy is made of: the settings that its owner gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ...errors import BarnabasError
from ...plugins.rules.rules import Rule
from ..control.startup import ControlConfig
from ..events import Address
from ..metrics.settings import MeterConfig
from ..observers.settings import FlightConfig, RecordingConfig
from ..relay.addressing.transparent import TransparentConfig
from ..relay.interception.plugin_host.config import PluginsConfig
from ..relay.limits import Limits
from ..relay.negotiation.sasl import SaslConfig
from ..relay.negotiation.security import TlsConfig
from ..relay.negotiation.version_negotiation import VersionsConfig


class ProxyError(BarnabasError):
    """The proxy cannot start; the text is one line for the user."""


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """The settings of a proxy.

    upstream: (host, port) of a bootstrap broker; more_upstreams: the others, if there are several (`bootstrap`). listen: where clients connect; with port 0 every listener gets any
    free port, otherwise brokers get the ports that follow. record: directory for recordings, None to only count.
    recording: its segments, and how much of it is kept. flight: a flight recorder. snaplen: no more than so many bytes
    of a frame are recorded (`captures.recording.recorder`), and where much more follows nobody in here sees it.
    lossless: the relay waits for the observer instead of dropping what it misses; one that reads nothing for lossless_seconds
    meanwhile is ended and replaced. probe: connect to the broker once
    at the start, so that an unreachable one is reported early. findings: report problems in the traffic as they happen
    (`events.FindingSeen`), from severity findings_from on ("info", "low", "medium" or "high"). ring_bytes: 0 for the
    default. drain_seconds: how long `stop` may take; most of it to wait for responses in flight. transparent: the kernel brings connections
    to brokers here; `upstream` is not used then (`transparent.EVERYWHERE`), and no address is changed. tls, sasl: TLS
    with clients or brokers, and a login at the brokers for clients that do not log in. meter: who gets what is counted
    (live feed, Prometheus). limits: time to connect, idle time, number of connections, size of a frame.
    control: offer the control API. reloadable: the rules may be replaced while the proxy runs (`replace_rules`).
    workers: so many relay processes share the listeners, for machines with many cores. plugins: classes of the user's own
    that see messages and change them. versions: the versions that clients are offered, and whether others are
    converted.
    """

    upstream: Address
    listen: Address = ("127.0.0.1", 0)
    record: Path | None = None
    recording: RecordingConfig = field(default_factory=RecordingConfig)
    flight: FlightConfig | None = None
    snaplen: int | None = None
    rules: list[Rule] = field(default_factory=list)
    lossless: bool = False
    lossless_seconds: float = 15.0
    probe: bool = True
    findings: bool = False
    findings_from: str = "low"
    ring_bytes: int = 0
    drain_seconds: float = 5.0
    transparent: TransparentConfig | None = None
    tls: TlsConfig | None = None
    sasl: SaslConfig | None = None
    meter: MeterConfig | None = None
    limits: Limits = field(default_factory=Limits)
    control: ControlConfig | None = None
    reloadable: bool = False
    workers: int = 1
    plugins: PluginsConfig | None = None
    versions: VersionsConfig | None = None
    more_upstreams: tuple[Address, ...] = ()

    @property
    def flight_wakes(self) -> bool:
        """Whether something in the traffic makes the flight recorder write."""
        return self.flight is not None and self.flight.wakes
