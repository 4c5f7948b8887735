"""What each process of a proxy is told as it starts, and in what place it reads the ring."""

from __future__ import annotations

from typing import Any

from ..control.starting import ControlStart
from ..settings.proxy_config import ProxyConfig
from .preparing import Prepared

OBSERVER = 0
INSPECTOR = 1
"""Their numbers among the readers of the ring; `metering.READER` is the meter's."""
Settings = dict[str, Any]


def for_observer(config: ProxyConfig, bell: int, control: ControlStart | None) -> Settings:
    return {
        "reader": OBSERVER,
        "bell": bell,
        "record": None if config.record is None else str(config.record.absolute()),
        "recording": config.recording.settings(),
        "flight": config.flight.settings() if config.flight else None,
        "snaplen": config.snaplen,
        **(control.commands("observer") if control else {}),
    }


def for_inspector(config: ProxyConfig, bell: int, control: ControlStart | None) -> Settings:
    return {
        "reader": INSPECTOR,
        "bell": bell,
        "findings": config.findings,
        "findings_from": str(config.findings_from),
        "flight": config.flight.settings() if config.flight else None,
        **(control.commands("inspector") | control.watch if control else {}),
    }


def for_relays(config: ProxyConfig, ready: Prepared) -> Settings:
    """What all of them are told; rules and the place of each come besides."""
    transparent = config.transparent
    return {
        "upstream": ready.upstream,
        "more_upstreams": () if transparent else config.more_upstreams,
        "transparent": transparent.settings() if transparent else None,
        "limits": config.limits.settings(),
        "snaplen": config.snaplen,
        "lossless_seconds": config.lossless_seconds,
        "reloadable": config.reloadable,
        "plugins": config.plugins.settings() if config.plugins else None,
        "versions": config.versions.settings() if config.versions else None,
        "security": ready.security,
        "probe": config.probe and not transparent,
        "reserved": ready.reserved(),
    }
