"""The screens behind the keys 1 to 9. Each is a module of its own, imported when it is first shown."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from ..shell import View


class Place(NamedTuple):
    """A view: its name, a short one for narrow screens, and where it is."""

    name: str
    short: str
    module: str
    cls: str

    def make(self) -> View:
        """The screen."""
        made: View = getattr(import_module(f".{self.module}", __name__), self.cls)()
        return made


PLACES: tuple[Place, ...] = (
    Place("Exchanges", "Exch", "exchanges", "ExchangesScreen"),
    Place("Connections", "Conns", "connections", "ConnectionsScreen"),
    Place("Groups", "Groups", "groups", "GroupsScreen"),
    Place("Versions", "Vers", "versions", "VersionsScreen"),
    Place("Problems", "Probl", "problems", "ProblemsScreen"),
    Place("Latency", "Lat", "latency", "LatencyScreen"),
    Place("Rules", "Rules", "rules", "RulesScreen"),
    Place("Log", "Log", "log", "LogScreen"),
    Place("Held", "Held", "held", "HeldScreen"),
)
