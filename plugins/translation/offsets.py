"""ListOffsets, OffsetCommit, OffsetFetch and OffsetForLeaderEpoch between versions.

Sources: `KafkaApis.handleListOffsetRequest*`, `OffsetFetchResponse`, `OffsetCommitRequest`; KIP-79, KIP-709.
"""

from __future__ import annotations

from collections.abc import Callable

from ...decoder.schema import facts
from .fields import Fields
from .steps import (
    ConversionContext,
    Unbridgeable,
    difference,
    down,
    droppable,
    each_partition,
    impossible,
    split,
    split_list,
    up,
)

LATEST, EARLIEST = -1, -2
UNKNOWN_TOPIC_OR_PARTITION = facts.error_code("UNKNOWN_TOPIC_OR_PARTITION")
_GROUP_ERRORS = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "GROUP_AUTHORIZATION_FAILED")
_OF_THE_GROUP = frozenset(map(facts.error_code, _GROUP_ERRORS))

# --- ListOffsets: version 0 answered with a list of offsets before a time, version 1 with one offset and its time -----


@up("request", "ListOffsets", 1)
def _drop_max_num_offsets(fields: Fields, context: ConversionContext) -> None:
    for partition in each_partition(fields):
        del partition["max_num_offsets"]


@down("response", "ListOffsets", 1)
def _offset_to_list(fields: Fields, context: ConversionContext) -> None:
    for partition in each_partition(fields):
        offset = partition.pop("offset")
        partition.pop("timestamp")
        partition["old_style_offsets"] = [offset] if offset >= 0 else []


def _split_list_offsets(fields: Fields, context: ConversionContext) -> list[Fields]:
    """The request itself, for the latest offsets where a time may lie after them, for the earliest where several are
    wanted."""
    latest = _partitions_where(fields, LATEST, lambda partition: partition["timestamp"] >= 0)
    earliest = _partitions_where(fields, EARLIEST, lambda p: p["max_num_offsets"] > 1 and p["timestamp"] != EARLIEST)
    if latest["topics"]:
        context.note("offsets before a time: the first record of that time, not a segment's first offset")
    return [part for part in (fields, latest, earliest) if part is fields or part["topics"]]


def _partitions_where(fields: Fields, timestamp: int, wanted: Callable[[Fields], bool]) -> Fields:
    topics = []
    for topic in fields["topics"]:
        chosen = [{**p, "timestamp": timestamp, "max_num_offsets": 1} for p in topic["partitions"] if wanted(p)]
        if chosen:
            topics.append({**topic, "partitions": chosen})
    return {**fields, "topics": topics}


def _join_list_offsets(parts: list[Fields], context: ConversionContext) -> Fields:
    wanted = {
        (topic["name"], partition["partition_index"]): (partition["timestamp"], partition["max_num_offsets"])
        for topic in context.request["topics"]
        for partition in topic["partitions"]
    }
    more: dict[tuple[str, int], list[int]] = {}
    for topic in [topic for part in parts[1:] for topic in part["topics"]]:
        for partition in topic["partitions"]:
            more.setdefault((topic["name"], partition["partition_index"]), []).extend(partition["old_style_offsets"])
    for topic in parts[0]["topics"]:
        for partition in topic["partitions"]:
            place = topic["name"], partition["partition_index"]
            if partition["error_code"] or place not in more:
                continue
            timestamp, most = wanted.get(place, (LATEST, 1))
            first = partition["old_style_offsets"] or (more[place][:1] if timestamp >= 0 else [])
            rest = [offset for offset in more[place] if first and offset < first[0]]
            partition["old_style_offsets"] = [*first, *rest][:most]
    return parts[0]


difference("ListOffsets", 1, "offsets before a time become the offset of its first record, and the earliest offset", upward=True)
difference("ListOffsets", 1, "times are looked up by segment, as brokers did then")
split("ListOffsets", 1, _split_list_offsets, _join_list_offsets, upward=True)


@down("request", "ListOffsets", 1)
def _one_offset_per_partition(fields: Fields, context: ConversionContext) -> None:
    for partition in each_partition(fields):
        partition["max_num_offsets"] = 1
        if partition["timestamp"] >= 0:
            context.note("a time is looked up by segment: the broker has no time index for clients")


@up("response", "ListOffsets", 1)
def _list_to_offset(fields: Fields, context: ConversionContext) -> None:
    for partition in each_partition(fields):
        offsets = partition.pop("old_style_offsets")
        partition["offset"] = offsets[0] if offsets else -1


def _refuse_special_times(version: int, lowest: int, what: str) -> None:
    @down("request", "ListOffsets", version)
    def _refuse(fields: Fields, context: ConversionContext) -> None:
        if any(partition["timestamp"] <= lowest for partition in each_partition(fields)):
            raise Unbridgeable(f"the broker cannot look up {what} (ListOffsets {version})")


