"""Clients that reach another broker than intended: since Kafka 4.4 they name the intended one (KIP-1242), and the broker refuses them."""

from __future__ import annotations

from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.detector import Detector
from ...engine.finding import Severity
from ...engine.formatting import times
from ...engine.traffic import ClientConnection

_API_VERSIONS = facts.api_key("ApiVersions")
_REFUSED = facts.error_code("REBOOTSTRAP_REQUIRED")


class MisroutedClient(Detector):
    id = "misrouted-client"
    severity = Severity.HIGH
    title = "a client reached a different broker or cluster than intended (ApiVersions v5)"
    apis = frozenset({_API_VERSIONS})

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        asked, answer = exchange.request_view, exchange.response_view
        if exchange.state is not State.PAIRED or asked is None or answer is None or answer["error_code"] != _REFUSED:
            return
        fields = asked.to_dict()
        cluster, node = fields.get("cluster_id"), fields.get("node_id", -1)
        found = self.report(
            (conn.identity, cluster, node, conn.broker),
            exchange,
            "clients of Kafka 4.4 and newer name the intended cluster and broker in ApiVersions (KIP-1242); any other "
            "broker refuses them, where older clients would have produced to it. The address leads elsewhere: one "
            "load balancer in front of several brokers, an address or port mapping that another broker has taken "
            "over, or a DNS record of another cluster.",
            f"find out where {conn.broker} leads: each broker needs its own address (advertised.listeners). The "
            "client itself starts over with bootstrap.servers (metadata.recovery.strategy=rebootstrap, the default "
            "since 4.0)",
            cluster_id=cluster,
            node_id=node,
            facts=conn.facts,
        )
        found.seen = (
            f"{conn.who} wanted {_meant(cluster, node)}, reached {conn.where}{_belongs(conn)}, and was refused "
            f"{times(found.count)} (REBOOTSTRAP_REQUIRED)"
        )


def _meant(cluster: str | None, node: int) -> str:
    broker = f"broker {node}" if node >= 0 else "a broker"
    return broker if cluster is None else f"{broker} of cluster {cluster!r}"


def _belongs(conn: ClientConnection) -> str:
    return f" of cluster {conn.cluster.id!r}" if conn.cluster.id else ""
