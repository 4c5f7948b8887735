"""Partitions that Metadata shows without a leader, or with fewer replicas in sync than they have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from ....codec.plan import plan
from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.detector import Detector
from ...engine.finding import Finding, Severity
from ...engine.formatting import SECOND, duration, some
from ...engine.traffic import ClientConnection, Traffic

METADATA = facts.api_key("Metadata")

Place = tuple[str, int]


@cache
def _at(version: int) -> tuple[int, dict[str, int], dict[str, int]]:
    root = plan("response", METADATA, version).root
    number = next(i for i, f in enumerate(root.fields) if f.name == "topics")
    topic = root.fields[number].struct
    assert topic is not None
    names = {f.name: i for i, f in enumerate(topic.fields)}
    inner = topic.fields[names["partitions"]].struct
    assert inner is not None
    return number, names, {f.name: i for i, f in enumerate(inner.fields)}


@dataclass(slots=True)
class _Sick:
    first_ns: int
    last_ns: int
    sightings: int
    first: Exchange
    detail: tuple[Any, ...] = ()


@dataclass(slots=True)
class _Ward:
    """The partitions of one cluster that are not well now."""

    conn: ClientConnection
    sick: dict[Place, _Sick] = field(default_factory=dict)
    seen: int = 0
    """Partitions that the last answer with a sick one showed."""


class _PartitionWatch(Detector, ABC):
    """Follows partitions over Metadata answers: each is well or not, and since when."""

    apis = frozenset({METADATA})

    SIGHTINGS = 2
    LASTING_NS = 5 * SECOND

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self._wards: BoundedDict[int, _Ward] = BoundedDict(256)

    @abstractmethod
    def unwell(self, partition: tuple[Any, ...], at: dict[str, int]) -> tuple[Any, ...] | None:
        """What is wrong with a partition of an answer, None if nothing."""

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        message = exchange.response_view
        if exchange.state is not State.PAIRED or message is None:
            return
        number, names, at = _at(message.api_version)
        cluster = id(conn.cluster)
        ward = self._wards.get(cluster)
        time_ns, shown, sick = exchange.response_time_ns or 0, 0, 0
        for topic in message.values[number] or ():
            name = topic[names["name"]]
            for p in topic[names["partitions"]] or ():
                shown += 1
                place = name or "", p[at["partition_index"]]
                wrong = self.unwell(p, at)
                if wrong is None:
                    if ward is not None:
                        ward.sick.pop(place, None)
                    continue
                sick += 1
                if ward is None:
                    ward = self._wards[cluster] = _Ward(conn)
                case = ward.sick.get(place)
                if case is None:
                    case = ward.sick[place] = _Sick(time_ns, time_ns, 0, exchange)
                case.last_ns, case.sightings, case.detail = time_ns, case.sightings + 1, wrong
        if sick and ward is not None:
            ward.conn, ward.seen = conn, max(ward.seen, shown)
            self._judge(cluster, ward, exchange)

    def _judge(self, cluster: int, ward: _Ward, exchange: Exchange) -> None:
        lasting = {
            place: case
            for place, case in ward.sick.items()
            if case.sightings >= self.SIGHTINGS and case.last_ns - case.first_ns >= self.LASTING_NS
        }
        if not lasting:
            return
        new = cluster not in self._found
        first = min(lasting.values(), key=lambda case: case.first_ns)
        finding = self.report(cluster, exchange, partial(self.finding, "", "", ""))
        if new:
            finding.exchanges.insert(0, first.first)
        finding.first_ns = min(finding.first_ns or first.first_ns, first.first_ns)
        self.say(finding, ward, lasting, max(case.last_ns - case.first_ns for case in lasting.values()))
        place = min(lasting)
        finding.about = {
            **ward.conn.facts,
            "api": "Metadata",
            "api_version": exchange.api_version,
            "topic": place[0],
            "partition": place[1],
            "partitions": [f"{topic}-{number}" for topic, number in sorted(lasting)[:50]],
        }

    @abstractmethod
    def say(self, finding: Finding, ward: _Ward, lasting: dict[Place, _Sick], longest_ns: int) -> None:
        """Write what was found into the finding."""


class LeaderlessPartition(_PartitionWatch):
    """Nobody leads a partition, for longer than an election takes."""

    id = "partition-without-leader"
    severity = Severity.HIGH
    title = "a partition that has no leader for longer than an election takes"

    def unwell(self, partition: tuple[Any, ...], at: dict[str, int]) -> tuple[Any, ...] | None:
        return (partition[at["leader_id"]],) if partition[at["leader_id"]] < 0 else None

    def say(self, finding: Finding, ward: _Ward, lasting: dict[Place, _Sick], longest_ns: int) -> None:
        finding.seen = (
            f"{some((f'{t}-{p}' for t, p in lasting), 4)} had no leader for {duration(longest_ns)} "
            f"(LEADER_NOT_AVAILABLE), as {ward.conn.where} tells {ward.conn.who}"
        )
        finding.why = (
            "all replicas in sync are down or offline, so nothing can be written to or read from these partitions; "
            "clients wait and retry until delivery.timeout.ms or for ever."
        )
        finding.remedy = (
            "start the brokers that hold the replicas (kafka-topics.sh --describe --unavailable-partitions names them); "
            "only if they are lost: kafka-leader-election.sh --election-type unclean, which loses records"
        )


class ReplicasOutOfSync(_PartitionWatch):
    """Fewer replicas are in sync than a partition has."""

    id = "replicas-out-of-sync"
    severity = Severity.INFO
    title = "partitions with fewer replicas in sync than they have, or with offline replicas"

    SIGHTINGS = 1
    LASTING_NS = 0
    LONG_NS = 60 * SECOND
    """A broker's restart is over by then."""

    def unwell(self, partition: tuple[Any, ...], at: dict[str, int]) -> tuple[Any, ...] | None:
        replicas, in_sync = partition[at["replica_nodes"]] or (), partition[at["isr_nodes"]] or ()
        offline = partition[at["offline_replicas"]] or () if "offline_replicas" in at else ()
        if partition[at["leader_id"]] < 0 or (len(in_sync) >= len(replicas) and not offline):
            return None
        return tuple(sorted({*replicas} - {*in_sync} | {*offline}))

    def say(self, finding: Finding, ward: _Ward, lasting: dict[Place, _Sick], longest_ns: int) -> None:
        missing = sorted({node for case in lasting.values() for node in case.detail})
        finding.severity = Severity.LOW if longest_ns >= self.LONG_NS else Severity.INFO
        finding.seen = (
            f"{len(lasting)} of {ward.seen} partitions lack replicas in sync: broker {some(missing, 5)} is missing from "
            f"{some((f'{t}-{p}' for t, p in lasting), 3)}" + (f" for {duration(longest_ns)}" if longest_ns else "")
        )
        finding.why = (
            "a record with acks=all is kept by the replicas in sync only; with fewer than min.insync.replicas producers "
            "get NOT_ENOUGH_REPLICAS, and one more broker down may leave a partition without a leader."
        )
        finding.remedy = (
            "look whether these brokers are up, and at their disks and replica.lag.time.max.ms (30 s); a broker that is "
            "restarted catches up by itself"
        )


