"""Bytes on a Kafka port that a broker cannot read: TLS, HTTP and others; requests in clear to TLS; impossible sizes."""

from __future__ import annotations

from ....connection.connection import Opaque
from ....connection.exchange import Exchange, State
from ....wire.frame import Direction
from ....wire.tls_handshake import Refusal, TlsHandshake
from ...engine.counters import BoundedDict
from ...engine.finding import Severity
from ...engine.traffic import ClientConnection
from .endings import MOST_REQUEST, ConnectionStart, Ending, EndingDetector
from .first_bytes import HTTP, PROXY, TLS, Alert, alert, announced, protocol

_ALERTS = {
    "unknown_ca": ("the sender of the alert does not trust the CA that signed the other side's certificate",
                   "add the CA to the sender's truststore (ssl.truststore.location, librdkafka: ssl.ca.location)"),
    "certificate_unknown": ("the sender of the alert does not accept the other side's certificate",
                            "check the CA, the dates and the host name (ssl.endpoint.identification.algorithm)"),
    "bad_certificate": ("the certificate is invalid, or a required certificate was not sent",
                        "check the other side's keystore; with ssl.client.auth=required clients need one"),
    "certificate_required": ("the broker requires a client certificate and got none (ssl.client.auth=required)",
                             "give the client a keystore (librdkafka: ssl.certificate.location, ssl.key.location)"),
    "certificate_expired": ("a certificate has expired, or a clock is wrong", "renew it; check both clocks"),
    "protocol_version": ("the two sides have no TLS version in common", "compare ssl.enabled.protocols with the client's"),
    "handshake_failure": ("the two sides have no cipher or certificate in common",
                          "compare ssl.cipher.suites; with ssl.client.auth=required clients need a certificate"),
}  # fmt: skip
_BROKER_CERTIFICATE = (
    "add the CA to the client's truststore (Java: ssl.truststore.location; librdkafka: ssl.ca.location), and check the host name and "
    "the dates of the broker's certificate"
)
_BY_CLIENT = {
    "bad_certificate": ("the client does not accept the broker's certificate: Go clients send this alert for an unknown CA, another "
                        "host name, and dates that are over", _BROKER_CERTIFICATE),
}  # fmt: skip
"""Alerts that mean something else from clients."""
_CLIENT_CERTIFICATE = (
    "with ssl.client.auth=required (listener.name.NAME.ssl.client.auth), brokers accept only clients with a certificate that they trust. "
    "In TLS 1.3 the broker's alert is encrypted, and some clients report only a disconnect."
)
_KEYSTORE = (
    "give the client a certificate that the broker's truststore accepts (Java: ssl.keystore.location; librdkafka: "
    "ssl.certificate.location and ssl.key.location), or use a listener that asks for none; the broker's log has the reason"
)
_REFUSALS = {
    Refusal.BY_CLIENT: (
        "the client ends the handshake with an encrypted alert instead of its Finished",
        "it does not accept the broker's certificate: an unknown CA, another host name, or dates that are over. The alert is encrypted in "
        "TLS 1.3; the client's own error message has the reason.",
        _BROKER_CERTIFICATE,
    ),
    Refusal.NO_CERTIFICATE: (
        "the broker asks for a client certificate, the client sends none, and the broker ends the session",
        f"the client has no certificate, or none of a CA that the broker named: then Java, Go and librdkafka clients send none. "
        f"{_CLIENT_CERTIFICATE}",
        _KEYSTORE,
    ),
    Refusal.BY_BROKER: (
        "the broker ends the TLS session right after the client's Finished, before any data",
        f"probably it does not accept the client's certificate. {_CLIENT_CERTIFICATE}",
        _KEYSTORE,
    ),
}
_TLS_CLIENTS = "Java: security.protocol=SSL (or SASL_SSL); librdkafka: security.protocol=ssl; kafka-python, aiokafka: "
_TLS_REMEDY = f"{_TLS_CLIENTS}security_protocol='SSL' with an ssl_context"


def _of(conn: ClientConnection) -> str:
    """The client, without the client id that only requests name."""
    return conn.who if conn.requests else f"{conn.client_host or 'a client'}"


