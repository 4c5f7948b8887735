"""Answers that Apache Kafka never gives: the rows of `findings/invariants`, checked on nearly every exchange."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.detector import Detector, Wanted
from ...engine.finding import Finding, Severity
from ...engine.traffic import ClientConnection
from ...invariants import REQUESTS, Context, Memory, Owner, Pair, Row, Violation, concerned, requested, violations
from ...models.offered_versions import brokers_version

_ALIKE = facts.api_key_set("ApiVersions", "Metadata", "DescribeCluster", "FindCoordinator")
"""APIs whose messages are often the same as before; such are not checked again."""
_REMEDY = {
    Owner.BROKER: (
        "report it to the developers of the broker, or of the proxy or Kafka-compatible product that answers in its "
        "place, with this "
        "exchange: no setting of the client mends it"
    ),
    Owner.CLIENT: "report it to the developers of the client library or of its assignor, with this exchange",
}
_FETCHES = (
    "empty-fetch-loop",
    "read-replica-bouncing",
    "full-fetches",
    "fetch-session-churn",
    "metadata-storm",
    "connection-churn",
)
_MEMBERS = (
    "rebalance-storm",
    "slow-rebalance",
    "idle-members",
    "closed-without-leaving",
    "unknown-member",
    "connection-churn",
)
_REFRESHES = ("metadata-storm", "metadata-ignored", "connection-churn", "unused-connections")
_EFFECTS = {
    "fetch-null-records": _FETCHES, "fetch-replica-unknown": _FETCHES, "fetch-replica-with-records": _FETCHES,
    "fetch-missing": _FETCHES,
    "sync-assignment-changed": _MEMBERS, "sync-assignment-unreadable": _MEMBERS,
    "sync-assignment-sent-unreadable": _MEMBERS,
    "join-leader-no-member": _MEMBERS, "join-protocol-not-offered": _MEMBERS, "join-no-member-id": _MEMBERS,
    "metadata-without-brokers": _REFRESHES, "metadata-leader-unknown": _REFRESHES,
    "coordinator-without-address": _REFRESHES, "find-coordinator-missing": _REFRESHES,
    "find-coordinator-unasked": _REFRESHES,
    "init-producer-id-reused": ("out-of-order-sequence", "duplicate-sends", "producer-fenced", "unknown-producer-id"),
    "produce-missing": ("resent-without-idempotence", "duplicate-sends"),
    "error-of-another-api": (
        "authorization-failed", "unexplained-error", "fetch-error-loop", "coordinator-unavailable", "commit-failed",
        "group-refused", "produce-refused", "admin-request-refused", "topic-creation-refused", "metadata-storm",
    ),
}  # fmt: skip
"""Detectors whose findings are only effects of an answer, by row (`Finding.explains`)."""
MOST_FOUND = 1000
"""Findings; more only show again what these do."""


_FREQUENT = facts.api_key_set("OffsetCommit", "Produce")
SEEN, ONE_IN = 64, 8
"""Of these APIs, one success in eight is checked after the first 64 requests of a connection: they are many, and alike."""
_WITH_BROKER = facts.api_key_set("InitProducerId", "SyncGroup")
"""APIs whose answers are compared with what the broker told other connections."""


@dataclass(frozen=True, slots=True)
class _KnownNodes:
    """`Context.known_nodes` of a connection; not a function, as inspectors are pickled."""

    conn: ClientConnection

    def __call__(self) -> Collection[int]:
        return self.conn.cluster.nodes


class ImpossibleAnswer(Detector):
    id = "impossible-answer"
    severity = Severity.MEDIUM
    title = "an answer contradicts its request, itself or earlier ones, in a way that Apache Kafka never does"

    request_apis = REQUESTS
    OFTEN = 3
    """Times from which a row that healthy brokers show for a moment counts fully, even if later answers are right."""

    @classmethod
    def wanted_of(cls, api_key: int, version: int) -> Wanted:
        return Wanted.ALL if concerned(api_key, version).usual else Wanted.FAILED

    def setup(self) -> None:
        self._memory = Memory()
        self._contexts: BoundedDict[int, Context] = BoundedDict()
        self._alike: BoundedDict[int, None] = BoundedDict()
        """Hashes of exchanges with nothing wrong, by broker."""
        # By client, broker and API: the findings that a right answer makes less severe.
        self._passing: BoundedDict[object, dict[str, Finding]] = BoundedDict()

    def _context(self, conn: ClientConnection, exchange: Exchange) -> Context:
        context = self._contexts.get(conn.number)
        if context is None:
            context = self._contexts[conn.number] = Context(conn.broker, _KnownNodes(conn), self._memory)
        if exchange.api_key in _WITH_BROKER:
            context.broker = f"{conn.broker} {conn.cluster.id}"  # another cluster may be started at the same address
        return context

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        if (message := exchange.request_view) is not None:
            requested(message, self._context(conn, exchange))

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED:
            return
        checks = concerned(exchange.api_key, exchange.api_version)
        failed = exchange.error != 0
        if not failed:
            if not checks.usual:
                return
            if exchange.api_key in _FREQUENT and conn.requests > SEEN and exchange.correlation_id % ONE_IN:
                return
        request, response = exchange.request_view, exchange.response_view
        if request is None or response is None or request.trailing:
            return  # a broken frame is no evidence
        marks = exchange.marks
        if marks.broker_request is not None and brokers_version(exchange) != exchange.api_version:
            return  # translated by the proxy
        alike = 0
        if exchange.api_key in _ALIKE:
            alike = hash((conn.broker, exchange.api_key, exchange.api_version, request.frame[8:], response.frame[4:]))
            if alike in self._alike:
                return
        context = self._context(conn, exchange)
        found = violations(Pair(request, response, context), checks, failed)
        for violation in found:
            self._violated(conn, exchange, violation)
        if alike and not found:
            self._alike[alike] = None
        if self._passing and not failed:
            self._passed(conn, exchange, {violation.row.id for violation in found})

    def _violated(self, conn: ClientConnection, exchange: Exchange, violation: Violation) -> None:
        row, path, text = violation
        key = row.id, conn.identity, conn.broker
        finding = self._found.get(key)
        if finding is not None:
            self.count(key, finding, exchange)
        elif len(self._found) >= MOST_FOUND:
            return
        else:
            finding = self.report(
                key,
                exchange,
                f"Apache Kafka {row.kafka} ({row.source}).{' ' if row.clients else ''}{row.clients}",
                row.remedy or _REMEDY[row.owner],
                seen=_seen(conn, exchange, row, path, text),
                row=row.id,
                path=path,
            )
            finding.explains = _EFFECTS.get(row.id, ())
        finding.severity = Severity(row.severity)
        if row.passes:
            self._passing.of((conn.identity, conn.broker, exchange.api_key), dict)[row.id] = finding

    def _passed(self, conn: ClientConnection, exchange: Exchange, found: set[str]) -> None:
        for row_id, finding in self._passing.get((conn.identity, conn.broker, exchange.api_key), {}).items():
            if row_id not in found and finding.count < self.OFTEN and finding.severity is not Severity.LOW:
                finding.severity = Severity.LOW

    def closed(self, conn: ClientConnection) -> None:
        self._contexts.pop(conn.number, None)


def _seen(conn: ClientConnection, exchange: Exchange, row: Row, path: str, text: str) -> str:
    what = f"{exchange.api} v{exchange.api_version}"
    if row.owner is Owner.CLIENT and path.startswith("request:"):
        return f"{conn.who} sent {what} to {conn.where}: {path} {text}"
    return f"{conn.where} answered {what} of {conn.who}: {path} {text}"
