"""Public reports about groups, share groups, administration and authentication: the first finding is the cause, and a nearly
identical conversation without the problem has nothing above low."""

from __future__ import annotations

from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder.codec.payload import encode
from barnabas.decoder.findings import Finding, Severity
from barnabas.decoder.schema import facts
from traffic.conversations import Conversations
from traffic.unusual_messages import BATCH

GROUP = "billing"
TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"
Link = decoder.Connection


def error(name: str) -> int:
    return facts.error_code(name)


def named(talk: Conversations, software: str, version: str) -> Link:
    """A connection of a client that has said which software it is."""
    link = talk.open()
    name = {"client_software_name": software, "client_software_version": version}
    api_keys = [{"api_key": key, "min_version": 0, "max_version": 20} for key in range(90)]
    talk.ask(link, "ApiVersions", 3, name, {"error_code": 0, "api_keys": api_keys})
    return link


def above_info(talk: Conversations) -> list[Finding]:
    assert "detector-failed" not in {found.id for found in talk.findings()}
    return [found for found in talk.findings() if found.severity is not Severity.INFO]


def cause(talk: Conversations) -> Finding:
    return above_info(talk)[0]


def is_healthy(talk: Conversations) -> bool:
    return all(found.severity.rank <= Severity.LOW.rank for found in talk.findings())


def metadata(
    talk: Conversations, link: Link, version: int = 12, controller: int = 1, brokers: tuple[int, ...] = (1,), partitions: int = 2
) -> None:
    rows = [{"partition_index": n, "leader_id": 1, "leader_epoch": 3, "replica_nodes": [1], "isr_nodes": [1]} for n in range(partitions)]
    topic: dict[str, Any] = {"error_code": 0, "name": "orders", "partitions": rows}
    if version >= 10:
        topic["topic_id"] = TOPIC_ID
    else:
        topic["partitions"] = [{k: v for k, v in row.items() if k != "leader_epoch"} for row in rows]
    nodes = [{"node_id": n, "host": f"10.0.0.{n}", "port": 9092} for n in brokers]
    answer = {"brokers": nodes, "cluster_id": "c1", "controller_id": controller, "topics": [topic]}
    talk.ask(link, "Metadata", version, {"topics": [{"name": "orders"}]}, answer)


# Heartbeats of the newer group protocols


def beat(
    talk: Conversations, link: Link, epoch: int, refused: str = "NONE", said: str | None = None, api: str = "ConsumerGroupHeartbeat",
    version: int = 0, **more: Any,
) -> None:  # fmt: skip
    asked: dict[str, Any] = {"group_id": GROUP, "member_id": "m-1", "member_epoch": epoch, **more}
    if epoch == 0 and api == "ConsumerGroupHeartbeat":
        asked |= {"rebalance_timeout_ms": 300_000, "subscribed_topic_names": ["orders"], "topic_partitions": []}
    answer = {"error_code": error(refused), "error_message": said, "member_id": "m-1", "member_epoch": epoch or 7}
    if refused == "NONE":
        answer["heartbeat_interval_ms"] = 5000
    talk.ask(link, api, version, asked, answer)
    talk.wait(3)


def test_a_group_that_is_gone_while_its_member_sends_the_same_epoch() -> None:
    # librdkafka#5485
    talk = Conversations()
    link = named(talk, "librdkafka", "2.14.2")
    beat(talk, link, 7)
    for _ in range(30):
        beat(talk, link, 7, "GROUP_ID_NOT_FOUND", "Group billing not found.")
    found = cause(talk)
    assert (found.id, found.severity) == ("unknown-member", Severity.HIGH)
    assert "no longer has group 'billing'" in found.seen and "sent the same member epoch (7) again 29 times" in found.seen
    assert "The broker says: Group billing not found." in found.seen
    assert "client's fault" in found.why and "librdkafka#5485" in found.seen and "own id" not in found.remedy


def test_a_member_that_joins_again_after_its_group_was_lost_is_healthy() -> None:
    talk = Conversations()
    link = named(talk, "librdkafka", "2.14.3")
    beat(talk, link, 7)
    beat(talk, link, 7, "GROUP_ID_NOT_FOUND", "Group billing not found.")
    for epoch in (0, 7, 7, 7):
        beat(talk, link, epoch)
    assert is_healthy(talk)


