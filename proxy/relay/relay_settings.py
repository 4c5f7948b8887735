"""What a relay is started with."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..events import Address
from ..processes.shared_counters import FileRule
from .addressing.transparent import TransparentConfig
from .interception.plugin_host.config import PluginsConfig
from .limits import Limits
from .negotiation.security import SecurityConfig
from .negotiation.version_negotiation import VersionsConfig


@dataclass(frozen=True, slots=True)
class BrokerListener:
    """The listener that workers have opened for a broker, by its file descriptor."""

    fd: int
    broker: Address


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerResources:
    """What one of several relays that share listeners and address map works with, by file descriptors.

    room_bell: wakes it when a lossless reader has caught up. bells: wake the readers of the ring, by their numbers. worker_bells: wake
    each worker. worker: its number among the `workers`, from 0. fixed_ports: brokers' listeners get the ports after the bootstrap
    listener's.
    """

    ring: int
    room_bell: int
    shared_state: int
    listener: int
    bells: dict[int, int] = field(default_factory=dict)
    worker_bells: tuple[int, ...] = ()
    broker_listeners: tuple[BrokerListener, ...] = ()
    worker: int = 0
    workers: int = 1
    lossless: bool = False
    fixed_ports: bool = False


@dataclass(frozen=True, slots=True)
class ReservedAddress:
    """An address that the proxy itself uses, and for what."""

    host: str
    port: int
    purpose: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """commands: the descriptor of the channel to the control server, if there is one. Others: as of `ProxyConfig`."""

    resources: WorkerResources
    upstream: Address
    more_upstreams: tuple[Address, ...] = ()
    transparent: TransparentConfig | None = None
    limits: Limits = field(default_factory=Limits)
    snaplen: int | None = None
    lossless_seconds: float = 15.0
    reloadable: bool = False
    plugins: PluginsConfig | None = None
    versions: VersionsConfig | None = None
    security: SecurityConfig | None = None
    probe: bool = False
    reserved: tuple[ReservedAddress, ...] = ()
    rules: tuple[FileRule, ...] = ()
    commands: int | None = None
