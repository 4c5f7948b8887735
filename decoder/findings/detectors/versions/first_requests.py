"""Clients that get no further than their first requests, because the broker is too old for them."""

from __future__ import annotations

from dataclasses import dataclass

from ....connection.exchange import Exchange, State
from ....reference.clients import KnownVersion, software
from ....reference.releases import exact_release, release_order
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.detector import Detector, Wanted
from ...engine.finding import Finding, Severity
from ...engine.formatting import times
from ...engine.traffic import ClientConnection
from ..network.endings import ConnectionStart, Ending, EndingDetector

_API_VERSIONS = facts.api_key("ApiVersions")
_ROUTINE = facts.api_key_set("ApiVersions", "Metadata", "FindCoordinator", "SaslHandshake", "SaslAuthenticate")


class ClosedOnFirstRequest(EndingDetector):
    id = "closed-on-first-request"
    severity = Severity.HIGH
    title = "a broker closes connections on the very first request: it is too old for ApiVersions, or accepts no connections"

    COUNT = 3
    """Connections; clients that fall back (KIP-35) give up asking for versions after one or two."""

    def setup(self) -> None:
        self._closed: BoundedDict[tuple[str, str], int] = BoundedDict()

    def ended(self, conn: ClientConnection, start: ConnectionStart, how: Ending) -> None:
        first = start.closed_on
        if how is not Ending.UNANSWERED or first is None or self.endings.worked(conn):
            return
        pair = conn.client_host, conn.broker
        closed = self._closed[pair] = self._closed.get(pair, 0) + 1
        if closed < self.COUNT:
            return
        found = self._report(pair, conn, first)
        found.count = max(found.count, closed)
        found.seen = (
            f"{conn.where} closes the connection of {conn.who} on its very first request, {first.api} "
            f"v{first.api_version}, instead of answering ({times(found.count)})"
        )

    def _report(self, key: object, conn: ClientConnection, first: Exchange) -> Finding:
        others = (
            "a TLS listener usually answers with an alert, but may just close the connection; a broker that has "
            "reached max.connections or max.connections.per.ip closes it, and so does a load balancer or firewall "
            "without a target"
        )
        if first.api_key == _API_VERSIONS:
            why = (
                "brokers older than 0.10.0 do not know ApiVersions (KIP-35) and close the connection on it; a current "
                f"client sends it first, and gets no further. Other causes: {others}."
            )
            remedy = (
                f"ask the broker: barnabas versions {conn.broker}. If it is that old, upgrade it (to 2.1 or newer for "
                "current clients), or configure the client: librdkafka api.version.request=false and "
                "broker.version.fallback=0.9.0 (or 0.8.2), kafka-python api_version=(0, 9), sarama Config.Version, "
                "franz-go MaxVersions; Java: a client of the broker's own release"
            )
        else:
            why = f"Known causes: {others}. A broker also closes the connection on a version that it does not support."
            remedy = f"ask the broker: barnabas versions {conn.broker}; check its log at that time"
        return self.report(key, first, why, remedy, time_ns=conn.closed_ns, facts=conn.facts_of(first))


@dataclass(slots=True)
class _Seen:
    """A client, and a broker that is older than the client requires."""

    conn: ClientConnection
    called: str
    need: KnownVersion
    release: str
    worked: bool = False


class ClientTooNew(Detector):
    id = "client-too-new"
    severity = Severity.HIGH
    title = "a client's release needs newer brokers than the one it connects to"
    wanted = Wanted.NEW

    def setup(self) -> None:
        self._seen: BoundedDict[tuple[str, str | None, str], _Seen] = BoundedDict()
        self._releases: BoundedDict[str, tuple[dict[int, tuple[int, int]], str | None]] = BoundedDict()

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        key = conn.client_host, conn.client_id, conn.broker
        if exchange.api_key == _API_VERSIONS:
            self._asked(conn, exchange, key)
        elif exchange.api_key not in _ROUTINE and self._seen:
            seen = self._seen.get(key)
            if seen is not None and exchange.state is State.PAIRED and not exchange.error:
                seen.worked = True

    def _asked(self, conn: ClientConnection, exchange: Exchange, key: tuple[str, str | None, str]) -> None:
        about, offered = conn.about, conn.about.offered
        # A refusal names ApiVersions alone, which is not a broker's offer.
        if not about.software_name or offered is None or len(offered) < 2:
            return
        known = software(about.software_name, about.software_version, conn.client_id)
        need = known.client.oldest_broker(known.version) if known is not None else None
        if known is None or need is None:
            return
        release = self._release(conn.broker, offered)
        if release is None or release_order(release) >= release_order(need.release):
            return
        if key not in self._seen:
            self.traffic.forget_kinds()
        seen = self._seen.of(key, lambda: _Seen(conn, known.text, need, release))
        self.report(
            key,
            exchange,
            f"from {seen.need.version} on, {seen.called.rsplit(' ', 1)[0]} no longer supports brokers older than "
            f"{seen.need.release} ({seen.need.source}): it finds no common version and raises an exception "
            "(UnsupportedVersionException), which is not visible on the wire",
            f"upgrade the brokers to {seen.need.release} or newer, or use a client older than {seen.need.version}",
            needs=seen.need.release,
            release=seen.release,
            facts=seen.conn.facts_of(exchange),
        )

    def _release(self, broker: str, offered: dict[int, tuple[int, int]]) -> str | None:
        """The release of a broker, if its offer is exactly that of one."""
        before = self._releases.get(broker)
        if before is None or before[0] != offered:
            before = dict(offered), exact_release(offered)
            self._releases.of(broker, lambda: ({}, None))
            self._releases[broker] = before
        return before[1]

    def finish(self, now_ns: int) -> None:
        for key, seen in self._seen.items():
            finding = self._found.get(key)
            if finding is not None:
                finding.severity = Severity.LOW if seen.worked else Severity.HIGH
                finding.seen = (
                    f"{seen.conn.who} needs brokers of {seen.need.release} or newer, and {seen.conn.where} is "
                    f"{seen.release}; "
                    + ("some of its requests were answered" if seen.worked else "it got no further than Metadata")
                )