def test_a_client_of_another_group_type_is_still_told_so() -> None:
    talk = Conversations()
    link = named(talk, "apache-kafka-java", "4.1.0")
    beat(talk, link, 0, "GROUP_ID_NOT_FOUND", "Group billing is not a consumer group.")
    found = cause(talk)
    assert found.id == "group-refused" and "another type" in found.why and "is not a consumer group" in found.seen


def test_a_member_that_joins_anew_and_is_refused_for_its_epoch_zero() -> None:
    talk = Conversations()
    link = named(talk, "apache-kafka-java", "3.9.1")
    beat(talk, link, 5)
    beat(talk, link, 5, "FENCED_MEMBER_EPOCH", version=1)
    for _ in range(12):
        beat(talk, link, 0, "FENCED_MEMBER_EPOCH", version=1)
    found = cause(talk)
    assert (found.id, found.severity) == ("unknown-member", Severity.HIGH)
    assert "member epoch 0" in found.seen and "broker's fault" in found.why
    assert "JoinGroup" not in f"{found.seen}{found.why}{found.remedy}" and "generation" not in found.seen


def test_a_fenced_member_that_is_let_in_again_is_healthy() -> None:
    talk = Conversations()
    link = named(talk, "apache-kafka-java", "3.9.1")
    beat(talk, link, 5)
    beat(talk, link, 5, "FENCED_MEMBER_EPOCH")
    for epoch in (0, 7, 7):
        beat(talk, link, epoch)
    assert is_healthy(talk)


def test_a_fenced_member_that_keeps_its_epoch() -> None:
    talk = Conversations()
    link = named(talk, "other", "1.0")
    for _ in range(5):
        beat(talk, link, 5, "FENCED_MEMBER_EPOCH")
    found = cause(talk)
    assert "sent the same member epoch (5) again 4 times" in found.seen and "client's fault" in found.why
    assert "join again with member epoch 0" in found.why


def test_a_member_that_is_removed_again_and_again() -> None:
    talk = Conversations()
    link = named(talk, "apache-kafka-java", "4.1.0")
    for epoch in (5, 6, 7, 8):
        beat(talk, link, epoch, "UNKNOWN_MEMBER_ID")
        beat(talk, link, 0)
    found = cause(talk)
    assert found.id == "unknown-member" and "removed again and again" in found.why


STREAMS = {"topology": {"epoch": 0, "subtopologies": []}, "active_tasks": [], "standby_tasks": [], "warmup_tasks": []}


def test_a_streams_member_with_an_instance_id_on_an_older_broker() -> None:
    # kafka#23486
    talk = Conversations()
    link = named(talk, "apache-kafka-java", "4.4.0")
    for _ in range(5):
        beat(talk, link, 0, "INVALID_REQUEST", "InstanceId is not supported.", "StreamsGroupHeartbeat",
             instance_id="host-1", rebalance_timeout_ms=1000, **STREAMS)  # fmt: skip
    found = cause(talk)
    assert (found.id, found.severity) == ("group-refused", Severity.HIGH)
    assert "The broker says: InstanceId is not supported." in found.seen and "'host-1'" in found.seen
    assert "4.4" in found.why and "group.protocol=streams" in found.why


def test_a_streams_member_with_an_instance_id_on_a_broker_that_takes_it_is_healthy() -> None:
    talk = Conversations()
    link = named(talk, "apache-kafka-java", "4.4.0")
    for epoch in (0, 7, 7):
        beat(talk, link, epoch, api="StreamsGroupHeartbeat", instance_id="host-1", rebalance_timeout_ms=1000, **STREAMS)
    assert is_healthy(talk)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"rebalance_timeout_ms": -1}, "without a rebalance timeout"),
        ({"topic_partitions": [{"topic_id": TOPIC_ID, "partitions": [0]}]}, "partitions of its own"),
        ({"subscribed_topic_names": None}, "without a subscription"),
        ({"instance_id": ""}, "instance id is empty"),
        ({"member_id": ""}, "member id is empty"),
        ({"member_epoch": -1}, "joins (with a subscription) and leaves"),
    ],
)
def test_heartbeats_that_a_coordinator_does_not_accept(change: dict[str, Any], what: str) -> None:
    talk = Conversations()
    link = named(talk, "own-client", "0.1")
    asked = {"group_id": GROUP, "member_id": "m-1", "member_epoch": 0, "rebalance_timeout_ms": 1000,
             "subscribed_topic_names": ["orders"], "topic_partitions": []} | change  # fmt: skip
    talk.ask(link, "ConsumerGroupHeartbeat", 1, asked, {"error_code": 42, "error_message": "what is wrong"})
    found = cause(talk)
    assert found.id == "group-refused" and what in found.seen and "The broker says: what is wrong" in found.seen


