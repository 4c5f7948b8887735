"""What a proxy acquires before any of its processes starts: the listener, what TLS and SASL need, and the sockets of the meter and of
the control API; and the settings of each process.

So whatever is not available is reported at once. Nothing stays open after an error.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from dataclasses import dataclass, replace

from ..control.startup import ControlStart
from ..events import Address, Event, Listening, show
from ..metrics.settings import MeterSockets
from ..observers.settings import FlightConfig, InspectorSettings, LiveSettings, ObserverSettings
from ..processes.shared_counters import FileRule
from ..processes.worker_shared_state import MOST_WORKERS
from ..relay.addressing.address_map import listen, reason
from ..relay.addressing.transparent import EVERYWHERE, prepare_listener
from ..relay.interception.plugin_host.forkserver_client import check
from ..relay.negotiation.security import SecurityConfig, describe, prepare
from ..relay.relay_settings import RelaySettings, ReservedAddress, WorkerResources
from ..ring.merged_rings import RingAccess
from .proxy_config import ProxyConfig, ProxyError
from .worker_pool import relay_names


@dataclass(frozen=True, slots=True)
class StartupResources:
    """own: where clients connect. upstream: the broker, or `EVERYWHERE`. security: for the relays."""

    listener: socket.socket
    own: Address
    upstream: Address
    security: SecurityConfig | None
    meter: MeterSockets | None
    control: ControlStart | None

    def first_events(self, config: ProxyConfig) -> list[Event]:
        """The first events of the proxy, once it serves clients."""
        first: list[Event] = [
            Listening(self.own, self.upstream, describe(config.tls, config.sasl), len(set(config.more_upstreams) - {self.upstream}))
        ]
        return first + [each.event for each in (self.meter, self.control) if each is not None]

    def reserved(self) -> tuple[ReservedAddress, ...]:
        """The proxy's own addresses: no broker's listener gets such a port, and no broker has such an address."""
        metrics = self.meter.metrics if self.meter is not None else None
        control = self.control.address if self.control is not None else None
        own = (metrics, "the proxy's metrics"), (control, "the control API")
        return tuple(ReservedAddress(*address, purpose) for address, purpose in own if address is not None)

    def release(self) -> None:
        """Close everything because the processes could not be started, except the listener, which the worker pool has by then."""
        if self.meter is not None:
            self.meter.close()
        if self.control is not None:
            self.control.close()
            self.control.end()


def acquire(config: ProxyConfig) -> StartupResources:
    """Acquire everything that `config` asks for; BarnabasError names what is not available."""
    host, port = config.listen
    if not 0 <= port < 65536:
        raise ProxyError(f"cannot listen on {show((host, port))}: ports are 0 to 65535")
    if not 1 <= config.workers <= MOST_WORKERS:
        raise ProxyError(f"a proxy must have 1 to {MOST_WORKERS} workers, not {config.workers}")
    security = prepare(config.tls, config.sasl)
    with ExitStack() as opened:
        listener = opened.enter_context(_listener(config))
        if config.plugins is not None:
            check(config.plugins)
        for broker in () if config.transparent else (config.upstream, *config.more_upstreams):
            if not broker[0] or not 0 < broker[1] < 65536:
                raise ProxyError(f"{show(broker)} is not a broker address: give HOST:PORT with --broker")
        meter = MeterSockets(config.meter) if config.meter and config.meter.wanted else None
        if meter is not None:
            opened.callback(meter.close)
        control = ControlStart(config.control, relay_names(config.workers)) if config.control else None
        opened.pop_all()
    upstream = EVERYWHERE if config.transparent else config.upstream
    return StartupResources(listener, listener.getsockname()[:2], upstream, security, meter, control)


def _listener(config: ProxyConfig) -> socket.socket:
    host, port = config.listen
    transparent = config.transparent
    try:
        return listen((host, port), (lambda sock: prepare_listener(sock, transparent.mode)) if transparent else None)
    except OSError as error:
        raise ProxyError(
            f"cannot listen on {show((host, port))}: {reason(error)}; choose another address with --listen"
        ) from None
    except UnicodeError:
        raise ProxyError(f"cannot listen on {host!r}: it is not a host name") from None


# -- what each process is given ------------------------------------------------------------------------------


def for_observer(config: ProxyConfig, access: RingAccess, control: ControlStart | None) -> ObserverSettings:
    return ObserverSettings(
        access,
        config.lossless,
        None if config.record is None else str(config.record.absolute()),
        config.recording,
        _flight(config),
        config.snaplen,
        control.process_end("observer") if control else None,
    )


def for_inspector(config: ProxyConfig, access: RingAccess, control: ControlStart | None) -> InspectorSettings:
    live = LiveSettings(control.config.keep, control.config.show_values) if control else None
    findings_from = str(config.findings_from) if config.findings else None
    return InspectorSettings(access, findings_from, _flight(config), live, control.process_end("inspector") if control else None)


def _flight(config: ProxyConfig) -> FlightConfig | None:
    """With an absolute path: a fork of the fork server has another working directory."""
    return replace(config.flight, directory=config.flight.directory.absolute()) if config.flight else None


def for_relay(
    config: ProxyConfig, resources: StartupResources, worker: WorkerResources, rules: tuple[FileRule, ...], commands: int | None
) -> RelaySettings:
    """commands: as of `RelaySettings`."""
    transparent = config.transparent
    return RelaySettings(
        resources=worker,
        upstream=resources.upstream,
        more_upstreams=() if transparent else config.more_upstreams,
        transparent=transparent,
        limits=config.limits,
        snaplen=config.snaplen,
        lossless_seconds=config.lossless_seconds,
        reloadable=config.reloadable,
        plugins=config.plugins,
        versions=config.versions,
        security=resources.security,
        probe=config.probe and not transparent,
        reserved=resources.reserved(),
        rules=rules,
        commands=commands,
    )
