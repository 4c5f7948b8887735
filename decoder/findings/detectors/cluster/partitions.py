"""Partitions that Metadata shows without a leader, with different leader epochs, or with too few replicas in sync."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from ....codec.message_view import lists_at
from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.clusters import Cluster, Leader
from ...engine.counters import BoundedDict, Tally
from ...engine.detector import Detector
from ...engine.finding import Finding, Severity
from ...engine.formatting import SECOND, duration, some, times
from ...engine.layout import layout
from ...engine.traffic import ClientConnection, Traffic

METADATA = facts.api_key("Metadata")
_LISTENER = facts.error_code("LISTENER_NOT_FOUND")

Place = tuple[str, int]


@dataclass(slots=True)
class _Case:
    """One partition's fault: the responses that showed it."""

    first_ns: int
    last_ns: int
    sightings: int
    first: Exchange
    nodes: tuple[int, ...] = ()


@dataclass(slots=True)
class _Unhealthy:
    """The faults of one cluster now. `shown`: the most partitions that a response with a fault had."""

    faults: dict[Place, _Case] = field(default_factory=dict)
    shown: int = 0


class _Report(NamedTuple):
    """Faults that last: the nodes of each, by partition. `shown`: partitions of the cluster that were seen."""

    finding: Finding
    faults: dict[Place, tuple[int, ...]]
    longest_ns: int
    shown: int


class _Fault(NamedTuple):
    """A fault of partitions, which counts once it was in `sightings` responses over `lasting_ns`. nodes: the nodes that it is about, None
    for a healthy partition, given the partition's values and where its fields stand."""

    nodes: Callable[[tuple[Any, ...], Mapping[str, int]], tuple[int, ...] | None]
    sightings: int = 1
    lasting_ns: int = 0


class _PartitionHealth(Detector):
    """Follows partitions over Metadata responses: each is healthy or not, and since when."""

    apis = frozenset({METADATA})
    FAULT: ClassVar[_Fault]

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(traffic)
        self._clusters: BoundedDict[Cluster, _Unhealthy] = BoundedDict(256)

    def lasts(self, conn: ClientConnection, report: _Report) -> None:
        """Faults last: complete the finding, which is counted already."""

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        message = exchange.response_view
        if exchange.state is not State.PAIRED or message is None:
            return
        root = message.plan.root
        topics, names, at = layout(root)["topics"], layout(root, "topics"), layout(root, "topics", "partitions")
        cluster = conn.cluster
        state = self._clusters.get(cluster)
        time_ns, shown, faulty = exchange.response_time_ns or 0, 0, 0
        for topic in message.values[topics] or ():
            name = topic[names["name"]]
            for p in topic[names["partitions"]] or ():
                shown += 1
                place = name or "", p[at["partition_index"]]
                nodes = self.FAULT.nodes(p, at)
                if nodes is None:
                    if state is not None:
                        state.faults.pop(place, None)
                    continue
                faulty += 1
                if state is None:
                    state = self._clusters[cluster] = _Unhealthy()
                case = state.faults.get(place)
                if case is None:
                    case = state.faults[place] = _Case(time_ns, time_ns, 0, exchange)
                case.last_ns, case.sightings, case.nodes = time_ns, case.sightings + 1, nodes
        if not faulty or state is None:
            return
        state.shown = max(state.shown, shown)
        lasting = {
            place: case
            for place, case in state.faults.items()
            if case.sightings >= self.FAULT.sightings and case.last_ns - case.first_ns >= self.FAULT.lasting_ns
        }
        if not lasting:
            return
        first = min(lasting.values(), key=lambda case: case.first_ns)
        finding = self.report(cluster, exchange)
        if finding.count == 1:
            finding.exchanges.insert(0, first.first)
        finding.first_ns = min(finding.first_ns or first.first_ns, first.first_ns)
        topic, partition = min(lasting)
        finding.about = {
            **conn.facts_of(exchange),
            "topic": topic,
            "partition": partition,
            "partitions": [f"{topic}-{number}" for topic, number in sorted(lasting)[:50]],
        }
        longest_ns = max(case.last_ns - case.first_ns for case in lasting.values())
        faults = {place: case.nodes for place, case in lasting.items()}
        self.lasts(conn, _Report(finding, faults, longest_ns, state.shown))


def _without_leader(partition: tuple[Any, ...], at: Mapping[str, int]) -> tuple[int, ...] | None:
    """The error code, instead of nodes."""
    return (partition[at["error_code"]],) if partition[at["leader_id"]] < 0 else None