class LeaderNotPreferred(_PartitionWatch):
    """Another replica leads than the first one of the assignment, which is in sync."""

    id = "leader-not-preferred"
    severity = Severity.INFO
    title = "partitions led by another replica than the preferred one, which is in sync"

    SIGHTINGS = 1
    LASTING_NS = 0
    LONG_NS = 600 * SECOND
    """The controller looks every leader.imbalance.check.interval.seconds (5 min)."""

    def unwell(self, partition: tuple[Any, ...], at: dict[str, int]) -> tuple[Any, ...] | None:
        leader, replicas = partition[at["leader_id"]], partition[at["replica_nodes"]] or ()
        offline = partition[at["offline_replicas"]] or () if "offline_replicas" in at else ()
        if leader < 0 or not replicas or leader == replicas[0] or replicas[0] in offline:
            return None
        return (leader, replicas[0]) if replicas[0] in (partition[at["isr_nodes"]] or ()) else None

    def say(self, finding: Finding, ward: _Ward, lasting: dict[Place, _Sick], longest_ns: int) -> None:
        place = min(lasting)
        leader, preferred = lasting[place].detail
        finding.severity = Severity.LOW if longest_ns >= self.LONG_NS else Severity.INFO
        finding.seen = (
            f"{len(lasting)} of {ward.seen} partitions are led by another replica than the preferred one: {place[0]}-{place[1]} "
            f"by broker {leader} instead of broker {preferred}, which is in sync"
            + (f", for {duration(longest_ns)}" if longest_ns else "")
        )
        finding.why = (
            "the first replica of an assignment is the preferred leader: with it, leaders are spread as the assignment was "
            "planned. After a broker was down, others lead its partitions, and carry its load until leadership is given back."
        )
        finding.remedy = (
            "with auto.leader.rebalance.enable=true brokers give leadership back within 5 minutes, where more than "
            "leader.imbalance.per.broker.percentage (10) of a broker's partitions are led elsewhere; at once: "
            "kafka-leader-election.sh --election-type preferred --all-topic-partitions"
        )


DETECTORS: tuple[type[Detector], ...] = (LeaderlessPartition, ReplicasOutOfSync, LeaderNotPreferred)
