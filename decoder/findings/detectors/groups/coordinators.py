"""Group coordinators that keep moving, or are unavailable."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from ....connection.exchange import Exchange
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.detector import Detector
from ...engine.finding import Severity
from ...engine.formatting import SECOND, duration, several, some
from ...engine.layout import rows, top
from ...engine.traffic import ClientConnection, ClientIdentity
from ...models.group_calls import COORDINATOR_ERRORS, GROUP_APIS
from ...models.next_steps import NextSteps

FIND_COORDINATOR = facts.api_key("FindCoordinator")
GROUP_KEY, TRANSACTION_KEY = 0, 1
"""FindCoordinator's key types of groups and of transactional ids; share groups have their own."""
OFFSETS = "__consumer_offsets"
_REPLICAS = 3
"""The default of offsets.topic.replication.factor."""
_REMEDY = (
    "check the brokers: is one restarting, do partitions of __consumer_offsets lack a leader or have fewer in-sync "
    "replicas than min.insync.replicas, is offsets.topic.replication.factor higher than the number of brokers, do "
    "brokers drop out of the cluster? The broker that FindCoordinator names leads the group's partition of "
    "__consumer_offsets"
)


class FoundCoordinator(NamedTuple):
    """A group's coordinator in a FindCoordinator response; `address`: ``host:port``."""

    group: str
    error: int
    node: int
    address: str


def coordinators(exchange: Exchange, key_type: int = GROUP_KEY) -> Iterator[FoundCoordinator]:
    """The coordinator of every group (or transactional id) that a FindCoordinator exchange is about."""
    asked, answered = exchange.request_view, exchange.response_view
    if asked is None or answered is None:
        return
    request = top(asked)
    if request.get("key_type", GROUP_KEY) != key_type:
        return
    found = rows(answered, "coordinators") if exchange.api_version >= 4 else [top(answered)]
    for each in found:
        group, address = each.get("key") or request.get("key", ""), f"{each['host']}:{each['port']}"
        yield FoundCoordinator(group, each["error_code"], each["node_id"], address)


@dataclass(slots=True)
class _Spell:
    """Errors without a success between them."""

    first_ns: int
    errors: Counter[int] = field(default_factory=Counter)