class LeaderlessPartition(_PartitionHealth):
    id = "partition-without-leader"
    severity = Severity.HIGH
    title = "a partition has no leader for longer than an election takes"
    FAULT = _Fault(_without_leader, sightings=2, lasting_ns=5 * SECOND)
    why = (
        "all in-sync replicas are down or offline, so nothing can be written to or read from these partitions; "
        "clients wait and retry until delivery.timeout.ms or forever."
    )
    remedy = (
        "start the brokers that hold the replicas (kafka-topics.sh --describe --unavailable-partitions names them); "
        "only if the brokers are lost, use kafka-leader-election.sh --election-type unclean, which loses records"
    )

    def lasts(self, conn: ClientConnection, report: _Report) -> None:
        found, places = report.finding, some((f"{t}-{p}" for t, p in report.faults), 4)
        if {code for codes in report.faults.values() for code in codes} == {_LISTENER}:
            found.seen = (
                f"{conn.where} gives {conn.who} no address of the leader of {places}: LISTENER_NOT_FOUND, for {duration(report.longest_ns)}"
            )
            found.why = (
                "the leader is up, but it has no listener of the name of the one that this client uses, so it has no address for it (KIP-103). "
                "Clients ask for Metadata again and again, and neither write nor read."
            )
            found.remedy = "give all brokers the same names in listeners and advertised.listeners, the leader of these partitions first"
            return
        found.why, found.remedy = self.why, self.remedy
        found.seen = (
            f"{places} had no leader for {duration(report.longest_ns)} (LEADER_NOT_AVAILABLE), as {conn.where} reports to {conn.who}"
        )


def _out_of_sync(partition: tuple[Any, ...], at: Mapping[str, int]) -> tuple[int, ...] | None:
    replicas, in_sync = partition[at["replica_nodes"]] or (), partition[at["isr_nodes"]] or ()
    offline = partition[at["offline_replicas"]] or () if "offline_replicas" in at else ()
    if partition[at["leader_id"]] < 0 or (len(in_sync) >= len(replicas) and not offline):
        return None
    return tuple(sorted({*replicas} - {*in_sync} | {*offline}))


class ReplicasOutOfSync(_PartitionHealth):
    id = "replicas-out-of-sync"
    severity = Severity.INFO
    title = "partitions with replicas that are out of sync or offline"
    FAULT = _Fault(_out_of_sync)

    LONG_NS = 60 * SECOND
    """A broker restarts in less."""
    why = (
        "with acks=all, only the in-sync replicas are sure to have a record; with fewer than min.insync.replicas, "
        "producers get NOT_ENOUGH_REPLICAS, and one more broker failure may leave a partition without a leader."
    )
    remedy = (
        "check whether these brokers are up, and check their disks and replica.lag.time.max.ms (30 s); a restarted "
        "broker catches up by itself"
    )

    def lasts(self, conn: ClientConnection, report: _Report) -> None:
        missing = sorted({node for nodes in report.faults.values() for node in nodes})
        report.finding.severity = Severity.LOW if report.longest_ns >= self.LONG_NS else Severity.INFO
        report.finding.seen = (
            f"{len(report.faults)} of {report.shown} partitions lack in-sync replicas: broker {some(missing, 5)} is "
            f"missing from {some((f'{t}-{p}' for t, p in report.faults), 3)}"
            + (f" for {duration(report.longest_ns)}" if report.longest_ns else "")
        )


def _not_preferred(partition: tuple[Any, ...], at: Mapping[str, int]) -> tuple[int, ...] | None:
    leader, replicas = partition[at["leader_id"]], partition[at["replica_nodes"]] or ()
    offline = partition[at["offline_replicas"]] or () if "offline_replicas" in at else ()
    if leader < 0 or not replicas or leader == replicas[0] or replicas[0] in offline:
        return None
    return (leader, replicas[0]) if replicas[0] in (partition[at["isr_nodes"]] or ()) else None


