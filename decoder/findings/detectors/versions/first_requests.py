"""Clients that get no further than their first requests, because the broker is too old for them."""

from __future__ import annotations

from dataclasses import dataclass, field

from ....connection.exchange import Exchange, State
from ....reference.releases import release_order
from ....schema import facts
from ...engine.counters import BoundedDict
from ...engine.detector import Wanted
from ...engine.finding import Severity
from ...engine.formatting import times
from ...engine.traffic import ClientConnection
from ...models.offered_versions import removal, since
from ..network.endings import ConnectionStart, Ending, EndingDetector

_API_VERSIONS = facts.api_key("ApiVersions")
_UNSUPPORTED = facts.error_code("UNSUPPORTED_VERSION")


_LIMITS = (
    "a limit on connections (max.connections, max.connections.per.ip, max.connection.creation.rate), a load balancer or firewall without a "
    "target, or a broker that is starting or stopping"
)
_NO_PLAINTEXT = "a listener for TLS usually answers plain bytes with an alert, but may just close the connection"
_FIRST_FLEXIBLE = 3
"""The first version of ApiVersions that names the client's software (KIP-511)."""


@dataclass(slots=True)
class _Answers:
    """What a broker has answered. `versions`: those of ApiVersions. `refuses`: it refuses other ones as KIP-511 asks. `without`: another
    API, on a connection where ApiVersions was not answered."""

    versions: set[int] = field(default_factory=set)
    refuses: bool = False
    lowest: int = 99
    """The lowest version of ApiVersions on which it closed the connection."""
    without: str = ""


def _without_api_versions(conn: ClientConnection, first: Exchange) -> tuple[str, str]:
    """Why a first request that is not ApiVersions gets no answer, and what to do."""
    came, gone = since(first.api_key, first.api_version), removal(first.api_key, first.api_version)
    served = f"{first.api} v{first.api_version} came with Kafka {came or 'no release known here'}"
    served += f", and {gone.release} dropped it" if gone is not None else ""
    likely = [f"it does not support this version ({served})", _NO_PLAINTEXT]
    if came is not None and release_order(came) <= release_order("0.10.0"):
        likely.reverse()
    return (
        f"the broker did not say why. Likeliest first: {'; '.join(likely)}; {_LIMITS}. The client does not send "
        "ApiVersions first, so it cannot know which versions the broker supports.",
        f"ask the broker: barnabas versions {conn.broker}, which also tries TLS. If it speaks TLS, switch it on in the "
        "client (security.protocol=SSL or SASL_SSL; sarama: Config.Net.TLS.Enable); otherwise set the client's version "
        "to the broker's release (sarama: Config.Version; KEDA, Telegraf: version); check its log at that time",
    )


