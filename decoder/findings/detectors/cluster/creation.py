"""Topics that a broker does not create because of their numbers of partitions or replicas or a policy, or for which a client does not wait."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....connection.exchange import Exchange, State
from ....schema import facts
from ....schema.settings import holds_credentials, holds_no_credentials
from ...engine.counters import BoundedDict
from ...engine.detector import Detector, Wanted
from ...engine.finding import Finding, Severity
from ...engine.formatting import SECOND, several, times
from ...engine.layout import rows
from ...engine.traffic import ClientConnection
from .metadata import LEADER_NOT_AVAILABLE, asks_for_all, topics_of

_CREATE = facts.api_key("CreateTopics")
_REPLICAS = facts.error_code("INVALID_REPLICATION_FACTOR")
_PARTITIONS = facts.error_code("INVALID_PARTITIONS")
_POLICY = facts.error_code("POLICY_VIOLATION")
_DEFAULTS = 4
"""The first version of CreateTopics with -1 for the broker's defaults (KIP-464, Kafka 2.4)."""


class CreationRefused(Detector):
    """The request and Metadata show which of the causes that the error may have it is."""

    id = "topic-creation-refused"
    severity = Severity.MEDIUM
    title = "a topic is not created because of its number of partitions or replicas, or of a policy"
    apis = frozenset({_CREATE})
    wanted = Wanted.FAILED

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        asked, answered = exchange.request_view, exchange.response_view
        if exchange.state is not State.PAIRED or asked is None or answered is None or not exchange.error:
            return
        wanted = {topic["name"]: topic for topic in asked.to_dict()["topics"]}
        for topic in rows(answered, "topics"):
            if topic["error_code"] in (_REPLICAS, _PARTITIONS, _POLICY) and topic["name"] in wanted:
                self._refused(conn, exchange, wanted[topic["name"]], topic["error_code"])

    def _refused(self, conn: ClientConnection, exchange: Exchange, topic: dict[str, Any], error: int) -> None:
        name, partitions, replicas = topic["name"], topic["num_partitions"], topic["replication_factor"]
        error_name, brokers = facts.error_name(error), len(conn.cluster.nodes)
        finding = self.report((conn.identity, name, error), exchange, "", "", error=error_name, topic=name)
        value = replicas if error == _REPLICAS else partitions
        settings = ", ".join(
            f"{c['name']}={c['value']}" for c in topic["configs"][:5]
            if holds_no_credentials(c["name"]) and not holds_credentials(c["value"] or "")
        )  # fmt: skip
        if error == _POLICY:
            finding.why = (
                "A policy of the broker refuses the topic. Apache Kafka has none unless its operators install one "
                "(create.topic.policy.class.name); managed services have theirs: Azure Event Hubs and Confluent Cloud limit partitions, "
                "replicas and settings."
            )
            finding.remedy = (
                f"compare what was asked for ({several(partitions, 'partition')}, {several(replicas, 'replica')}"
                f"{f', {settings}' if settings else ''}) with the limits of the service or the operators' policy; ask for less (Connect: "
                "config.storage.*, offset.storage.*, status.storage.*), or create the topic with the service's own tools"
            )
        elif value == -1 and (exchange.api_version < _DEFAULTS or self._before_defaults(conn)):
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
            f"{several(replicas, 'replica')}{f', {settings}' if settings else ''} ({times(finding.count)}){known}"
        )

    @staticmethod
    def _before_defaults(conn: ClientConnection) -> bool:
        offered = conn.about.range(_CREATE)
        return offered is not None and offered[1] < _DEFAULTS


class DoesNotWaitForTopic(Detector):
    """A tool that only lists topics ends like that, too."""

    id = "topic-not-waited-for"
    severity = Severity.LOW
    title = "a client asks for a topic that is being created, and ends its connection instead of asking again"
    apis = facts.api_key_set("Metadata")
    wanted = Wanted.FAILED
    why = (
        "a Metadata request for a topic that does not exist creates it (auto.create.topics.enable), and is answered LEADER_NOT_AVAILABLE until "
        "its partitions have leaders: some 100 ms. Clients should ask again (it is a retriable error). This one gave up instead, or is a tool "
        "that only lists topics."
    )
    remedy = (
        "create the topic before its clients start (kafka-topics.sh --create); or let the application try again after the error, with a client "
        "library that asks again by itself"
    )

    AT_ONCE_NS = 2 * SECOND

    def setup(self) -> None:
        # By connection: the last refused request, the topic, and how many requests had been sent by then.
        self._refused: BoundedDict[int, tuple[Exchange, str, int]] = BoundedDict(4096)
        # By client: when it was last active on a connection that has ended.
        self._active: BoundedDict[tuple[str, str | None], int] = BoundedDict(4096)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        asked = exchange.request_view
        self._refused.pop(conn.number, None)
        if asked is None or asks_for_all(asked):
            return
        name = next((topic.name for topic in topics_of(exchange) if topic.error == LEADER_NOT_AVAILABLE), None)
        if name:
            self._refused[conn.number] = exchange, name, conn.requests

    def closed(self, conn: ClientConnection) -> None:
        who = conn.client_host, conn.client_id
        self._active[who] = max(conn.last_activity_ns, self._active.get(who, 0))
        exchange, name, requests = self._refused.pop(conn.number, (None, "", 0))
        if exchange is None or conn.by != "client" or conn.requests != requests or conn.lost:
            return
        if (conn.closed_ns or 0) - (exchange.response_time_ns or 0) <= self.AT_ONCE_NS:
            finding = self.report((who, name), exchange, facts=conn.facts_of(exchange), topic=name)
            finding.seen = (
                f"{conn.who} asked {conn.where} for topic {name!r}, got LEADER_NOT_AVAILABLE, and ended the connection ({times(finding.count)})"
            )

    def findings(self) -> Iterable[Finding]:
        """Those of clients that did nothing afterwards: others went on, on another connection."""
        still = {(conn.client_host, conn.client_id) for conn in self.traffic.connections.values()}
        for key, finding in self._found.items():
            assert isinstance(key, tuple)
            who: tuple[str, str | None] = key[0]
            last = max(exchange.response_time_ns or 0 for exchange in finding.exchanges)
            if who not in still and self._active.get(who, 0) <= last:
                yield finding
