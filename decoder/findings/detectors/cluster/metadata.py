"""Metadata requested too often, or for topics that do not exist or must not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ....codec.message_view import MessageView
from ....connection.exchange import Exchange, State
from ....embedded.topics import COORDINATORS
from ....schema import facts
from ...engine.clusters import Cluster
from ...engine.counters import BoundedDict, RateCounter, Tally
from ...engine.detector import Detector, Wanted
from ...engine.finding import Severity
from ...engine.formatting import SECOND, duration, number, several, size, times, topic_name
from ...engine.layout import layout
from ...engine.traffic import ClientConnection, ClientIdentity

METADATA = facts.api_key("Metadata")
CREATE_TOPICS = facts.api_key("CreateTopics")
LOOKUPS = tuple(facts.api_key(n) for n in ("Metadata", "FindCoordinator", "DescribeTopicPartitions", "DescribeCluster"))
UNKNOWN = facts.error_code_set("UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID")
INVALID_TOPIC = facts.error_code("INVALID_TOPIC_EXCEPTION")
LEADER_NOT_AVAILABLE = facts.error_code("LEADER_NOT_AVAILABLE")


def asks_for_all(message: MessageView) -> bool:
    """Whether a Metadata request asks for all topics: null, and before version 1 an empty list."""
    topics = message.values[0]
    return topics is None or (message.api_version == 0 and not topics)


class TopicMetadata(NamedTuple):
    """A topic in a Metadata response."""

    name: str
    error: int
    partitions: tuple[Any, ...]


def topics_of(exchange: Exchange) -> Iterator[TopicMetadata]:
    """The topics of a Metadata response."""
    message = exchange.response_view
    if exchange.state is not State.PAIRED or message is None:
        return
    names = layout(message.plan.root, "topics")
    for topic in message.values[layout(message.plan.root)["topics"]] or ():
        name = topic[names["name"]]
        if not name and "topic_id" in names and any(topic[names["topic_id"]]):
            name = topic_name(exchange, topic[names["topic_id"]])
        yield TopicMetadata(name or "", topic[names["error_code"]], topic[names["partitions"]] or ())


class MetadataStorm(Detector):
    id = "metadata-storm"
    severity = Severity.LOW
    title = "a client sends Metadata (or FindCoordinator, DescribeCluster ...) many times a second, for seconds"
    why = (
        "the answers rarely change; clients cache them for metadata.max.age.ms (5 min) and ask again after an error. "
        "For each answer, a broker must go through all topics requested, and the time counts against the request "
        "quota."
    )
    remedy = (
        "look for code that lists topics, calls partitions_for() or describes the cluster inside a loop: ask once and "
        "keep the answer; leave metadata.max.age.ms (librdkafka: topic.metadata.refresh.interval.ms; Python: "
        "metadata_max_age_ms) at 300000 and retry.backoff.ms at 100 or more"
    )
    apis = frozenset(LOOKUPS)

    EACH_SECOND = 4
    SECONDS = 6
    """Of the last 10 s. Clients ask at their start, after errors, and then every metadata.max.age.ms (5 min)."""
    WORSE_EACH_SECOND = 50

    def setup(self) -> None:
        self._paces: BoundedDict[tuple[int, int], RateCounter] = BoundedDict(8192)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED or exchange.request_time_ns is None:
            return
        # A refused request is retried by design; one that never succeeds is another finding. Among all topics
        # one may always have an error.
        if exchange.error and not self._for_all(exchange):
            return
        pace = self._paces.of((conn.number, exchange.api_key), RateCounter)
        pace.add(exchange.request_time_ns)
        if pace.busy(self.EACH_SECOND) < self.SECONDS:
            return
        finding = self.report((conn.identity, exchange.api_key), exchange, per_second=0.0)
        if finding.count == 1:
            finding.count = pace.total
        rate = finding.about["per_second"] = round(max(pace.rate, finding.about.get("per_second", 0.0)), 1)
        finding.severity = Severity.MEDIUM if rate >= self.WORSE_EACH_SECOND else Severity.LOW
        finding.seen = (
            f"{conn.who} sends {exchange.api} {number(rate)} times a second{' for all topics' if self._for_all(exchange) else ''}, "
            f"{size(exchange.response_size or 0)} per answer, {times(finding.count)} so far"
        )

    @staticmethod
    def _for_all(exchange: Exchange) -> bool:
        asked = exchange.request_view if exchange.api_key == METADATA else None
        return asked is not None and asks_for_all(asked)

    def closed(self, conn: ClientConnection) -> None:
        for api in LOOKUPS:
            self._paces.pop((conn.number, api), None)


class AllTopicsPolling(Detector):
    id = "all-topics-polling"
    severity = Severity.LOW
    title = "Metadata of all topics is requested often, with large responses"
    why = (
        "a request without topic names returns every partition of the cluster. Pattern subscriptions and topic "
        "listings send such requests; on a large cluster they cost the broker more than the records do."
    )
    remedy = (
        "subscribe by name instead of by pattern, or use the KIP-848 protocol with an RE2J pattern, which the broker "
        "evaluates (group.protocol=consumer); raise metadata.max.age.ms; list topics less often"
    )
    apis = frozenset({METADATA})

    COUNT = 5
    BIG = 200_000
    """Bytes of an answer; a cluster with some thousand partitions. Smaller ones cost little."""
    EACH_NS = 30 * SECOND
    """Asked more often than every 30 s on average; exporters and consoles ask once a minute or so."""

    def setup(self) -> None:
        self._tallies: BoundedDict[ClientIdentity, Tally] = BoundedDict(4096)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED or (exchange.response_size or 0) < self.BIG:
            return
        message = exchange.request_view
        if message is None or not asks_for_all(message):
            return
        time_ns = exchange.request_time_ns or 0
        tally = self._tallies.of(conn.identity, Tally)
        tally.add(time_ns, exchange.response_size or 0)
        if tally.count < self.COUNT or time_ns - tally.first_ns > self.EACH_NS * tally.count:
            return
        finding = self.report(conn.identity, exchange)
        finding.count = tally.count
        finding.seen = (
            f"{conn.who} asked for the Metadata of all topics {times(tally.count)} in {duration(time_ns - tally.first_ns)}: "
            f"{size(tally.size)} of answers"
        )


@dataclass(slots=True)
class _UnknownTopic:
    """A topic that a client asks for and brokers do not know. `found`: a later response had it."""

    conn: ClientConnection
    first_ns: int
    last_ns: int
    error: int
    count: int = 0
    found: bool = False
    exchanges: list[Exchange] = field(default_factory=list)


class UnknownTopicLoop(Detector):
    id = "unknown-topic-loop"
    severity = Severity.MEDIUM
    title = "clients repeatedly request a topic that does not exist"
    why = (
        "producers wait for the topic for max.block.ms (Java 60 s; librdkafka: message.timeout.ms), consumers wait "
        "without an error; meanwhile each client asks again every retry.backoff.ms. A principal without DESCRIBE on "
        "the topic also gets UNKNOWN_TOPIC_OR_PARTITION."
    )
    remedy = (
        "check the name for typing errors, and check that this is the right cluster; create the topic "
        "(kafka-topics.sh --create) before its clients start; grant DESCRIBE; librdkafka consumers: set "
        "allow.auto.create.topics=true only where brokers have auto.create.topics.enable"
    )
    apis = frozenset({METADATA})

    COUNT = 5
    LASTING_NS = 3 * SECOND
    """A topic that was just created is unknown to brokers for some 100 ms."""
    LONG_NS = 10 * SECOND
    """Longer than anybody takes to create a topic."""

    def setup(self) -> None:
        self._unknown: BoundedDict[tuple[ClientIdentity, str], _UnknownTopic] = BoundedDict(5000)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if not exchange.error and not self._unknown:
            return
        for topic in topics_of(exchange):
            key = conn.identity, topic.name
            if topic.error not in UNKNOWN:
                if key in self._unknown:
                    self._unknown[key].found = True
                continue
            time_ns = exchange.response_time_ns or 0
            case = self._unknown.get(key)
            if case is None or case.found:
                case = self._unknown[key] = _UnknownTopic(conn, time_ns, time_ns, topic.error)
            case.count, case.last_ns = case.count + 1, time_ns
            if case.count < self.COUNT or case.last_ns - case.first_ns < self.LASTING_NS:
                continue
            finding = self.report(key, exchange, topic=topic.name, error=facts.error_name(topic.error))
            finding.count = case.count
            finding.first_ns = case.first_ns

    def finish(self, now_ns: int) -> None:
        for key, case in self._unknown.items():
            finding = self._found.get(key)
            if finding is None:
                continue
            lasting = case.last_ns - case.first_ns
            end = "; then the topic existed" if case.found else ""
            if not case.found:
                finding.severity = Severity.HIGH if lasting >= self.LONG_NS else Severity.MEDIUM
            else:
                finding.severity = Severity.LOW
            finding.seen = (
                f"{case.conn.who} asked for topic {key[1]!r} {times(case.count)} in {duration(lasting)} and got "
                f"{finding.about['error']} from {case.conn.where}{end}"
            )


class InvalidTopicName(Detector):
    id = "invalid-topic-name"
    severity = Severity.HIGH
    title = "a topic name that Kafka does not allow"
    why = "such a topic cannot exist, so every retry fails too; the error is not retriable."
    remedy = (
        "correct the name in the client's configuration: look for spaces, slashes, or a list that was not split at "
        "its commas"
    )
    apis = frozenset({METADATA, CREATE_TOPICS})
    wanted = Wanted.FAILED

    LONGEST = 249
    """Characters: org.apache.kafka.common.internals.Topic.MAX_NAME_LENGTH."""
    LEGAL = re.compile(r"[a-zA-Z0-9._-]")

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED or not exchange.error:
            return
        if exchange.api_key == METADATA:
            refused = [t.name for t in topics_of(exchange) if t.error == INVALID_TOPIC]
        else:
            message = exchange.response_view
            topics = message.to_dict()["topics"] if message else ()
            refused = [t["name"] for t in topics if t["error_code"] == INVALID_TOPIC]
        for name in refused:
            shown = name if len(name) <= 60 else name[:57] + "..."
            self.report(
                (conn.identity, name),
                exchange,
                seen=f"{conn.who} asks for topic {shown!r} and {conn.where} answers INVALID_TOPIC_EXCEPTION: {self._fault(name)}",
                topic=name,
                error="INVALID_TOPIC_EXCEPTION",
            )

    def _fault(self, name: str) -> str:
        if not name:
            return "it is empty"
        if name in (".", ".."):
            return "it is a directory name"
        if len(name) > self.LONGEST:
            return f"it has {len(name)} characters; the maximum is {self.LONGEST}"
        wrong = sorted({c for c in name if not self.LEGAL.fullmatch(c)})
        if wrong:
            return f"it contains {' '.join(repr(c) for c in wrong[:4])}; only letters, digits and . _ - are allowed"
        return "the broker gives no reason; a name that differs from an existing one only in . and _ is also refused"


class TopicMadeByAsking(Detector):
    id = "topic-auto-created"
    severity = Severity.INFO
    title = "a topic was created because a client asked for it (auto.create.topics.enable)"
    why = (
        "with auto.create.topics.enable, a mistyped name creates a topic with the broker's num.partitions and "
        "default.replication.factor instead of the planned values."
    )
    remedy = (
        "to prevent this, set auto.create.topics.enable=false on the brokers and allow.auto.create.topics=false on "
        "consumers, and create topics explicitly"
    )
    apis = frozenset({METADATA, CREATE_TOPICS})

    WITHIN_NS = 5 * SECOND

    def setup(self) -> None:
        self._asked: BoundedDict[tuple[Cluster, str], tuple[int, ClientConnection]] = BoundedDict(5000)
        self._made: BoundedDict[str, bool] = BoundedDict(5000)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        message = exchange.request_view
        if exchange.state is not State.PAIRED or message is None:
            return
        if exchange.api_key == CREATE_TOPICS:
            for topic in message.values[0]:
                self._made[topic[0]] = True
            return
        if not exchange.error and not self._asked:
            return
        # Before version 4 every request lets the broker create.
        allowed = message.api_version < 4 or message.values[1]
        time_ns = exchange.response_time_ns or 0
        for topic in topics_of(exchange):
            key = conn.cluster, topic.name
            if topic.error in UNKNOWN or topic.error == LEADER_NOT_AVAILABLE:
                if allowed and not asks_for_all(message) and topic.name not in COORDINATORS:
                    self._asked[key] = time_ns, conn
            elif not topic.error and key in self._asked:
                since, asker = self._asked.pop(key)
                if time_ns - since <= self.WITHIN_NS and topic.name not in self._made:
                    count = len(topic.partitions)
                    self.report(
                        key,
                        exchange,
                        seen=f"topic {topic.name!r} ({several(count, 'partition')}) was created after {asker.who} had asked for "
                        f"it with allow_auto_topic_creation; no CreateTopics was seen",
                        facts=asker.facts_of(exchange),
                        topic=topic.name,
                        partitions=count
                    )
