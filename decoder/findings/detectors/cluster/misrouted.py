"""Clients that a broker sends back to their bootstrap servers (REBOOTSTRAP_REQUIRED): because they reached another broker than
intended, which they name since Kafka 4.4 (KIP-1242), or because they are to look for the cluster anew (KIP-1102)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.counters import BoundedDict, Tally
from ...engine.detector import Detector, Wanted
from ...engine.finding import Severity
from ...engine.formatting import duration, times
from ...engine.subjects import answers as answers_of
from ...engine.subjects import subject_text
from ...engine.traffic import ClientConnection, ClientIdentity
from ...models.leaders import Named, named_leader
from ...models.next_steps import FollowingDetector, PendingStep

_API_VERSIONS = facts.api_key("ApiVersions")
_REFUSED = facts.error_code("REBOOTSTRAP_REQUIRED")
_NOT_LEADER = facts.error_code("NOT_LEADER_OR_FOLLOWER")


class MisroutedClient(Detector):
    id = "misrouted-client"
    severity = Severity.HIGH
    title = "a client reached a different broker or cluster than intended (ApiVersions v5)"
    apis = frozenset({_API_VERSIONS})

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        asked, answer = exchange.request_view, exchange.response_view
        if exchange.state is not State.PAIRED or asked is None or answer is None or answer["error_code"] != _REFUSED:
            return
        fields = asked.to_dict()
        cluster, node = fields.get("cluster_id"), fields.get("node_id", -1)
        found = self.report(
            (conn.identity, cluster, node, conn.broker),
            exchange,
            "clients of Kafka 4.4 and newer name the intended cluster and broker in ApiVersions (KIP-1242); any other "
            "broker refuses them, where older clients would have produced to it. The address leads elsewhere: one "
            "load balancer in front of several brokers, an address or port mapping that another broker has taken "
            "over, or a DNS record of another cluster.",
            f"find out where {conn.broker} leads: each broker needs its own address (advertised.listeners). The "
            "client itself starts over with bootstrap.servers (metadata.recovery.strategy=rebootstrap, the default "
            "since 4.0)",
            cluster_id=cluster,
            node_id=node,
            facts=conn.facts,
        )
        found.seen = (
            f"{conn.who} wanted {_meant(cluster, node)}, reached {conn.where}{_belongs(conn)}, and was refused "
            f"{times(found.count)} (REBOOTSTRAP_REQUIRED)"
        )


@dataclass(slots=True)
class _Told:
    """How often one broker asked one client to rebootstrap, and which connections the client has not closed since.
    `obeyed`: how many it has closed."""

    answers: Tally = field(default_factory=Tally)
    connections: BoundedDict[int, PendingStep] = field(default_factory=lambda: BoundedDict(64))
    obeyed: int = 0


class RebootstrapIgnored(FollowingDetector):
    id = "rebootstrap-ignored"
    severity = Severity.HIGH
    title = "a client is told to rebootstrap again and again: it keeps its connections, or finds the same broker each time"
    STEPS = frozenset({"rebootstrap"})

    ROUNDS = 5
    """Connections."""

    def setup(self) -> None:
        self._told: BoundedDict[object, _Told] = BoundedDict(2000)

    def refused(self, pending: PendingStep, exchange: Exchange) -> None:
        if exchange.api_key == _API_VERSIONS:
            return
        conn = pending.conn
        told = self._told.of((conn.identity, conn.broker), _Told)
        told.answers.add(exchange.response_time_ns or self.traffic.now_ns)
        told.connections[conn.number] = pending
        if pending.ignored:
            self._kept(pending, exchange, told)
        elif told.obeyed >= self.ROUNDS:
            self._in_vain(conn, exchange, told)

    def closed(self, conn: ClientConnection) -> None:
        told = self._told.get((conn.identity, conn.broker))
        pending = told.connections.get(conn.number) if told is not None else None
        if told is not None and pending is not None and not pending.ignored and conn.by == "client":
            told.obeyed += 1

    def _kept(self, pending: PendingStep, exchange: Exchange, told: _Told) -> None:
        conn = pending.conn
        java = "java" in conn.software
        found = self.report(
            (conn.identity, conn.broker, True),
            exchange,
            f"a client that gets REBOOTSTRAP_REQUIRED in any response must {pending.step.must} "
            f"({pending.step.source}): the broker wants it elsewhere, and answers nothing else. This client asks again "
            "on the same connection, so it gets nothing. The fault is the client's.",
            "set metadata.recovery.strategy=rebootstrap (the default since Kafka 4.0; with none, the client does not obey), or "
            "restart the client"
            if java
            else "restart the client, so that it begins with its bootstrap servers; upgrade it to a version that rebootstraps when "
            "a broker asks for it (Java: 4.0 and newer)",
            error="REBOOTSTRAP_REQUIRED",
        )
        found.count = max(found.count, told.answers.count)
        found.seen = (
            f"{conn.who} was told to rebootstrap (REBOOTSTRAP_REQUIRED to {exchange.api} v{exchange.api_version}) "
            f"{times(told.answers.count)} in {duration(told.answers.span_ns)} by {conn.where}, keeps its connections, "
            f"and {pending.did}"
        )

    def _in_vain(self, conn: ClientConnection, exchange: Exchange, told: _Told) -> None:
        found = self.report(
            (conn.identity, conn.broker, False),
            exchange,
            "the client does what it is told (KIP-1102): it closes its connection and begins with its bootstrap servers, but these "
            "lead it back to the same broker, which sends it away again. The fault is not the client's.",
            f"find out why {conn.broker} (a broker, proxy or gateway) sends clients away, and where the client's bootstrap.servers "
            "lead; they must lead to brokers that serve it",
            error="REBOOTSTRAP_REQUIRED",
        )
        found.seen = (
            f"{conn.who} was told to rebootstrap {times(told.answers.count)} in {duration(told.answers.span_ns)} by {conn.where}; it "
            f"closed its connection {times(told.obeyed)}, connected anew, and got to the same broker"
        )
        found.severity = Severity.MEDIUM


class _Answered(NamedTuple):
    """The cluster that Metadata named on a connection, and the addresses of its brokers."""

    conn: ClientConnection
    time_ns: int
    cluster: str
    addresses: frozenset[str]


class ClustersMixed(Detector):
    """Brokers that were set up anew at their addresses have another cluster id too: so it takes two connections that are used at one time."""

    id = "clusters-mixed"
    severity = Severity.HIGH
    title = "a client is led to two clusters that are said to have the same brokers' addresses"
    explains = ("produce-leader-retries", "fetch-error-loop", "old-topic-id", "unexplained-error")
    why = (
        "a client believes that all brokers at the addresses of one Metadata answer are of one cluster. Here two clusters name the same addresses: "
        "a proxy or load balancer that fails over broker by broker, an address mapping that another cluster has taken over, or a DNS name for both. "
        "Requests reach brokers that do not have the partitions, or another cluster's topics of the same name."
    )
    remedy = (
        "proxy or load balancer: switch all brokers of a cluster at once, and give each cluster its own addresses; compare "
        "advertised.listeners of both clusters"
    )
    apis = facts.api_key_set("Metadata")
    wanted = Wanted.NEW
    MOST = 32
    """Connections of a client that are compared, and addresses of a cluster."""

    def setup(self) -> None:
        self._answers: BoundedDict[ClientIdentity, BoundedDict[int, _Answered]] = BoundedDict(1000)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        message = exchange.response_view if exchange.state is State.PAIRED else None
        cluster = message["cluster_id"] if message is not None and exchange.api_version >= 2 else None
        if message is None or not cluster:
            return
        answers = self._answers.of(conn.identity, lambda: BoundedDict(self.MOST))
        known = answers.get(conn.number)
        if known is None or known.cluster != cluster:
            addresses = frozenset(address for _, address in self.traffic.clusters.named(exchange)[: self.MOST])
            answers[conn.number] = _Answered(conn, exchange.response_time_ns or 0, cluster, addresses)

    def finish(self, now_ns: int) -> None:
        self._for_now.clear()
        for who, answers in self._answers.items():
            if len({each.cluster for each in answers.values()}) < 2:
                continue
            for first in answers.values():
                for second in answers.values():
                    if first.cluster != second.cluster and first.addresses & second.addresses and self._together(first, second):
                        self._mixed(who, first, second)

    @staticmethod
    def _together(first: _Answered, second: _Answered) -> bool:
        """Whether the first connection was in use after the second got its answer."""
        return first.time_ns < second.time_ns < first.conn.last_activity_ns

    def _mixed(self, who: ClientIdentity, first: _Answered, second: _Answered) -> None:
        shared = min(first.addresses & second.addresses)
        finding = self.finding(
            f"{first.conn.who} got Metadata of cluster {first.cluster!r} from {first.conn.broker} and of cluster {second.cluster!r} from "
            f"{second.conn.broker}, at the same time; both name a broker at {shared}",
            self.why,
            self.remedy,
            None,
            clusters=sorted((first.cluster, second.cluster)),
            **second.conn.facts,
        )
        finding.add_evidence(None, second.time_ns)
        self._for_now[who, frozenset((first.cluster, second.cluster))] = finding


def _meant(cluster: str | None, node: int) -> str:
    broker = f"broker {node}" if node >= 0 else "a broker"
    return broker if cluster is None else f"{broker} of cluster {cluster!r}"


def _belongs(conn: ClientConnection) -> str:
    return f" of cluster {conn.cluster.id!r}" if conn.cluster.id else ""


@dataclass(slots=True)
class _Turns:
    """Whether an address led a partition on the last connection, and how often that changed from one to the next."""

    number: int
    leads: bool
    since_ns: int
    changes: int = 0
    refused: Tally = field(default_factory=Tally)


class AddressOfSeveralBrokers(Detector):
    id = "address-of-several-brokers"
    severity = Severity.HIGH
    title = "one address leads to several brokers: some connections reach a partition's leader, others do not"
    why = (
        "a connection reaches one broker for as long as it lasts. Here the partition's leader answers on some "
        "connections to this address, and another broker on others, while Metadata names the same leader all the "
        "time: a load balancer, proxy, DNS name or Kubernetes service stands for several brokers. Requests for "
        "leaders and coordinators then succeed by chance."
    )
    remedy = (
        "give each broker an address of its own in advertised.listeners (one listener, port or service per broker), "
        "and balance the bootstrap address only"
    )
    explains = ("produce-leader-retries", "fetch-error-loop", "metadata-ignored", "connection-churn")
    apis = facts.api_key_set("Produce", "Fetch")
    wanted = Wanted.NEW

    CHANGES = 4
    """Leaders move once, and back when their broker has restarted."""

    def setup(self) -> None:
        self._turns: BoundedDict[tuple[str, str], _Turns] = BoundedDict(5000)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED:
            return
        for subject, code in answers_of(exchange):
            if code in (0, _NOT_LEADER) and len(subject) > 1 and isinstance(subject[-1], int):
                self._answered(conn, exchange, (subject_text(exchange, subject[:-1]), subject[-1]), not code)

    def _answered(self, conn: ClientConnection, exchange: Exchange, place: tuple[str, int], leads: bool) -> None:
        key, now = (conn.broker, f"{place[0]}-{place[1]}"), exchange.response_time_ns or 0
        turns = self._turns.get(key)
        if turns is None or (turns.number == conn.number and turns.leads != leads):  # the leader moved
            turns = self._turns[key] = _Turns(conn.number, leads, now)
        turns.changes += turns.leads != leads
        turns.number, turns.leads = conn.number, leads
        leader = conn.cluster.leaders.get(place)
        if leads:
            return
        turns.refused.add(now)
        if turns.changes < self.CHANGES or leader is None or leader.time_ns > turns.since_ns:
            return
        if named_leader(conn, *place).named is Named.ITSELF:
            finding = self.report(key, exchange, topic=place[0], partition=place[1])
            finding.count = turns.refused.count
            finding.seen = (
                f"{conn.where} leads {key[1]} by Metadata, and served it on some connections, but refused "
                f"{exchange.api} of {conn.who} with NOT_LEADER_OR_FOLLOWER on others ({times(turns.refused.count)} "
                f"in {duration(turns.refused.span_ns)}; it changed {times(turns.changes)} from one connection to the "
                "next)"
            )
