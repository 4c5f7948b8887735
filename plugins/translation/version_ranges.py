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
NEEDED = {facts.api_key("JoinGroup"): 1}
"""What clients of today need beyond the lowest versions of the newest brokers: kafka-go joins groups with 1 or 2."""
_BETWEEN_BROKERS = frozenset({"WriteTxnMarkersRequest", "AlterPartitionRequest", "AllocateProducerIdsRequest"})


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


def of_clients(api_key: int) -> bool:
    """Whether clients send it, and not only brokers among themselves."""
    request = facts.api(api_key).request
    return "broker" in request.listeners and request.name not in _BETWEEN_BROKERS


def face_of(served: Ranges) -> releases.Release:
    """The newest release up to `CURRENT` that has no API of clients which the broker lacks; at least the first with ApiVersions."""
    names = [name for name in releases.releases() if releases.release_order(name) <= releases.release_order(CURRENT)]
    known = [each for each in map(releases.release, names) if each.negotiates]
    complete = (each for each in reversed(known) if all(key in served for key in each.offered if of_clients(key)))
    return next(complete, known[0])


def shown(served: Ranges, face: str = "") -> dict[int, tuple[int, int]]:
    """Api key -> what clients are shown: all that is older, and of what is newer no more than `face` has.

    Without a `face`: that of `face_of`, as clients (kafka-python) infer a release from versions, and then use its other APIs;
    and the lowest versions that the newest brokers still serve, which every client of today must be able to use.
    """
    needed = releases.release(face) if face else face_of(served)
    least = releases.release(face or releases.releases()[-1])
    found: dict[int, tuple[int, int]] = {}
    for key, ends in served.items():
        try:
            low, high = bridgeable(key, ends)
        except KeyError:  # an API newer than the tables
            found[key] = ends
            continue
        most, today = needed.served(key), least.served(key)
        wanted = (most[1] if most else 0, today[0] if today else 0, 0 if face else NEEDED.get(key, 0))
        found[key] = low, max(ends[1], min(high, max(wanted)))
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
