"""Producers that wait: for a leader, or for replicas in sync."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ....connection.exchange import Exchange
from ....schema.facts import error_code, error_code_set, error_name
from ...engine.counters import LruDict
from ...engine.finding import Finding, Severity
from ...engine.formatting import SECOND, duration, several, some, times
from ...engine.traffic import ClientConnection, Traffic
from ...models.leaders import Named, named_leader
from ...models.next_steps import NextSteps, PendingStep, place_of
from ...models.produce import METADATA, PRODUCE, PartitionProduceResponse, ProduceDetector, said

LEADER_ERRORS = error_code_set(
    "NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PARTITION", "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH", "UNKNOWN_TOPIC_ID", "INCONSISTENT_TOPIC_ID", "REPLICA_NOT_AVAILABLE",
)  # fmt: skip


@dataclass(slots=True)
class Trouble:
    """A partition that a client cannot write to: from the first refusal to the next success.

    `answers`: how often it was refused. `step`: what the client is to do about it. `replicas`: how many Metadata named
    since, and how many of them in sync.
    """

    conn: ClientConnection
    place: str
    first_ns: int
    last_ns: int
    answers: int = 0
    step: PendingStep | None = None
    replicas: tuple[int, int] = (0, 0)


_LOW_NS = 5 * SECOND
"""An election is over within a few seconds; what takes longer holds records back for longer than it should."""
_MEDIUM_NS = 30 * SECOND
"""A quarter of Java's delivery.timeout.ms (120 s), all of request.timeout.ms: records begin to be given up."""
_GONE_NS = 10 * SECOND
"""After this long without success, while traffic goes on, it is not an election."""
_APART_NS = 30 * SECOND
"""Refusals that begin this far apart have different causes."""
_PARTITIONS = 10_000
_SHOWN = 100


class _Refusals(NamedTuple):
    """Error codes that are followed. explain: why and remedy of a code. Given `Finding.about`, rate: the severity; details: the end of
    `Finding.seen`."""

    codes: frozenset[int]
    explain: Callable[[int], tuple[str, str]]
    rate: Callable[[dict[str, Any]], Severity]
    details: Callable[[dict[str, Any]], str] = lambda about: ""


class _RefusedPartitions(ProduceDetector):
    """Follows partitions from the first of `REFUSALS` to the next success, and reports them by client and code."""

    apis = frozenset({PRODUCE})
    REFUSALS: ClassVar[_Refusals]

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self._steps = traffic.model(NextSteps)
        self._asked: dict[tuple[str, int], PendingStep] = {}
        self._open: LruDict[tuple[object, str, int], Trouble] = LruDict(_PARTITIONS)
        self._burst: LruDict[object, int] = LruDict(_PARTITIONS)  # by finding: when its last burst began

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        now = exchange.response_time_ns or conn.traffic.now_ns
        if not self._open and not exchange.error:
            return
        self._asked = {place_of(step, exchange): step for step in self._steps.touched(exchange)}
        for result in self.produce.results(exchange):
            if result.error in self.REFUSALS.codes:
                self._refused(conn, exchange, result, now)
            elif self._open and not result.error:
                key = conn.identity, result.topic, result.partition
                if key in self._open:
                    trouble = self._open.pop(key)
                    trouble.last_ns = now
                    for finding in self._of(trouble):
                        finding.about["recovered"] += 1
                        self._update(finding, trouble)

    def _refused(self, conn: ClientConnection, exchange: Exchange, result: PartitionProduceResponse, now: int) -> None:
        place = f"{result.topic}-{result.partition}"
        trouble = self._open.of((conn.identity, result.topic, result.partition), lambda: Trouble(conn, place, now, now))
        trouble.last_ns = now
        trouble.answers += 1
        trouble.step = self._asked.get((result.topic, result.partition))
        key = conn.identity, result.error
        finding = self.report(
            key,
            exchange,
            *self.REFUSALS.explain(result.error),
            topic=result.topic,
            partition=result.partition,
            error=error_name(result.error),
            partitions=[],
            bursts=0,
            blind=0,
            recovered=0,
            open=0,
            most_answers=0,
            metadata_asked=None,
            leader_told=False,
            named_leader="",
            named_itself=0,
            text="",
            longest_ns=0,
        )
        about = finding.about
        about["text"] = about["text"] or result.text
        about["leader_told"] = about["leader_told"] or result.leader >= 0
        named = named_leader(conn, result.topic, result.partition)
        about["named_leader"] = named.text
        about["named_itself"] += named.named is Named.ITSELF and result.error == _NOT_LEADER
        if about["named_itself"] == _ITSELF:
            finding.why, finding.remedy = _ASTRAY
        if trouble.place not in about["partitions"] and len(about["partitions"]) < _SHOWN:
            about["partitions"].append(trouble.place)
        if trouble.answers == 1 and now - self._burst.get(key, 0) > _APART_NS:
            self._burst[key] = now
            about["bursts"] += 1
        self._update(finding, trouble)

    def finish(self, now_ns: int) -> None:
        for finding in self._found.values():
            finding.about["open"] = 0
        for trouble in self._open.values():
            if now_ns - trouble.first_ns >= _GONE_NS:
                for finding in self._of(trouble):
                    finding.about["open"] += 1
                    self._update(finding, trouble)

    def _of(self, trouble: Trouble) -> Iterator[Finding]:
        for code in self.REFUSALS.codes:
            finding = self._found.get((trouble.conn.identity, code))
            if finding is not None and trouble.place in finding.about["partitions"]:
                yield finding

    def _update(self, finding: Finding, trouble: Trouble) -> None:
        about, conn = finding.about, trouble.conn
        about["longest_ns"] = max(about["longest_ns"], trouble.last_ns - trouble.first_ns)
        about["most_answers"] = max(about["most_answers"], trouble.answers)
        if (step := trouble.step) is not None:
            about["metadata_asked"] = max(about["metadata_asked"] or 0, step.taken)
            if not about["leader_told"] and not (step.named and step.steps):
                about["blind"] = max(about["blind"], step.since_step.count)
        finding.severity = self.REFUSALS.rate(about)
        finding.seen = (
            f"{conn.where} answers Produce v{about['api_version']} of {conn.who} with {about['error']} "
            f"{times(finding.count)}, for {some(about['partitions'])}"
            + (f"; {about['open']} of them have not succeeded since" if about["open"] else "")
            + (f"; it took up to {duration(about['longest_ns'])} to succeed" if about["recovered"] else "")
            + self.REFUSALS.details(about)
            + said(about["text"])
        )