class CoordinatorTrouble(Detector):
    id = "coordinator-unavailable"
    severity = Severity.MEDIUM
    title = "for a long time, a group's coordinator is not available, is loading, or is another broker"
    apis = GROUP_APIS | {FIND_COORDINATOR}

    LASTING_NS = 10 * SECOND
    """The first group of a new cluster has __consumer_offsets made for it, and a new coordinator reads its partition
    first: both are over in a few seconds."""
    BAD_NS = 60 * SECOND
    ERRORS = 5
    KEY_TYPE = GROUP_KEY
    KEY_FIELDS: ClassVar[tuple[str, ...]] = ("group_id",)
    SUBJECT = "group"
    TOPIC = OFFSETS
    REPLICATION = "offsets.topic.replication.factor"
    WITHOUT = (
        "Without its coordinator, no member of a group can join, send heartbeats or commit, and members are removed when their session "
        "times out."
    )
    REMEDY = _REMEDY

    def setup(self) -> None:
        self._spells: BoundedDict[tuple[str, bool], _Spell] = BoundedDict(2000)
        self._named: BoundedDict[tuple[ClientIdentity, str], int] = BoundedDict(2000)
        """Which broker FindCoordinator named to a client for a group last."""
        self._steps = self.traffic.model(NextSteps)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.api_key == FIND_COORDINATOR:
            for group, error, node, _ in coordinators(exchange, self.KEY_TYPE):
                if not error:
                    self._named[conn.identity, group] = node
                self._take(conn, exchange, group, error, True)
            return
        if exchange.response is None or (not exchange.error and not self._spells):
            return
        asked = exchange.request_view
        if asked is not None:
            fields = top(asked)
            named: str | None = next((fields[name] for name in self.KEY_FIELDS if fields.get(name)), None)
            if named is not None:
                self._take(conn, exchange, named, exchange.error, False)

    def _take(self, conn: ClientConnection, exchange: Exchange, group: str, error: int, finding_it: bool) -> None:
        key = group, finding_it
        if error not in COORDINATOR_ERRORS:
            if not error:
                self._spells.pop(key, None)
            return
        now = exchange.response_time_ns or self.traffic.now_ns
        spell = self._spells.of(key, lambda: _Spell(now))
        spell.errors[error] += 1
        lasted = now - spell.first_ns
        total = sum(spell.errors.values())
        if lasted < self.LASTING_NS or total < self.ERRORS:
            return
        names = ", ".join(f"{facts.error_name(code)} ({count})" for code, count in spell.errors.most_common())
        finding = self.report(group, exchange, group=group, error=facts.error_name(error))
        shown, finding.why, finding.remedy = self._cause(conn, exchange, group, spell)
        finding.seen = (
            f"for {duration(lasted)}, no coordinator answered for {self.SUBJECT} {group!r}: {names}, last to {conn.who} from "
            f"{conn.where} in {exchange.api} v{exchange.api_version}{shown}"
        )
        finding.count = max(finding.count, total)
        finding.about["seconds"] = max(finding.about.get("seconds", 0), round(lasted / SECOND, 1))
        if lasted >= self.BAD_NS:
            finding.severity = Severity.HIGH


    def _cause(self, conn: ClientConnection, exchange: Exchange, group: str, spell: _Spell) -> tuple[str, str, str]:
        """What else the capture shows, why no coordinator answers, and what to do."""
        most = facts.error_name(spell.errors.most_common(1)[0][0])
        if most == "COORDINATOR_LOAD_IN_PROGRESS":
            return (
                "",
                f"the coordinator is there and still reads the {self.SUBJECT}'s partition of {self.TOPIC}. That takes seconds; if it lasts, the "
                f"partition is very large (it was not compacted), or the broker's disk is slow. {self.WITHOUT}",
                f"look at the size of the partitions of {self.TOPIC} and at the broker's log cleaner (it may have died: "
                "cleanup.policy must be compact), and at the broker's disk; wait until 'Finished loading offsets' is in its log",
            )
        if most == "NOT_COORDINATOR":
            return self._denied(conn, exchange, group)
        cluster = conn.cluster
        leaderless = [number for (topic, number), leader in cluster.leaders.items() if topic == self.TOPIC and leader.node < 0]
        if leaderless:
            return (
                f"; Metadata shows no leader for {some(f'{self.TOPIC}-{number}' for number in leaderless)}",
                f"the {self.SUBJECT}'s partition of {self.TOPIC} has no leader, so there is no coordinator. {self.WITHOUT}",
                "start the brokers that hold its replicas",
            )
        if 0 < len(cluster.nodes) < _REPLICAS:
            return (
                f"; Metadata names {several(len(cluster.nodes), 'broker')}",
                f"the cluster has fewer brokers than {self.TOPIC} has replicas by default ({self.REPLICATION}="
                f"{_REPLICAS}), so that topic cannot be created, or its partitions have no leader. {self.WITHOUT}",
                f"set {self.REPLICATION}={len(cluster.nodes)} on the brokers, or start the other brokers",
            )
        return "", f"no broker leads the {self.SUBJECT}'s partition of {self.TOPIC}, or it has too few in-sync replicas. {self.WITHOUT}", self.REMEDY

    def _denied(self, conn: ClientConnection, exchange: Exchange, group: str) -> tuple[str, str, str]:
        """Of brokers that say that they are not the coordinator."""
        node, here = self._named.get((conn.identity, group)), conn.cluster.node_at(conn.broker)
        pending = next(iter(self._steps.touched(exchange)), None)
        if pending is not None and pending.ignored and not pending.steps:
            return (
                "; the client did not ask for the coordinator (FindCoordinator) since then",
                f"after NOT_COORDINATOR a client must {pending.step.must}; this one goes on with the same broker. It "
                f"is the client's fault. {self.WITHOUT}",
                "restart the client, and upgrade its library",
            )
        if node == here:
            return (
                f"; FindCoordinator names this very broker ({here})",
                "the brokers contradict each other: FindCoordinator names a broker that says it is not the coordinator. The leader of "
                f"the {self.SUBJECT}'s partition of {self.TOPIC} has changed and not all brokers know it, or it did not become coordinator. "
                f"{self.WITHOUT}",
                f"restart broker {here} or elect another leader for the partition; {self.REMEDY}",
            )
        if node is None:
            return "", f"the {self.SUBJECT}'s coordinator is another broker. {self.WITHOUT}", self.REMEDY
        return (
            f"; FindCoordinator names broker {node}",
            f"the coordinator is broker {node}, and requests went to another one. {self.WITHOUT}",
            f"check that the address of broker {node} leads to it (advertised.listeners, load balancers, port mappings); upgrade the "
            "client if it asks the wrong broker",
        )