# REBOOTSTRAP_REQUIRED


def sent_away(talk: Conversations, link: Link) -> None:
    answer = {"brokers": [], "cluster_id": None, "controller_id": -1, "topics": [], "error_code": 129}
    talk.ask(link, "Metadata", 13, {"topics": [{"name": "orders"}]}, answer, client_id="rdkafka")
    talk.wait(1)


def test_a_client_that_ignores_rebootstrap_required() -> None:
    # librdkafka#5605
    talk = Conversations()
    link = named(talk, "librdkafka", "2.14.1")
    for _ in range(12):
        sent_away(talk, link)
    found = cause(talk)
    assert (found.id, found.severity) == ("rebootstrap-ignored", Severity.HIGH)
    assert "told to rebootstrap" in found.seen and "12 times" in found.seen and "keeps its connections" in found.seen
    assert "librdkafka#5605" in found.seen and "fault is the client's" in found.why


def test_a_client_that_obeys_is_healthy_and_one_that_is_sent_away_each_time_is_not_at_fault() -> None:
    talk = Conversations()
    for rounds in range(1, 8):
        link = named(talk, "apache-kafka-java", "4.1.0")
        sent_away(talk, link)
        talk.close(link)
        if rounds == 2:
            assert is_healthy(talk)
    found = cause(talk)
    assert found.id == "rebootstrap-ignored" and "got to the same broker" in found.seen and "not the client's" in found.why


# Share groups


def share(
    talk: Conversations, link: Link, epoch: int, refused: str = "NONE", acknowledge: tuple[int, int] | None = None,
    given: tuple[int, int] | None = None,
) -> None:  # fmt: skip
    """`given`: offset and delivery count."""
    batches = [{"first_offset": acknowledge[0], "last_offset": acknowledge[1], "acknowledge_types": [2]}] if acknowledge else []
    partition = {"partition_index": 0, "acknowledgement_batches": batches}
    asked = {"group_id": GROUP, "member_id": "m-1", "share_session_epoch": epoch, "max_wait_ms": 500, "min_bytes": 1,
             "max_bytes": 1000, "max_records": 500, "batch_size": 500,
             "topics": [{"topic_id": TOPIC_ID, "partitions": [partition]}]}  # fmt: skip
    acquired = [{"first_offset": given[0], "last_offset": given[0], "delivery_count": given[1]}] if given else []
    rows = [{"partition_index": 0, "records": BATCH, "acquired_records": acquired}] if given else []
    answer = {"error_code": error(refused), "acquisition_lock_timeout_ms": 30_000,
              "responses": [{"topic_id": TOPIC_ID, "partitions": rows}] if rows else []}  # fmt: skip
    talk.ask(link, "ShareFetch", 1, asked, answer)


def test_a_share_session_that_begins_with_acknowledgements() -> None:
    # KAFKA-19485
    talk = Conversations()
    link = named(talk, "apache-kafka-java", "4.1.0")
    share(talk, link, 0, given=(0, 1))
    share(talk, link, 1, "SHARE_SESSION_NOT_FOUND", (0, 2))
    for _ in range(6):
        talk.wait(0.5)
        share(talk, link, 0, "INVALID_REQUEST", (0, 2))
    found = cause(talk)
    assert (found.id, found.severity) == ("share-session-begins-wrongly", Severity.HIGH)
    assert "(epoch 0) with acknowledgements" in found.seen and "SHARE_SESSION_NOT_FOUND" in found.seen
    assert "KAFKA-19485" in found.why and "4.1.1" in found.remedy


def test_a_share_session_that_begins_without_is_healthy() -> None:
    talk = Conversations()
    link = named(talk, "apache-kafka-java", "4.1.1")
    share(talk, link, 1, "SHARE_SESSION_NOT_FOUND", (0, 2))
    share(talk, link, 0, given=(0, 2))
    share(talk, link, 1, acknowledge=(0, 0))
    assert is_healthy(talk)


def deliveries(talk: Conversations, count: int, acknowledge: bool = False) -> None:
    link = named(talk, "apache-kafka-java", "4.2.0")
    metadata(talk, link)
    for number in range(count):
        share(talk, link, number, acknowledge=(41, 41) if acknowledge and number else None, given=(41, number + 1))
        talk.wait(31)


