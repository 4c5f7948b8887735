"""Partitions that Metadata shows without a leader, or with fewer replicas in sync than they have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.clusters import Cluster
from ...engine.counters import BoundedDict
from ...engine.detector import Detector
from ...engine.finding import Finding, Severity
from ...engine.formatting import SECOND, duration, some
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