class TransactionCoordinatorTrouble(CoordinatorTrouble):
    id = "transaction-coordinator-unavailable"
    title = "for a long time, the coordinator of a transactional id is not available, is loading, or is another broker"
    apis = facts.api_key_set("FindCoordinator", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn")
    explains = ("transaction-refused",)

    KEY_TYPE = TRANSACTION_KEY
    KEY_FIELDS = ("transactional_id", "v3_and_below_transactional_id")
    SUBJECT = "transactional id"
    TOPIC = "__transaction_state"
    REPLICATION = "transaction.state.log.replication.factor"
    WITHOUT = "Without its coordinator, a producer can neither begin nor end a transaction: initTransactions waits and times out."
    REMEDY = (
        "check the brokers: is one restarting, do partitions of __transaction_state lack a leader or have fewer in-sync replicas than "
        "transaction.state.log.min.isr?"
    )


class CoordinatorMoved(Detector):
    id = "coordinator-moved"
    severity = Severity.INFO
    title = "a group's coordinator moves from broker to broker"
    apis = frozenset({FIND_COORDINATOR})

    OFTEN = 3
    WINDOW_NS = 600 * SECOND
    """A restart of all brokers moves a coordinator about twice."""

    def setup(self) -> None:
        self._answers: BoundedDict[tuple[str, str], deque[tuple[int, int]]] = BoundedDict(2000)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        for group, error, node, address in coordinators(exchange):
            if error or node < 0:
                continue
            now = exchange.response_time_ns or self.traffic.now_ns
            known = self._answers.of((conn.cluster.id, group), lambda: deque(maxlen=64))
            if not known:
                known.append((now, node))
            if known[-1][1] == node:
                continue
            before = known[-1][1]
            known.append((now, node))
            moves = sum(1 for when, _ in list(known)[1:] if now - when <= self.WINDOW_NS)
            seen = (
                f"the coordinator of group {group!r} is broker {node} ({address}), formerly broker {before}; it moved "
                f"{len(known) - 1} times in {duration(now - known[0][0])}"
                if moves > 1
                else f"the coordinator of group {group!r} moved from broker {before} to broker {node} ({address})"
            )
            finding = self.report(
                group,
                exchange,
                "a coordinator moves when the leader of its partition of __consumer_offsets does. The new one reads "
                "that partition first (COORDINATOR_LOAD_IN_PROGRESS); members find the coordinator again and continue.",
                "nothing after a broker's restart; if it happens repeatedly, " + _REMEDY,
                group=group,
            )
            finding.seen = seen
            finding.about |= {"from": before, "to": node}
            if moves >= self.OFTEN:
                finding.severity = Severity.MEDIUM
