"""The target cluster: its versions, brokers, leaders and coordinators, and the replay's own requests to it."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ... import decoder
from ...decoder.codec.message import Message
from ...decoder.connection import api_versions
from ...decoder.schema import facts
from .dialer import Address, Dialer, TargetFailed, receive_frame

CLIENT_ID = "barnabas-replay"
SECONDS = 15.0
_PRODUCE = facts.api_key("Produce")
_PRODUCE_SERVED, _PRODUCE_OF_4 = 3, 12
"""Brokers from 4.0 on (whose highest version is at least the second) offer Produce from version 0 on, for librdkafka
(KAFKA-18659), and refuse versions below the first (KIP-896)."""
_LATEST = -1
_TRANSACTION, _GROUP = 1, 0


class TargetTopic(NamedTuple):
    """`topic_id`: 16 bytes, zeros where the target has no topic ids; `leaders`: broker ids by partition."""

    topic_id: bytes
    leaders: dict[int, int]


class TargetCluster:
    """Sends requests on its own connections, one per broker, and waits for the responses.

    `offers`: api key -> (lowest, highest) version. `brokers`: id -> address. `topics`: by name. `cluster_id`: None before
    Kafka 0.10.1.
    """

    def __init__(self, address: Address, dialer: Dialer) -> None:
        self.address = address
        self.offers: dict[int, tuple[int, int]] = {}
        self.brokers: dict[int, Address] = {}
        self.cluster_id: str | None = None
        self.topics: dict[str, TargetTopic] = {}
        self._dialer = dialer
        self._sockets: dict[Address, socket.socket] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._correlation = 0
        self._negotiate()
        self.refresh()

    def close(self) -> None:
        for sock in self._sockets.values():
            sock.close()
        self._sockets.clear()

    def ask(self, api: str, fields: Mapping[str, Any], node: int | None = None, most: int | None = None) -> Message:
        """Send a request in the highest version that both know (at most `most`); the response. Raises TargetFailed."""
        key = facts.api_key(api)
        known = facts.api(key).versions
        offered = self.offers.get(key)
        version = 0 if offered is None else min(offered[1], known.every()[-1], most or 1 << 15)
        if offered is not None and version < offered[0]:
            raise TargetFailed(f"{api} at version {version} is no longer offered by the target")
        self._correlation += 1
        try:
            frame = decoder.encode_request(key, version, fields, correlation_id=self._correlation, client_id=CLIENT_ID)
        except decoder.EncodeError as error:
            raise TargetFailed(f"{api} v{version} cannot ask this: {error}") from None
        answer = self._converse(self.address_of(node), frame, f"{api} v{version}")
        try:
            return decoder.read_response(answer, api_key=key, api_version=version)
        except decoder.DecodeError as error:
            raise TargetFailed(f"{self.address[0]}:{self.address[1]} gave an invalid response to {api} v{version}: {error}; is it a Kafka broker?") from None

    def _converse(self, address: Address, frame: bytes, what: str) -> bytes:
        """Send a request frame; the response frame."""
        try:
            sock = self._sockets.get(address)
            if sock is None:
                sock = self._sockets[address] = self._dialer.dial(address)
                sock.settimeout(SECONDS)
            sock.sendall(len(frame).to_bytes(4, "big") + frame)
            return receive_frame(sock)
        except OSError as error:
            self._sockets.pop(address, socket.socket()).close()
            raise TargetFailed(
                f"{address[0]}:{address[1]} did not answer {what}: {error}; is it a Kafka broker, and does its "
                "listener require TLS (--broker-tls) or a login (--sasl-mechanism)?"
            ) from None

    def address_of(self, node: int | None) -> Address:
        """A broker's address; for a single broker the given one, as it may not be reachable at its advertised address."""
        return self.address if node is None or len(self.brokers) < 2 else self.brokers.get(node, self.address)

    def _negotiate(self) -> None:
        self._correlation += 1
        request = api_versions.request(correlation_id=self._correlation, client_id=CLIENT_ID)
        try:
            answer = api_versions.read(self._converse(self.address, request, "ApiVersions v0"), 0)
        except decoder.DecodeError as error:
            raise TargetFailed(f"{self.address[0]}:{self.address[1]} gave an invalid response to ApiVersions v0: {error}; is it a Kafka broker?") from None
        self.offers = dict(answer.ranges)
        lowest, highest = self.offers.get(_PRODUCE, (0, 0))
        if lowest < _PRODUCE_SERVED <= _PRODUCE_OF_4 <= highest:
            self.offers[_PRODUCE] = _PRODUCE_SERVED, highest
        if not self.offers:
            raise TargetFailed(f"{self.address[0]}:{self.address[1]} offers no API ({facts.error_name(answer.error_code)})")

    def refresh(self) -> None:
        """Read brokers, topics and leaders again."""
        answer = self.ask("Metadata", {"topics": []} if self._oldest_metadata() else {"topics": None}).to_dict()
        self.brokers = {b["node_id"]: (b["host"], b["port"]) for b in answer["brokers"]}
        self.cluster_id = answer.get("cluster_id")
        self.topics = {}
        for topic in answer["topics"]:
            if topic["error_code"] or topic["name"] is None:
                continue
            leaders = {p["partition_index"]: p["leader_id"] for p in topic["partitions"]}
            identity = topic["topic_id"].bytes if "topic_id" in topic else bytes(16)
            self.topics[topic["name"]] = TargetTopic(identity, leaders)
        self._coordinators.clear()

    def _oldest_metadata(self) -> bool:
        return self.offers.get(facts.api_key("Metadata"), (0, 0))[1] == 0

    def leader(self, topic: str, partition: int) -> int | None:
        """The id of the broker that leads a partition; None if that is not known."""
        found = self.topics.get(topic)
        node = found.leaders.get(partition) if found else None
        return node if node in self.brokers else None

    def group_coordinator(self, group: str) -> int | None:
        """The broker that coordinates a group; None if there is none (yet)."""
        return self._coordinator(_GROUP, group)

    def transaction_coordinator(self, transactional_id: str) -> int | None:
        """The broker that coordinates a transactional id; None if there is none (yet)."""
        return self._coordinator(_TRANSACTION, transactional_id)

    def _coordinator(self, kind: int, key: str) -> int | None:
        known = self._coordinators.get((kind, key))
        if known is None:
            answer = self.ask("FindCoordinator", {"key": key, "key_type": kind}, most=3).to_dict()
            if answer["error_code"]:
                return None
            known = self._coordinators[kind, key] = answer["node_id"]
        return known

    def create(self, topics: Mapping[str, int]) -> dict[str, str]:
        """Create topics with so many partitions; returns the errors by topic."""
        factor = min(3, len(self.brokers)) or 1
        rows = [{"name": n, "num_partitions": max(1, p), "replication_factor": factor} for n, p in topics.items()]
        answer = self.ask("CreateTopics", {"topics": rows, "timeout_ms": int(SECONDS * 1000)}, most=7).to_dict()
        return {t["name"]: facts.error_name(t["error_code"]) for t in answer["topics"] if t["error_code"]}

    def ends(self, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        """The end offsets of logs by (topic, partition); unknown ones are left out."""
        wanted: dict[int, dict[str, list[int]]] = {}
        for topic in topics:
            for partition, leader in self.topics[topic].leaders.items() if topic in self.topics else ():
                wanted.setdefault(leader, {}).setdefault(topic, []).append(partition)
        found = {}
        for leader, rows in wanted.items():
            asked = [{"name": t, "partitions": [{"partition_index": p, "timestamp": _LATEST} for p in ps]} for t, ps in rows.items()]
            fields = {"replica_id": -1, "topics": asked}
            for topic in self.ask("ListOffsets", fields, leader, most=7).to_dict()["topics"]:
                for partition in topic["partitions"]:
                    if not partition["error_code"] and partition.get("offset", -1) >= 0:
                        found[topic["name"], partition["partition_index"]] = partition["offset"]
        return found

    def producer(self) -> tuple[int, int]:
        """A producer id and epoch of the replay's own."""
        answer = self.ask("InitProducerId", {"transactional_id": None, "transaction_timeout_ms": 60_000}, most=4).to_dict()
        if answer["error_code"]:
            raise TargetFailed(f"the target assigns no producer id: {facts.error_name(answer['error_code'])}")
        return answer["producer_id"], answer["producer_epoch"]