def test_a_poison_record_of_a_share_group() -> None:
    # KIP-932
    talk = Conversations()
    deliveries(talk, 5)
    found = cause(talk)
    assert (found.id, found.severity) == ("share-record-delivered-again", Severity.HIGH)
    assert "record orders-0@41 is delivered for the 5th time" in found.seen and "nobody acknowledged it" in found.seen
    assert "poison record" in found.why and "group.share.delivery.count.limit" in found.why


def test_a_record_that_is_released_each_time_is_told_apart() -> None:
    talk = Conversations()
    deliveries(talk, 5, acknowledge=True)
    found = cause(talk)
    assert found.severity is Severity.MEDIUM and "3 requests acknowledged it" in found.seen and "poison" not in found.why


def test_a_second_delivery_is_healthy() -> None:
    talk = Conversations()
    deliveries(talk, 2)
    assert above_info(talk) == []


# Classic members

SUBSCRIPTION = bytes(2) + encode("ConsumerProtocolSubscription", 0, {"topics": ["orders"], "user_data": None})

class Member:
    """A member of a classic group."""

    def __init__(self, talk: Conversations, partitions: int = 2) -> None:
        self.talk = talk
        self.group = named(talk, "librdkafka", "1.4.4")
        self.reads = named(talk, "librdkafka", "1.4.4")
        metadata(talk, self.reads, partitions=partitions)

    def join(self, generation: int, *partitions: int) -> None:
        asked = {"group_id": GROUP, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 300_000, "member_id": "m-1",
                 "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": SUBSCRIPTION}]}  # fmt: skip
        joined = {"error_code": 0, "generation_id": generation, "protocol_name": "range", "leader": "m-2", "member_id": "m-1"}
        self.talk.ask(self.group, "JoinGroup", 5, asked, joined)
        given = {"assigned_partitions": [{"topic": "orders", "partitions": list(partitions)}], "user_data": None}
        self.talk.ask(self.group, "SyncGroup", 3, {"group_id": GROUP, "generation_id": generation, "member_id": "m-1"},
                      {"error_code": 0, "assignment": bytes(2) + encode("ConsumerProtocolAssignment", 0, given)})  # fmt: skip

    def beat(self, generation: int, refused: str = "NONE") -> None:
        asked = {"group_id": GROUP, "generation_id": generation, "member_id": "m-1"}
        self.talk.ask(self.group, "Heartbeat", 3, asked, {"error_code": error(refused)})

    def fetch(self, *partitions: int) -> None:
        rows = [{"partition": n, "fetch_offset": 10, "partition_max_bytes": 1 << 20} for n in partitions]
        back = [{"partition_index": n, "error_code": 0, "high_watermark": 10, "last_stable_offset": 10, "log_start_offset": 0,
                 "records": b""} for n in partitions]  # fmt: skip
        asked = {"replica_id": -1, "max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20,
                 "topics": [{"topic": "orders", "partitions": rows}]}  # fmt: skip
        self.talk.ask(self.reads, "Fetch", 11, asked, {"responses": [{"topic": "orders", "partitions": back}]}, took=0.5)

    def commit(self, generation: int, *partitions: int, refused: str = "NONE", offset: int = 10, took: float = 0.001) -> None:
        rows = [{"partition_index": n, "committed_offset": offset} for n in partitions]
        asked = {"group_id": GROUP, "generation_id_or_member_epoch": generation, "member_id": "m-1",
                 "topics": [{"name": "orders", "partitions": rows}]}  # fmt: skip
        back = [{"partition_index": n, "error_code": error(refused)} for n in partitions]
        self.talk.ask(self.group, "OffsetCommit", 9, asked, {"topics": [{"name": "orders", "partitions": back}]}, took)


def rebalanced(talk: Conversations) -> Member:
    """A member that read, has gone through a rebalance, and whose commit met it."""
    member = Member(talk)
    member.join(1, 0, 1)
    for _ in range(6):
        member.fetch(0, 1)
        talk.wait(0.5)
    member.beat(1, "REBALANCE_IN_PROGRESS")
    member.join(2, 0)
    member.commit(1, 0, refused="ILLEGAL_GENERATION")
    return member


def test_a_member_that_sends_heartbeats_and_reads_nothing() -> None:
    talk = Conversations()
    member = rebalanced(talk)
    for _ in range(100):
        talk.wait(3)
        member.beat(2)
    found = cause(talk)
    assert (found.id, found.severity) == ("stalled-member", Severity.MEDIUM)
    assert "sent heartbeats for 5 min and no Fetch since it got orders-0" in found.seen
    assert "stale-commit" in found.effects


