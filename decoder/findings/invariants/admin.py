"""Rows about the requests of admin clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .items import Items, each, same_count
from .row import Pair, Row, Seen

_FAILS = "Admin clients fail the call, or wait until it times out."


def _as_created(field: str) -> Any:
    """A check that a new topic is as the request asks."""

    def check(pair: Pair) -> Iterator[Seen]:
        asked = {t.name: getattr(t, field) for t in pair.asked.topics or ()}
        for path, topic in each(pair.answer, "topics"):
            wanted, found = asked.get(topic.name, -1), getattr(topic, field)
            if not topic.error_code and wanted > 0 and found != -1 and found != wanted:
                yield Seen(f"{path}.{field}", f"is {found} for topic {topic.name!r}; the request asks for {wanted}")

    return check


def _configs(pair: Pair) -> Iterator[Seen]:
    asked = {(r.resource_type, r.resource_name): r.configuration_keys for r in pair.asked.resources or ()}
    for path, result in each(pair.answer, "results"):
        names = [c.name for c in result.configs or ()]
        keys = asked.get((result.resource_type, result.resource_name))
        outside = [n for n in names if n not in keys] if keys else []
        if outside:
            text = f"has {outside[0]!r} of {result.resource_name!r}, which the request does not ask for"
            yield Seen(f"{path}.configs", text, "describe-configs-name-unasked")
        if len(set(names)) < len(names):
            twice = next(n for i, n in enumerate(names) if n in names[:i])
            yield Seen(f"{path}.configs", f"has {twice!r} twice", "describe-configs-name-twice")


_CREATED = "ReplicationControlManager.createTopics, KIP-525"
ROWS: tuple[Row, ...] = (
    *Items("CreateTopics", "topics", "topics(name)", "topics(name)", "ControllerApis.createTopics", _FAILS,
        "high").rows(),
    Row("create-topics-partitions", "CreateTopics", "creates as many partitions as the request asks for", _CREATED,
        _as_created("num_partitions"), "medium", "Keys go to other partitions than applications expect.", since=5),
    Row("create-topics-replicas", "CreateTopics", "creates as many replicas as the request asks for", _CREATED,
        _as_created("replication_factor"), "low", "The topic survives fewer failures than its owner expects, unless "
        "the product replicates "
        "in another way.", since=5),
    *Items("DeleteTopics", "topics", "topics(name|topic_id) / topic_names", "responses(name|topic_id)",
        "ControllerApis.deleteTopics", _FAILS,
           "high").rows(),
    *Items("CreatePartitions", "topics", "topics(name)", "results(name)", "ControllerApis.createPartitions", _FAILS,
        "high").rows(),
    *Items("DescribeConfigs", "resources", "resources(resource_type,resource_name)",
        "results(resource_type,resource_name)",
           "ConfigHelper.describeConfigs", _FAILS).rows(),
    Row("describe-configs-name-unasked", "DescribeConfigs", "describes only the settings that the request names",
        "ConfigHelper.describeConfigs",
        _configs, "low"),
    Row("describe-configs-name-twice", "DescribeConfigs", "describes each setting once",
        "ConfigHelper.describeConfigs", _configs, "low",
        "Tools show one of the two values."),
    *Items("AlterConfigs", "resources", "resources(resource_type,resource_name)",
        "responses(resource_type,resource_name)",
           "ConfigAdminManager", _FAILS).rows(),
    *Items("IncrementalAlterConfigs", "resources", "resources(resource_type,resource_name)",
        "responses(resource_type,resource_name)",
           "ConfigAdminManager.reassembleIncrementalResponse, KIP-339", _FAILS).rows(),
    *Items("ElectLeaders", "partitions", "topic_partitions(topic).partitions",
        "replica_election_results(topic).partition_result(partition_id)",
           "ReplicationControlManager.electLeaders, KIP-460", _FAILS).rows(),
    *Items("AlterPartitionReassignments", "partitions", "topics(name).partitions(partition_index)",
        "responses(name).partitions(partition_index)",
           "ReplicationControlManager.alterPartitionReassignments, KIP-455", _FAILS).rows(),
    *Items("ListPartitionReassignments", "partitions", "topics(name).partition_indexes",
        "topics(name).partitions(partition_index)",
           "ReplicationControlManager.listPartitionReassignments, KIP-455", ways=("unasked", "twice")).rows(),
    *Items("AlterReplicaLogDirs", "partitions", "dirs().topics(name).partitions",
        "results(topic_name).partitions(partition_index)",
           "KafkaApis.handleAlterReplicaLogDirsRequest, KIP-113", _FAILS).rows(),
    *Items("DescribeLogDirs", "partitions", "topics(topic).partitions",
        "results().topics(name).partitions(partition_index)",
           "ReplicaManager.describeLogDirs, KIP-113", ways=("unasked",)).rows(),
    *Items("DescribeUserScramCredentials", "users", "users(name)", "results(user)", "ScramImage.describe, KIP-554",
        _FAILS,
           all_if_empty=True).rows(),
    *Items("AlterUserScramCredentials", "users", "deletions(name) + upsertions(name)", "results(user)",
        "ScramControlManager, KIP-554",
           _FAILS).rows(),
    *Items("DescribeQuorum", "partitions", "topics(topic_name).partitions(partition_index)",
        "topics(topic_name).partitions(partition_index)",
           "KafkaRaftClient.handleDescribeQuorumRequest, KIP-595", _FAILS).rows(),
    Row("create-acls-count", "CreateAcls", "answers each ACL of the request", "AclApis.handleCreateAcls",
        same_count("creations", "results"),
        "medium", "Admin clients take the result of one for that of another."),
    Row("delete-acls-count", "DeleteAcls", "answers each filter of the request", "AclApis.handleDeleteAcls",
        same_count("filters", "filter_results"), "medium", "Admin clients take the result of one for that of another."),
)  # fmt: skip