class LeaderNotPreferred(_PartitionHealth):
    id = "leader-not-preferred"
    severity = Severity.INFO
    title = "partitions whose leader is not the preferred replica, although that is in sync"
    FAULT = _Fault(_not_preferred)

    LONG_NS = 600 * SECOND
    """The controller checks every leader.imbalance.check.interval.seconds (5 min)."""
    why = (
        "the first replica of an assignment is the preferred leader; when it leads, load is spread as planned. After "
        "a broker has been down, other brokers lead its partitions and carry its load until they give leadership back."
    )
    remedy = (
        "with auto.leader.rebalance.enable=true, brokers give leadership back within 5 minutes if more than "
        "leader.imbalance.per.broker.percentage (10) of a broker's partitions are led elsewhere; to do it at once, "
        "use kafka-leader-election.sh --election-type preferred --all-topic-partitions"
    )

    def lasts(self, conn: ClientConnection, report: _Report) -> None:
        place = min(report.faults)
        leader, preferred = report.faults[place]
        report.finding.severity = Severity.LOW if report.longest_ns >= self.LONG_NS else Severity.INFO
        report.finding.seen = (
            f"{len(report.faults)} of {report.shown} partitions are led by a replica other than the preferred one: "
            f"{place[0]}-{place[1]} by broker {leader} instead of broker {preferred}, which is in sync"
            + (f", for {duration(report.longest_ns)}" if report.longest_ns else "")
        )


@dataclass(slots=True)
class _Older:
    """Answers of a broker with a lower leader epoch than another one goes on to show: `waiting` for that, and `seen`
    so far."""

    conn: ClientConnection
    leader: Leader
    waiting: list[Exchange] = field(default_factory=list)
    seen: Tally = field(default_factory=Tally)


class LeaderEpochsDiffer(Detector):
    id = "leader-epochs-differ"
    severity = Severity.MEDIUM
    title = "one broker's Metadata shows older leaders than another's, and goes on to"
    why = (
        "the leader epoch of a partition only rises, so the lower one is out of date. Brokers learn of leaders from "
        "the controller, within milliseconds; one that has lost it, or is stuck, shows what it knew. Clients that "
        "ask both brokers go back and forth between two leaders, and the old one refuses them "
        "(NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH)."
    )
    explains = ("fetch-error-loop", "produce-leader-retries", "metadata-ignored", "metadata-storm", "unexplained-error")
    apis = frozenset({METADATA})

    TIMES, LASTING_NS = 3, 3 * SECOND
    WAITING = 8

    def setup(self) -> None:
        self._older: BoundedDict[tuple[str, str, str, int], _Older] = BoundedDict(1000)

    @classmethod
    def concerns(cls, api_key: int, version: int) -> bool:
        return version >= 7

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        cluster = conn.cluster
        if exchange.state is not State.PAIRED or not (cluster.older or self._older):
            return
        for (topic, partition), leader in cluster.older.items():
            key = cluster.id, conn.broker, topic, partition
            older = self._older.get(key)
            if older is None:
                older = self._older[key] = _Older(conn, leader)
            older.conn, older.leader = conn, leader
            if len(older.waiting) < self.WAITING:
                older.waiting.append(exchange)
        message = exchange.response_view
        shown = set(lists_at(message, "topics.name")[0]) if message is not None else set()
        for (cluster_id, broker, topic, partition), older in self._older.items():
            if cluster_id == cluster.id and broker != conn.broker and older.waiting and topic in shown:
                if (topic, partition) not in cluster.older:  # the higher epoch again: it was not made anew
                    self._confirmed(older, broker, topic, partition)
                older.waiting.clear()

    def _confirmed(self, older: _Older, broker: str, topic: str, partition: int) -> None:
        for exchange in older.waiting:
            older.seen.add(exchange.response_time_ns or 0)
        newest = older.conn.cluster.leaders[topic, partition]
        if older.seen.count < self.TIMES or older.seen.span_ns < self.LASTING_NS or newest.broker == broker:
            return
        where = older.conn.where
        finding = self.report(
            (broker, topic), older.waiting[-1], None,
            f"it is not the client's fault: look at the log of {where} and at its connection to the controller at that "
            "time, and restart it; a proxy must not answer Metadata from what it remembers",
            facts=older.conn.facts, topic=topic, partition=partition, epoch=older.leader.epoch,
        )  # fmt: skip
        finding.count = older.seen.count
        finding.seen = (
            f"{where} showed {_led(older.leader)} {times(older.seen.count)} in {duration(older.seen.span_ns)} for "
            f"{topic}-{partition}, while {newest.broker} showed {_led(newest)}"
        )


def _led(leader: Leader) -> str:
    return f"leader epoch {leader.epoch} with {f'broker {leader.node} as' if leader.node >= 0 else 'no'} leader"