def test_a_member_that_fetches_after_the_rebalance_is_healthy() -> None:
    talk = Conversations()
    member = rebalanced(talk)
    for _ in range(100):
        talk.wait(3)
        member.beat(2)
        member.fetch(0)
        member.commit(2, 0)
    assert is_healthy(talk)


def test_fetches_that_the_capture_would_not_show_are_not_missed() -> None:
    # the leader of a partition is a broker without a connection in the capture
    talk = Conversations(broker="10.0.0.2:9092")
    member = Member(talk)
    member.join(1, 0)
    for _ in range(100):
        talk.wait(3)
        member.beat(1)
    assert above_info(talk) == []


def test_a_commit_that_meets_a_rebalance_and_is_made_good() -> None:
    talk = Conversations()
    member = Member(talk, 4)
    member.join(1, 0, 1, 2, 3)
    member.commit(1, 0, 1, 2, 3)
    member.beat(1, "REBALANCE_IN_PROGRESS")
    member.join(2, 0, 1)
    member.commit(1, 0, 1, 2, 3, refused="ILLEGAL_GENERATION")
    member.beat(2)
    assert cause(talk).severity is Severity.MEDIUM
    talk.wait(0.9)
    member.commit(2, 0, 1)
    assert is_healthy(talk)
    (found,) = [found for found in talk.findings() if found.id == "stale-commit"]
    assert "its next commit, 901 ms later" in found.seen or "its next commit, 900 ms later" in found.seen


def test_a_commit_that_does_not_cover_what_the_member_kept_makes_nothing_good() -> None:
    talk = Conversations()
    member = Member(talk, 4)
    member.join(1, 0, 1, 2, 3)
    member.join(2, 0, 1)
    member.commit(1, 0, 1, 2, 3, refused="ILLEGAL_GENERATION")
    member.commit(2, 0)
    assert (cause(talk).id, cause(talk).severity) == ("stale-commit", Severity.MEDIUM)


@pytest.mark.parametrize("again", [False, True])
def test_committed_offsets_that_could_not_be_read(again: bool) -> None:
    # platformatic/kafka#267
    talk = Conversations()
    member = Member(talk)
    asked = {"groups": [{"group_id": GROUP, "member_id": "m-1", "member_epoch": 3, "topics": None}]}
    rows = [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 7}]}]
    talk.ask(member.group, "OffsetFetch", 9, asked, {"groups": [{"group_id": GROUP, "error_code": error("STALE_MEMBER_EPOCH")}]})
    if again:
        talk.ask(member.group, "OffsetFetch", 9, asked, {"groups": [{"group_id": GROUP, "error_code": 0, "topics": rows}]})
    partition = {"partition_index": 0, "timestamp": -1}
    talk.ask(member.reads, "ListOffsets", 5, {"replica_id": -1, "topics": [{"name": "orders", "partitions": [partition]}]},
             {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "offset": 50}]}]})  # fmt: skip
    for _ in range(10):
        talk.wait(1)
        member.fetch(0)
    if again:
        assert is_healthy(talk)
        return
    found = cause(talk)
    assert (found.id, found.severity) == ("committed-offsets-ignored", Severity.HIGH)
    assert "refused with STALE_MEMBER_EPOCH" in found.seen and "the end of orders-0" in found.seen and "are skipped" in found.why


@pytest.mark.parametrize(
    ("generations", "overlap", "what"),
    [((1, 1), True, "overtake each other"), ((1, 2), False, "a rebalance in between"), ((1, 1), False, "sought back")],
)
def test_why_a_committed_offset_went_back(generations: tuple[int, int], overlap: bool, what: str) -> None:
    talk = Conversations("commit-backwards")
    member = Member(talk)
    member.join(generations[0], 0)
    member.commit(generations[0], 0, offset=20, took=1.0 if overlap else 0.001)
    talk.wait(0.5)
    if generations[1] > generations[0]:
        member.join(generations[1], 0)
    member.commit(generations[1], 0, offset=15, took=1.0)
    (found,) = talk.findings()
    assert what in found.why and "5 lower" in found.seen


# Coordinators


