"""The screens behind the keys 1 to 9. Each is a module of its own, imported when it is first shown."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """A view: its name, a short one for narrow screens, and where it is."""

    name: str
    short: str
    module: str
    cls: str


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