class ClosedOnFirstRequest(EndingDetector):
    id = "closed-on-first-request"
    severity = Severity.HIGH
    title = "a broker closes connections on the very first request: it does not know that version of ApiVersions, or accepts no connections"
    wanted = Wanted.NEW
    explains = ("connection-churn",)

    COUNT = 3
    """Connections; clients that fall back (KIP-35) give up asking for versions after one or two."""

    def setup(self) -> None:
        self._closed: BoundedDict[tuple[str, str], int] = BoundedDict()
        self._answers: BoundedDict[str, _Answers] = BoundedDict(1000)
        self._first: BoundedDict[object, tuple[ClientConnection, Exchange]] = BoundedDict()
        self._in_flight: BoundedDict[object, int] = BoundedDict()
        """The fewest requests that one of the closed connections had sent."""

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.state is not State.PAIRED:
            return
        if exchange.api_key == _API_VERSIONS:
            answers = self._answers.of(conn.broker, _Answers)
            if exchange.error == _UNSUPPORTED:
                answers.refuses = True
            elif not exchange.error and exchange.response_view is not None:
                answers.versions.add(exchange.api_version)
        elif conn.about.offered is None:
            self._answers.of(conn.broker, _Answers).without = f"{exchange.api} v{exchange.api_version}"

    def ended(self, conn: ClientConnection, start: ConnectionStart, how: Ending) -> None:
        first = start.closed_on
        if how is not Ending.UNANSWERED or first is None:
            return
        pair = conn.client_host, conn.broker
        if self.endings.worked(conn) and not self._lower(conn.broker, first):
            return
        if first.api_key == _API_VERSIONS:
            answers = self._answers.of(conn.broker, _Answers)
            answers.lowest = min(answers.lowest, first.api_version)
        self._in_flight[pair] = min(conn.requests, self._in_flight.get(pair, conn.requests))
        closed = self._closed[pair] = self._closed.get(pair, 0) + 1
        if closed < self.COUNT:
            return
        self._first.of(pair, lambda: (conn, first))
        found = self.report(pair, first, "", "", time_ns=conn.closed_ns, facts=conn.facts_of(first))
        found.count = max(found.count, closed)

    def finish(self, now_ns: int) -> None:
        for pair, finding in self._found.items():
            conn, first = self._first.get(pair, (None, None))
            if conn is None or first is None:
                continue
            asked = first.request_view if first.api_key == _API_VERSIONS and first.api_version >= _FIRST_FLEXIBLE else None
            software = f" of {asked['client_software_name']} {asked['client_software_version']}" if asked is not None and not conn.software else ""
            worked = self.endings.worked(conn)
            finding.severity = Severity.LOW if worked else self.severity
            finding.seen = (
                f"{conn.where} closes the connection of {conn.who} on its very first request, {first.api} "
                f"v{first.api_version}{software}, instead of answering ({times(finding.count)})"
                + self._hint(conn.broker, first)
                + ("; the client falls back and works" if worked else "")
            )
            in_flight, answers = self._in_flight.get(pair, 1), self._answers.get(conn.broker) or _Answers()
            if in_flight > 1 and (first.api_version in answers.versions or answers.without):
                finding.severity = Severity.MEDIUM if worked else self.severity
                finding.seen = finding.seen.removesuffix("; the client falls back and works")
                finding.seen += f"; each time, the client had sent {in_flight} requests or more without waiting for an answer"
                finding.why = (
                    "connections whose first request comes alone are answered. A broker of Apache Kafka reads one request after the other and takes "
                    f"any number of them; likeliest first: what answers at {conn.broker} is a proxy or product that cannot take a second request "
                    f"before it has answered the first, or has connected to its own broker; {_LIMITS}."
                )
                finding.remedy = f"upgrade the proxy or product at {conn.broker}, or report it to its developers; no setting of the client mends it"
            elif first.api_key == _API_VERSIONS:
                finding.why, finding.remedy = self._unanswered(conn, first)
            else:
                finding.why, finding.remedy = _without_api_versions(conn, first)

    def _hint(self, broker: str, first: Exchange) -> str:
        """What the version that got no answer says of the other end."""
        answers = self._answers.get(broker) or _Answers()
        known = self._lower(broker, first)
        if known:
            return f"; it answers v{known - 1}, so it is a proxy or product that knows ApiVersions only to v{known - 1}"
        lowest = min(first.api_version, answers.lowest)
        if first.api_key != _API_VERSIONS or lowest < _FIRST_FLEXIBLE or answers.versions or answers.refuses or answers.without:
            return ""
        likely = f": probably a proxy or product that knows ApiVersions only to v{lowest - 1}" if lowest > _FIRST_FLEXIBLE else ""
        return f"; Apache Kafka 0.10.0 and newer would answer or refuse it (KIP-511){likely}"

    def _lower(self, broker: str, first: Exchange) -> int:
        """One more than the highest version of ApiVersions that the broker answers, if it answers lower ones alone; 0 otherwise."""
        answers = self._answers.get(broker)
        if first.api_key != _API_VERSIONS or answers is None or not answers.versions:
            return 0
        return max(answers.versions) + 1 if max(answers.versions) < first.api_version else 0

    def _unanswered(self, conn: ClientConnection, first: Exchange) -> tuple[str, str]:
        """Why ApiVersions gets no answer, and what to do: by what the broker answers to others."""
        version, answers = first.api_version, self._answers.get(conn.broker) or _Answers()
        came = since(_API_VERSIONS, version) or "a release that is not known here"
        rule = (
            "Apache Kafka refuses a version of ApiVersions that it does not know with UNSUPPORTED_VERSION in version 0, so that the client can "
            "ask again (0.10.0 and newer, KIP-35 and KIP-511)"
        )
        product = (
            f"upgrade the proxy or the product that answers at {conn.broker}, or report it to its developers: it must refuse ApiVersions "
            f"v{version} in version 0. Until then use a client older than {came} (Java, sarama: Config.Version), franz-go's "
            "MaxVersions, or librdkafka's api.version.request=false with broker.version.fallback"
        )
        known = self._lower(conn.broker, first)
        if known:
            return (
                f"it answers ApiVersions v{known - 1} and closes the connection on v{version}, which came with Kafka {came}. {rule}. So this "
                f"is a proxy or a Kafka-compatible product that knows ApiVersions only to v{known - 1}.",
                product,
            )
        if version in answers.versions or answers.refuses:
            return (
                f"it answers ApiVersions{f' v{version}' if version in answers.versions else ''} on other connections, so neither its release "
                f"nor the protocol of its listener is the reason. Known causes: {_LIMITS}.",
                "compare the number of connections with the broker's limits, and check its log at that time",
            )
        old = (
            "upgrade it (to 2.1 or newer for current clients), or configure the client: librdkafka api.version.request=false and "
            "broker.version.fallback=0.9.0 (or 0.8.2), kafka-python api_version=(0, 9), sarama Config.Version, franz-go MaxVersions; Java: "
            "a client of the broker's own release"
        )
        ask = f"ask the broker: barnabas versions {conn.broker}"
        if answers.without:
            return (
                f"it answers {answers.without} but closes the connection on ApiVersions, as brokers older than 0.10.0 do, which do not "
                "know it (KIP-35). A newer Apache Kafka answers it always.",
                f"{ask}. If it is that old, {old}",
            )
        version = min(version, answers.lowest)
        older = "a broker older than 0.10.0, which does not know ApiVersions at all (KIP-35)"
        came = since(_API_VERSIONS, version) or came
        if version >= _FIRST_FLEXIBLE:
            return (
                f"ApiVersions v{version} came with Kafka {came}. {rule}, so a broker of Kafka that is only older than the client answers. "
                f"Likeliest first: a proxy or a Kafka-compatible product that knows ApiVersions only to v{version - 1} (as older versions "
                f"of Kroxylicious, Redpanda, KoP and Azure Event Hubs did); {_NO_PLAINTEXT}; {_LIMITS}; {older}.",
                f"{ask}: it tries the newest version, then version 0, and TLS. If version 0 is answered: {product}. If none is, it may be older "
                f"than 0.10.0: {old}",
            )
        return (
            f"Likeliest first: {older}; {_NO_PLAINTEXT}; {_LIMITS}. Apache Kafka 0.10.0 and newer answers ApiVersions v{version} or refuses it.",
            f"{ask}. If it is older than 0.10.0, {old}",
        )
