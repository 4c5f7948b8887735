"""Which release a Java client may be that does not name itself, by the versions it uses.

Java clients use the highest version of an API that both ends know, and a release of the client knows the versions that
brokers of the same release offer. Before 2.4 they do not send their version (KIP-511).
"""

from __future__ import annotations

from ..reference import releases
from ..schema import facts
from .client_tracker import API_VERSIONS, ObservedClient

_JAVA = "apache-kafka-java"
_TELLING = facts.api_key_set(
    "Produce", "Fetch", "Metadata", "OffsetCommit", "OffsetFetch", "FindCoordinator", "JoinGroup", "Heartbeat", "SyncGroup"
)  # fmt: skip


def java_releases(client: ObservedClient) -> str:
    """``2.1 to 2.3``: the oldest and the newest release that use what this client used; "" if it is no Java client, if it
    names its version, or if no release fits."""
    software = client.software
    if client.software_name or software is None or software.client.name != _JAVA:
        return ""
    fitting = [number for number in releases.releases() if _fits(client, releases.release(number))]
    return f"{fitting[0]} to {fitting[-1]}" if fitting else ""


def _fits(client: ObservedClient, release: releases.Release) -> bool:
    used: dict[int, int] = {}
    for key, version in client.uses:
        used[key] = max(version, used.get(key, 0))
    for key in used.keys() & {*_TELLING, API_VERSIONS}:
        known = release.range(key)
        if known is None or used[key] > known[1]:
            return False
        # The first request is ApiVersions in the highest version that the client knows.
        offers = [high for _, high in client.ranges(key)] if key != API_VERSIONS else [known[1]]
        if offers and used[key] < min(known[1], *offers):
            return False
    return True