_refuse_special_times(7, -3, "the offset of the newest timestamp")
_refuse_special_times(8, -4, "the earliest local offset")
_refuse_special_times(9, -5, "the latest tiered offset")
_refuse_special_times(11, -6, "the earliest offset pending upload")
droppable("ListOffsets", "isolation_level", "the broker has no transactions, so everything is committed")

# --- OffsetCommit and OffsetFetch: version 0 kept offsets in ZooKeeper ------------------------------------------------


@up("request", "OffsetCommit", 1)
def _note_kafka_storage(fields: Fields, context: ConversionContext) -> None:
    context.note("version 0 kept offsets in ZooKeeper; they are now kept in Kafka")


@down("request", "OffsetCommit", 1)
def _refuse_zookeeper_storage(fields: Fields, context: ConversionContext) -> None:
    raise Unbridgeable("this broker keeps offsets only in ZooKeeper (OffsetCommit 0), without members or generations")


@up("request", "OffsetCommit", 2)
def _drop_commit_times(fields: Fields, context: ConversionContext) -> None:
    for partition in each_partition(fields):
        if partition.pop("commit_timestamp", -1) != -1:
            context.note("the time of a commit is now the broker's")


_ID = "it contains topic ids, which this broker does not support"
impossible("OffsetCommit", 10, _ID)
difference("OffsetCommit", 1, "offsets are kept in Kafka instead of ZooKeeper, by the group's coordinator only", upward=True)
difference("OffsetCommit", 2, "the time of a commit is the broker's", upward=True)
difference("OffsetFetch", 1, "offsets come from Kafka instead of ZooKeeper, from the group's coordinator only", upward=True)
difference("OffsetFetch", 8, "each group is requested separately")
impossible("OffsetFetch", 10, _ID)


@down("response", "OffsetFetch", 1)
def _no_offset_to_error(fields: Fields, context: ConversionContext) -> None:
    for partition in each_partition(fields):
        if partition["committed_offset"] == -1 and not partition["error_code"]:
            partition["error_code"] = UNKNOWN_TOPIC_OR_PARTITION


@up("response", "OffsetFetch", 1)
def _error_to_no_offset(fields: Fields, context: ConversionContext) -> None:
    for partition in each_partition(fields):
        if partition["error_code"] == UNKNOWN_TOPIC_OR_PARTITION:
            partition["error_code"] = 0


@down("request", "OffsetFetch", 2)
def _refuse_all_topics(fields: Fields, context: ConversionContext) -> None:
    if fields["topics"] is None:
        raise Unbridgeable("the broker cannot list all offsets of a group (OffsetFetch 2, KIP-88)")


@down("response", "OffsetFetch", 2)
def _error_to_partitions(fields: Fields, context: ConversionContext) -> None:
    code = fields.pop("error_code", 0)
    if not code:
        return
    fields["topics"] = [
        {
            "name": topic["name"],
            "partitions": [
                {"partition_index": index, "committed_offset": -1, "metadata": "", "error_code": code}
                for index in topic["partition_indexes"]
            ],
        }
        for topic in context.request.get("topics") or ()
    ]


@up("response", "OffsetFetch", 2)
def _error_to_group(fields: Fields, context: ConversionContext) -> None:
    codes = [partition["error_code"] for partition in each_partition(fields)]
    fields["error_code"] = next((code for code in codes if code in _OF_THE_GROUP), 0)


@up("request", "OffsetFetch", 8)
def _group_to_groups(fields: Fields, context: ConversionContext) -> None:
    fields["groups"] = [{"group_id": fields.pop("group_id"), "topics": fields.pop("topics")}]


@down("request", "OffsetFetch", 8)
def _groups_to_group(fields: Fields, context: ConversionContext) -> None:
    (group,) = fields.pop("groups")
    fields["group_id"], fields["topics"] = group["group_id"], group["topics"]


@down("response", "OffsetFetch", 8)
def _groups_to_response(fields: Fields, context: ConversionContext) -> None:
    (group,) = fields.pop("groups")
    fields["topics"], fields["error_code"] = group["topics"], group["error_code"]


@up("response", "OffsetFetch", 8)
def _response_to_groups(fields: Fields, context: ConversionContext) -> None:
    (group,) = context.request["groups"]
    topics, code = fields.pop("topics"), fields.pop("error_code")
    fields["groups"] = [{"group_id": group["group_id"], "topics": topics, "error_code": code}]


split_list("OffsetFetch", 8, "groups", "groups")
droppable("OffsetFetch", "require_stable", "the broker returns offsets regardless of open transactions")
