"""Contradictions on one connection: correlation ids, and the client's identity."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice

from ....connection.connection import PRODUCE, expects_no_response
from ....connection.exchange import Exchange, State
from ....schema.plan import API_VERSIONS
from ...engine.detector import Detector, Wanted
from ...engine.finding import Severity
from ...engine.formatting import several
from ...engine.traffic import ClientConnection


@dataclass(slots=True)
class _Skipped:
    """Of a connection: ids of requests that were passed over by a later answer, and whether one was answered at all."""

    answered: bool = False
    ids: deque[int] = field(default_factory=lambda: deque(maxlen=64))
    without_acks: deque[int] = field(default_factory=lambda: deque(maxlen=64))
    """Of Produce requests with acks=0."""


class OddCorrelationIds(Detector):
    """Responses without a request or out of order, and ids in use twice at a time.

    Kafka answers the requests of a connection in their order, each with its correlation id.
    """

    id = "odd-correlation-ids"
    severity = Severity.HIGH
    title = (
        "correlation ids do not match: answers out of order or without a request, or an id used by two requests at a "
        "time"
    )
    wanted = Wanted.NEW

    IN_FLIGHT = 32
    """How many requests in flight an id is compared with."""

    def setup(self) -> None:
        self._links: dict[int, _Skipped] = {}

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        if len(conn.waiting) < 2:
            return
        number = exchange.correlation_id
        for other in islice(conn.waiting.values(), self.IN_FLIGHT):
            if other is not exchange and other.correlation_id == number:
                self._reused(conn, exchange)
                return

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is State.PAIRED:
            self._links.setdefault(conn.number, _Skipped()).answered = True
            return
        if conn.lost:
            return  # with gaps in the capture, nothing is certain
        known = self._links.setdefault(conn.number, _Skipped())
        if exchange.state is State.NO_RESPONSE:
            if exchange.api_key != PRODUCE or not expects_no_response(exchange):
                known.ids.append(exchange.correlation_id)
            else:
                known.without_acks.append(exchange.correlation_id)
        elif exchange.state is State.ORPHAN and not known.answered:
            # Answers before the first complete exchange may be to requests from before the capture.
            first = next(iter(conn.waiting.values()), None)
            if first is not None and conn.requests == len(conn.waiting) and first.api_key == API_VERSIONS:
                self._wrong(conn, exchange, first)
        elif exchange.state is State.ORPHAN:
            if exchange.correlation_id in known.ids:
                known.ids.remove(exchange.correlation_id)
                self._swapped(conn, exchange)
            else:
                self._orphan(conn, exchange, exchange.correlation_id in known.without_acks)

    def closed(self, conn: ClientConnection) -> None:
        self._links.pop(conn.number, None)

    def _swapped(self, conn: ClientConnection, exchange: Exchange) -> None:
        finding = self.report(
            ("order", conn.identity, conn.broker),
            exchange,
            "a broker answers the requests of a connection in order; clients rely on it, and treat an answer with any "
            "correlation id but the next one as a broken connection. Apache Kafka keeps the order: something between "
            "client and broker mixes requests of several clients, or the broker is not Apache Kafka.",
            "look at what is in between (proxies, load balancers that understand Kafka), or report it to the "
            "broker's developers",
            kind="out of order",
            facts=conn.facts,
        )
        finding.seen = f"{conn.where} answered {several(finding.count, 'request')} of {conn.who} after later ones"

    def _wrong(self, conn: ClientConnection, exchange: Exchange, first: Exchange) -> None:
        """The answer to the first request of a connection, as clients send nothing before ApiVersions."""
        finding = self.report(
            ("first", conn.identity, conn.broker),
            exchange,
            "each answer carries the correlation id of its request: bytes 4 to 7 of the request's header, bytes 0 to 3 of the response's. "
            "Clients drop a connection on any other one.",
            "report it to the developers of the broker, or of the product or proxy that answers in its place: it must return the id",
            kind="wrong id",
            correlation_id=exchange.correlation_id,
            facts=conn.facts,
        )
        finding.explains = ("unanswered-request", "connection-churn", "closed-without-answer", "slow-answers")
        finding.seen = (
            f"{conn.where} answered {several(finding.count, 'first request')} of {conn.who} with a wrong correlation id: the last was "
            f"{exchange.correlation_id} to {first.api} v{first.api_version} with {first.correlation_id}"
        )

    def _orphan(self, conn: ClientConnection, exchange: Exchange, without_acks: bool) -> None:
        if without_acks:
            why = (
                "a Produce request with acks=0 gets no answer. This broker answers it, and the client takes that for the answer to a later "
                "request, and drops the connection. Apache Kafka never does that."
            )
            remedy = "report it to the developers of the broker; until then use acks=1 or acks=all"
        else:
            why = (
                "each answer carries the correlation id of its request. An answer without a request makes clients drop the connection. Apache "
                "Kafka never sends one: something between client and broker mixes connections, or the broker is not Apache Kafka."
            )
            remedy = "look at what is between client and broker (proxies, connection pools), or report it to the broker's developers"
        finding = self.report(
            ("orphan", conn.identity, conn.broker, without_acks),
            exchange,
            why,
            remedy,
            kind="acks=0" if without_acks else "no request",
            correlation_id=exchange.correlation_id,
            facts=conn.facts,
        )
        finding.seen = (
            f"{conn.where} sent {several(finding.count, 'answer')} to {conn.who} "
            + ("to Produce requests with acks=0" if without_acks else "whose correlation id matches no request")
            + f" (the last: {exchange.correlation_id})"
        )

    def _reused(self, conn: ClientConnection, exchange: Exchange) -> None:
        finding = self.report(
            ("reused", conn.identity),
            exchange,
            "brokers answer in order, so it works as long as nothing in between matches responses by their "
            "correlation id. Proxies and tracing tools that do this cannot tell the responses apart.",
            "report it to the developers of the client: each request in flight needs its own id",
            severity=Severity.LOW,
            kind="used twice",
            correlation_id=exchange.correlation_id,
            facts=conn.facts,
        )
        finding.seen = (
            f"{conn.who} sent {several(finding.count, 'request')} with the correlation id of another one that was "
            f"still in flight (the last: {exchange.correlation_id})"
        )


@dataclass(slots=True)
class _Names:
    """Of a connection: what it calls itself now, how often that changed, and all it was called (8 at most)."""

    client_id: str | None
    software: str
    changes: int = 0
    seen: set[str] = field(default_factory=set)

    def now(self, client_id: str | None, software: str) -> bool:
        """Take a request's names; whether they contradict the previous ones.

        No client id is null or empty: kafka-go writes the one or the other, by the version of the header.
        """
        if client_id == self.client_id and software == self.software:
            return False
        differs = [(repr(self.client_id), repr(client_id))] if (client_id or "") != (self.client_id or "") else []
        if self.software and software != self.software:  # before ApiVersions it names none
            differs.append((self.software, software))
        self.client_id, self.software = client_id, software
        for names in differs:
            self.seen |= set(names) if len(self.seen) < 8 else set()
        self.changes += bool(differs)
        return bool(differs)


class ChangedIdentity(Detector):
    id = "client-identity-changes"
    severity = Severity.LOW
    title = "a connection's client id or software changes: several clients share it"
    why = (
        "quotas, logs, metrics and these findings go by client id (KIP-13), and by the software named in ApiVersions "
        "(KIP-511): on a shared connection, they are wrong for all clients but one. Authentication and fetch sessions "
        "also belong to the connection."
    )
    remedy = "give each client its own connection; a proxy must not pool connections for Kafka"
    wanted = Wanted.NEW

    CHANGES = 2
    """Requests with another name than the one before. A client may give no client id while it finds its feet, and
    then have one: that is a single change."""

    def setup(self) -> None:
        self._names: dict[int, _Names] = {}

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.request is None:
            return
        names = self._names.get(conn.number)
        if names is None:
            self._names[conn.number] = _Names(exchange.client_id, conn.software)
            return
        if not names.now(exchange.client_id, conn.software):
            return
        conn.forget_kinds()
        if names.changes < self.CHANGES:
            return
        finding = self.report((conn.client_host, conn.broker), exchange, facts=conn.facts)
        finding.about["names"] = sorted(names.seen)
        finding.seen = (
            f"connections from {conn.client_host} to {conn.where} keep changing their client id or software: "
            f"{', '.join(sorted(names.seen))}"
        )

    def closed(self, conn: ClientConnection) -> None:
        self._names.pop(conn.number, None)
