"""The features that brokers of a release offer in ApiVersions from version 3 on (KIP-584).

The facts are in ``features.txt``; its head says how to read them and where they are from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from ...decoder.reference.releases import Release, release_order

NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Features:
    """`supported`: (min, max) by name."""

    supported: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def restrict(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The replaced fields of an ApiVersions response: without features, and levels of features, that the release
        lacks."""
        supported = []
        for each in fields["supported_features"]:
            low, high = self.supported.get(each["name"], (0, -1))
            low, high = max(low, each["min_version"]), min(high, each["max_version"])
            if low <= high:
                supported.append(each | {"min_version": low, "max_version": high})
        levels = {each["name"]: each["max_version"] for each in supported}
        finalized = [
            each
            | {
                "max_version_level": min(each["max_version_level"], levels[each["name"]]),
                "min_version_level": min(each["min_version_level"], levels[each["name"]]),
            }
            for each in fields["finalized_features"]
            if each["name"] in levels
        ]
        limited: dict[str, Any] = {"supported_features": supported, "finalized_features": finalized}
        if not self.supported:
            limited["finalized_features_epoch"] = NO_EPOCH
        return limited


def of_release(release: Release) -> Features:
    """What brokers of a release support: nothing in ZooKeeper mode."""
    if release.role == "zk":
        return Features()
    wanted = release_order(release.name)
    fitting = [found for number, found in _table().items() if number <= wanted[:2]]
    return fitting[-1] if fitting else Features()


@cache
def _table() -> dict[tuple[int, ...], Features]:
    return read(resources.files(__package__).joinpath("features.txt").read_text("utf-8"))


def read(text: str) -> dict[tuple[int, ...], Features]:
    """The releases of ``features.txt``, oldest first; ValueError names the line that is wrong."""
    found: dict[tuple[int, ...], Features] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#", 1)[0].strip()
        if not words:
            continue
        release, _, listed = words.partition("  ")
        supported = {}
        for entry in listed.split(","):
            name, _, levels = entry.strip().rpartition(" ")
            low, _, high = levels.partition("-")
            if not name or not low.isdigit() or (high and not high.isdigit()):
                raise ValueError(f"features.txt line {number}: expected 'name 0-1', not {entry.strip()!r}")
            supported[name] = (int(low), int(high or low))
        found[release_order(release)] = Features(supported)
    return dict(sorted(found.items()))
