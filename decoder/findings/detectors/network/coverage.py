"""What a capture does not show, so that missing findings are not mistaken for health."""

from __future__ import annotations

from ....connection.exchange import Exchange, State
from ....wire.frame import Direction
from ...engine.counters import BoundedDict
from ...engine.detector import Detector, Wanted
from ...engine.finding import Finding, Severity
from ...engine.formatting import duration, several
from ...engine.traffic import ClientConnection
from ...models.response_times import own_wait_ns
from .unanswered import UnansweredRequest, awaits_nothing


class NotInTheCapture(Detector):
    id = "not-in-the-capture"
    severity = Severity.INFO
    title = "the capture lacks one direction of a connection, or its end: the answers are not known"
    wanted = Wanted.FAILED

    def setup(self) -> None:
        # Of each connection: a request without a response. The connection's end follows at once.
        self._without: BoundedDict[int, Exchange] = BoundedDict(1024)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.NO_RESPONSE:
            self._without.pop(conn.number, None)
        elif not conn.complete and conn.number not in self._without and not awaits_nothing(exchange):
            self._without[conn.number] = exchange

    def closed(self, conn: ClientConnection) -> None:
        self._look(conn, conn.closed_ns or 0)
        self._without.pop(conn.number, None)

    def finish(self, now_ns: int) -> None:
        for conn in self.traffic.connections.values():
            self._look(conn, now_ns)

    def _look(self, conn: ClientConnection, now_ns: int) -> None:
        if conn.complete:
            return
        if conn.requests and not conn.answers and conn.gone[Direction.RESPONSE]:
            self._half(conn, "what clients sent", "the answers", "errors, latencies and missing answers are")
        elif conn.answers + (conn.gone[Direction.RESPONSE] > 0) and not conn.requests:
            self._half(
                conn, "what brokers sent", "the requests", "which requests these answer, and so their content, is"
            )
        elif not conn.how and not conn.lost:
            waiting = next((e for e in conn.waiting.values() if not awaits_nothing(e)), None)
            first = self._without.get(conn.number, waiting)
            if first is not None:
                self._ends(conn, first, now_ns)

    def _half(self, conn: ClientConnection, shown: str, missing: str, unknown: str) -> None:
        finding = self._count_once(
            (shown, conn.broker),
            conn,
            None,
            f"{missing} took another path, or were filtered out (tcpdump with `dst port`, a mirror port for one "
            f"direction only, two paths): {unknown} not known, and not judged here.",
            "capture both directions, at one end of the connections; `barnabas proxy` records both by itself",
        )
        finding.seen = f"of {several(finding.count, 'connection')} to {conn.where} the capture shows only {shown}"

    def _ends(self, conn: ClientConnection, first: Exchange, now_ns: int) -> None:
        silent_ns = now_ns - conn.last_ns
        if silent_ns < max(UnansweredRequest.LATE_NS, own_wait_ns(first) + UnansweredRequest.BEYOND_NS):
            return
        finding = self._count_once(
            ("ends", conn.broker),
            conn,
            first,
            "in a capture that was merged from several, or that missed packets, this looks the same as a broker that "
            "does not answer: after a connection's last captured packet, nothing is known about it. Long waits that "
            f"the capture does show ({UnansweredRequest.id}) are reported.",
            "check the client's log at that time, or capture until the client gives up and ends the connection",
        )
        if finding.count == 1:
            finding.seen = (
                f"{first.api} v{first.api_version} of {conn.who} to {conn.where} has no answer in the capture, which "
                f"shows nothing of that connection during its last {duration(silent_ns)} and does not show its end"
            )
        else:
            finding.seen = (
                f"the capture shows neither further traffic nor the end of {several(finding.count, 'connection')} to "
                f"{conn.where}, although a request is waiting"
            )

    def _count_once(
        self, key: object, conn: ClientConnection, exchange: Exchange | None, why: str, remedy: str
    ) -> Finding:
        """Count a connection once, however often it is checked."""
        known = self._found.get(key)
        if known is not None and conn.number in known.about["connections"]:
            return known
        finding = self.report(key, exchange, why, remedy, time_ns=conn.last_ns, facts={"broker": conn.broker}, connections=[])
        finding.about["connections"].append(conn.number)
        return finding