_NOT_LEADER = error_code("NOT_LEADER_OR_FOLLOWER")
_ITSELF = 5
"""Refusals by the broker that Metadata names as the leader; one or two happen while leadership moves."""
_ASTRAY = (
    "Metadata names the broker at this very address as the leader, and what answers there does not lead the partition. So the address leads to "
    "another broker, or its Metadata is out of date. Likeliest first: a TLS router that goes by the server name, and a client that sends the same "
    "one to all brokers (kafkajs: ssl.servername); a load balancer or port forward in front of several brokers; a broker that has lost its "
    "connection to the controller.",
    "let the client send each broker's own name in TLS (leave the server name unset), give each broker an address of its own in "
    "advertised.listeners, and ask the address which broker it is: barnabas versions HOST:PORT",
)
_BLIND = 5
"""Refusals in a row without a Metadata request in between; clients send one after the first."""
_BURSTS = 5
"""This many bursts are not a single election."""


def _explain_leader(code: int) -> tuple[str, str]:
    if code in (error_code("UNKNOWN_TOPIC_OR_PARTITION"), error_code("UNKNOWN_TOPIC_ID")):
        return (
            "The broker does not have the partition: the topic was deleted (or deleted and created again, with "
            "another topic id: KIP-516), is new and not known everywhere yet, or the client's metadata is out of date.",
            "check that the topic exists (kafka-topics.sh --describe) and is not deleted and recreated while "
            "producers run; Java clients refresh Metadata every metadata.max.age.ms, librdkafka every "
            "topic.metadata.refresh.interval.ms; librdkafka gives up at once on topics that are not in Metadata",
        )
    return (
        "One burst after a leader election is normal: a client that gets this error refreshes its metadata (or takes "
        "the new leader from the answer, KIP-951) and sends again. Repeated, slow or endless bursts delay records "
        "until delivery.timeout.ms (message.timeout.ms in librdkafka), and then the records are lost.",
        "if leaders move often, check the brokers (restarts, garbage collection, lost ZooKeeper or controller "
        "sessions) and auto.leader.rebalance.enable. If the client does not refresh its metadata, upgrade it, and "
        "check retry.backoff.ms (100 ms) and metadata.max.age.ms (librdkafka: topic.metadata.refresh.fast.interval.ms)",
    )


