"""What rows about one exchange need from other exchanges of its recording: names of topic ids, and brokers' clusters and ids.

A client asks for Metadata once, at the start; requests name topics by id alone (KIP-516), and addresses of brokers by nothing
else. So a segment rarely says what its topics, broker and cluster are called, and the segments before it do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ...decoder import Topics
from ...decoder.connection.topics import NAMING_APIS
from ...decoder.findings import Clusters
from ...decoder.schema import facts
from ..native.accelerator import native
from ..recording.bulk_frames import chunks
from .capture import Capture
from .reader import CaptureFile
from .selection import IndexColumns, has_numpy

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
    seen: set[tuple[str, _Said]] = set()
    for segment, file in enumerate(capture.segments):
        name = recording_of(capture, segment)
        here = clusters.setdefault(name, Clusters())
        base, behind = capture.starts[segment : segment + 2]
        for number, said in _telling(file, behind - base):
            if said is not None and (name, said) in seen:  # nearly all are the same
                continue
            exchange = capture.exchange(base + number)
            leg = exchange.marks.broker_response
            response, original = (exchange.response or b"")[4:], None if leg is None else leg.frame[4:]
            said = _Said(exchange.broker, exchange.api_key, exchange.api_version, response, original)
            if (name, said) not in seen:
                seen.add((name, said))
                topics.learn(exchange)
                here.learn(exchange)
    return {
        name: Context(merged(before.brokers, brokers_of(here)), topics, before.cluster) for name, here in clusters.items()
    }


class _Said(NamedTuple):
    """What a response says, and who: its bytes without the correlation id, and if the proxy changed it, those of the broker."""

    broker: str
    api_key: int
    api_version: int
    response: bytes
    original: bytes | None


def _telling(file: CaptureFile, count: int) -> Iterator[tuple[int, _Said | None]]:
    """Of the first `count` exchanges of a file, those that may say something, by their numbers; with what they say where the exchange need
    not be read for it.

    That takes 3 us instead of 35. Header tables take an eighth of the CPU where two of nine exchanges are Metadata, and a third where one
    of fifty is (small exchanges of `bench/spark/traffic.py`). tests/captures/reading/test_context.py compares the two.
    """
    index = file.index
    if not count or native is None or not has_numpy():
        for number, (key,) in enumerate(IndexColumns(index).tuples(("api_key",), 0, count)):
            if key in TELLING:
                yield number, None
        return
    import numpy as np

    records = index.array()[:count]
    numbers = np.flatnonzero(np.isin(records["api_key"], list(TELLING)))
    sizes = records["request_size"][numbers].astype(np.int64) + records["response_size"][numbers]
    for some in chunks(numbers, sizes):
        placed = file.frames(records[some])
        if placed is None:
            yield from ((number, None) for number in some.tolist())
            continue
        heads = (records[name][some].tolist() for name in ("connection", "api_key", "api_version", "response_size"))
        for number, plain, start, connection, key, version, size in zip(
            some.tolist(), placed.plain.tolist(), placed.responses.tolist(), *heads, strict=True
        ):
            ends = index.connections.get(connection)
            whole = plain and start >= 0
            response = bytes(placed.data[start + 4 : start + size]) if whole else b""
            yield number, _Said(ends.broker if ends else "", key, version, response, None) if whole else None


def brokers_of(clusters: Clusters) -> dict[str, Broker]:
    """The brokers that responses listed, or came from."""
    return {
        address: Broker(cluster.id or None, cluster.node_at(address)) for address, cluster in clusters.addresses.items() if address
    }


def recording_of(capture: Capture, segment: int) -> str:
    """The scope of connection numbers and addresses: a recording, or a foreign file."""
    own = capture.segments[segment].own
    return own.recording if own is not None else str(segment)
