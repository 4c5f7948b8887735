"""Connections that brokers refuse, do not answer, or close at once, again and again."""

from __future__ import annotations

from typing import NamedTuple

from ....connection.exchange import Exchange
from ...engine.counters import BoundedDict
from ...engine.detector import Detector, Wanted
from ...engine.finding import Severity
from ...engine.host import is_loopback, split
from ...engine.traffic import ClientConnection
from .endings import ConnectionStart, Ending, EndingDetector

MOST_PAIRS = 4096


class _Failures(NamedTuple):
    """Failures in a row."""

    times: int
    first_ns: int
    how: str


class ConnectionRefused(Detector):
    """A client fails to connect to an address again and again.

    A restarting broker refuses connections for seconds: severity medium. What lasts longer than a restart is high.
    """

    id = "connection-refused"
    severity = Severity.MEDIUM
    title = "connections to a broker are repeatedly refused, or get no answer"
    IN_A_ROW, OVER_NS = 5, 3_000_000_000
    """Attempts, and over how long. Clients wait 50 to 100 ms before the second attempt, and then longer."""
    LASTING_NS = 60_000_000_000
    """Longer than a broker takes to restart."""

    def setup(self) -> None:
        self._failures: BoundedDict[tuple[str, str], _Failures] = BoundedDict(MOST_PAIRS)
        self._reached: BoundedDict[tuple[str, str], None] = BoundedDict(MOST_PAIRS)

    def opened(self, conn: ClientConnection) -> None:
        if conn.established:
            self._failures.pop((conn.client_host, conn.broker), None)
            self._reached[_place(conn)] = None

    def closed(self, conn: ClientConnection) -> None:
        if conn.established or conn.how not in ("refused", "unreached"):
            return
        if is_loopback(split(conn.broker)[0]) and _place(conn) in self._reached:
            return  # localhost is ::1 and 127.0.0.1: clients try both, and a broker mostly listens at one
        key = conn.client_host, conn.broker
        now = conn.closed_ns or 0
        failures = self._failures.get(key) or _Failures(0, conn.opened_ns, "")
        failures = self._failures[key] = _Failures(failures.times + 1, failures.first_ns, conn.how)
        if failures.times < self.IN_A_ROW or now - failures.first_ns < self.OVER_NS:
            return
        lasting = now - failures.first_ns >= self.LASTING_NS
        found = self.report(
            key,
            None,
            "nothing listens on that port: the broker is down, or listens on another address or port."
            if conn.how == "refused"
            else "the packets get no answer: a firewall or security group drops them, or the address is not in use. "
                 "Every attempt costs the client its connection timeout (socket.connection.setup.timeout.ms; Java 10 "
                 "s, librdkafka 30 s).",
            "start the broker, or compare the address with its `listeners` and advertised.listeners; check what is in "
            "between: firewall rules, port forwards, container networks. With more than one address in "
            "bootstrap.servers, clients can start without this broker.",
            time_ns=now,
            how=conn.how,
            **conn.facts,
        )
        if found.count == 1 and key in self._reached and conn.cluster.nodes.get(conn.cluster.node_at(conn.broker) or -1) == conn.broker:
            found.why += (
                " It worked before, and Metadata named this address: if the broker runs again elsewhere (a pod or container that has got another "
                "address), a client that knows no other broker stays with the old one."
            )
            found.remedy += (
                " Advertise a name instead of an address that changes (Kubernetes: the pod's name in a headless service), and let the client "
                "start again from its bootstrap servers (metadata.recovery.strategy=rebootstrap, KIP-899)."
            )
        found.count = max(found.count, failures.times)
        found.severity = Severity.HIGH if lasting else found.severity
        word = "refused" if conn.how == "refused" else "not answered"
        found.seen = (
            f"{conn.client_host or 'a client'} connects to {conn.where} {failures.times} times in "
            f"{(now - failures.first_ns) / 1e9:.0f} s and is {word}"
        )


def _place(conn: ClientConnection) -> tuple[str, str]:
    """Client host and address; all loopback addresses count as one."""
    host, port = split(conn.broker)
    loop = is_loopback(host)
    return ("" if loop else conn.client_host), f"loopback:{port}" if loop else conn.broker