def no_coordinator(brokers: tuple[int, ...]) -> Finding:
    talk = Conversations()
    link = named(talk, "apache-kafka-java", "4.1.0")
    metadata(talk, link, brokers=brokers)
    for _ in range(30):
        answer = {"coordinators": [{"key": GROUP, "node_id": -1, "host": "", "port": -1, "error_code": 15}]}
        talk.ask(link, "FindCoordinator", 4, {"key_type": 0, "coordinator_keys": [GROUP]}, answer)
        talk.wait(1)
    return cause(talk)


def test_a_cluster_with_too_few_brokers_for_the_offsets_topic() -> None:
    # xtdb#5632
    found = no_coordinator((1,))
    assert found.id == "coordinator-unavailable" and "Metadata names 1 broker" in found.seen
    assert "offsets.topic.replication.factor=1" in found.remedy


def test_a_cluster_with_enough_brokers_is_not_blamed_for_their_number() -> None:
    found = no_coordinator((1, 2, 3))
    assert found.id == "coordinator-unavailable" and "replication.factor=" not in found.remedy and "no broker leads" in found.why


@pytest.mark.parametrize(
    ("refused", "asks", "what"),
    [
        ("COORDINATOR_LOAD_IN_PROGRESS", False, "still reads the group's partition"),
        ("NOT_COORDINATOR", False, "did not ask for the coordinator"),
        ("NOT_COORDINATOR", True, "FindCoordinator names this very broker"),
    ],
)
def test_a_coordinator_that_does_not_serve_its_group(refused: str, asks: bool, what: str) -> None:
    # librdkafka#2944: the broker that FindCoordinator names denies it
    talk = Conversations()
    member = Member(talk)
    for _ in range(20):
        member.beat(1, refused)
        if asks:
            here = {"node_id": 1, "host": "10.0.0.1", "port": 9092, "error_code": 0}
            talk.ask(member.group, "FindCoordinator", 3, {"key": GROUP, "key_type": 0}, here)
        talk.wait(2)
    found = cause(talk)
    assert found.id == "coordinator-unavailable" and what in f"{found.seen}{found.why}"


# Administration


