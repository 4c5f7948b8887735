"""Metadata, topics and their settings between versions.

Sources: `MetadataRequest` (version 0: an empty list means all), `KafkaApis` and `MetadataCache`
(`errorUnavailableEndpoints`: version 0 leaves replicas out that are not there, and says REPLICA_NOT_AVAILABLE),
`DeleteTopicsRequest` (KIP-516), `DescribeConfigsResponse` (KIP-226), `CreateTopicsRequest`.
"""

from __future__ import annotations

from uuid import UUID

from ...decoder.schema import facts
from .fields import Fields
from .steps import ConversionContext, Unbridgeable, difference, down, droppable, each_partition, up

UNKNOWN_TOPIC_OR_PARTITION = facts.error_code("UNKNOWN_TOPIC_OR_PARTITION")
REPLICA_NOT_AVAILABLE = facts.error_code("REPLICA_NOT_AVAILABLE")
NONE = facts.error_code("NONE")
NO_ID = UUID(int=0)
DEFAULT_CONFIG, UNKNOWN_CONFIG = 5, 0  # DescribeConfigsResponse.ConfigSource
SET_IN = {2: 1, 4: 4}
"""Type of a resource -> the source of settings that are not defaults, as Java clients read version 0: a topic's own,
and a broker's file. Java 1.1 fails at an unknown one."""


# --- Metadata ----------------------------------------------------------------------------------------------------------


@up("request", "Metadata", 1)
def _empty_topics_to_null(fields: Fields, context: ConversionContext) -> None:
    fields["topics"] = fields["topics"] or None


@down("request", "Metadata", 1)
def _null_topics_to_empty(fields: Fields, context: ConversionContext) -> None:
    fields["topics"] = fields["topics"] or []  # where none are requested, `_add_controller` removes them from the answer


@up("response", "Metadata", 1)
def _add_controller(fields: Fields, context: ConversionContext) -> None:
    if context.request["topics"] == []:
        fields["topics"] = []
    # Brokers before 0.10 name no controller, and clients without one would ask forever.
    if fields["brokers"]:
        fields["controller_id"] = min(broker["node_id"] for broker in fields["brokers"])
    for partition in each_partition(fields):
        # Since version 1 a missing replica is no error; version 0 does not name it.
        if partition["error_code"] == REPLICA_NOT_AVAILABLE:
            partition["error_code"] = NONE


@down("response", "Metadata", 1)
def _drop_offline_replicas(fields: Fields, context: ConversionContext) -> None:
    there = {broker["node_id"] for broker in fields["brokers"]}
    for partition in each_partition(fields):
        every = [*partition["replica_nodes"], *partition["isr_nodes"]]
        for name in ("replica_nodes", "isr_nodes"):
            partition[name] = [node for node in partition[name] if node in there]
        if partition["error_code"] == NONE and not there.issuperset(every):
            partition["error_code"] = REPLICA_NOT_AVAILABLE


@down("request", "Metadata", 4)
def _all_topics_instead_of_creating(fields: Fields, context: ConversionContext) -> None:
    # Brokers before 0.11 may create any topic that is requested by name; a request for all creates none.
    if not fields.pop("allow_auto_topic_creation") and fields["topics"]:
        fields["topics"] = None


@up("response", "Metadata", 4)
def _requested_topics(fields: Fields, context: ConversionContext) -> None:
    wanted = context.request["topics"]
    if context.request["allow_auto_topic_creation"] or not wanted:
        return
    found = {topic["name"]: topic for topic in fields["topics"]}
    nothing = {"error_code": UNKNOWN_TOPIC_OR_PARTITION, "partitions": []}
    fields["topics"] = [found.get(topic["name"], {"name": topic["name"], **nothing}) for topic in wanted]


@down("request", "Metadata", 10)
def _refuse_topic_ids(fields: Fields, context: ConversionContext) -> None:
    for topic in fields["topics"] or ():
        if topic["name"] is None or topic.get("topic_id", NO_ID) != NO_ID:
            raise Unbridgeable("it asks for a topic by its id, which the broker does not support (KIP-516)")


difference("Metadata", 1, "racks and internal topics are not known, and the first broker is named as the controller")
difference("Metadata", 4, "where no topic may be created, all topics are requested and the others removed")
_OPERATIONS = "the broker does not report authorized operations"
droppable("Metadata", "include_cluster_authorized_operations", _OPERATIONS)
droppable("Metadata", "include_topic_authorized_operations", _OPERATIONS)

# --- DeleteTopics ------------------------------------------------------------------------------------------------------


@up("request", "DeleteTopics", 6)
def _names_to_topics(fields: Fields, context: ConversionContext) -> None:
    fields["topics"] = [{"name": name} for name in fields.pop("topic_names")]


@down("request", "DeleteTopics", 6)
def _topics_to_names(fields: Fields, context: ConversionContext) -> None:
    topics = fields.pop("topics")
    if any(topic["name"] is None for topic in topics):
        raise Unbridgeable("it names a topic by its id, which the broker does not support (KIP-516)")
    fields["topic_names"] = [topic["name"] for topic in topics]


# --- CreateTopics ------------------------------------------------------------------------------------------------------


@down("request", "CreateTopics", 4)
def _refuse_default_counts(fields: Fields, context: ConversionContext) -> None:
    for topic in fields["topics"]:
        if not topic["assignments"] and -1 in (topic["num_partitions"], topic["replication_factor"]):
            raise Unbridgeable(
                "the broker has no defaults for partitions and replicas here (KIP-464): give both numbers"
            )


# --- DescribeConfigs ---------------------------------------------------------------------------------------------------


@down("response", "DescribeConfigs", 1)
def _source_to_is_default(fields: Fields, context: ConversionContext) -> None:
    for result in fields["results"]:
        for config in result["configs"] or ():
            config["is_default"] = config.pop("config_source") == DEFAULT_CONFIG


@up("response", "DescribeConfigs", 1)
def _is_default_to_source(fields: Fields, context: ConversionContext) -> None:
    for result in fields["results"]:
        own = SET_IN.get(result["resource_type"], UNKNOWN_CONFIG)
        for config in result["configs"] or ():
            config["config_source"] = DEFAULT_CONFIG if config.pop("is_default") else own


droppable("DescribeConfigs", "include_synonyms", "the broker does not send synonyms of settings")
droppable("DescribeConfigs", "include_documentation", "the broker does not send documentation of settings")
