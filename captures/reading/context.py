"""What rows about one exchange need from other exchanges of its recording: names of topic ids, and brokers' clusters and ids.

A client asks for Metadata once, at the start; requests name topics by id alone (KIP-516), and addresses of brokers by nothing
else. So a segment rarely says what its topics, broker and cluster are called, and the segments before it do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...decoder import Topics
from ...decoder.connection.topics import NAMING_APIS
from ...decoder.findings import Clusters
from ...decoder.schema import facts
from .capture import Capture
from .selection import IndexColumns

TELLING = NAMING_APIS | facts.api_key_set("Metadata", "DescribeCluster")
"""The APIs whose responses say it."""


class Broker(NamedTuple):
    """What is known of a broker's address; None where nothing is."""

    cluster_id: str | None = None
    broker_id: int | None = None


_UNKNOWN = Broker()


class Context:
    """What is known about one recording, or of a foreign capture.

    `topics`: names by id. `brokers`: by ``host:port``. `cluster`: the id for all addresses, whatever responses say; "" for theirs.
    """

    def __init__(self, brokers: Mapping[str, Broker] | None = None, topics: Topics | None = None, cluster: str = "") -> None:
        self.cluster = cluster
        self.brokers = dict(brokers or {})
        self.topics = Topics() if topics is None else topics
        ids = {broker.cluster_id for broker in self.brokers.values() if broker.cluster_id}
        self._only = Broker(ids.pop()) if len(ids) == 1 else _UNKNOWN

    @property
    def cluster_id(self) -> str | None:
        """The id of the only cluster, None if there are several or none is known."""
        return self.cluster or self._only.cluster_id

    def broker(self, address: str) -> Broker:
        """The broker at an address. One that no response lists, such as a bootstrap address, belongs to the only cluster."""
        found = self.brokers.get(address, self._only)
        if self.cluster:
            return Broker(self.cluster, found.broker_id)
        return found if found.cluster_id else Broker(self._only.cluster_id, found.broker_id)


class Origin(NamedTuple):
    """What the rows of a file are from: the columns `capture_id` and `segment`, and what is known about the recording."""

    capture_id: str
    segment: str
    context: Context


def merged(known: Mapping[str, Broker], new: Mapping[str, Broker]) -> dict[str, Broker]:
    """What both know; of an address that both have, the parts that are known."""
    both = dict(known)
    for address, broker in new.items():
        old = both.get(address, _UNKNOWN)
        both[address] = Broker(
            broker.cluster_id or old.cluster_id, old.broker_id if broker.broker_id is None else broker.broker_id
        )
    return both


def contexts_of(capture: Capture, known: Context | None = None) -> dict[str, Context]:
    """The contexts of a capture's recordings, by `recording_of` a segment; all share the names of topics. `known`: what is known
    from elsewhere."""
    before = Context() if known is None else known
    topics = before.topics
    clusters: dict[str, Clusters] = {}
    seen: set[Any] = set()
    for segment, file in enumerate(capture.segments):
        name = recording_of(capture, segment)
        here = clusters.setdefault(name, Clusters())
        base, behind = capture.starts[segment : segment + 2]
        for number, (key,) in enumerate(IndexColumns(file.index).tuples(("api_key",), 0, behind - base), base):
            if key not in TELLING:
                continue
            exchange = capture.exchange(number)
            leg = exchange.marks.broker_response
            what = name, exchange.broker, key, exchange.api_version, (exchange.response or b"")[4:], leg and leg.frame[4:]
            if what not in seen:  # nearly all are the same
                seen.add(what)
                topics.learn(exchange)
                here.learn(exchange)
    return {
        name: Context(merged(before.brokers, brokers_of(here)), topics, before.cluster) for name, here in clusters.items()
    }


def brokers_of(clusters: Clusters) -> dict[str, Broker]:
    """The brokers that responses listed, or came from."""
    return {
        address: Broker(cluster.id or None, cluster.node_at(address)) for address, cluster in clusters.addresses.items() if address
    }


def recording_of(capture: Capture, segment: int) -> str:
    """The scope of connection numbers and addresses: a recording, or a foreign file."""
    own = capture.segments[segment].own
    return own.recording if own is not None else str(segment)
