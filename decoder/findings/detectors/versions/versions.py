"""Versions that do not fit: refused, ignored, never negotiated.

Old versions that still work are in `outdated`, brokers that differ in `mixed`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ....connection.exchange import Exchange, State
from ....schema import facts
from ....schema.plan import API_VERSIONS
from ....wire.frame import Direction
from ...engine.counters import BoundedDict
from ...engine.detector import Detector, Wanted
from ...engine.finding import Severity
from ...engine.formatting import times
from ...engine.traffic import ClientConnection
from ...models.offered_versions import (
    UNSUPPORTED,
    Misfit,
    MisfitDetector,
    VersionCheck,
    VersionFit,
    removal,
    since,
    version_range,
)
from ..network.malformed import late_null

LET_NEGOTIATE = (
    "let it negotiate: kafka-python without api_version, librdkafka without api.version.request=false and "
    "broker.version.fallback, sarama with Config.Version set to the release of the oldest broker"
)
"""What to do about a client with configured versions."""

# The feature (KIP-584) that must be enabled before a broker answers an API that it offers.
_FEATURES = {
    **dict.fromkeys(("ConsumerGroupHeartbeat", "ConsumerGroupDescribe"), ("group.version", "KIP-848")),
    **dict.fromkeys(
        ("ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch", "ShareAcknowledge"), ("share.version", "KIP-932")
    ),
    **dict.fromkeys(("StreamsGroupHeartbeat", "StreamsGroupDescribe"), ("streams.version", "KIP-1071")),
}
_PROTOCOLS = {"group.version": "consumer", "share.version": "share", "streams.version": "streams"}


def ahead(exchange: Exchange, ends: tuple[int, int] | None) -> tuple[str, str, str]:
    """Who is ahead ("client", "broker" or ""), why the version does not fit, and what to do."""
    api, version = exchange.api, exchange.api_version
    came, gone = since(exchange.api_key, version), removal(exchange.api_key, version)
    if gone is not None and (ends is None or version < ends[0]):
        why = (
            f"Kafka {gone.release} dropped {api} v{version}{f' ({gone.kip})' if gone.kip else ''}: the client is older"
        )
        keep = f"; until then keep it on brokers of {gone.last} or older"
        return "broker", f"{why} than the broker supports.", f"upgrade the client, or {LET_NEGOTIATE}{keep}"
    if ends is not None and version < ends[0]:
        return (
            "broker",
            f"the broker supports {version_range(ends)}: the client is older.",
            f"upgrade the client, or {LET_NEGOTIATE}",
        )
    if came is None:
        why = f"no Kafka release known to this version of Barnabas has {api} v{version}: the client is newer, or has a bug."
        return "client", why, "find out which software the client is, and whether it reads the broker's ApiVersions response"
    if ends is None:
        why = (
            f"{api} v{version} was introduced in Kafka {came}, and this broker does not have the API (or not on this "
            "listener)."
        )
        return "client", why, f"use a broker of {came} or newer, or do without {api} in the client"
    return (
        "client",
        f"{api} v{version} was introduced in Kafka {came}; the broker supports {version_range(ends)}: the client is newer.",
        f"upgrade the broker to {came} or newer, or cap the client (librdkafka: api.version.request=true; "
        f"kafka-python: api_version; franz-go: MaxVersions); Java clients cap themselves",
    )


def _older(exchange: Exchange, check: VersionCheck) -> tuple[str, str] | None:
    """Why the version does not fit a broker that refused ApiVersions and offered nothing, and what to do."""
    if check.refused < 0:
        return None
    came, older = since(exchange.api_key, exchange.api_version), since(API_VERSIONS, check.refused)
    return (
        f"The broker refused ApiVersions v{check.refused}, so it is older than Kafka {older} (or a product that is); {exchange.api} "
        f"v{exchange.api_version} came with Kafka {came}. The client did not ask again with a lower version, as it should (KIP-511).",
        f"upgrade the broker to {came} or newer, or {LET_NEGOTIATE}",
    )


class UnsupportedVersion(MisfitDetector):
    id = "unsupported-version"
    severity = Severity.HIGH
    title = "a broker answers UNSUPPORTED_VERSION"
    wanted = Wanted.FAILED
    fits = frozenset({VersionFit.FITS, VersionFit.UNKNOWN, VersionFit.OUTSIDE, VersionFit.NOWHERE})
    outcomes = frozenset({"refused"})

    def misfit(self, conn: ClientConnection, misfit: Misfit) -> None:
        exchange, check, _ = misfit
        why, remedy = self._reason(conn, exchange, check)
        # Admin clients ask for a group of the new kind first, and take this for "then it is a classic one".
        probe = check.fit in (VersionFit.FITS, VersionFit.UNKNOWN) and exchange.api.endswith("GroupDescribe")
        finding = self.report(
            (conn.identity, exchange.api_key, exchange.api_version),
            exchange,
            why,
            remedy,
            severity=Severity.INFO if probe else None,
            asked=exchange.api_version,
            offered=check.served,
            error="UNSUPPORTED_VERSION",
        )
        finding.seen = (
            f"{conn.where} answered {exchange.api} v{exchange.api_version} of {conn.who} with UNSUPPORTED_VERSION "
            f"{times(finding.count)}{f'; it offers {version_range(check.served)}' if check.served else ''}"
        )

    def _reason(self, conn: ClientConnection, exchange: Exchange, check: VersionCheck) -> tuple[str, str]:
        if noted := exchange.marks.notes:
            return (
                f"the proxy may have answered this request itself, and noted: {'; '.join(map(str, noted))}.",
                "if a rule caused it, this is expected; if the request could not be translated, use a broker or "
                "client of another version",
            )
        if check.fit is VersionFit.UNKNOWN and exchange.api not in _FEATURES:
            came = since(exchange.api_key, exchange.api_version)
            if came is None:
                return (
                    "no release that is known here has this version. Which versions the broker offers was not seen.",
                    f"find out which software the client is; {LET_NEGOTIATE}",
                )
            return (
                f"the version came with Kafka {came}, and the newest known release has it: the broker is older than {came}, or a product "
                "without it. Which versions it offers was not seen.",
                f"upgrade the broker to {came} or newer, or {LET_NEGOTIATE}",
            )
        if (older := _older(exchange, check)) is not None:
            return older
        if check.fit not in (VersionFit.FITS, VersionFit.UNKNOWN):
            _, why, remedy = ahead(exchange, check.served)
            return why, remedy
        feature, kip = _FEATURES.get(exchange.api, ("", ""))
        if feature:
            return self._switched_off(conn, exchange.api, feature, kip)
        return (
            "the broker offers this version, but refuses the request: a field needs a newer metadata.version or "
            "feature, or something between client and broker changes one of the two answers.",
            "check metadata.version and the features (kafka-features.sh describe), and the broker's log",
        )

    def _switched_off(self, conn: ClientConnection, api: str, feature: str, kip: str) -> tuple[str, str]:
        """Why a broker refuses an API that has a feature of its own, and what to do: by the features that it says are finalized."""
        upgrade = f"kafka-features.sh upgrade --feature {feature}=1"
        protocols = f"group.coordinator.rebalance.protocols=classic,{_PROTOCOLS[feature]} on the brokers"
        classic = "; or let the client use the classic protocol (group.protocol=classic)" if feature == "group.version" else ""
        listed = f"brokers list {api} even if its feature ({kip}) is switched off"
        finalized = self.offers.finalized.get(conn.broker)
        if finalized is None:
            return (
                f"{listed}: the feature {feature} is not finalized, or group.coordinator.rebalance.protocols does not include it. Which "
                "features are finalized was not seen.",
                f"{upgrade}, and set {protocols}{classic}",
            )
        if finalized.get(feature, 0) < 1:
            return f"{listed}: the feature {feature} is not finalized, as its ApiVersions response says.", f"{upgrade}{classic}"
        return (
            f"{listed}: the feature {feature} is finalized, so group.coordinator.rebalance.protocols does not include {_PROTOCOLS[feature]!r}.",
            f"set {protocols}, and restart them{classic}",
        )


class ClosedOnVersion(MisfitDetector):
    id = "closed-on-version"
    severity = Severity.HIGH
    title = "a broker closes the connection because of a request's version"
    explains = ("closed-without-answer",)
    wanted = Wanted.NEW
    fits = frozenset({VersionFit.OUTSIDE, VersionFit.NOWHERE})
    outcomes = frozenset({"closed", "answered"})

    def setup(self) -> None:
        self._serves: BoundedDict[str, None] = BoundedDict(1000)
        """Brokers that answered versions which the newest Kafka does not have."""

    def misfit(self, conn: ClientConnection, misfit: Misfit) -> None:
        exchange, check, outcome = misfit
        if outcome == "answered":
            self._serves[conn.broker] = None
            return
        sure = check.fit is VersionFit.OUTSIDE
        older = _older(exchange, check)
        if not sure and conn.broker in self._serves and removal(exchange.api_key, exchange.api_version) is not None:
            return  # it is no release that dropped the version
        named = (self.offers.of(conn) or {}).get(exchange.api_key, (0, -1))
        quirk = (
            f" ApiVersions lists {version_range(named)}, for old librdkafka (KAFKA-18659); the lowest are not supported."
            if named[0] <= exchange.api_version <= named[1]
            else ""
        )
        side, why, remedy = ahead(exchange, check.served)
        if older is not None:
            why, remedy = older
        elif not sure:
            why, remedy = self._unsure(conn, exchange, why, remedy)
        finding = self.report(
            (conn.identity, exchange.api_key, exchange.api_version),
            exchange,
            "Kafka answers an unsupported version only for ApiVersions; for every other API it closes the connection, "
            f"and the client just sees a disconnect (EOF) and reconnects. {why}{quirk}",
            remedy,
            asked=exchange.api_version,
            offered=check.served,
            ahead=side,
            facts=conn.facts_of(exchange),
        )
        finding.seen = (
            f"{conn.where} closed the connection of {conn.who} {times(finding.count)} instead of answering "
            f"{exchange.api} v{exchange.api_version}"
            + (
                f"; it refused ApiVersions v{check.refused} before"
                if older is not None
                else f"; it supports {version_range(check.served)}"
                if sure
                else "; no current release supports that version"
            )
        )


    @staticmethod
    def _unsure(conn: ClientConnection, exchange: Exchange, why: str, remedy: str) -> tuple[str, str]:
        """Why, and what to do, where it was not seen which versions the broker offers."""
        gone = removal(exchange.api_key, exchange.api_version)
        if gone is None:
            return f"{why} Which versions this broker offers was never seen.", remedy
        flaw, null = exchange.flaw(Direction.REQUEST), late_null(exchange)
        broken = (
            f"it is older than 0.10.0 and cannot read the null in {null} (KAFKA-3394)"
            if null
            else f"it cannot read the request, which has {f'a null in {flaw.path}' if flaw.path else 'extra bytes after its end'}"
            if flaw is not None
            else ""
        )
        newer = f"it is Kafka {gone.release} or newer, which dropped {exchange.api} v{exchange.api_version}{f' ({gone.kip})' if gone.kip else ''}"
        reader = "" if broken else "it is an older release or another product that cannot read this request or fails on it"
        causes = "; ".join(cause for cause in (broken, newer, reader) if cause)
        ask = f"ask the broker: barnabas versions {conn.broker}; its log has the reason (InvalidRequestException)"
        return f"Which versions this broker offers was never seen. Likeliest first: {causes}.", f"{ask}. If it is {gone.release} or newer: {remedy}"


class ApiVersionsIgnored(MisfitDetector):
    id = "api-versions-ignored"
    severity = Severity.HIGH
    title = "a client uses versions that the broker's ApiVersions answer does not offer (KIP-35)"
    wanted = Wanted.NEW
    fits = frozenset({VersionFit.IGNORED})

    def misfit(self, conn: ClientConnection, misfit: Misfit) -> None:
        exchange, check, outcome = misfit
        side, why, remedy = ahead(exchange, check.served)
        what = {
            "closed": "and the broker closed the connection",
            "refused": "and the broker answered UNSUPPORTED_VERSION",
            "answered": "and the broker still answered",
        }[outcome]
        finding = self.report(
            (conn.identity, exchange.api_key, exchange.api_version, outcome),
            exchange,
            f"a client must use only versions that ApiVersions offers (KIP-35). {why}",
            f"report it to the developers of the client: it ignores ApiVersions. Meanwhile: {remedy}",
            severity=Severity.LOW if outcome == "answered" else None,
            asked=exchange.api_version,
            offered=check.served,
            ahead=side,
            outcome=outcome,
            facts=conn.facts_of(exchange),
        )
        finding.seen = (
            f"{conn.who} used {exchange.api} v{exchange.api_version} {times(finding.count)} on connections where "
            f"{conn.where} had offered {version_range(check.served)}, {what}"
        )


@dataclass(slots=True)
class _Asking:
    """What a client (host, client id) did with refusals of ApiVersions. `gave_up`: connections on which it asked
    nothing more after being refused; `went_on`: it has got past a refusal, or was never refused, on another one."""

    gave_up: int = 0
    went_on: bool = False
    cost_ns: int = 0


class ApiVersionsFallback(Detector):
    id = "api-versions-fallback"
    severity = Severity.INFO
    title = "clients send ApiVersions twice because their first version is too new (KIP-511)"
    apis = frozenset({API_VERSIONS})

    COSTLY_NS = 1_000_000_000
    """Total time spent on refusals: connections are opened too often for an additional round trip each."""

    def setup(self) -> None:
        self._clients: BoundedDict[tuple[str, str], _Asking] = BoundedDict()
        self._refused: dict[int, int] = {}  # by connection: how often

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED or exchange.response is None:
            return
        who = conn.client_host, conn.client_id or ""
        client = self._clients.of(who, _Asking)
        if exchange.response[4:6] != UNSUPPORTED.to_bytes(2, "big"):
            client.went_on = True
            return
        answer = exchange.response_view
        if answer is None or answer.api_version or answer.trailing:
            return  # a refusal that clients cannot read is another finding: malformed-api-versions-fallback
        client.cost_ns += exchange.latency_ns or 0
        self._refused[conn.number] = self._refused.get(conn.number, 0) + 1
        offered = conn.about.range(API_VERSIONS)
        finding = self.report(
            who, exchange, "", "", asked=exchange.api_version, offered=offered, error="UNSUPPORTED_VERSION"
        )
        finding.about["cost_ms"] = round(client.cost_ns / 1e6, 3)
        finding.seen = (
            f"{conn.where} refused ApiVersions v{exchange.api_version} of {conn.who} {times(finding.count)}"
            f"{f'; it offers {version_range(offered)}' if offered else ''}; the refusals took {client.cost_ns / 1e6:.1f} ms"
        )

    def closed(self, conn: ClientConnection) -> None:
        count = self._refused.pop(conn.number, 0)
        if count:
            client = self._clients.of((conn.client_host, conn.client_id or ""), _Asking)
            client.went_on = client.went_on or conn.requests > count
            client.gave_up += conn.requests == count

    def finish(self, now_ns: int) -> None:
        for who, finding in self._found.items():
            client = self._clients.get(who)  # type: ignore[call-overload]
            if client is None:
                continue
            finding.about["went_on"] = client.went_on
            if client.gave_up and not client.went_on:
                finding.severity = Severity.HIGH
                finding.why = (
                    "a client that is refused must ask again with a version that the answer names (KIP-511). This one "
                    "does not: none of its other requests was answered."
                )
                finding.remedy = (
                    "use a client that falls back (Java since 2.4, librdkafka and franz-go do), or a newer broker. If "
                    "the broker is not Apache Kafka, check how it refuses: its answer must be in version 0"
                )
                continue
            finding.severity = Severity.LOW if client.cost_ns >= self.COSTLY_NS else Severity.INFO
            finding.why = (
                "Kafka answers such a request in version 0 with UNSUPPORTED_VERSION and its own range (KIP-511), and "
                "the client asks again: one extra round trip on every new connection."
            )
            finding.remedy = (
                "nothing, if connections are long-lived. Otherwise upgrade the broker, or keep connections open longer "
                "(connections.max.idle.ms)"
            )


class NoApiVersions(Detector):
    id = "no-api-versions"
    severity = Severity.INFO
    title = "a client uses fixed versions without sending ApiVersions (KIP-35)"
    wanted = Wanted.NEW
    why = (
        "ApiVersions (KIP-35) is how a client learns which versions a broker supports. Without it, the client uses the "
        "versions it was configured with or built for, and fails when brokers drop old versions, as Kafka 4.0 did "
        "(KIP-896)."
    )
    remedy = (
        f"upgrade the client, or {LET_NEGOTIATE}. A client that connected before the capture began may have sent it "
        "then"
    )

    ANSWERED = 5
    """Answers that a client must have had; ApiVersions is what a negotiating client asks first."""
    FIRST_ID = 3
    """A connection whose first correlation id is higher may have begun before the capture did."""

    def setup(self) -> None:
        # By host and client id: whether it has asked on any connection, else what it used how often.
        self._asked: BoundedDict[tuple[str, str], bool] = BoundedDict()
        self._used: BoundedDict[tuple[str, str], dict[tuple[int, int], int]] = BoundedDict()
        self._names: BoundedDict[tuple[str, str], str] = BoundedDict()
        """Those with a finding, as text."""
        self._begun: set[int] = set()

    def opened(self, conn: ClientConnection) -> None:
        if conn.established:
            self._begun.add(conn.number)

    def request(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.api_key == API_VERSIONS:
            self._asked.of(self._who(conn), lambda: True)
            self._found.pop(self._who(conn), None)
            self._begun.discard(conn.number)
        elif conn.requests == 1 and not 0 <= exchange.correlation_id <= self.FIRST_ID:
            self._begun.discard(conn.number)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if conn.number not in self._begun or exchange.state is not State.PAIRED:
            return
        who = self._who(conn)
        if who in self._asked:
            return
        if re.match(r"broker-\d+-fetcher", conn.client_id or ""):  # brokers know each other's versions by configuration
            return
        conn.forget_kinds()
        used = self._used.of(who, dict)
        at = exchange.api_key, exchange.api_version
        used[at] = used.get(at, 0) + 1
        if (known := self._found.get(who)) is not None:
            self.count(who, known, exchange)
        elif sum(used.values()) >= self.ANSWERED:
            self._names[who] = conn.who
            self.report(who, exchange, facts=conn.facts, used={})

    def finish(self, now_ns: int) -> None:
        for who, name in self._names.items():
            finding, used = self._found.get(who), self._used.get(who, {})
            if finding is None or sum(used.values()) < self.ANSWERED:
                continue
            finding.count = sum(used.values())
            listed = ", ".join(f"{facts.api_name(key)} v{version}" for key, version in sorted(used)[:6])
            finding.seen = f"{name} never sends ApiVersions; {finding.count} of its requests were answered: {listed}"
            finding.about["used"] = {facts.api_name(key): version for key, version in sorted(used)}

    def closed(self, conn: ClientConnection) -> None:
        self._begun.discard(conn.number)

    @staticmethod
    def _who(conn: ClientConnection) -> tuple[str, str]:
        return conn.client_host, conn.client_id or ""