class TlsOnPlaintextPort(EndingDetector):
    id = "tls-on-plaintext-port"
    severity = Severity.HIGH
    title = "a client starts TLS on a listener without TLS"

    def ended(self, conn: ClientConnection, start: ConnectionStart, how: Ending) -> None:
        if how is not Ending.TLS_REFUSED or not conn.how:
            return
        size = announced(start.first_bytes[0])
        found = self.report(
            (conn.client_host, conn.broker),
            None,
            f"a broker reads the TLS hello as a frame of {size} bytes, more than socket.request.max.bytes allows, and "
            "closes the connection; its log has an InvalidReceiveException with such a size. The client sees a failed "
            "handshake or a disconnect.",
            "use the port of the SSL or SASL_SSL listener; or, if this port is right, turn TLS off in the client "
            "(security.protocol=PLAINTEXT or SASL_PLAINTEXT). `listeners` and listener.security.protocol.map on "
            "the broker show which port is which.",
            time_ns=conn.closed_ns,
            **conn.facts,
        )
        found.seen = (
            f"{_of(conn)} starts TLS {_times(found.count)} on {conn.where}, which does not use TLS and ends the "
            "connection"
        )


class PlaintextOnTlsPort(EndingDetector):
    id = "plaintext-on-tls-port"
    severity = Severity.HIGH
    title = "a client sends plaintext requests to a TLS listener"

    def ended(self, conn: ClientConnection, start: ConnectionStart, how: Ending) -> None:
        if how is not Ending.TLS_PORT:
            return
        first = start.closed_on
        asked = f"{first.api} v{first.api_version}" if first else "the first request"
        tls_alert = alert(start.first_bytes[1])
        found = self.report(
            (conn.client_host, conn.broker),
            first,
            "a TLS listener reads the request as a broken TLS record and ends the connection, so clients only see "
            "repeated disconnects at the very first request.",
            f"turn TLS on in the client ({_TLS_REMEDY}), or use the port of the listener without TLS.",
            time_ns=conn.closed_ns,
            facts=conn.facts_of(first),
        )
        found.seen = (
            f"{conn.who} sends {asked} in plaintext, and {conn.where} answers with TLS"
            f"{f' (alert {tls_alert.name})' if tls_alert else ''}; {_times(found.count)}"
        )


class TlsHandshakeFailed(EndingDetector):
    id = "tls-handshake-failed"
    severity = Severity.HIGH
    title = "a TLS handshake fails: with an alert, or right after the certificates"

    OFTEN = 2
    """Handshakes that a broker ends without a visible reason before that counts as a failure."""

    def setup(self) -> None:
        self._handshakes: BoundedDict[int, TlsHandshake] = BoundedDict(1024)

    def stray(self, conn: ClientConnection, opaque: Opaque) -> None:
        start = self.endings.starts.get(conn.number)
        if start is None or not start.first_bytes[0] or protocol(start.first_bytes[0], Direction.REQUEST) != TLS:
            return
        self._handshakes.of(conn.number, TlsHandshake).feed(opaque.direction, opaque.data, opaque.time_ns)
        tls_alert = alert(opaque.data)
        if tls_alert is None or not tls_alert.fatal:
            return
        self._handshakes.pop(conn.number, None)
        self._alert(conn, opaque, tls_alert)

    def closed(self, conn: ClientConnection) -> None:
        handshake = self._handshakes.pop(conn.number, None)
        refusal = Refusal.NONE if handshake is None or conn.lost else handshake.refusal(conn.by, conn.closed_ns or 0)
        if refusal is Refusal.NONE:
            return
        what, why, remedy = _REFUSALS[refusal]
        found = self.report(
            (conn.client_host, conn.broker, refusal), None, why, remedy, time_ns=conn.closed_ns, refusal=refusal.name, **conn.facts
        )
        if refusal is Refusal.BY_BROKER and found.count < self.OFTEN:
            found.severity = Severity.MEDIUM
        else:
            found.severity = Severity.HIGH
        found.seen = f"TLS between {_of(conn)} and {conn.where} fails: {what} ({_times(found.count)})"

    def _alert(self, conn: ClientConnection, opaque: Opaque, tls_alert: Alert) -> None:
        by_client = opaque.direction is Direction.REQUEST
        sender = "the client" if by_client else "the broker"
        why, remedy = (by_client and _BY_CLIENT.get(tls_alert.name)) or _ALERTS.get(tls_alert.name, ("the sender of the alert cannot continue", "check its log"))
        found = self.report(
            (conn.client_host, conn.broker, sender, tls_alert.name),
            None,
            f"{why}. No Kafka request can be sent.",
            remedy,
            time_ns=opaque.time_ns,
            alert=tls_alert.name,
            sender=sender,
            **conn.facts,
        )
        found.seen = (
            f"TLS between {_of(conn)} and {conn.where} fails: {sender} sends {tls_alert.name} {_times(found.count)}"
        )


