"""The recorded cluster: its brokers, topics and coordinators, at the addresses that are served now; and the versions it offers
(ApiVersions): those that the recorded broker offered, or those that the recording can answer.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from enum import StrEnum
from typing import Any
from uuid import UUID

from ...decoder.schema import facts
from ..replay.version_conversion import NotExpressible, convert_item
from .answers import LiveRequest, LiveSession, NotRecorded, Reply
from .recorded_answers import ServingProgress, describe
from .recorded_exchanges import TELEMETRY, RecordedExchange, RecordedExchanges, addresses

UNKNOWN_TOPIC = facts.error_code("UNKNOWN_TOPIC_OR_PARTITION")
METADATA = facts.api_key("Metadata")
_GROUP, _TRANSACTION = 0, 1


class ServedCluster:
    """`ports` gives each node its served port; a client gets the host by which it found the server."""

    def __init__(self, recorded: RecordedExchanges, progress: ServingProgress, ports: dict[int, int]) -> None:
        self._recorded, self._progress, self._ports = recorded, progress, ports
        self._topics: dict[str, dict[int, tuple[RecordedExchange, dict[str, Any]]]] = defaultdict(dict)
        self._all: list[int] = []
        self._at: dict[int, RecordedExchange] = {}
        self._coordinators: dict[tuple[int, str], dict[int, tuple[RecordedExchange, dict[str, Any]]]] = defaultdict(dict)
        self._read_metadata()
        self._read_coordinators()

    @property
    def groups(self) -> set[str]:
        """The groups whose coordinator was asked for."""
        return {key for kind, key in self._coordinators if kind == _GROUP}

    def _read_metadata(self) -> None:
        for exchange in self._recorded.of("Metadata"):
            self._at[exchange.position] = exchange
            asked = exchange.request["topics"]
            for topic in exchange.response.to_dict()["topics"]:
                name = topic["name"] or self._recorded.topic_of(topic)
                if name:
                    self._topics[name][exchange.position] = exchange, topic
            if asked is None or (not asked and exchange.api_version == 0):
                self._all.append(exchange.position)
        for position in self._all:  # a list of all topics also shows which are not there
            exchange = self._at[position]
            for name, known in self._topics.items():
                if position not in known:
                    known[position] = exchange, {"error_code": UNKNOWN_TOPIC, "name": name, "partitions": []}

    def _read_coordinators(self) -> None:
        for exchange in self._recorded.of("FindCoordinator"):
            asked, answered = exchange.request.to_dict(), exchange.response.to_dict()
            for item in answered.get("coordinators") or [answered | {"key": asked.get("key", "")}]:
                self._coordinators[asked.get("key_type", 0), item["key"]][exchange.position] = exchange, item

    def metadata(self, request: LiveRequest) -> Reply:
        """Topics as they stood at this place of the recording. Raises `NotRecorded` when none was recorded at all."""
        if not self._at:
            raise NotRecorded(describe(request.message, ()))
        wanted = request.fields["topics"]
        unknown: list[str] = []
        if wanted is None or (not wanted and request.version == 0):
            source, topics = self._every_topic(request)
        else:
            source, topics = self._at[max(self._at)], []
            for topic in wanted:
                name = self._recorded.topic_of(topic)
                known = self._topics.get(name)
                if not known:
                    unknown.append(name or str(topic.get("topic_id")))
                    there = {"error_code": UNKNOWN_TOPIC, "partitions": []}
                    topics.append(there | {key: value for key, value in topic.items() if value is not None})
                    continue
                position = self._progress.place(("topic", name), sorted(known), frozenset({name}))
                source, item = known[position]
                topics.append(self._topic(request, source, item, name))
        fields = request.fitting(source.response.to_dict() | {"topics": topics})
        self._every_broker(fields, source)
        reply = Reply(fields, "recorded" if source.api_version == request.version else "restated", source)
        if unknown:
            what = f"Metadata v{request.version} for {', '.join(sorted(unknown))}"
            raise NotRecorded(what, self._like(unknown[0]), reply, len(unknown) == len(topics))
        return reply

    def _every_topic(self, request: LiveRequest) -> tuple[RecordedExchange, list[dict[str, Any]]]:
        if self._all:
            source = self._at[self._progress.place("all topics", self._all, frozenset())]
            return source, [
                self._topic(request, source, item, item["name"]) for item in source.response.to_dict()["topics"]
            ]
        topics = []
        source = self._at[max(self._at)]
        for name, known in sorted(self._topics.items()):
            source, item = known[self._progress.place(("topic", name), sorted(known), frozenset({name}))]
            if not item["error_code"]:
                topics.append(self._topic(request, source, item, name))
        return source, topics

    def _topic(self, request: LiveRequest, source: RecordedExchange, item: dict[str, Any], name: str) -> dict[str, Any]:
        try:
            found = convert_item(METADATA, "topics", source.response.api_version, request.version, item)
        except NotExpressible as lost:
            raise NotRecorded(
                f"Metadata v{request.version} for {name} (recorded at v{source.api_version}, and {lost})", source
            ) from None
        if request.version >= 10 and "topic_id" not in found and name in self._recorded.topic_ids and not item["error_code"]:
            found["topic_id"] = UUID(bytes=self._recorded.topic_ids[name])
        return found

    def _every_broker(self, fields: dict[str, Any], source: RecordedExchange) -> None:
        """Old answers list live brokers; a client must find every leader that it is given."""
        there = {broker["node_id"] for broker in fields["brokers"]}
        leaders = {p["leader_id"] for topic in fields["topics"] for p in topic["partitions"]}
        for node in sorted((leaders - there) & set(self._recorded.brokers)):
            host, port = self._recorded.brokers[node]
            fields["brokers"].append({"node_id": node, "host": host, "port": port})

    def _like(self, name: str) -> RecordedExchange | None:
        near = difflib.get_close_matches(name, self._topics, 1, 0.0)
        return self._at[max(self._topics[near[0]])] if near else None

    def find_coordinator(self, request: LiveRequest) -> Reply:
        """The recorded coordinator of a group or transaction. Raises `NotRecorded`."""
        kind = request.fields.get("key_type", 0)
        keys = request.fields["coordinator_keys"] if "coordinator_keys" in request.fields else [request.fields["key"]]
        items, source = [], None
        for key in keys:
            known = self._coordinators.get((kind, key))
            if not known:
                raise NotRecorded(f"FindCoordinator v{request.version} for {key}", self._coordinator_like(key))
            source, item = known[self._progress.place(("coordinator", kind, key), sorted(known), frozenset({key}))]
            items.append(item | {"key": key})
        if "coordinator_keys" in request.fields:
            return Reply({"coordinators": [self._only(item, True) for item in items]}, "recorded", source)
        return request.reply(self._only(items[0], False), "recorded", source)

    @staticmethod
    def _only(item: dict[str, Any], keyed: bool) -> dict[str, Any]:
        names = ("key", "node_id", "host", "port", "error_code", "error_message")[0 if keyed else 1 :]
        return {name: item[name] for name in names if name in item}

    def _coordinator_like(self, key: str) -> RecordedExchange | None:
        near = difflib.get_close_matches(key, [name for _, name in self._coordinators], 1, 0.0)
        found = next((known for (_, name), known in self._coordinators.items() if near and name == near[0]), None)
        return found[max(found)][0] if found else None

    def readdress(self, fields: dict[str, Any], session: LiveSession) -> None:
        """Put the served addresses in place of the recorded ones."""
        places = addresses(fields)
        for path, node, host, port in places:
            if not host:
                continue
            served = self._ports.get(node)
            if served is None:
                served = next(
                    (self._ports[n] for n, a in self._recorded.brokers.items() if a == (host, port) and n in self._ports),
                    None,
                )
            if served is None and self._ports:
                served = self._ports[min(self._ports)]
            if served is not None:
                at = _inside(fields, path)
                at["host"], at["port"] = session.local_host, served


def _inside(fields: dict[str, Any], path: str) -> dict[str, Any]:
    """The dict at ``brokers[0].`` of `fields`."""
    value: Any = fields
    for step in path.rstrip(".").split("."):
        if step:
            name, _, index = step.rstrip("]").partition("[")
            value = value[name][int(index)]
    found: dict[str, Any] = value
    return found


API_VERSIONS = facts.api_key("ApiVersions")
UNSUPPORTED = facts.error_code("UNSUPPORTED_VERSION")


class OfferMode(StrEnum):
    """Which APIs and versions clients are offered."""

    RECORDED = "recorded"
    """what the recorded broker offered, so that the same client speaks the same versions again"""
    ANSWERABLE = "answerable"
    """only APIs that are in the recording, up to the highest recorded version"""


class Offers:
    """The offered versions. `simulated` are the APIs that are answered at every known version."""

    def __init__(self, recorded: RecordedExchanges, simulated: frozenset[str], offer: OfferMode) -> None:
        self._fields: dict[str, Any] = {}
        self._nothing = not recorded.all
        ranges: dict[int, tuple[int, int]] = {}
        for exchange in recorded.of("ApiVersions"):
            fields = exchange.response.to_dict()
            if not fields["error_code"] and len(fields) >= len(self._fields):
                self._fields = fields
        for item in self._fields.get("api_keys", ()):
            ranges[item["api_key"]] = item["min_version"], item["max_version"]
        if offer is OfferMode.ANSWERABLE or not ranges:
            ranges = self._answerable(recorded, simulated, ranges)
        if TELEMETRY[0] not in recorded.by_api:
            for key in TELEMETRY:
                ranges.pop(key, None)
        self.ranges: dict[int, tuple[int, int]] = {}
        for key, (low, high) in sorted(ranges.items()):
            if key in facts.api_keys():
                known = facts.api(key).versions.every()
                if max(low, known[0]) <= min(high, known[-1]):
                    self.ranges[key] = max(low, known[0]), min(high, known[-1])

    @staticmethod
    def _answerable(
        recorded: RecordedExchanges, simulated: frozenset[str], offered: dict[int, tuple[int, int]]
    ) -> dict[int, tuple[int, int]]:
        found: dict[int, tuple[int, int]] = {}
        for key, known in recorded.by_api.items():
            versions = [exchange.api_version for exchange in known]
            low = facts.api(key).versions.low if facts.api_name(key) in simulated else min(versions)
            if key in offered:
                low = max(low, offered[key][0])
            found[key] = low, max(versions)
        known_here = facts.api(API_VERSIONS).versions.every()
        found.setdefault(API_VERSIONS, (known_here[0], known_here[-1]))
        return found

    def answer(self, request: LiveRequest) -> Reply:
        """The offer; to a version that is not offered, the refusal that brokers give (KIP-511). Raises `NotRecorded` for an empty
        recording."""
        if self._nothing:
            raise NotRecorded(f"ApiVersions v{request.version}, the first request of all")
        low, high = self.ranges.get(API_VERSIONS, (0, 0))
        items = [{"api_key": key, "min_version": a, "max_version": b} for key, (a, b) in self.ranges.items()]
        if not low <= request.version <= high:
            return self.refusal()
        fields = self._fields | {"error_code": 0, "api_keys": items, "throttle_time_ms": 0}
        return request.reply(fields, "recorded")

    def refusal(self) -> Reply:
        """A broker's answer to a version of ApiVersions that it does not have: version 0, with its own range."""
        low, high = self.ranges.get(API_VERSIONS, (0, 0))
        own = [{"api_key": API_VERSIONS, "min_version": low, "max_version": high}]
        return Reply({"error_code": UNSUPPORTED, "api_keys": own}, version=0)
