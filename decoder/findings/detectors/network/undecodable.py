"""Frames that this program cannot read."""

from __future__ import annotations

from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.detector import Detector, Wanted
from ...engine.finding import Finding, Severity
from ...engine.traffic import ClientConnection


class Undecodable(Detector):
    id = "undecodable-frame"
    severity = Severity.LOW
    title = "frames that cannot be decoded: an unknown API or version, or bytes that break the protocol"
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
            seen = f"{conn.who} and {conn.where} use API key {exchange.api_key} v{exchange.api_version}, which is not known here"
        elif exchange.api_version > newest:
            seen = f"{conn.who} and {conn.where} use {exchange.api} v{exchange.api_version}; the newest known here is v{newest}"
        else:
            seen = f"{exchange.api} v{exchange.api_version} between {conn.who} and {conn.where} cannot be decoded: {reason}"
        if newest is None or exchange.api_version > newest:
            why = "bytes pass on unchanged, but what they say is not shown, and no other finding can be about them."
            remedy = (
                "if a newer Kafka has it: `barnabas schema import` takes its message definitions; some clients and vendors "
                "have keys of their own"
            )
        else:
            why = (
                "the bytes do not fit the definition of this version: the sender has a fault, speaks another version than "
                "it says, or what was captured is damaged."
            )
            remedy = "look at the frame's bytes where decoding stopped; if Kafka itself reads them, report it with the capture"
        return self.report(
            key,
            exchange,
            why,
            remedy,
            seen=seen,
            **conn.facts_of(exchange),
            api_key=exchange.api_key,
            newest_known=newest,
            reason=reason,
        )
