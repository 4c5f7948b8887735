"""For every row of `decoder/findings/invariants`: an exchange as a healthy broker has it, and changes that contradict
the row."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from barnabas.decoder import records

ID, OTHER_ID = uuid.UUID(int=7), uuid.UUID(int=8)
Body = dict[str, Any]
Change = Callable[[Body, Body], object]
"""Changes the request and the answer."""


class Case(NamedTuple):
    """`answer`: of a healthy broker. `changes`: by row. `times`: how often the changed exchange is repeated on the
    connection. `before`: the API, version, request and answer of an exchange that goes before each."""

    api: str
    version: int
    asked: Body
    answer: Body
    changes: dict[str, Change]
    times: int = 1
    before: tuple[str, int, Body, Body] | None = None

    def changed(self, row: str) -> tuple[Body, Body]:
        asked, answer = copy.deepcopy(self.asked), copy.deepcopy(self.answer)
        self.changes[row](asked, answer)
        return asked, answer


def items(stem: str, *path: str, ways: str = "missing unasked twice", **other: Any) -> dict[str, Change]:
    """Changes of the last item at a path: it is left out, is another (`other`: its changed fields), or is there
    twice."""

    def at(body: Body) -> list[Any]:
        for name in path[:-1]:
            body = body[name][-1]
        found: list[Any] = body[path[-1]]
        return found

    changes: dict[str, Change] = {
        "missing": lambda _, answer: at(answer).pop(),
        "unasked": lambda _, answer: at(answer).append({**at(answer)[-1], **other}),
        "twice": lambda _, answer: at(answer).append(at(answer)[-1]),
    }
    return {f"{stem}-{way}": changes[way] for way in ways.split()}


def put(*path: str | int, value: Any) -> Change:
    """A change of one value of the answer."""

    def change(_: Body, answer: Body) -> None:
        inner: Any = answer
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = value

    return change


def batch(
    offset: int = 0, count: int = 1, producer: int = -1, sequence: int = -1, transactional: bool = False, **others: int
) -> bytes:
    found = [records.Record(offset + i, 1_000, None, b"v", ()) for i in range(count)]
    epoch = 0 if producer >= 0 else -1
    return records.encode_batch(
        found, transactional=transactional, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **others
    )


def marker(offset: int, producer: int, abort: bool = True) -> bytes:
    key = (0).to_bytes(2, "big") + (0 if abort else 1).to_bytes(2, "big")
    record = records.Record(offset, 1_000, key, bytes(6), ())
    return records.encode_batch([record], transactional=True, control=True, producer_id=producer, producer_epoch=0)


def _metadata() -> Iterator[Case]:
    partition = {
        "partition_index": 0,
        "leader_id": 1,
        "leader_epoch": 3,
        "replica_nodes": [1, 2],
        "isr_nodes": [1],
        "offline_replicas": [2],
    }
    answer = {
        "brokers": [{"node_id": 1, "host": "kafka-1", "port": 9092}],
        "controller_id": 1,
        "cluster_id": "c",
        "topics": [
            {"name": "orders", "topic_id": ID, "partitions": [partition, {**partition, "partition_index": 1}]},
            {"name": "lost", "topic_id": OTHER_ID, "error_code": 3},
        ],
    }
    first = ("topics", 0, "partitions", 0)
    yield Case("Metadata", 12, {"topics": [{"name": "orders"}, {"name": None, "topic_id": OTHER_ID}]}, answer, {
        "metadata-without-brokers": put("brokers", value=[]),
        "metadata-broker-twice": lambda _, a: a["brokers"].append(a["brokers"][0]),
        "metadata-broker-negative": lambda _, a: a["brokers"].append({"node_id": -2, "host": "kafka-2", "port": 9092}),
        "metadata-controller-unknown": put("controller_id", value=9),
        "metadata-leader-unknown": put(*first, "leader_id", value=9),
        "metadata-no-leader-no-error": put(*first, "leader_id", value=-1),
        "metadata-replica-unknown": put(*first, "offline_replicas", value=[]),
        "metadata-offline-no-replica": put(*first, "offline_replicas", value=[2, 5]),
        "metadata-isr-no-replica": put(*first, "isr_nodes", value=[1, 5]),
        "metadata-replica-twice": put(*first, "replica_nodes", value=[1, 1, 2]),
        "metadata-partition-twice": put("topics", 0, "partitions", 1, "partition_index", value=0),
        "metadata-epoch-back": put(*first, "leader_epoch", value=2),
        **items("metadata", "topics", name="other", topic_id=uuid.UUID(int=9)),
    })  # fmt: skip
    yield Case("DescribeCluster", 1, {}, {"cluster_id": "c", "controller_id": 1, "brokers": [{"broker_id": 1,
        "host": "k", "port": 9092}]}, {
        "describe-cluster-without-brokers": put("brokers", value=[]),
        "describe-cluster-broker-twice": lambda _, a: a["brokers"].append(a["brokers"][0]),
        "describe-cluster-controller-unknown": put("controller_id", value=9),
    })  # fmt: skip
    described = {"partition_index": 0, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}
    topics = [{"name": "orders", "partitions": [described]}, {"name": "lost", "error_code": 3}]
    yield Case("DescribeTopicPartitions", 0, {"topics": [{"name": "orders"}, {"name": "lost"}]}, {"topics": topics}, {
        **items("describe-topic-partitions", "topics", name="other"),
        "describe-topic-partitions-partition-twice": put("topics", 0, "partitions", value=[described, described]),
    })  # fmt: skip
    found = [
        {"key": "g", "node_id": 1, "host": "kafka-1", "port": 9092},
        {"key": "h", "node_id": -1, "host": "", "port": -1, "error_code": 15},
    ]
    yield Case("FindCoordinator", 4, {"coordinator_keys": ["g", "h"]}, {"coordinators": found}, {
        "coordinator-without-address": put("coordinators", 0, "host", value=""),
        "coordinator-unknown": put("coordinators", 0, "node_id", value=9),
        **items("find-coordinator", "coordinators", key="other"),
    })  # fmt: skip


def _fetching() -> Iterator[Case]:
    part = {"partition_index": 0, "high_watermark": 9, "last_stable_offset": 9, "log_start_offset": 0,
        "aborted_transactions": [],
            "records": batch(3, producer=5, sequence=0, transactional=True) + marker(4, 5, abort=False)}  # fmt: skip
    empty = {**part, "partition_index": 1, "records": b""}
    asked = {"replica_id": -1, "isolation_level": 1, "session_id": 0, "session_epoch": -1, "topics": [
        {"topic": "orders", "partitions": [{"partition": 0, "fetch_offset": 3}, {"partition": 1}]}]}  # fmt: skip
    answer = {"responses": [{"topic": "orders", "partitions": [part, empty]}]}
    first = ("responses", 0, "partitions", 0)
    yield Case("Fetch", 12, asked, answer, {
        "fetch-null-records": put(*first, "records", value=None),
        "fetch-watermark-negative": put(*first, "high_watermark", value=-1),
        "fetch-replica-unknown": put(*first, "preferred_read_replica", value=722799104),
        "fetch-replica-with-records": put(*first, "preferred_read_replica", value=1),
        "fetch-abort-unlisted": put(*first, "records", value=batch(3, producer=5, transactional=True) + marker(4, 5)),
        **items("fetch", "responses", "partitions", partition_index=99),
    })  # fmt: skip
    yield Case("Fetch", 12, asked, answer, {
        "fetch-log-start-above-watermark": put(*first, "log_start_offset", value=10),
        "fetch-stable-above-watermark": put(*first, "last_stable_offset", value=10),
        "fetch-beyond-watermark": put(*first, "high_watermark", value=3),
        "fetch-beyond-stable": put(*first, "last_stable_offset", value=3),
    }, times=3)  # fmt: skip
    by_id = {**asked, "topics": [{"topic_id": ID, "partitions": asked["topics"][0]["partitions"]}]}
    yield Case("Fetch", 13, by_id, {"responses": [{"topic_id": ID, "partitions": [part, empty]}]}, {
        "fetch-watermark-back": put(*first, "high_watermark", value=8),
    })  # fmt: skip
    yield Case("Fetch", 12, {**asked, "session_id": 5, "session_epoch": 1}, {**answer, "session_id": 5}, {
        "fetch-session-changed": put("session_id", value=6),
    })  # fmt: skip
    listed = {"name": "orders", "partitions": [{"partition_index": 0, "offset": 4, "timestamp": -1, "leader_epoch": 0}]}
    wanted = {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "timestamp": -1}]}]}
    yield Case("ListOffsets", 7, wanted, {"topics": [listed]}, {
        **items("list-offsets", "topics", "partitions", partition_index=9),
        "list-offsets-negative": put("topics", 0, "partitions", 0, "offset", value=-7),
    })  # fmt: skip
    earliest = {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "timestamp": -2}]}]}
    start = {"partition_index": 0, "offset": 2, "timestamp": -1, "leader_epoch": 7}
    of_epoch_7 = {**part, "records": batch(2, partition_leader_epoch=7)}
    yield Case("Fetch", 12, asked, {"responses": [{"topic": "orders", "partitions": [of_epoch_7, empty]}]}, {
        "list-offsets-epoch": put(*first, "records", value=batch(2, partition_leader_epoch=3)),
    }, before=("ListOffsets", 7, earliest, {"topics": [{"name": "orders", "partitions": [start]}]}))  # fmt: skip
    by_time = {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "timestamp": 5000}]}]}
    record = {"partition_index": 0, "offset": 4, "timestamp": 5000, "leader_epoch": 0}
    yield Case("ListOffsets", 7, by_time, {"topics": [{"name": "orders", "partitions": [record]}]}, {
        "list-offsets-half-found": put("topics", 0, "partitions", 0, "timestamp", value=-1),
        "list-offsets-before-time": put("topics", 0, "partitions", 0, "timestamp", value=4999),
    })  # fmt: skip
    epochs = {"topics": [{"topic": "orders", "partitions": [{"partition": 0, "leader_epoch": 4}]}]}
    ends = {"topics": [{"topic": "orders", "partitions": [{"partition": 0, "leader_epoch": 3, "end_offset": 7}]}]}
    yield Case("OffsetForLeaderEpoch", 4, epochs, ends, {
        **items("offset-for-leader-epoch", "topics", "partitions", partition=9),
        "leader-epoch-above": put("topics", 0, "partitions", 0, "leader_epoch", value=5),
        "leader-epoch-unknown": lambda asked, _: asked["topics"][0]["partitions"][0].update(current_leader_epoch=3),
        "leader-epoch-end-negative": put("topics", 0, "partitions", 0, "end_offset", value=-3),
    })  # fmt: skip
    deleted = {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "low_watermark": 4}]}]}
    yield Case("DeleteRecords", 2, {"topics": [{"name": "orders", "partitions": [{"partition_index": 0,
        "offset": 4}]}]}, deleted, {
        **items("delete-records", "topics", "partitions", partition_index=9),
        "delete-records-negative": put("topics", 0, "partitions", 0, "low_watermark", value=-4),
    })  # fmt: skip
    acquired = [
        {"first_offset": 3, "last_offset": 5, "delivery_count": 1},
        {"first_offset": 6, "last_offset": 6, "delivery_count": 2},
    ]
    shared = {"partition_index": 0, "records": batch(3), "acquired_records": acquired}
    share = {"group_id": "s", "member_id": "m", "topics": [{"topic_id": ID, "partitions": [{"partition_index": 0}]}]}
    ranges = (*first, "acquired_records", 1)
    yield Case("ShareFetch", 1, share, {"responses": [{"topic_id": ID, "partitions": [shared]}]}, {
        "share-range-inverted": put(*ranges, "last_offset", value=5),
        "share-range-overlaps": put(*ranges, "first_offset", value=5),
        "share-delivery-count": put(*ranges, "delivery_count", value=0),
        "share-acquired-without-records": put(*first, "records", value=None),
        **items("share-fetch", "responses", "partitions", ways="twice"),
    })  # fmt: skip
    yield Case("ShareAcknowledge", 1, share, {"responses": [{"topic_id": ID, "partitions": [{"partition_index": 0}]}]},
               items("share-acknowledge", "responses", "partitions", partition_index=9))  # fmt: skip


def _producing() -> Iterator[Case]:
    def produce(data: bytes) -> Body:
        return {
            "acks": -1,
            "topic_data": [
                {"name": "orders", "partition_data": [{"index": 0, "records": data}, {"index": 1, "records": data}]}
            ],
        }

    def produced(offset: int) -> Body:
        part = {"index": 0, "base_offset": offset, "log_start_offset": 0}
        return {"responses": [{"name": "orders", "partition_responses": [part, {**part, "index": 1}]}]}

    first = ("responses", 0, "partition_responses", 0)
    yield Case("Produce", 9, produce(batch()), produced(40), {
        **items("produce", "responses", "partition_responses", index=9),
        "produce-offset-negative": put(*first, "base_offset", value=-1),
        "produce-below-log-start": put(*first, "log_start_offset", value=41),
    })  # fmt: skip
    yield Case(
        "Produce",
        9,
        produce(batch()),
        produced(40),
        {"produce-offset-back": put(*first, "base_offset", value=39)},
        times=4,
    )
    new = {"producer_id": 100, "producer_epoch": 0}
    yield Case("InitProducerId", 4, {"transactional_id": None, "producer_id": -1, "producer_epoch": -1}, new, {
        "init-producer-id-negative": put("producer_id", value=-1),
        "init-producer-id-reused": lambda *_: None,
    }, times=2)  # fmt: skip
    transactional = {"transactional_id": "t", "producer_id": -1, "producer_epoch": -1}
    yield Case("InitProducerId", 4, transactional, new, {"init-producer-id-epoch-same": lambda *_: None}, times=2)
    yield Case("InitProducerId", 4, {**transactional, "producer_id": 100, "producer_epoch": 3}, {"producer_id": 100,
        "producer_epoch": 4},
               {"init-producer-id-epoch-back": put("producer_epoch", value=3)})  # fmt: skip
    yield Case("EndTxn", 5, {"transactional_id": "t", "producer_id": 100, "producer_epoch": 3, "committed": True},
               {"producer_id": 100, "producer_epoch": 4}, {"end-txn-epoch-back": put("producer_epoch", value=2)})  # fmt: skip
    added = {"results_by_topic_v3_and_below": [{"name": "orders", "results_by_partition": [{"partition_index": 0}]}]}
    yield Case("AddPartitionsToTxn", 3, {"v3_and_below_transactional_id": "t",
        "v3_and_below_topics": [{"name": "orders", "partitions": [0]}]},
               added, items("add-partitions-to-txn", "results_by_topic_v3_and_below", "results_by_partition",
               partition_index=9))  # fmt: skip
    topics = [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 3}]}]
    answered = {"topics": [{"name": "orders", "partitions": [{"partition_index": 0}]}]}
    yield Case("TxnOffsetCommit", 3, {"transactional_id": "t", "group_id": "g", "topics": topics}, answered,
               items("txn-offset-commit", "topics", "partitions", partition_index=9))  # fmt: skip
    yield Case("DescribeProducers", 0, {"topics": [{"name": "orders", "partition_indexes": [0]}]}, answered,
               items("describe-producers", "topics", "partitions", partition_index=9))  # fmt: skip
    states = {"transaction_states": [{"transactional_id": "t", "transaction_state": "Ongoing"}]}
    yield Case("DescribeTransactions", 0, {"transactional_ids": ["t"]}, states,
               items("describe-transactions", "transaction_states", transactional_id="other"))  # fmt: skip
    listed = {"transaction_states": [{"transactional_id": "t", "producer_id": 5, "transaction_state": "Ongoing"}]}
    yield Case("ListTransactions", 0, {"state_filters": ["Ongoing"], "producer_id_filters": [5]}, listed, {
        "list-transactions-state": put("transaction_states", 0, "transaction_state", value="Empty"),
        "list-transactions-producer": put("transaction_states", 0, "producer_id", value=6),
    })  # fmt: skip


def _groups() -> Iterator[Case]:
    members = [{"member_id": "m1"}, {"member_id": "m2"}]
    joined = {
        "generation_id": 1,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "leader": "m1",
        "member_id": "m1",
        "members": members,
    }
    subscription = bytes.fromhex("0000000000010006") + b"orders" + bytes(4)
    asked = {
        "group_id": "g",
        "member_id": "m1",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription}],
    }
    yield Case("JoinGroup", 7, asked, joined, {
        "join-leader-no-member": put("members", value=members[1:]),
        "join-members-to-follower": put("leader", value="m2"),
        "join-member-twice": lambda _, a: a["members"].append(members[1]),
        "join-protocol-not-offered": put("protocol_name", value="sticky"),
        "join-other-type": put("protocol_type", value="connect"),
        "join-generation-negative": put("generation_id", value=-1),
        "join-no-member-id": put("member_id", value=""),
        "join-other-member": put("member_id", value="m2"),
        "join-subscription-cut": put("members", value=[
            {"member_id": "m1", "metadata": subscription}, {"member_id": "m2", "metadata": b"\0\1" + subscription[2:]},
        ]),
        "join-subscription-unreadable": lambda q, _: q["protocols"][0].update(metadata=subscription[:5]),
    })  # fmt: skip
    assignment = bytes.fromhex("0000000000010006") + b"orders" + bytes.fromhex("000000010000000000000000")
    synced = {
        "group_id": "g",
        "generation_id": 1,
        "member_id": "m1",
        "protocol_type": "consumer",
        "protocol_name": "range",
    }
    led = {
        **synced,
        "assignments": [{"member_id": "m1", "assignment": assignment}, {"member_id": "m2", "assignment": b""}],
    }
    answer = {"protocol_type": "consumer", "protocol_name": "range", "assignment": assignment}
    yield Case("SyncGroup", 5, led, answer, {
        "sync-assignment-changed": put("assignment", value=assignment[:2]),
        "sync-other-type": put("protocol_type", value="connect"),
        "sync-other-protocol": put("protocol_name", value="sticky"),
        "sync-assignment-sent-unreadable": lambda q, a: (q["assignments"][0].update(assignment=b"\0"),
        a.update(assignment=b"\0")),
    })  # fmt: skip
    yield Case("SyncGroup", 5, synced, answer, {"sync-assignment-unreadable": put("assignment", value=assignment[:9])})
    left = [{"member_id": "m1", "group_instance_id": "i1"}]
    yield Case(
        "LeaveGroup",
        4,
        {"group_id": "g", "members": left},
        {"members": left},
        items("leave-group", "members", member_id="m9"),
    )
    commits = [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 3}]}]
    plain = {"topics": [{"name": "orders", "partitions": [{"partition_index": 0}]}]}
    yield Case(
        "OffsetCommit",
        8,
        {"group_id": "g", "topics": commits},
        plain,
        items("offset-commit", "topics", "partitions", partition_index=9),
    )
    names = [{"name": "orders", "partition_indexes": [0]}]
    yield Case("OffsetFetch", 7, {"group_id": "g", "topics": names}, {"topics": commits}, {
        **items("offset-fetch", "topics", "partitions", partition_index=9),
        "offset-fetch-negative": put("topics", 0, "partitions", 0, "committed_offset", value=-2),
        "offset-fetch-epoch": put("topics", 0, "partitions", 0, "committed_leader_epoch", value=-2147483648),
    })  # fmt: skip
    yield Case("OffsetFetch", 8, {"groups": [{"group_id": "g", "topics": names}]}, {"groups": [{"group_id": "g",
        "topics": commits}]}, {
        **items("offset-fetch-groups", "groups", group_id="other"),
        **items("offset-fetch-groups-partition", "groups", "topics", "partitions", partition_index=9),
    })  # fmt: skip
    yield Case(
        "OffsetDelete",
        0,
        {"group_id": "g", **plain},
        plain,
        items("offset-delete", "topics", "partitions", partition_index=9),
    )
    yield Case(
        "DeleteGroups",
        2,
        {"groups_names": ["g"]},
        {"results": [{"group_id": "g"}]},
        items("delete-groups", "results", group_id="h"),
    )
    listed = {"groups": [{"group_id": "g", "group_state": "Stable", "group_type": "classic"}]}
    yield Case("ListGroups", 5, {"states_filter": ["stable"], "types_filter": ["Classic"]}, listed, {
        "list-groups-twice": lambda _, a: a["groups"].append(a["groups"][0]),
        "list-groups-state": put("groups", 0, "group_state", value="Empty"),
        "list-groups-type": put("groups", 0, "group_type", value="share"),
    })  # fmt: skip
    yield Case("DescribeShareGroupOffsets", 0, {"groups": [{"group_id": "g", "topics": None}]},
        {"groups": [{"group_id": "g"}]},
               items("describe-share-group-offsets", "groups", group_id="other"))  # fmt: skip
    yield Case("DeleteShareGroupOffsets", 0, {"group_id": "g", "topics": [{"topic_name": "orders"}]},
        {"responses": [{"topic_name": "orders"}]},
               items("delete-share-group-offsets", "responses", topic_name="other"))  # fmt: skip
    for api, version, stem in (
        ("DescribeGroups", 5, "describe-groups"), ("ConsumerGroupDescribe", 0, "describe-consumer-groups"),
        ("ShareGroupDescribe", 1, "describe-share-groups"), ("StreamsGroupDescribe", 0, "describe-streams-groups"),
    ):  # fmt: skip
        field = "groups" if version == 5 else "group_ids"
        group = {"group_id": "g", "group_state": "Stable", "members": [{"member_id": "m1"}, {"member_id": "m2"}]}
        yield Case(api, version, {field: ["g"]}, {"groups": [group]}, {
            **items(stem, "groups", group_id="other"),
            f"{stem}-state": put("groups", 0, "group_state", value="Great"),
            f"{stem}-member-twice": put("groups", 0, "members", 1, "member_id", value="m1"),
        })  # fmt: skip
    beat = {"group_id": "g", "member_id": "m1", "member_epoch": 4}
    answer = {"member_id": "m1", "member_epoch": 5, "heartbeat_interval_ms": 5000}
    twice: dict[str, Body] = {
        "consumer": {"assignment": {"topic_partitions": [{"topic_id": ID, "partitions": [0, 0]}]}},
        "share": {"assignment": {"topic_partitions": [{"topic_id": ID, "partitions": [0, 0]}]}},
        "streams": {"active_tasks": [{"subtopology_id": "0", "partitions": [1, 1]}]},
    }
    for api, version, stem in (
        ("ConsumerGroupHeartbeat", 0, "consumer"),
        ("ShareGroupHeartbeat", 1, "share"),
        ("StreamsGroupHeartbeat", 0, "streams"),
    ):
        yield Case(api, version, beat, answer, {
            f"{stem}-heartbeat-other-member": put("member_id", value="m2"),
            f"{stem}-heartbeat-epoch-back": put("member_epoch", value=3),
            f"{stem}-heartbeat-interval": put("heartbeat_interval_ms", value=0),
            f"{stem}-heartbeat-assigned-twice": lambda _, a, more=twice[stem]: a.update(more),  # type: ignore[misc]
        })  # fmt: skip


def _admin() -> Iterator[Case]:
    named = {"topics": [{"name": "orders"}]}
    created = {"topics": [{"name": "orders", "num_partitions": 3, "replication_factor": 2}]}
    yield Case("CreateTopics", 5, created, created, {
        **items("create-topics", "topics", name="other"),
        "create-topics-partitions": put("topics", 0, "num_partitions", value=1),
        "create-topics-replicas": put("topics", 0, "replication_factor", value=1),
    })  # fmt: skip
    yield Case("DeleteTopics", 6, {"topics": [{"name": None, "topic_id": ID}]}, {"responses": [{"name": "orders",
        "topic_id": ID}]},
               items("delete-topics", "responses", name="other", topic_id=OTHER_ID))  # fmt: skip
    yield Case(
        "CreatePartitions", 3, named, {"results": named["topics"]}, items("create-partitions", "results", name="other")
    )
    resource = {"resource_type": 2, "resource_name": "orders"}
    described = {"results": [{**resource, "configs": [{"name": "retention.ms", "value": "1"}]}]}
    yield Case("DescribeConfigs", 4, {"resources": [{**resource, "configuration_keys": ["retention.ms"]}]}, described, {
        **items("describe-configs", "results", resource_name="other"),
        "describe-configs-name-unasked": put("results", 0, "configs", 0, "name", value="cleanup.policy"),
        "describe-configs-name-twice": lambda _, a: a["results"][0]["configs"].append(a["results"][0]["configs"][0]),
    })  # fmt: skip
    for api, stem in (("AlterConfigs", "alter-configs"), ("IncrementalAlterConfigs", "incremental-alter-configs")):
        yield Case(
            api,
            1,
            {"resources": [resource]},
            {"responses": [resource]},
            items(stem, "responses", resource_name="other"),
        )
    numbers, plain = (
        {"topics": [{"name": "orders", "partition_indexes": [0]}]},
        [{"name": "orders", "partitions": [{"partition_index": 0}]}],
    )
    yield Case("ElectLeaders", 2, {"topic_partitions": [{"topic": "orders", "partitions": [0]}]},
               {"replica_election_results": [{"topic": "orders", "partition_result": [{"partition_id": 0}]}]},
               items("elect-leaders", "replica_election_results", "partition_result", partition_id=9))  # fmt: skip
    yield Case("AlterPartitionReassignments", 0, {"topics": plain}, {"responses": plain},
               items("alter-partition-reassignments", "responses", "partitions", partition_index=9))  # fmt: skip
    yield Case("ListPartitionReassignments", 0, numbers, {"topics": plain},
               items("list-partition-reassignments", "topics", "partitions", ways="unasked twice",
               partition_index=9))  # fmt: skip
    yield Case("AlterReplicaLogDirs", 2, {"dirs": [{"path": "/d", "topics": [{"name": "orders", "partitions": [0]}]}]},
               {"results": [{"topic_name": "orders", "partitions": [{"partition_index": 0}]}]},
               items("alter-replica-log-dirs", "results", "partitions", partition_index=9))  # fmt: skip
    yield Case("DescribeLogDirs", 4, {"topics": [{"topic": "orders", "partitions": [0]}]},
        {"results": [{"log_dir": "/d", "topics": plain}]},
               items("describe-log-dirs", "results", "topics", "partitions", ways="unasked", partition_index=9))  # fmt: skip
    yield Case("DescribeUserScramCredentials", 0, {"users": [{"name": "u"}]}, {"results": [{"user": "u"}]},
               items("describe-user-scram-credentials", "results", user="other"))  # fmt: skip
    yield Case("AlterUserScramCredentials", 0, {"deletions": [{"name": "u", "mechanism": 1}],
        "upsertions": [{"name": "w", "mechanism": 1}]},
               {"results": [{"user": "u"}, {"user": "w"}]}, items("alter-user-scram-credentials", "results",
               user="other"))  # fmt: skip
    quorum = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    yield Case(
        "DescribeQuorum",
        1,
        {"topics": quorum},
        {"topics": quorum},
        items("describe-quorum", "topics", "partitions", partition_index=9),
    )
    acl = {
        "resource_type": 2,
        "resource_name": "orders",
        "principal": "User:u",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    yield Case(
        "CreateAcls", 3, {"creations": [acl]}, {"results": [{}]}, {"create-acls-count": put("results", value=[])}
    )
    yield Case("DeleteAcls", 3, {"filters": [{"operation": 3, "permission_type": 3}]}, {"filter_results": [{}]},
               {"delete-acls-count": put("filter_results", value=[])})  # fmt: skip


def _connections() -> Iterator[Case]:
    offer = [{"api_key": 3, "min_version": 0, "max_version": 12}, {"api_key": 18, "min_version": 0, "max_version": 4}]
    features = [{"name": "kraft.version", "min_version": 0, "max_version": 1}]
    yield Case("ApiVersions", 4, {"client_software_name": "c", "client_software_version": "1"},
               {"api_keys": offer, "supported_features": features}, {
        "api-versions-inverted": put("api_keys", 0, "max_version", value=-1),
        "api-versions-negative": put("api_keys", 0, "min_version", value=-1),
        "api-versions-twice": lambda _, a: a["api_keys"].append(offer[0]),
        "api-versions-without-itself": lambda _, a: a["api_keys"].pop(),
        "api-versions-empty": put("api_keys", value=[]),
        "api-versions-feature-inverted": put("supported_features", 0, "min_version", value=2),
    })  # fmt: skip
    yield Case("SaslHandshake", 1, {"mechanism": "PLAIN"}, {"mechanisms": ["PLAIN", "GSSAPI"]},
               {"sasl-mechanism-unlisted": put("mechanisms", value=["GSSAPI"])})  # fmt: skip
    yield Case("SaslAuthenticate", 2, {"auth_bytes": b"\0u\0p"}, {"session_lifetime_ms": 0},
               {"sasl-lifetime-negative": put("session_lifetime_ms", value=-1)})  # fmt: skip
    yield Case("GetTelemetrySubscriptions", 0, {}, {"client_instance_id": ID, "push_interval_ms": 300_000}, {
        "telemetry-interval": put("push_interval_ms", value=0),
        "telemetry-no-instance": put("client_instance_id", value=uuid.UUID(int=0)),
    })  # fmt: skip
    yield Case("Heartbeat", 4, {"group_id": "g", "generation_id": 1, "member_id": "m"}, {"error_code": 27},
               {"error-of-another-api": put("error_code", value=45)})  # fmt: skip
    failed = {
        "responses": [
            {
                "topic": "orders",
                "partitions": [{"partition_index": 0, "error_code": 1, "high_watermark": -1, "records": b""}],
            }
        ]
    }
    yield Case("Fetch", 12, {"topics": [{"topic": "orders", "partitions": [{"partition": 0}]}]}, failed, {
        "error-out-of-place": lambda _, a: a.update(error_code=1, responses=[]),
    })  # fmt: skip


CASES: list[Case] = [*_metadata(), *_fetching(), *_producing(), *_groups(), *_admin(), *_connections()]
