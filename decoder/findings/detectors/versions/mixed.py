"""Brokers of one cluster that offer different versions, and clients that meet both."""

from __future__ import annotations

from ....schema import facts
from ...engine.detector import Detector, Wanted
from ...engine.finding import Severity
from ...engine.formatting import times
from ...engine.traffic import ClientConnection
from ...models.offered_versions import Misfit, MisfitDetector, OfferedVersions, Table, VersionFit, version_range


def differences(one: Table, other: Table) -> list[int]:
    """The api keys whose ranges differ."""
    return sorted(key for key in {*one, *other} if one.get(key) != other.get(key))


def _differences_text(keys: list[int], one: Table, other: Table) -> str:
    shown = ", ".join(
        f"{facts.api_name(k)} {version_range(one.get(k))} and {version_range(other.get(k))}" for k in keys[:3]
    )
    return shown + (f", and {len(keys) - 3} more" if len(keys) > 3 else "")


class MixedVersions(Detector):
    id = "mixed-broker-versions"
    severity = Severity.INFO
    title = "brokers of one cluster offer different versions, or a broker changed the versions it offers"
    why = (
        "during a rolling upgrade this is normal and temporary. Clients negotiate with each broker separately; one "
        "that uses the first broker's answer for all will fail at the others. If brokers differ for long, or "
        "something in between edits ApiVersions, behaviour depends on which broker leads a partition."
    )
    remedy = "finish the upgrade; `version-of-another-broker` shows whether it causes problems for clients"

    def setup(self) -> None:
        self._offers = self.traffic.model(OfferedVersions)

    def finish(self, now_ns: int) -> None:
        clusters: dict[int, list[str]] = {}
        for address in self._offers.tables:
            clusters.setdefault(id(self.traffic.cluster_of(address)), []).append(address)
        for addresses in clusters.values():
            first = addresses[0]
            cluster = self.traffic.cluster_of(first)
            tables = self._offers.tables
            other = next((a for a in addresses if differences(tables[first], tables[a])), None)
            if other is not None:
                self._state(first, other, tables[first], tables[other], None, cluster.id)
            for address in addresses:
                before = self._offers.before.get(address)
                if before is not None:
                    self._state(address, address, before[0], tables[address], before[1], cluster.id)

    def _state(self, one: str, other: str, old: Table, new: Table, time_ns: int | None, cluster: str) -> None:
        keys = differences(old, new)
        key = (one, other)
        if not keys or key in self._found:
            return
        who = self._broker(one)
        self.report(
            key,
            None,
            seen=f"{who} and {self._broker(other)} of one cluster offer different versions: {_differences_text(keys, old, new)}"
            if one != other
            else f"{who} changed the versions it offers: {_differences_text(keys, old, new)}",
            time_ns=time_ns,
            brokers=[one] if one == other else [one, other],
            cluster=cluster,
            apis={facts.api_name(k): [old.get(k), new.get(k)] for k in keys}
        )

    def _broker(self, address: str) -> str:
        node = self.traffic.cluster_of(address).node_at(address)
        return f"broker {address}" if node is None else f"broker {node} ({address})"


class VersionOfAnotherBroker(MisfitDetector):
    id = "version-of-another-broker"
    severity = Severity.HIGH
    title = "a client sends a broker a version that only another broker of the cluster offers"
    why = (
        "brokers of one cluster may run different releases, for example during a rolling upgrade. A client must send "
        "ApiVersions to each of them (KIP-35) and follow each one's answer; this client seems to use one answer for "
        "all."
    )
    remedy = (
        "upgrade all brokers to the newer release. Upgrade the client, or until then cap it to what the older broker "
        "accepts (kafka-python: api_version; sarama: Config.Version; franz-go: MaxVersions)"
    )
    wanted = Wanted.NEW
    fits = frozenset({VersionFit.ELSEWHERE})

    def misfit(self, conn: ClientConnection, misfit: Misfit) -> None:
        exchange, check, outcome = misfit
        what = {"closed": "closed the connection", "refused": "answered UNSUPPORTED_VERSION", "answered": "accepted it"}
        finding = self.report(
            (conn.identity, exchange.api_key, exchange.api_version, conn.broker, outcome),
            exchange,
            severity=Severity.LOW if outcome == "answered" else None,
            asked=exchange.api_version,
            offered=check.served,
            other_broker=check.other,
            outcome=outcome,
            facts=conn.facts_of(exchange),
        )
        finding.seen = (
            f"{conn.who} used {exchange.api} v{exchange.api_version} {times(finding.count)} at {conn.where}, which "
            f"supports {version_range(check.served)} and {what[outcome]}; {check.other} of the same cluster offers it"
        )
