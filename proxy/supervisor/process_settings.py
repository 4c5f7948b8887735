"""What each process of a proxy is given as it starts."""

from __future__ import annotations

from dataclasses import replace

from ..control.startup import ControlStart
from ..observers.settings import FlightConfig, InspectorSettings, LiveSettings, ObserverSettings
from ..ring.merged_rings import RingAccess
from ..settings.proxy_config import ProxyConfig
from ..settings.relay_settings import FileRule, RelaySettings, WorkerResources
from .startup_resources import StartupResources


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
