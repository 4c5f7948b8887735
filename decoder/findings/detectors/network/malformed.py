"""Messages that break the protocol: surplus bytes, forbidden nulls, ApiVersions fallbacks in no known form, undecodable frames."""

from __future__ import annotations

from ....codec.codec import UNSUPPORTED_VERSION
from ....codec.message_view import MessageView
from ....codec.plan import API_VERSIONS
from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.detector import Detector, Wanted
from ...engine.finding import Finding, Severity
from ...engine.formatting import several
from ...engine.traffic import ClientConnection


class MalformedApiVersionsFallback(Detector):
    id = "malformed-api-versions-fallback"
    severity = Severity.HIGH
    title = "a broker refuses an ApiVersions version in a body that clients cannot read (KIP-511)"
    why = (
        "under KIP-511 the broker answers in version 0, so that a newer client can read which versions it may use. "
        "Clients that decode strictly cannot connect (kafka-python 3 does not get past its bootstrap); librdkafka "
        "falls back to version 0 by itself."
    )
    remedy = (
        "use a broker that answers in version 0, or set the client's API version explicitly (kafka-python: "
        "api_version=(2, 3))"
    )
    apis = frozenset({API_VERSIONS})

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.api_version == 0 or exchange.response is None:
            return
        message = exchange.response_view
        refused = exchange.response[4:6] == UNSUPPORTED_VERSION.to_bytes(2, "big")
        if not refused or (message and message.api_version == 0 and not message.trailing):
            return
        self.report(
            exchange.api_version,
            exchange,
            seen=f"broker {exchange.broker} refuses ApiVersions v{exchange.api_version} with UNSUPPORTED_VERSION in a body "
            f"that is neither version 0 nor version {exchange.api_version}"
        )


class SurplusBytes(Detector):
    id = "surplus-bytes"
    severity = Severity.LOW
    title = "a message is followed by extra bytes"
    wanted = Wanted.FAILED

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        for side, surplus, sender in zip(
            ("request", "response"), exchange.surplus, (exchange.client, exchange.broker), strict=True
        ):
            if not surplus or (exchange.api_key == API_VERSIONS and exchange.error == UNSUPPORTED_VERSION):
                continue
            name = f"{exchange.api} v{exchange.api_version} {side}"
            # librdkafka 2.16 does this with Metadata v13: brokers take it, nothing fails.
            harmless = side == "request" and exchange.response is not None and not exchange.error
            self.report(
                (side, exchange.api_key, exchange.api_version),
                exchange,
                f"the layout of {name} ends before the frame does: the sender writes a different version than it "
                "declares, or has a bug. Java clients ignore the rest, strict clients fail.",
                "look at the frame's last bytes, and try another version of the sender's software",
                severity=Severity.INFO if harmless else Severity.LOW,
                seen=f"{several(surplus, 'extra byte')} after the end of a {name} from {sender}",
                side=side,
            )


class ForbiddenNull(Detector):
    id = "forbidden-null"
    severity = Severity.LOW
    title = "a field is null in a version that does not allow it"

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        asked, answered = exchange.request_view, exchange.response_view
        if asked is not None and not asked.known_sound:
            self._look(conn, exchange, asked, exchange.client)
        if answered is not None and not answered.known_sound:
            self._look(conn, exchange, answered, exchange.broker)

    def _look(self, conn: ClientConnection, exchange: Exchange, message: MessageView, sender: str) -> None:
        path = next(message.forbidden_nulls(), None)
        if path is None:
            return
        name = f"{exchange.api} v{message.api_version} {message.plan.kind}"
        self.report(
            (message.plan.kind, exchange.api_key, message.api_version),
            exchange,
            f"this version does not allow null there. Java clients refuse the whole {message.plan.kind} "
            "with a schema error; others read it as empty.",
            "report it to the developers of the sender",
            seen=f"{path} is null in a {name} from {sender}",
            api=exchange.api,
            api_version=message.api_version,
            field=path,
            facts=conn.facts,
        )


class Undecodable(Detector):
    id = "undecodable-frame"
    severity = Severity.LOW
    title = "frames cannot be decoded: an unknown API or version, or bytes that violate the protocol"
    wanted = Wanted.FAILED

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        reason = exchange.undecoded if exchange.state is not State.ORPHAN else None
        if reason is None:
            return
        newest = self._newest(exchange.api_key)
        unknown = newest is None or exchange.api_version > newest
        finding = self._report((exchange.api_key, exchange.api_version, unknown), conn, exchange, reason, newest)
        if unknown:
            # A newer API or version is not a fault; the broker may well know it.
            finding.severity = Severity.INFO

    @staticmethod
    def _newest(api_key: int) -> int | None:
        try:
            return facts.api(api_key).versions.high
        except KeyError:
            return None

    def _report(
        self, key: object, conn: ClientConnection, exchange: Exchange, reason: str, newest: int | None
    ) -> Finding:
        if newest is None:
            seen = f"{conn.who} and {conn.where} use API key {exchange.api_key} v{exchange.api_version}, which is unknown to this version of Barnabas"
        elif exchange.api_version > newest:
            seen = f"{conn.who} and {conn.where} use {exchange.api} v{exchange.api_version}; the newest known to this version of Barnabas is v{newest}"
        else:
            seen = f"{exchange.api} v{exchange.api_version} between {conn.who} and {conn.where} cannot be decoded: {reason}"
        if newest is None or exchange.api_version > newest:
            why = "the bytes are passed on unchanged but not decoded, and no other finding can cover them."
            remedy = (
                "if a newer Kafka has it, import its message definitions with `barnabas schema import`; some clients "
                "and vendors have their own keys"
            )
        else:
            why = (
                "the bytes do not match the definition of this version: the sender has a bug, or writes a different "
                "version than it declares, or the capture is damaged."
            )
            remedy = (
                "look at the frame's bytes where decoding stopped; if Kafka itself can read them, report it with the "
                "capture"
            )
        return self.report(
            key, exchange, why, remedy, seen=seen, api_key=exchange.api_key, newest_known=newest, reason=reason
        )