def create(talk: Conversations, link: Link, refused: str, topic: str = "new-topic", said: str | None = None) -> None:
    asked = {"topics": [{"name": topic, "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 1000}
    answer = {"topics": [{"name": topic, "error_code": error(refused), "error_message": said}]}
    talk.ask(link, "CreateTopics", 3, asked, answer)
    talk.wait(1)


def test_topics_that_are_created_at_a_broker_that_is_not_the_controller() -> None:
    talk = Conversations()
    link = talk.open()
    metadata(talk, link, 5, controller=3, brokers=(1, 3))
    for _ in range(5):
        create(talk, link, "NOT_CONTROLLER", said="This is not the correct controller for this cluster.")
    found = cause(talk)
    assert (found.id, found.severity) == ("admin-request-refused", Severity.HIGH)
    assert "NOT_CONTROLLER 5 times" in found.seen and "Metadata names broker 3 (10.0.0.3:9092) as the controller" in found.seen
    assert "not asked for it anew" in found.seen and "not the correct controller" in found.seen


def test_a_client_that_never_looks_for_the_controller() -> None:
    talk = Conversations()
    link = talk.open()
    asked = {"topics": [{"name": "new-topic", "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 1000}
    talk.ask(link, "CreateTopics", 2, asked, {"topics": [{"name": "new-topic", "error_code": 41}]})
    found = cause(talk)
    assert found.id == "admin-request-refused" and "did not ask for Metadata" in found.seen


@pytest.mark.parametrize(("controller", "what"), [(-1, "names no controller"), (1, "names this very broker")])
def test_a_cluster_that_has_no_controller_or_contradicts_itself(controller: int, what: str) -> None:
    talk = Conversations()
    link = talk.open()
    metadata(talk, link, 5, controller=controller)
    create(talk, link, "NOT_CONTROLLER")
    assert what in cause(talk).seen


def test_a_client_that_finds_the_controller_is_healthy() -> None:
    talk = Conversations()
    link = named(talk, "apache-kafka-java", "2.8.0")
    metadata(talk, link, 9, controller=3, brokers=(1, 3))
    create(talk, link, "NOT_CONTROLLER")
    metadata(talk, link, 9, controller=3, brokers=(1, 3))
    other = talk.open("10.0.0.3:9092")
    talk.ask(other, "ApiVersions", 3, {"client_software_name": "apache-kafka-java", "client_software_version": "2.8.0"},
             {"error_code": 0, "api_keys": []})  # fmt: skip
    create(talk, other, "NONE")
    assert "admin-request-refused" not in {found.id for found in talk.findings()}


@pytest.mark.parametrize(
    ("api", "version", "refused", "severity"),
    [
        ("CreateTopics", 5, "REQUEST_TIMED_OUT", "medium"),
        ("DeleteTopics", 5, "UNKNOWN_TOPIC_OR_PARTITION", "low"),
        ("ElectLeaders", 2, "PREFERRED_LEADER_NOT_AVAILABLE", "medium"),
        ("DeleteGroups", 2, "NON_EMPTY_GROUP", "medium"),
        ("CreateTopics", 5, "TOPIC_ALREADY_EXISTS", None),
        ("ElectLeaders", 2, "ELECTION_NOT_NEEDED", None),
    ],
)
def test_refusals_that_were_the_last_word(api: str, version: int, refused: str, severity: str | None) -> None:
    code = error(refused)
    talks = {
        "CreateTopics": ({"topics": [{"name": "t"}], "timeout_ms": 1}, {"topics": [{"name": "t", "error_code": code}]}),
        "DeleteTopics": ({"topic_names": ["t"], "timeout_ms": 1}, {"responses": [{"name": "t", "error_code": code}]}),
        "ElectLeaders": (
            {"election_type": 0, "topic_partitions": [{"topic": "t", "partitions": [0]}], "timeout_ms": 1},
            {"replica_election_results": [{"topic": "t", "partition_result": [{"partition_id": 0, "error_code": code}]}]},
        ),
        "DeleteGroups": ({"groups_names": ["g"]}, {"results": [{"group_id": "g", "error_code": code}]}),
    }
    asked, answer = talks[api]
    talk = Conversations("admin-request-refused", "unexplained-error")
    talk.ask(named(talk, "apache-kafka-java", "4.1.0"), api, version, asked, answer)
    found = talk.findings()
    assert [str(each.severity) for each in found] == ([severity] if severity else [])
    assert all(refused in each.seen and each.id == "admin-request-refused" and "try again" in each.seen for each in found)


# Authentication


def login(talk: Conversations, link: Link, said: str | None = None, mechanism: str = "OAUTHBEARER", data: bytes = b"*" * 19) -> None:
    talk.ask(link, "SaslHandshake", 1, {"mechanism": mechanism}, {"error_code": 0, "mechanisms": [mechanism]})
    authenticate(talk, link, data, said)


def authenticate(talk: Conversations, link: Link, data: bytes, said: str | None = None) -> None:
    answer = {"error_code": 58 if said else 0, "error_message": said, "session_lifetime_ms": 0 if said else 900_000}
    talk.ask(link, "SaslAuthenticate", 2, {"auth_bytes": data}, answer)
    talk.wait(860)


def test_a_token_that_lives_too_short_for_another_session() -> None:
    talk = Conversations()
    link = named(talk, "apache-kafka-java", "3.9.1")
    login(talk, link)
    login(talk, link)
    login(talk, link, "[00000000-0000-0000-0000-000000000001]: Session too short")
    found = cause(talk)
    assert (found.id, found.severity) == ("sasl-authentication-failed", Severity.HIGH)
    assert "2 logins on this connection worked before" in found.seen and "too little of its life left" in found.why
    assert "issuer" not in found.why.split("A refused")[0] and "refresh" in found.remedy


def test_logins_that_are_renewed_are_healthy() -> None:
    talk = Conversations("sasl-authentication-failed", "sasl-session-expired", "sasl-out-of-turn")
    link = named(talk, "apache-kafka-java", "3.9.1")
    for _ in range(3):
        login(talk, link)
    assert talk.findings() == []


def test_a_token_that_is_refused_at_once_is_compared_with_the_settings() -> None:
    talk = Conversations("sasl-authentication-failed")
    login(talk, named(talk, "apache-kafka-java", "3.9.1"), "invalid_token")
    assert "issuer, audience" in cause(talk).why and "sasl.oauthbearer.expected.issuer" in cause(talk).remedy


@pytest.mark.parametrize(("rounds", "what"), [(1, "has no SCRAM-SHA-512"), (2, "the password is wrong")])
def test_the_step_at_which_scram_fails_tells_the_user_from_the_password(rounds: int, what: str) -> None:
    talk = Conversations("sasl-authentication-failed")
    link = named(talk, "apache-kafka-java", "3.9.1")
    talk.ask(link, "SaslHandshake", 1, {"mechanism": "SCRAM-SHA-512"}, {"error_code": 0, "mechanisms": ["SCRAM-SHA-512"]})
    if rounds == 2:
        authenticate(talk, link, b"n,,n=alice,r=abcdefgh")
    authenticate(talk, link, b"c=biws,r=abcdefgh,p=xxxx" if rounds == 2 else b"n,,n=alice,r=abcdefgh", "invalid credentials")
    assert what in cause(talk).why


# Authorization


@pytest.mark.parametrize(("user", "shown"), [("alice", "principal User:alice"), ("", "principal User:ANONYMOUS")])
def test_a_denied_request_names_the_principal(user: str, shown: str) -> None:
    talk = Conversations("authorization-failed")
    link = named(talk, "apache-kafka-java", "3.9.1")
    if user:
        login(talk, link, mechanism="PLAIN", data=f"\0{user}\0secret".encode())
    asked = {"groups": [{"group_id": GROUP, "topics": None}]}
    talk.ask(link, "OffsetFetch", 9, asked, {"groups": [{"group_id": GROUP, "error_code": error("GROUP_AUTHORIZATION_FAILED")}]})
    found = cause(talk)
    assert shown in found.seen and f"User:{user or 'ANONYMOUS'}" in found.remedy and "secret" not in str(found)


def test_a_denied_topic_that_metadata_showed_exists() -> None:
    def why(known: bool) -> str:
        talk = Conversations("authorization-failed")
        link = named(talk, "apache-kafka-java", "3.9.1")
        if known:
            metadata(talk, link)
        answer = {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "error_code": 29}]}]}
        request = {"replica_id": -1, "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "timestamp": -1}]}]}
        talk.ask(link, "ListOffsets", 5, request, answer)
        return cause(talk).why

    assert "does not exist" in why(False) and "does not exist" not in why(True)


# What brokers say


def test_a_broker_s_message_is_shown_without_secrets() -> None:
    talk = Conversations()
    link = named(talk, "apache-kafka-java", "4.1.0")
    asked = {"resources": [{"resource_type": 4, "resource_name": "1", "configs": [{"name": "x.password", "value": "hunter2abc"}]}]}
    said = "Invalid value hunter2abc for configuration x.password: too short"
    rows = [{"resource_type": 4, "resource_name": "1", "error_code": error("INVALID_CONFIG"), "error_message": said}]
    talk.ask(link, "IncrementalAlterConfigs", 1, asked, {"responses": rows})
    found = cause(talk)
    assert "The broker says: Invalid value *** for configuration x.password" in found.seen and "hunter2abc" not in str(found.seen)


def test_a_refused_topic_is_shown_without_secrets() -> None:
    talk = Conversations()
    link = named(talk, "apache-kafka-java", "2.0.0")
    values = {"cleanup.policy": "compact", "min.insync.replicas": "password=hunter2abc", "x.password": "hunter3abc", "x.y": "hunter4abc"}
    configs = [{"name": name, "value": value} for name, value in values.items()]
    asked = {"topics": [{"name": "a", "num_partitions": 25, "replication_factor": 1, "configs": configs}], "timeout_ms": 1000}
    talk.ask(link, "CreateTopics", 2, asked, {"topics": [{"name": "a", "error_code": error("POLICY_VIOLATION")}]})
    found = cause(talk)
    assert found.id == "topic-creation-refused" and "25 partitions, 1 replica, cleanup.policy=compact)" in found.remedy
    assert "hunter" not in str(found.to_dict())


def test_the_message_is_that_of_the_error_and_is_shortened() -> None:
    talk = Conversations()
    link = named(talk, "apache-kafka-java", "4.1.0")
    asked = {"topics": [{"name": name, "num_partitions": 1, "replication_factor": 9} for name in ("a", "b")], "timeout_ms": 1000}
    rows = [{"name": "a", "error_code": error("TOPIC_ALREADY_EXISTS"), "error_message": "Topic 'a' already exists."},
            {"name": "b", "error_code": error("INVALID_REPLICATION_FACTOR"), "error_message": "only 3 brokers " * 40}]  # fmt: skip
    talk.ask(link, "CreateTopics", 5, asked, {"topics": rows})
    found = cause(talk)
    said = found.seen.partition("The broker says: ")[2]
    assert said.startswith("only 3 brokers") and len(said) == 200 and "already exists" not in found.seen
    assert [each.seen for each in talk.findings()] == [each.seen for each in talk.findings()]
