"""The table `versions`: which clients use which version of which API, how often, and what the brokers offer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import compress
from typing import Any, NamedTuple

from ...decoder import State
from ...decoder.connection.api_versions import PeerInfo, Range
from ...decoder.schema import facts
from ...diagnostics import contained
from ..reading.capture import Capture
from ..reading.context import Origin
from ..reading.selection import IndexColumns
from ..recording.index import STATE_MASK, STATES, Index
from .columns import TABLES

_API_VERSIONS = facts.api_key("ApiVersions")
_ORPHAN = STATES.index(State.ORPHAN)
VERSIONS = TABLES["versions"]

PARTIAL_VERSIONS = TABLES["partial_versions"]

_Use = list[int]  # exchanges, errors, first, last
_Key = tuple[str | None, str | None, str | None, str | None, int, int]


class VersionRows:
    """The rows, of what is added."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._total: dict[_Key, _Use] = {}
        self._offers: dict[_Key, tuple[int, int]] = {}

    def count(self, index: Index, numbers: Iterable[int], peer_infos: Mapping[int, PeerInfo]) -> None:
        """Add these records of an index. `peer_infos`: what is known of both ends of its connections."""
        for number, client_id, key, version, use in uses_of_index(index, numbers):
            ends = index.connections.get(number)
            cluster_id = self._origin.context.broker(ends.broker if ends is not None else "").cluster_id
            self.add(peer_infos.get(number) or PeerInfo(), cluster_id, client_id, key, version, use)

    def add(
        self, about: PeerInfo, cluster_id: str | None, client_id: str | None, key: int, version: int, use: _Use
    ) -> None:
        """Count what a connection, of whose ends `about` is known, has sent: exchanges, errors, first and last time."""
        name = cluster_id, client_id, about.software_name or None, about.software_version or None, key, version
        known = self._total.setdefault(name, [0, 0, use[2], use[3]])
        known[:] = known[0] + use[0], known[1] + use[1], min(known[2], use[2]), max(known[3], use[3])
        offered = about.range(key)
        if offered is not None:
            before = self._offers.get(name, offered)
            self._offers[name] = max(before[0], offered[0]), min(before[1], offered[1])

    def rest(self) -> Iterator[dict[str, Any]]:
        """The rows, sorted."""
        total, offers = self._total, self._offers
        for name in sorted(total, key=lambda name: tuple((part is not None, part) for part in name)):
            cluster_id, client_id, software, version, key, api_version = name
            offered = offers.get(name)
            exchanges, errors, first, last = total[name]
            yield {
                "capture_id": self._origin.capture_id,
                "cluster_id": cluster_id,
                "client_id": client_id,
                "software_name": software,
                "software_version": version,
                "api": facts.api_name(key),
                "api_key": key,
                "api_version": api_version,
                "exchanges": exchanges,
                "errors": errors,
                "first_ns": first,
                "last_ns": last,
                "offered_min": None if offered is None else offered[0],
                "offered_max": None if offered is None else offered[1],
            }


class ClientUse(NamedTuple):
    """What a connection has sent, of one API and version under one client id: exchanges, errors, first and last time."""

    connection: int
    client_id: str | None
    api_key: int
    api_version: int
    use: _Use


def learn_versions(capture: Capture, segment: int, peer_infos: dict[int, PeerInfo]) -> None:
    """Learn what the ApiVersions exchanges of a segment say of both ends of its connections. No other exchange is read."""
    index = capture.segments[segment].index
    for number, (key,) in enumerate(IndexColumns(index).tuples(("api_key",), 0, index.count), capture.starts[segment]):
        if key != _API_VERSIONS:
            continue
        try:
            exchange = capture.exchange(number)
            peer_infos.setdefault(exchange.connection, PeerInfo()).learn(exchange)
        except Exception as error:  # damaged bytes, or a fault of the decoder: then less is known of its software
            contained("reading the versions that a client asked for", error)


def uses_of_index(index: Index, numbers: Iterable[int]) -> Iterator[ClientUse]:
    """What these records of an index show."""
    wanted = bytearray(index.count)
    for number in numbers:
        wanted[number] = 1
    found: dict[tuple[int, int, int, int], _Use] = {}
    columns = ("time_ns", "connection", "api_key", "api_version", "error", "flags", "client_id")
    for time_ns, *name, error, flags, client_id in compress(IndexColumns(index).tuples(columns, 0, index.count), wanted):
        if flags & STATE_MASK == _ORPHAN:
            continue
        use = found.setdefault((name[0], client_id, name[1], name[2]), [0, 0, time_ns, time_ns])
        use[:] = use[0] + 1, use[1] + bool(error), min(use[2], time_ns), max(use[3], time_ns)
    for (number, client, key, version), use in sorted(found.items()):
        yield ClientUse(number, index.string(client), key, version, use)


def partial_versions(index: Index, numbers: Iterable[int], peer_infos: Mapping[int, PeerInfo], origin: Origin) -> Iterator[dict[str, Any]]:
    """The rows of `partial_versions` of these records of an index."""
    for number, client_id, key, version, use in uses_of_index(index, numbers):
        ends, about = index.connections.get(number), peer_infos.get(number) or PeerInfo()
        yield {
            "capture_id": origin.capture_id,
            "connection": number,
            "broker": ends.broker if ends is not None else "",
            "client_id": client_id,
            "software_name": about.software_name or None,
            "software_version": about.software_version or None,
            "api_key": key,
            "api_version": version,
            "exchanges": use[0],
            "errors": use[1],
            "first_ns": use[2],
            "last_ns": use[3],
            "offered": None if about.offered is None else {str(each): found for each, found in sorted(about.offered.items())},
        }


def versions_of_parts(parts: Callable[[], Iterable[Mapping[str, Any]]], origin: Origin) -> Iterator[dict[str, Any]]:
    """The rows of a recording. `parts`: gives the rows of `partial_versions` of its segments, in their order; called twice, because
    what a client calls itself holds for what it sent before."""
    peer_infos: dict[int, PeerInfo] = {}
    offers: dict[str, dict[int, Range]] = {}  # those of very many connections are the same
    for part in parts():
        about = peer_infos.setdefault(part["connection"], PeerInfo())
        if part["software_name"] or part["software_version"]:
            about.software_name, about.software_version = part["software_name"] or "", part["software_version"] or ""
        text = part["offered"]
        if text is not None:
            if text not in offers:
                offers[text] = {int(key): (low, high) for key, (low, high) in json.loads(text).items()}
            about.offered = offers[text] if about.offered in (None, offers[text]) else about.offered | offers[text]
    found = VersionRows(origin)
    for part in parts():
        use = [part["exchanges"], part["errors"], part["first_ns"], part["last_ns"]]
        cluster_id = origin.context.broker(part["broker"]).cluster_id
        found.add(peer_infos[part["connection"]], cluster_id, part["client_id"], part["api_key"], part["api_version"], use)
    return found.rest()