class TlsTraffic(EndingDetector):
    id = "tls-traffic"
    severity = Severity.INFO
    title = "connections are encrypted, so their content cannot be inspected"
    why = "the requests inside are not decoded, so they cannot produce findings."
    remedy = (
        "record where the traffic is not encrypted: let the client use a listener without TLS while you record, or "
        "record at the broker's other listeners"
    )

    def unframed(self, conn: ClientConnection, start: ConnectionStart) -> None:
        if conn.requests or start.of(conn) is not Ending.TLS_SESSION:
            return
        self.report(
            (conn.client_host, conn.broker),
            None,
            seen=f"{_of(conn)} speaks TLS with {conn.where}",
            time_ns=conn.opened_ns,
            **conn.facts,
        )


class ForeignProtocol(EndingDetector):
    id = "foreign-protocol"
    severity = Severity.MEDIUM
    title = "one side of a connection uses a protocol other than Kafka's"

    def unframed(self, conn: ClientConnection, start: ConnectionStart) -> None:
        self._look(conn, start, start.of(conn))

    def _look(self, conn: ClientConnection, start: ConnectionStart, how: Ending) -> None:
        if how is not Ending.FOREIGN:
            return
        asked = "" if conn.requests else protocol(start.first_bytes[0], Direction.REQUEST)
        if asked:
            self._client(conn, asked, start.first_bytes[0])
        else:
            self._server(conn, protocol(start.first_bytes[1], Direction.RESPONSE) or "")

    def _client(self, conn: ClientConnection, name: str, data: bytes) -> None:
        size = announced(data)
        if name == PROXY:
            remedy = (
                "turn the PROXY protocol off in the load balancer (HAProxy: send-proxy, NGINX: proxy_protocol, AWS "
                "NLB: proxy protocol v2 of the target group): Kafka brokers do not support it"
            )
        elif name == HTTP:
            remedy = (
                "point health checks and scrapers elsewhere: use a TCP check for a broker, and the metrics port for "
                "Prometheus; REST clients need a REST proxy in front of Kafka"
            )
        else:
            remedy = "correct the port in that client's configuration, or block its access to the broker's port"
        found = self.report(
            (conn.client_host, conn.broker, name),
            None,
            f"read as Kafka framing, its first bytes announce a frame of {size} bytes; brokers log "
            "InvalidReceiveException or wait for the rest, and close the connection.",
            remedy,
            severity=Severity.HIGH if name == PROXY else None,
            time_ns=conn.last_ns,
            protocol=name,
            **conn.facts,
        )
        found.seen = f"{conn.client_host or 'a client'} speaks {name} to {conn.where} {_times(found.count)}"

    def _server(self, conn: ClientConnection, name: str) -> None:
        found = self.report(
            (conn.client_host, conn.broker, name, "server"),
            None,
            "that port belongs to another service. A Kafka client reads the answer as a frame of an absurd size; some "
            "clients run out of memory (Java) or wait until their timeout.",
            "correct bootstrap.servers, or advertised.listeners if a broker named this address",
            severity=Severity.HIGH,
            time_ns=conn.last_ns,
            protocol=name,
            **conn.facts,
        )
        found.seen = f"{conn.broker} answers {_of(conn)} with {name} instead of Kafka, {_times(found.count)}"


