"""Denied requests of all APIs: one finding per client and error, with the resources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from ....connection.exchange import Exchange
from ....schema import facts
from ...engine.detector import Detector, Wanted
from ...engine.finding import Finding, Severity
from ...engine.formatting import topic_name
from ...engine.traffic import ClientConnection
from .authentication import SaslStates

DENIED = {
    facts.error_code(name): resource
    for name, resource in (
        ("TOPIC_AUTHORIZATION_FAILED", "topic"),
        ("GROUP_AUTHORIZATION_FAILED", "group"),
        ("CLUSTER_AUTHORIZATION_FAILED", "cluster"),
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "transactional-id"),
        ("DELEGATION_TOKEN_AUTHORIZATION_FAILED", "delegation-token"),
    )
}
"""The errors for denied requests, and the kind of resource each is about. Detectors of single APIs leave them to this one."""
_NAMES = {
    "topic": ("topic", "topic_name", "name", "topic_id"),
    "group": ("group_id", "group", "key", "coordinator_key"),
    "transactional-id": ("transactional_id", "key"),
}
# What an API asks of the authorizer for each kind of resource (docs of Kafka's operations and resources).
_NEEDS = {
    "topic": {
        "Produce": "Write", "Fetch": "Read", "ShareFetch": "Read", "OffsetCommit": "Read", "TxnOffsetCommit": "Read",
        "OffsetDelete": "Read", "AddPartitionsToTxn": "Write", "CreateTopics": "Create", "DeleteTopics": "Delete",
        "DeleteRecords": "Delete", "CreatePartitions": "Alter", "DescribeConfigs": "DescribeConfigs",
        "IncrementalAlterConfigs": "AlterConfigs", "AlterConfigs": "AlterConfigs",
        "DescribeProducers": "Read",
    },
    "group": {
        "OffsetFetch": "Describe", "DescribeGroups": "Describe", "ConsumerGroupDescribe": "Describe",
        "ShareGroupDescribe": "Describe", "StreamsGroupDescribe": "Describe", "FindCoordinator": "Describe",
        "DeleteGroups": "Delete", "OffsetDelete": "Delete", "DeleteShareGroupOffsets": "Delete",
    },
    "transactional-id": {"FindCoordinator": "Describe", "DescribeTransactions": "Describe"},
    "cluster": {
        "InitProducerId": "IdempotentWrite", "Produce": "IdempotentWrite", "CreateTopics": "Create",
        "Metadata": "Create", "DescribeCluster": "Describe", "ListPartitionReassignments": "Describe",
        "DescribeConfigs": "DescribeConfigs", "AlterConfigs": "AlterConfigs",
        "IncrementalAlterConfigs": "AlterConfigs", "DescribeClientQuotas": "DescribeConfigs",
        "AlterClientQuotas": "AlterConfigs", "DescribeAcls": "Describe", "DescribeLogDirs": "Describe",
        "DescribeQuorum": "Describe", "DescribeUserScramCredentials": "Describe",
    },
}  # fmt: skip
_USUALLY = {"topic": "Describe", "group": "Read", "transactional-id": "Write", "cluster": "Alter"}
_LOG_DIRS, _LOG_DIRS_ERROR = facts.api_key("DescribeLogDirs"), 3
"""The first version of DescribeLogDirs with an error of its own: before it, a broker answers a client that may not describe the cluster
without any directory (KafkaApis.handleDescribeLogDirsRequest), though every broker has one."""
MOST_NAMED = 20
"""Most resources kept by name."""


class AuthorizationFailed(Detector):
    """A client asks for what its principal may not do.

    Listings leave out what the client may not see, so a code is always about something that was asked for by name.
    """

    id = "authorization-failed"
    severity = Severity.HIGH
    title = "a client asks for something that it is not allowed to do"
    wanted = Wanted.FAILED

    @classmethod
    def wanted_of(cls, api_key: int, version: int) -> Wanted:
        return Wanted.ALL if api_key == _LOG_DIRS and version < _LOG_DIRS_ERROR else cls.wanted

    def setup(self) -> None:
        self._sasl = self.traffic.model(SaslStates)

    def done(self, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.response is None or (not exchange.error and exchange.api_key != _LOG_DIRS):
            return
        message = exchange.response_view
        if message is None:
            return
        if exchange.api_key == _LOG_DIRS and not exchange.error:
            if exchange.api_version < _LOG_DIRS_ERROR and not message["results"]:
                self._count(conn, exchange, facts.error_code("CLUSTER_AUTHORIZATION_FAILED"), "cluster", None)
            return
        asked: dict[str, Any] | None = None
        for code, names in _codes(message.to_dict(), {}):
            kind = DENIED.get(code)
            if kind is None:
                continue
            name = _named(kind, names, exchange)
            if name is None and kind in ("group", "transactional-id"):
                if asked is None:
                    asked = exchange.request_view.to_dict() if exchange.request_view else {}
                name = _named(kind, asked, exchange)
            self._count(conn, exchange, code, kind, name)

    def _count(self, conn: ClientConnection, exchange: Exchange, code: int, kind: str, name: str | None) -> None:
        error = facts.error_name(code)
        key = conn.identity, conn.cluster.id, code, self._principal(conn)
        known = self._found.get(key)
        if known is not None and known.exchanges and known.exchanges[-1] is exchange:
            found = known  # another partition of the same answer
        else:
            found = self.report(
                key, exchange, "", "", error=error, resource_type=kind, resources=[], apis=[]
            )
        about = found.about
        for value, list_name in ((name, "resources"), (exchange.api, "apis")):
            if value and value not in about[list_name] and len(about[list_name]) < MOST_NAMED:
                about[list_name].append(value)
        self._write(found, conn, error, kind)

    def _principal(self, conn: ClientConnection) -> str:
        """The user that the broker checks, "" where the bytes do not show it."""
        state = self._sasl.of(conn)
        if state is not None:
            return state.user
        # ApiVersions comes first: where it was seen, a login would have been seen too
        return "ANONYMOUS" if conn.about.software_name and not conn.lost and not conn.tls else ""

    def _write(self, found: Finding, conn: ClientConnection, error: str, kind: str) -> None:
        resources, apis = found.about["resources"], found.about["apis"]
        needs = sorted({_NEEDS.get(kind, {}).get(api, _USUALLY.get(kind, "Describe")) for api in apis})
        some = ", ".join(resources[:3]) + (f" and {len(resources) - 3} more" if len(resources) > 3 else "")
        principal = self._principal(conn)
        hidden = kind == "topic" and not any(topic in resources for topic, _ in conn.cluster.leaders)
        empty = kind == "cluster" and apis == ["DescribeLogDirs"] and not (found.exchanges and found.exchanges[0].error)
        if empty:
            error = "an answer without directories, which stands for CLUSTER_AUTHORIZATION_FAILED in this version"
        found.seen = (
            f"{conn.who}{f' (principal User:{principal})' if principal else ''} is refused by {conn.where} with {error} {_times(found.count)}: {', '.join(apis)}"
            f"{f' on {kind} {some}' if some else ''}"
        )
        found.why = (
            "the authorizer finds no ACL that allows this for the connection's principal, or one that denies it. "
            "Waiting does not help: clients that retry are refused again."
            + (
                " A topic that does not exist gets the same answer if the principal may not describe it: the broker "
                "hides the difference."
                if hidden
                else ""
            )
        )
        target = {"cluster": "--cluster", "delegation-token": "--delegation-token ID"}.get(
            kind, f"--{kind} {resources[0] if resources else 'NAME'}"
        )
        operations = " ".join(f"--operation {need}" for need in needs)
        if principal == "ANONYMOUS":
            who = "the client neither logs in nor has a certificate, so it is ANONYMOUS: use a listener with SASL or mutual TLS, or "
        elif principal:
            who = "the principal is the SASL user, unless the broker maps it (principal.builder.class). "
        else:
            who = "NAME is the principal as the broker sees it (its authorizer log shows it). "
        allow = f"allow it: kafka-acls.sh --add --allow-principal User:{principal or 'NAME'} {operations} {target}"
        found.remedy = f"{who}{allow}" if principal == "ANONYMOUS" else f"{allow}; {who}Or correct the name that the client asks for."


def _codes(value: Any, names: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every error code of a decoded message, with the plain fields around it."""
    if isinstance(value, dict):
        inner = {**names, **{k: v for k, v in value.items() if isinstance(v, (str, UUID))}}
        for name, item in value.items():
            if name.endswith("error_code") and isinstance(item, int) and item:
                yield item, inner
            elif isinstance(item, (dict, list)):
                yield from _codes(item, inner)
    elif isinstance(value, list):
        for item in value:
            yield from _codes(item, names)


def _named(kind: str, names: dict[str, Any], exchange: Exchange) -> str | None:
    for field in _NAMES.get(kind, ()):
        value = names.get(field)
        if isinstance(value, UUID) and value.int:
            return topic_name(exchange, value.bytes)
        if isinstance(value, str) and value:
            return value
    return None


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
