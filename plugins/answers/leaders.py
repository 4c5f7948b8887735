"""The leaders of partitions, as Metadata names them, and errors that name the leader (KIP-951).

A broker that no longer leads a partition says in its answer which broker does. An injected error names the leader and
the epoch that Metadata has: a client that follows it goes on with the right broker at once, and one that wants a newer
epoch asks for Metadata, as without the hint. No newer epoch is made up: the broker would not know it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...bounded import BoundedDict
from ...decoder import Topics, decode_response, read_response
from ...decoder.codec.message import Message
from ...decoder.filter.entities import TopicPartition
from ...decoder.schema import error_places, facts
from .leaves import leaves

_METADATA = facts.api_key("Metadata")
MOST_BYTES, MOST_PARTITIONS = 8 << 20, 100_000
"""Bytes of Metadata responses that are kept until a leader is asked for; partitions that are remembered after that."""
EPOCHS = 7
"""The version of Metadata that leader epochs came with."""


class Leader(NamedTuple):
    """A partition's leader by node id, and its epoch."""

    node: int
    epoch: int


class Leaders:
    """The leaders that Metadata responses name; they are read when a leader is asked for."""

    def __init__(self) -> None:
        self._unread: deque[tuple[bytes, int]] = deque()
        """Frames and versions: once decoded, a message takes six times as much."""
        self._size = 0
        self._known: dict[tuple[str, int], Leader] = BoundedDict(MOST_PARTITIONS)

    def learn(self, metadata: Message) -> None:
        """Take a Metadata response."""
        if metadata.api_version < EPOCHS or len(metadata.frame) > MOST_BYTES:
            return
        self._unread.append((metadata.frame, metadata.api_version))
        self._size += len(metadata.frame)
        while self._size > MOST_BYTES:
            self._size -= len(self._unread.popleft()[0])

    def of(self, place: TopicPartition) -> Leader | None:
        """The leader of a partition; None if it is not known, or there is none."""
        while self._unread:
            frame, version = self._unread.popleft()
            self._read(read_response(frame, api_key=_METADATA, api_version=version))
        self._size = 0
        return self._known.get((place.topic or "", -1 if place.partition is None else place.partition))

    def _read(self, metadata: Message) -> None:
        for topic in metadata["topics"]:
            for each in topic["partitions"]:
                found = Leader(each["leader_id"], each["leader_epoch"])
                at = topic["name"] or "", each["partition_index"]
                self._known.pop(at, None)
                if found.node >= 0 and found.epoch >= 0:
                    self._known[at] = found


def with_leaders(
    frame: bytes, request: Message, code: int, known: Leaders, brokers: Mapping[int, Any], topics: Topics
) -> bytes:
    """A response frame with an error, in which the entries with it name their leaders, as far as these are known.
    `brokers`: the fields of a node's endpoint by its id."""
    key, version = request.api_key, request.api_version
    if error_places.fields(key, code).get("current_leader") != "leader":
        return frame
    message = decode_response(frame, api_key=key, api_version=version)
    if not any(field.name == "node_endpoints" for field in message.plan.root.fields):
        return frame
    edits: dict[str, Any] = {}
    named: dict[int, Any] = {}
    for leaf in leaves(message, topics):
        entry, inner, _ = leaf.struct.rpartition("current_leader.")
        if not inner or leaf.field.name != "leader_id" or message[entry + "error_code"] != code:
            continue
        leader = known.of(leaf.part.pair)
        if leader is not None and leader.node in brokers:
            edits |= {leaf.path: leader.node, leaf.struct + "leader_epoch": leader.epoch}
            named[leader.node] = brokers[leader.node]
    return message.replace(edits | {"node_endpoints": list(named.values())}).encode() if edits else frame