def _rate_leader(about: dict[str, Any]) -> Severity:
    if about["open"] and about["longest_ns"] >= _MEDIUM_NS:
        return Severity.HIGH
    if (about["open"] and about["most_answers"] >= 3) or about["longest_ns"] >= _MEDIUM_NS:
        return Severity.MEDIUM
    if about["blind"] >= _BLIND or (about["named_itself"] >= _ITSELF and not about["recovered"]):
        return Severity.MEDIUM
    if about["open"] or about["longest_ns"] >= _LOW_NS or about["bursts"] >= _BURSTS:
        return Severity.LOW
    return Severity.INFO


def _leader_details(about: dict[str, Any]) -> str:
    named = f"; {about['named_leader']}" if about["named_leader"] else ""
    return named + _metadata_details(about)


def _metadata_details(about: dict[str, Any]) -> str:
    if about["blind"] >= _BLIND:
        return f"; {about['blind']} of them in a row without asking for Metadata"
    if about["metadata_asked"]:
        return f"; Metadata was asked for {times(about['metadata_asked'])} meanwhile"
    if about["leader_told"]:
        return "; the broker named the new leader"
    return "" if about["metadata_asked"] is None else "; Metadata was not asked for meanwhile"


class LeaderRetries(_RefusedPartitions):
    id = "produce-leader-retries"
    severity = Severity.INFO
    title = "a producer writes to a broker that does not lead the partition (NOT_LEADER_OR_FOLLOWER and similar)"
    REFUSALS = _Refusals(LEADER_ERRORS, _explain_leader, _rate_leader, _leader_details)


def _explain_replicas(code: int) -> tuple[str, str]:
    appended = code == error_code("NOT_ENOUGH_REPLICAS_AFTER_APPEND")
    return (
        "With acks=all, a leader writes only while at least min.insync.replicas replicas are in sync. Followers are "
        "down or lagging (replica.lag.time.max.ms). "
        + (
            "Here, the leader had already written the records: a retry without idempotence writes them twice."
            if appended
            else "Clients retry until delivery.timeout.ms; then the records are lost."
        ),
        "bring the missing followers back (kafka-topics.sh --describe --under-min-isr-partitions names the "
        "partitions); min.insync.replicas should be below the replication factor (2 of 3), or the restart of one "
        "broker stops all producers",
    )


def _rate_replicas(about: dict[str, Any]) -> Severity:
    if not about["recovered"] or about["open"]:
        return Severity.HIGH
    return Severity.MEDIUM if about["longest_ns"] >= _LOW_NS else Severity.LOW


def _replicas_in_sync(about: dict[str, Any]) -> str:
    have = about.get("replicas", 0)
    return f"; Metadata shows {several(have, 'replica')}, all in sync" if have else ""


class TooFewReplicas(_RefusedPartitions):
    id = "not-enough-replicas"
    severity = Severity.HIGH
    title = "a partition has fewer replicas in sync than min.insync.replicas"
    apis = frozenset({PRODUCE, METADATA})
    REFUSALS = _Refusals(
        error_code_set("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"), _explain_replicas, _rate_replicas, _replicas_in_sync
    )

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        message = exchange.response_view if self._open and exchange.api_key == METADATA else None
        for topic in message.to_dict()["topics"] if message is not None else ():
            for each in topic["partitions"]:
                trouble = self._open.get((conn.identity, topic["name"], each["partition_index"]))
                if trouble is not None:
                    trouble.replicas = len(each["replica_nodes"]), len(each["isr_nodes"])
        if exchange.api_key == PRODUCE:
            super().done(conn, exchange)

    def _refused(self, conn: ClientConnection, exchange: Exchange, result: PartitionProduceResponse, now: int) -> None:
        super()._refused(conn, exchange, result, now)
        trouble, finding = self._open[conn.identity, result.topic, result.partition], self._found[conn.identity, result.error]
        have, in_sync = trouble.replicas
        if not have or in_sync < have:
            return
        finding.about["replicas"] = have
        finding.why = (
            "With acks=all, a leader writes only while at least min.insync.replicas replicas are in sync. No follower is missing here: "
            f"min.insync.replicas is above the replication factor ({have}) of the topic, so no write with acks=all can succeed."
        )
        finding.remedy = (
            f"lower min.insync.replicas of the topic to {max(have - 1, 1)}, or add replicas (kafka-reassign-partitions.sh); topics that are made with "
            "fewer replicas than the broker's min.insync.replicas (default.replication.factor, tools that ask for 1) have this from the start"
        )
        self._update(finding, trouble)
