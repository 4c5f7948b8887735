"""Addresses of brokers in responses to Produce and Fetch (KIP-951) that Metadata does not have."""

from __future__ import annotations

from collections.abc import Iterable

from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.clusters import Cluster
from ...engine.counters import BoundedDict
from ...engine.detector import Detector, Wanted
from ...engine.finding import Finding, Severity
from ...engine.formatting import times
from ...engine.layout import layout
from ...engine.traffic import ClientConnection

_PRODUCE, _FETCH = facts.api_key("Produce"), facts.api_key("Fetch")
_SINCE = {_PRODUCE: 10, _FETCH: 16}


class ForeignEndpoint(Detector):
    """A broker that comes back with another address has one that Metadata names soon: low, unless the client fails there."""

    id = "node-endpoint-unknown"
    severity = Severity.LOW
    title = "node_endpoints of a Produce or Fetch response name another address than Metadata (KIP-951)"
    why = (
        "where the leader has moved, brokers since 3.7 name the new leader's address in node_endpoints, so that clients need not ask for "
        "Metadata. A proxy that rewrites the addresses in Metadata and FindCoordinator must rewrite these too. If it does not, clients "
        "connect past it: to names they cannot resolve, or to ports with other security settings (plaintext to TLS)."
    )
    remedy = (
        "upgrade the proxy (kafka-proxy#223 is of this kind), or let it offer clients Produce up to v9 and Fetch up to v15 only; it is not "
        "the client that must change. Without a proxy, compare advertised.listeners of that broker with what Metadata shows"
    )
    apis = frozenset(_SINCE)
    wanted = Wanted.FAILED
    explains = ("plaintext-on-tls-port", "tls-on-plaintext-port", "connection-refused", "closed-on-first-request", "unreachable-advertised-address")

    def setup(self) -> None:
        self._places: BoundedDict[object, tuple[Cluster, int, str]] = BoundedDict(1024)

    def findings(self) -> Iterable[Finding]:
        """Those of brokers that Metadata has not named with that address since then."""
        return [
            finding
            for key, finding in self._found.items()
            if (place := self._places.get(key)) is not None and place[0].nodes.get(place[1]) != place[2]
        ]

    @classmethod
    def concerns(cls, api_key: int, version: int) -> bool:
        return version >= _SINCE[api_key]

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        answer = exchange.response_view
        if exchange.state is not State.PAIRED or not exchange.error or answer is None:
            return
        fields = layout(answer.plan.root, "node_endpoints")
        for endpoint in answer.values[layout(answer.plan.root)["node_endpoints"]] or ():
            node, host, port = (endpoint[fields[name]] for name in ("node_id", "host", "port"))
            address, known = f"[{host}]:{port}" if ":" in host else f"{host}:{port}", conn.cluster.nodes.get(node)
            if known is None or known == address:
                continue
            key = conn.identity, node, address
            self._places[key] = conn.cluster, node, address
            finding = self.report(key, exchange, node=node, address=address)
            finding.seen = (
                f"{conn.where} names {address} for broker {node} in node_endpoints of {exchange.api} v{exchange.api_version} to {conn.who}, "
                f"but Metadata has {known} for it ({times(finding.count)})"
            )
