"""Topics that a broker does not create because of their numbers of partitions or replicas."""

from __future__ import annotations

from typing import Any

from ....connection.exchange import Exchange, State
from ....schema import facts
from ...engine.detector import Detector, Wanted
from ...engine.finding import Severity
from ...engine.formatting import several, times
from ...engine.layout import rows
from ...engine.traffic import ClientConnection

_CREATE = facts.api_key("CreateTopics")
_REPLICAS = facts.error_code("INVALID_REPLICATION_FACTOR")
_PARTITIONS = facts.error_code("INVALID_PARTITIONS")
_DEFAULTS = 4
"""The first version of CreateTopics with -1 for the broker's defaults (KIP-464, Kafka 2.4)."""


class CreationRefused(Detector):
    """The request and Metadata show which of the causes that the error may have it is."""

    id = "topic-creation-refused"
    severity = Severity.MEDIUM
    title = "a topic is not created because of its number of partitions or replicas"
    apis = frozenset({_CREATE})
    wanted = Wanted.FAILED

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        asked, answered = exchange.request_view, exchange.response_view
        if exchange.state is not State.PAIRED or asked is None or answered is None or not exchange.error:
            return
        wanted = {topic["name"]: topic for topic in rows(asked, "topics")}
        for topic in rows(answered, "topics"):
            if topic["error_code"] in (_REPLICAS, _PARTITIONS) and topic["name"] in wanted:
                self._refused(conn, exchange, wanted[topic["name"]], topic["error_code"])

    def _refused(self, conn: ClientConnection, exchange: Exchange, topic: dict[str, Any], error: int) -> None:
        name, partitions, replicas = topic["name"], topic["num_partitions"], topic["replication_factor"]
        error_name, brokers = facts.error_name(error), len(conn.cluster.nodes)
        finding = self.report((conn.identity, name, error), exchange, "", "", error=error_name, topic=name)
        value = replicas if error == _REPLICAS else partitions
        if value == -1 and (exchange.api_version < _DEFAULTS or self._before_defaults(conn)):
            finding.why = "-1 stands for the broker's default since Kafka 2.4 (CreateTopics v4, KIP-464); this broker is older and refuses it."
            finding.remedy = "give the numbers of partitions and replicas, or upgrade the brokers"
        elif 0 < brokers < replicas:
            finding.why = f"a topic cannot have more replicas ({replicas}) than there are brokers ({brokers}, as Metadata lists them)."
            if error == _PARTITIONS:
                finding.why += (
                    f" Apache Kafka answers that with INVALID_REPLICATION_FACTOR; {partitions} partitions are valid, so this error is "
                    "the wrong one: the broker is another product."
                )
            finding.remedy = (
                f"ask for at most {brokers} replicas (tools that want 3 have a setting for it; Connect: offset.storage.replication.factor, "
                "Streams: replication.factor), or start the other brokers"
            )
        elif value > 0:
            what = f"{several(replicas, 'replica')} on {several(brokers, 'broker')}" if error == _REPLICAS else several(partitions, "partition")
            finding.why = (
                f"Apache Kafka accepts {what}, if all these brokers are alive. So either brokers that Metadata lists are down or fenced, or "
                "the broker is another product or service with a rule of its own: Redpanda accepts odd replication factors only, "
                "managed services prescribe one (often 3) and limit partitions."
            )
            other = replicas + 1 if replicas % 2 == 0 and replicas < brokers else 3
            finding.remedy = (
                f"ask for {other} replicas (an odd number), or check that all brokers are up" if error == _REPLICAS
                else "ask for fewer partitions, or look up the limits of the product or service"
            )
        else:
            finding.why = "the number must be above 0" + (", or -1 for the broker's default." if exchange.api_version >= _DEFAULTS else ".")
            finding.remedy = "ask for a valid number"
        known = f"; Metadata lists {several(brokers, 'broker')}" if brokers else ""
        finding.seen = (
            f"{conn.where} does not create topic {name!r} for {conn.who}: {error_name} to {several(partitions, 'partition')} and "
            f"{several(replicas, 'replica')} ({times(finding.count)}){known}"
        )

    @staticmethod
    def _before_defaults(conn: ClientConnection) -> bool:
        offered = conn.about.range(_CREATE)
        return offered is not None and offered[1] < _DEFAULTS
