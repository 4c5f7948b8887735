"""The versions that clients are offered: what the broker serves, and what can be bridged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...decoder.reference import releases
from ...decoder.schema import facts
from .steps import why_impossible

Ranges = Mapping[int, tuple[int, int]]
API_VERSIONS = facts.api_key("ApiVersions")
CURRENT = "2.1"
"""Current clients expect brokers of at least this release (Kafka 4.0's upgrade notes)."""


def served_by(offered: Ranges) -> dict[int, tuple[int, int]]:
    """What a broker serves that offers this; 4.x offers versions of Produce that it does not serve (KAFKA-18659)."""
    return {key: (releases.served_from(key, ends), ends[1]) for key, ends in offered.items()}


def of_release(release: releases.Release) -> dict[int, tuple[int, int]]:
    """What brokers of a release serve with default settings."""
    return {key: (offer.served_from, offer.high) for key, offer in release.offers.items() if not offer.optional}


def bridgeable(api_key: int, ends: tuple[int, int]) -> tuple[int, int]:
    """The lowest and the highest version that can be bridged to a broker that serves `ends`."""
    versions = facts.api(api_key).versions.every()
    low, high = ends
    while low > versions[0] and why_impossible(api_key, low - 1, ends[0]) is None:
        low -= 1
    while high < versions[-1] and why_impossible(api_key, high + 1, ends[1]) is None:
        high += 1
    return low, high


def shown(served: Ranges, face: str = CURRENT) -> dict[int, tuple[int, int]]:
    """Api key -> what clients are shown: all that is older, and of what is newer no more than `face` has.

    Higher versions promise more than the broker can do, so no more of them are shown than current clients need.
    """
    needed = releases.release(face)
    found: dict[int, tuple[int, int]] = {}
    for key, ends in served.items():
        try:
            low, high = bridgeable(key, ends)
        except KeyError:  # an API newer than the tables
            found[key] = ends
            continue
        most = needed.served(key)
        found[key] = low, max(ends[1], min(high, most[1] if most else 0))
    if API_VERSIONS not in found:
        found[API_VERSIONS] = facts.api(API_VERSIONS).versions.low, 3
    return found


def entries(ranges: Ranges) -> list[dict[str, Any]]:
    """The list of an ApiVersions response."""
    return [{"api_key": k, "min_version": low, "max_version": high} for k, (low, high) in sorted(ranges.items())]


def extended(listed: Sequence[Mapping[str, Any]], shown: Ranges) -> list[dict[str, Any]]:
    """A broker's list with the ranges that are `shown`, where it has the API at all."""
    out = []
    for entry in listed:
        low, high = shown.get(entry["api_key"], (entry["min_version"], entry["max_version"]))
        # 4.x offers Produce from 0 on: what is offered stays offered.
        out.append({**entry, "min_version": min(low, entry["min_version"]), "max_version": high})
    if API_VERSIONS in shown and all(entry["api_key"] != API_VERSIONS for entry in listed):
        out += entries({API_VERSIONS: shown[API_VERSIONS]})
    return out
