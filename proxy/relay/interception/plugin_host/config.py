"""Which plugins a proxy has, and what they may cost."""

from __future__ import annotations

from dataclasses import dataclass

from .....plugins.hooks.sources import PluginSource

BUDGET_SECONDS = 0.25
FAULTS = 5
FAULT_SECONDS = 60.0
"""So many faults in so long disable a plugin."""
MEMORY = 512 << 20


@dataclass(frozen=True, slots=True)
class PluginsConfig:
    """sources: the plugins, the one nearest to the clients first. budget: seconds a message waits for all of its hooks; then
    it goes on as it came. faults: so many within a minute, and a plugin is disabled. memory: bytes that plugins may use."""

    sources: tuple[PluginSource, ...]
    budget: float = BUDGET_SECONDS
    faults: int = FAULTS
    memory: int = MEMORY
