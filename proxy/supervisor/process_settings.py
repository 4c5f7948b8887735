"""What each process of a proxy is given as it starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..control.startup import ControlStart
from ..observers.settings import FlightConfig, InspectorSettings, LiveSettings, ObserverSettings
from ..ring.merged_rings import RingAccess
from ..settings.proxy_config import ProxyConfig
from .startup_resources import StartupResources

Settings = dict[str, Any]


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


def for_relays(config: ProxyConfig, resources: StartupResources) -> Settings:
    """What all relays are given; each also gets the rules and its place in the worker pool."""
    transparent = config.transparent
    return {
        "upstream": resources.upstream,
        "more_upstreams": () if transparent else config.more_upstreams,
        "transparent": transparent.settings() if transparent else None,
        "limits": config.limits.settings(),
        "snaplen": config.snaplen,
        "lossless_seconds": config.lossless_seconds,
        "reloadable": config.reloadable,
        "plugins": config.plugins.settings() if config.plugins else None,
        "versions": config.versions.settings() if config.versions else None,
        "security": resources.security,
        "probe": config.probe and not transparent,
        "reserved": resources.reserved(),
    }