class ClosedAtOnce(EndingDetector):
    """A broker accepts connections and closes them before any bytes, or resets them after the first request.

    The detectors of TLS and SASL report closes after the first request without a reset.
    """

    id = "connection-closed-at-once"
    severity = Severity.HIGH
    title = "a broker repeatedly accepts connections and ends them at once"
    why = (
        "a broker that has reached max.connections, max.connections.per.ip or max.connection.creation.rate (KIP-402, "
        "KIP-612) closes new connections; so does a load balancer or port forward without a live broker behind it."
    )
    remedy = (
        "count the connections to that broker (kafka.server:type=socket-server-metrics, connection-count) and raise "
        "the limit, or find the client that opens a connection per message; behind a load balancer, check its targets"
    )
    wanted = Wanted.NEW
    IN_A_ROW = 5
    """Connections. A broker that stops ends each of its connections once."""
    RESTART_NS = 60_000_000_000
    """A broker takes no longer to restart."""
    STOPPED_WHY = (
        "likeliest first: the broker stopped, and what stands before it (a load balancer, port forward or proxy) still accepts connections; "
        "or the broker has reached max.connections, max.connections.per.ip or max.connection.creation.rate (KIP-402, KIP-612)."
    )
    STOPPED_REMEDY = (
        "broker: check its log for a stop or restart at that time. After a restart, clients connect again by themselves; if it lasts, start the "
        "broker, and check the targets of the load balancer. If the broker ran all the time, compare its connection-count with its limits"
    )

    def setup(self) -> None:
        self._failures: BoundedDict[tuple[str, str], _Failures] = BoundedDict(MOST_PAIRS)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if self.endings.works_since is exchange:
            self._failures.pop((conn.client_host, conn.broker), None)

    def ended(self, conn: ClientConnection, start: ConnectionStart, how: Ending) -> None:
        reset = how is Ending.UNANSWERED and conn.how == "rst" and conn.by == "broker" and self.endings.worked(conn)
        if how is not Ending.EMPTY and not reset:
            return
        key = conn.client_host, conn.broker
        failures = self._failures.get(key) or _Failures(0, conn.opened_ns, "")
        failures = self._failures[key] = _Failures(failures.times + 1, failures.first_ns, conn.how)
        if failures.times < self.IN_A_ROW:
            return
        now, stop = conn.closed_ns or 0, self.endings.last_stop(conn)
        stopped = stop.connections > 1 and failures.first_ns - stop.first_ns <= self.RESTART_NS
        found = self.report(key, start.closed_on, time_ns=now, how=conn.how, facts=conn.facts)
        found.why, found.remedy = (self.STOPPED_WHY, self.STOPPED_REMEDY) if stopped else (self.why, self.remedy)
        found.severity = Severity.MEDIUM if stopped and now - stop.first_ns <= self.RESTART_NS else self.severity
        found.count = max(found.count, failures.times)
        when = "before any request" if start.closed_on is None else "after the first request"
        found.seen = (
            f"{conn.where} {'resets' if conn.how == 'rst' else 'closes'} {failures.times} connections of "
            f"{conn.client_host or 'a client'} in {(now - failures.first_ns) / 1e9:.0f} s, {when}"
            + (f"; shortly before, it ended {stop.connections} connections that had worked" if stopped else "")
        )


class ProxyNotLetIn(Detector):
    id = "proxy-not-let-in"
    severity = Severity.HIGH
    title = "the proxy's own login or TLS handshake fails at a broker"

    def closed(self, conn: ClientConnection) -> None:
        if conn.established or conn.how not in ("login", "tls"):
            return
        is_login = conn.how == "login"
        found = self.report(
            (conn.broker, conn.how),
            None,
            "the proxy reached the broker, but ended the client's connection without passing anything on. Clients see "
            "a disconnect, as from a broker that is down, and try again.",
            "compare the proxy's --sasl options with what the broker's listener accepts; the proxy's LoginFailed "
            "event has the broker's answer"
            if is_login
            else "compare --broker-ca and --broker-name with the broker's certificate and the name in it; the proxy's "
                 "TlsFailed event has the reason",
            time_ns=conn.closed_ns,
            how=conn.how,
            **conn.facts,
        )
        what = "the proxy's login" if is_login else "the proxy's TLS handshake"
        found.seen = (
            f"{what} at {conn.where} failed {found.count} times: connections of {conn.client_host or 'clients'} were ended"
            if found.count > 1
            else f"{what} at {conn.where} failed: a connection of {conn.client_host or 'a client'} was ended"
        )