class FrameSize(EndingDetector):
    id = "frame-size"
    severity = Severity.MEDIUM
    title = "a frame is larger than the other side accepts, or its size is absurd"
    MOST_RESPONSE = 100_000_000
    """Bytes: librdkafka's receive.message.max.bytes unless set."""

    def stray(self, conn: ClientConnection, opaque: Opaque) -> None:
        start = self.endings.starts.get(conn.number)
        if opaque.framed or start is None or start.broken:
            return
        size = announced(opaque.data)
        side = opaque.direction
        if "not a frame" in opaque.reason or ("ended inside" in opaque.reason and size > MOST_REQUEST):
            if protocol(opaque.data, side) and not (conn.requests if side is Direction.REQUEST else start.answered):
                return  # it has a name
            if side is Direction.REQUEST and 0 <= size <= 1 << 29:
                self._request(conn, size, None, opaque.time_ns)
            elif "not a frame" in opaque.reason:
                self._absurd(conn, size, side, opaque.time_ns)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.request is not None and len(exchange.request) > MOST_REQUEST:
            self._request(conn, len(exchange.request), exchange, None)
        if exchange.response is not None and len(exchange.response) > self.MOST_RESPONSE:
            self._response(conn, exchange)

    def _request(self, conn: ClientConnection, size: int, exchange: Exchange | None, time_ns: int | None) -> None:
        answered = exchange is not None and exchange.state is State.PAIRED
        found = self.report(
            ("request", conn.identity, conn.broker),
            exchange,
            "brokers close a connection that announces more than socket.request.max.bytes (100 MiB unless set), "
            "without an answer. The client sees a disconnect, retries, and is disconnected again.",
            "send less at a time (Java: max.request.size, batch.size; librdkafka: message.max.bytes, "
            "batch.size; admin clients: fewer topics or configs in a call), or raise socket.request.max.bytes",
            severity=Severity.LOW if answered else Severity.HIGH,
            time_ns=time_ns,
            api=exchange.api if exchange else None,
            size=size,
            limit=MOST_REQUEST,
            facts=conn.facts,
        )
        found.about["size"] = max(size, found.about["size"])
        found.seen = f"{conn.who} sends a request of {found.about['size']} bytes to {conn.where}, {_times(found.count)}"

    def _response(self, conn: ClientConnection, exchange: Exchange) -> None:
        size = len(exchange.response or b"")
        strict = "librdkafka" in conn.software
        found = self.report(
            ("response", conn.identity, exchange.api_key),
            exchange,
            "librdkafka refuses more than receive.message.max.bytes (100000000 unless set) and disconnects; then it "
            "fetches the same data again. Java and Python clients accept it, and hold all of it in memory.",
            "Java: lower fetch.max.bytes or max.partition.fetch.bytes; librdkafka: lower fetch.max.bytes, or keep "
            "receive.message.max.bytes 512 bytes above it; kafka-python: fetch_max_bytes",
            severity=Severity.HIGH if strict else Severity.LOW,
            size=size,
            limit=self.MOST_RESPONSE,
        )
        found.about["size"] = max(size, found.about["size"])
        found.seen = (
            f"{conn.where} answers {conn.who} with {exchange.api} responses of up to {found.about['size']} bytes, "
            f"{_times(found.count)}"
        )

    def _absurd(self, conn: ClientConnection, size: int, side: Direction, time_ns: int) -> None:
        sender, other = (conn.where, _of(conn)) if side else (_of(conn), conn.where)
        found = self.report(
            ("absurd", conn.client_host, conn.broker, side),
            None,
            "no Kafka frame has such a size. Either the bytes are another protocol, or the sender lost its place in "
            "the stream (two threads writing to one connection, a proxy that cuts or joins frames).",
            "look at the bytes before it on that connection; bypass everything between client and broker, and try again",
            time_ns=time_ns,
            size=size,
            side="response" if side else "request",
            **conn.facts,
        )
        found.seen = f"{sender} sends {other} a frame of {size} bytes, {_times(found.count)}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
