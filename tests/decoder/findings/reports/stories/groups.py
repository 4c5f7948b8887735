"""Stories of consumer groups."""

from __future__ import annotations

from traffic.conversations import Conversations

from .telling import LATER, Story, Talk, assignment, librdkafka, subscription, topic


def range_meets_cooperative() -> Conversations:
    talk = Talk("kgo", "v1.19.5", release="3.8", client_id="otel-collector")
    for _ in range(6):
        conn = talk.meet()
        talk.metadata(conn, [topic()])
        talk.coordinator(conn, "otel", version=4)
        body = {
            "group_id": "otel", "session_timeout_ms": 45000, "rebalance_timeout_ms": 60000, "protocol_type": "consumer",
            "protocols": [{"name": "cooperative-sticky", "metadata": subscription(["orders"])}],
        }  # fmt: skip
        talk.ask(
            conn,
            "JoinGroup",
            7,
            body,
            {"error_code": 23, "generation_id": -1, "protocol_name": "", "leader": "", "member_id": ""},
        )
        talk.wait(0.25)
        talk.close(conn)
        talk.wait(LATER)
    return talk


def subscription_that_ends_early() -> Conversations:
    talk = Talk("kgo", "v1.13.4", release="2.6", client_id="kgo")
    other = subscription(["orders"], 1, owned=False)
    mine = subscription(["orders"], 1)
    conn = talk.meet()
    talk.metadata(conn, [topic()], version=7)
    talk.coordinator(conn, "results", version=3)
    ask = {
        "group_id": "results", "session_timeout_ms": 45000, "rebalance_timeout_ms": 60000, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": mine}],
    }  # fmt: skip
    for generation in range(7, 13):
        talk.ask(
            conn,
            "JoinGroup",
            6,
            ask,
            {
                "error_code": 79,
                "generation_id": -1,
                "protocol_name": "",
                "leader": "",
                "member_id": f"kgo-{generation}",
            },
        )
        members = [
            {"member_id": f"kgo-{generation}", "metadata": mine},
            {"member_id": "main@host (github.com/segmentio/kafka-go)-2b", "metadata": other},
        ]
        talk.ask(
            conn, "JoinGroup", 6, ask | {"member_id": f"kgo-{generation}"},
            {
                "generation_id": generation, "protocol_name": "range", "leader": f"kgo-{generation}",
                "member_id": f"kgo-{generation}", "members": members,
            }, took=1.2,
        )  # fmt: skip
        left = {"group_id": "results", "members": [{"member_id": f"kgo-{generation}", "group_instance_id": None}]}
        talk.ask(
            conn, "LeaveGroup", 4, left, {"members": [{"member_id": f"kgo-{generation}", "group_instance_id": None}]}
        )
        talk.wait(0.25 * (generation - 6))
    talk.close(conn)
    return talk


def coordinator_that_is_none() -> Conversations:
    talk = librdkafka("1.4.2", release="2.4", client_id="rdkafka")
    three = ((0, "10.0.0.1", 9094), (1, "10.0.0.2", 9094), (2, "10.0.0.3", 9094))
    asked = talk.meet("10.0.0.3:9094")
    talk.metadata(asked, [topic(leader=2, nodes=(0, 1, 2))], three)
    talk.coordinator(asked, "testconsumer", three[0])
    named = talk.meet("10.0.0.1:9094")
    body = {
        "group_id": "testconsumer", "session_timeout_ms": 10000, "rebalance_timeout_ms": 300000, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription(["orders"])}],
    }  # fmt: skip
    for _ in range(60):
        talk.ask(
            named,
            "JoinGroup",
            5,
            body,
            {"error_code": 16, "generation_id": -1, "protocol_name": "", "leader": "", "member_id": ""},
        )
        talk.coordinator(asked, "testconsumer", three[0])
        talk.wait(0.5)
    talk.close(named)
    talk.close(asked)
    return talk


def instance_fenced_after_a_restart() -> Conversations:
    talk = librdkafka("1.4.0", release="2.3", client_id="rdkafka")
    body = {
        "group_id": "0", "session_timeout_ms": 6000, "rebalance_timeout_ms": 6000, "protocol_type": "consumer",
        "group_instance_id": "1", "protocols": [{"name": "range", "metadata": subscription(["test"])}],
    }  # fmt: skip

    def join(member: str, generation: int) -> None:
        members = [{"member_id": member, "group_instance_id": "1", "metadata": subscription(["test"])}]
        talk.ask(conn, "JoinGroup", 5, body, {"generation_id": generation, "protocol_name": "range", "leader": member, "member_id": member, "members": members})  # fmt: skip
        sync = {"group_id": "0", "generation_id": generation, "member_id": member, "group_instance_id": "1"}
        mine = assignment("test", 0)
        talk.ask(
            conn,
            "SyncGroup",
            3,
            sync | {"assignments": [{"member_id": member, "assignment": mine}]},
            {"assignment": mine},
        )

    conn = talk.meet()
    talk.metadata(conn, [topic("test")], version=4)
    talk.coordinator(conn, "0")
    join("1-5a2c", 3)
    beat = {"group_id": "0", "generation_id": 3, "member_id": "1-5a2c", "group_instance_id": "1"}
    for _ in range(4):
        talk.ask(conn, "Heartbeat", 3, beat, {})
        talk.wait(2)
    talk.close(conn, by="broker")
    talk.wait(4)
    conn = talk.meet()
    talk.coordinator(conn, "0")
    join("1-77f0", 4)
    old = conn
    talk.wait(0.2)
    for _ in range(3):
        talk.ask(old, "Heartbeat", 3, beat, {"error_code": 82})
        talk.wait(2)
    talk.close(old)
    return talk


def session_timeout_above_an_old_limit() -> Conversations:
    talk = Talk(release="0.9.0", client_id="ruby-kafka")
    for _ in range(3):
        conn = talk.open()
        talk.coordinator(conn, "consumer-group", version=0)
        body = {
            "group_id": "consumer-group", "session_timeout_ms": 35000, "member_id": "", "protocol_type": "consumer",
            "protocols": [{"name": "standard", "metadata": subscription(["events"], 0)}],
        }  # fmt: skip
        talk.ask(conn, "JoinGroup", 0, body, {"error_code": 26, "generation_id": 0})
        talk.wait(1)
        talk.close(conn)
    return talk


def join_that_waits_too_long(waits: float = 600.003) -> Conversations:
    talk = Talk(release="0.10.0", client_id="rate")
    for _ in range(2):
        conn = talk.meet(version=0)
        talk.coordinator(conn, "rate", version=0)
        body = {
            "group_id": "rate", "session_timeout_ms": 3600000, "member_id": "", "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription(["orders"], 0)}],
        }  # fmt: skip
        talk.pipelined(conn, ("JoinGroup", 0, body))
        talk.wait(waits)
        talk.close(conn, by="broker")
        talk.wait(1)
    return talk


def offsets_that_are_never_used(fetches: bool = False) -> Conversations:
    talk = Talk("kgo", "v1.21.0", release="3.5", client_id="kgo")
    talk.offered |= {1: (0, 12), 3: (0, 9), 9: (0, 8), 10: (0, 4)}
    conn = talk.meet()
    talk.metadata(conn, [topic("usage")])
    talk.coordinator(conn, "usage-readers", version=4)
    other = talk.meet()
    mine, given = subscription(["usage"]), assignment("usage", 0)
    named = {"protocol_type": "consumer", "protocol_name": "cooperative-sticky"}
    for generation in range(76, 81):
        ask = {
            "group_id": "usage-readers", "session_timeout_ms": 45000, "rebalance_timeout_ms": 60000, "member_id": "kgo-33",
            "protocol_type": "consumer", "protocols": [{"name": "cooperative-sticky", "metadata": mine}],
        }  # fmt: skip
        members = [{"member_id": "kgo-33", "metadata": mine}]
        answer = named | {"generation_id": generation, "leader": "kgo-33", "member_id": "kgo-33", "members": members}
        talk.ask(other, "JoinGroup", 9, ask, answer, took=3.0)
        place = {"group_id": "usage-readers", "generation_id": generation, "member_id": "kgo-33"}
        talk.ask(
            other, "SyncGroup", 5, place | named | {"assignments": [{"member_id": "kgo-33", "assignment": given}]},
            named | {"assignment": given},
        )  # fmt: skip
        offset = {"partition_index": 0, "committed_offset": 120, "committed_leader_epoch": -1, "metadata": "", "error_code": 0}
        wanted = {"group_id": "usage-readers", "topics": [{"name": "usage", "partition_indexes": [0]}]}
        group = {"group_id": "usage-readers", "topics": [{"name": "usage", "partitions": [offset]}], "error_code": 0}
        talk.ask(other, "OffsetFetch", 8, {"groups": [wanted], "require_stable": True}, {"groups": [group]})
        if fetches:
            talk.fetch(conn, 120, b"", 120, "usage", 11)
        talk.wait(3)
    talk.close(other)
    talk.close(conn)
    return talk


def offsets_refused_once(asks_again: bool = False) -> Conversations:
    talk = librdkafka("2.11.0", release="3.9", client_id="rdkafka")
    two = ((1, "10.0.0.1", 9092), (2, "10.0.0.2", 9092))
    conn = talk.meet()
    talk.metadata(conn, [topic()], two, version=12)
    talk.coordinator(conn, "g", two[1])
    wanted = {"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [0]}], "require_stable": False}
    other = talk.meet("10.0.0.2:9092")
    talk.ask(other, "OffsetFetch", 7, wanted, {"topics": [], "error_code": 16})
    talk.coordinator(conn, "g", two[0])
    if asks_again:
        offset = {"partition_index": 0, "committed_offset": 5, "metadata": "", "error_code": 0}
        talk.ask(conn, "OffsetFetch", 7, wanted, {"topics": [{"name": "orders", "partitions": [offset]}], "error_code": 0})
    for _ in range(20):
        if asks_again:
            talk.fetch(conn, 5, b"", 5)
        talk.metadata(conn, [topic()], two, version=12)
        talk.wait(30)
    talk.close(conn)
    talk.close(other)
    return talk


def heartbeats_that_stop(while_it_fetches: bool = True) -> Conversations:
    talk = Talk(release="2.0", client_id="kafka-python-1.4.6")
    conn = talk.meet(version=0)
    talk.metadata(conn, [topic("debug")], version=1)
    talk.coordinator(conn, "group1", version=0)
    other = talk.meet(version=0)
    mine, given = subscription(["debug"], 0), assignment("debug", 0)
    ask = {
        "group_id": "group1", "session_timeout_ms": 10000, "rebalance_timeout_ms": 300000, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": mine}],
    }  # fmt: skip
    members = [{"member_id": "m", "metadata": mine}]
    talk.ask(other, "JoinGroup", 2, ask, {"generation_id": 3, "protocol_name": "range", "leader": "m", "member_id": "m", "members": members})
    place = {"group_id": "group1", "generation_id": 3, "member_id": "m"}
    talk.ask(other, "SyncGroup", 1, place | {"assignments": [{"member_id": "m", "assignment": given}]}, {"assignment": given})
    for _ in range(20):
        talk.ask(other, "Heartbeat", 1, place, {})
        talk.fetch(conn, 10, b"", 10, "debug", 4)
        talk.wait(2.5)
    for _ in range(200):
        if while_it_fetches:
            talk.fetch(conn, 10, b"", 10, "debug", 4)
        talk.wait(2.5)
    talk.ask(other, "Heartbeat", 1, place, {"error_code": 25})
    talk.close(conn)
    talk.close(other)
    return talk


def member_after_a_restart(comes_back: bool = False) -> Conversations:
    talk = Talk(release="1.0", client_id="aiokafka-0.1")
    conn = talk.meet(version=0)
    talk.metadata(conn, [topic()], version=1)
    talk.coordinator(conn, "mygroup", version=0)
    mine, given = subscription(["orders"], 0), assignment("orders", 0)
    ask = {
        "group_id": "mygroup", "session_timeout_ms": 30000, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": mine}],
    }  # fmt: skip
    members = [{"member_id": "m", "metadata": mine}]
    joined = {"generation_id": 1, "protocol_name": "range", "leader": "m", "member_id": "m", "members": members}
    place = {"group_id": "mygroup", "generation_id": 1, "member_id": "m"}

    def join() -> None:
        talk.ask(conn, "JoinGroup", 0, ask, joined)
        talk.ask(conn, "SyncGroup", 0, place | {"assignments": [{"member_id": "m", "assignment": given}]}, {"assignment": given})

    join()
    for _ in range(5):
        talk.ask(conn, "Heartbeat", 0, place, {})
        talk.fetch(conn, 0, b"", 0, version=4)
        talk.wait(3)
    talk.close(conn, by="broker")
    talk.wait(9)
    conn = talk.meet(version=0)
    for attempt in range(60):
        talk.metadata(conn, [topic()], version=1)
        talk.coordinator(conn, "mygroup", version=0)
        if comes_back and not attempt:
            join()
        if comes_back:
            talk.ask(conn, "Heartbeat", 0, place, {})
            talk.fetch(conn, 0, b"", 0, version=4)
        talk.wait(3)
    talk.close(conn)
    return talk


def member_id_that_is_not_used(joins: bool = False) -> Conversations:
    talk = librdkafka("1.6.1", release="2.7", client_id="rdkafka")
    conn = talk.meet()
    talk.metadata(conn, [topic()], version=4)
    talk.coordinator(conn, "g")
    mine, given = subscription(["orders"]), assignment("orders", 0)
    ask = {
        "group_id": "g", "session_timeout_ms": 10000, "rebalance_timeout_ms": 300000, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": mine}],
    }  # fmt: skip
    talk.ask(conn, "JoinGroup", 5, ask, {"error_code": 79, "generation_id": -1, "protocol_name": "", "leader": "", "member_id": "m"})
    place = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    if joins:
        members = [{"member_id": "m", "metadata": mine}]
        joined = {"generation_id": 1, "protocol_name": "range", "leader": "m", "member_id": "m", "members": members}
        talk.ask(conn, "JoinGroup", 5, ask | {"member_id": "m"}, joined)
        talk.ask(conn, "SyncGroup", 3, place | {"assignments": [{"member_id": "m", "assignment": given}]}, {"assignment": given})
    for _ in range(100):
        talk.metadata(conn, [topic()], version=4)
        if joins:
            talk.ask(conn, "Heartbeat", 3, place, {})
            talk.fetch(conn, 0, b"", 0)
        talk.wait(3)
    talk.close(conn)
    return talk


STORIES = (
    Story(
        "https://github.com/open-telemetry/opentelemetry-collector-contrib/issues/43868", "franz-go in the collector 0.118", "Kafka 3.8",
        "JoinGroup with cooperative-sticky alone: INCONSISTENT_GROUP_PROTOCOL; the members there have range",
        "this member offers cooperative-sticky alone, the others something else: set the same strategy (range) for all",
        range_meets_cooperative, frozenset({"inconsistent-group-protocol"}), (r"cooperative-sticky", r"otel", r"(?i)assign|strateg|balancer"),
    ),
    Story(
        "https://github.com/twmb/franz-go/issues/493", "franz-go 1.13.4 beside kafka-go", "Kafka 2.6",
        "the member of kafka-go has a subscription of version 1 that ends before owned_partitions; the leader leaves again and again",
        "kafka-go's member metadata says version 1 and lacks owned_partitions (kafka-go#1156): newer kafka-go or franz-go",
        subscription_that_ends_early, frozenset({"impossible-answer"}),
        (r"kafka-go", r"(?i)owned_?partitions|ends (early|before|after)|metadata",),
    ),
    Story(
        "https://github.com/confluentinc/librdkafka/issues/2944", "librdkafka 1.4.2", "Kafka 2.4 after a rolling update",
        "FindCoordinator names broker 0; JoinGroup there: NOT_COORDINATOR, 60 times in 30 s",
        "the brokers disagree on who coordinates the group: not the client; look at __consumer_offsets and the controller",
        coordinator_that_is_none, frozenset({"coordinator-unavailable"}),
        (r"NOT_COORDINATOR", r"(?i)names|sends .* there|itself", r"testconsumer"),
    ),
    Story(
        "https://github.com/bitnami/charts/issues/3141", "librdkafka 1.4.0 in confluent-kafka-go", "Kafka 2.3",
        "static instance 1 joins anew after a restart; a Heartbeat of its former member id: FENCED_INSTANCE_ID",
        "two members (1-5a2c and 1-77f0) use group.instance.id 1: one of them must end or have another",
        instance_fenced_after_a_restart, frozenset({"fenced-instance"}), (r"group\.instance\.id", r"'1'", r"FENCED_INSTANCE_ID"),
    ),
    Story(
        "https://github.com/zendesk/ruby-kafka/issues/186", "ruby-kafka", "Kafka 0.9",
        "JoinGroup v0 with a session timeout of 35 s: INVALID_SESSION_TIMEOUT",
        "the timeout is above this broker's group.max.session.timeout.ms, which was 30 s in Kafka 0.9",
        session_timeout_above_an_old_limit, frozenset({"group-refused"}), (r"35000", r"group\.max\.session\.timeout\.ms", r"30000"),
    ),
    Story(
        "https://github.com/confluentinc/librdkafka/issues/1374", "librdkafka 0.9.5", "Kafka 0.10.0",
        "JoinGroup v0 with a session timeout of one hour: no answer for 600 s, then the broker's FIN",
        "the group waits for a member that does not join; the broker ends the connection as idle (connections.max.idle.ms)",
        join_that_waits_too_long, frozenset({"closed-without-answer"}), (r"JoinGroup", r"10 min", r"connections\.max\.idle\.ms", r"session"),
    ),
    Story(
        "https://github.com/twmb/franz-go/issues/1312", "franz-go 1.21.0", "Azure Event Hubs",
        "JoinGroup, SyncGroup and OffsetFetch v8 are answered without an error, again and again; no Fetch",
        "the client finds fault with offsets that come without topic ids, and joins again; fixed in 1.21.1",
        offsets_that_are_never_used, frozenset({"joins-without-fetching"}), (r"usage-0", r"no Fetch", r"1\.21\.1"),
    ),
    Story(
        "https://github.com/confluentinc/librdkafka/issues/5586", "librdkafka 2.11", "Apache Kafka",
        "OffsetFetch is refused with NOT_COORDINATOR once; FindCoordinator names another broker; neither OffsetFetch nor Fetch follows",
        "the client never asks for its offsets again, so it never fetches: its fault",
        offsets_refused_once, frozenset({"committed-offsets-ignored"}), (r"NOT_COORDINATOR", r"neither asked again nor fetched", r"client's fault"),
    ),
    Story(
        "https://github.com/dpkp/kafka-python/issues/1896", "kafka-python 1.4.6", "Kafka 2.0",
        "heartbeats stop for 10 min while Fetch requests go on; then UNKNOWN_MEMBER_ID",
        "the session timeout is over because the client sends no heartbeats, though its process runs",
        heartbeats_that_stop, frozenset({"missed-heartbeats"}), (r"no heartbeat for \d+ min", r"fetched meanwhile", r"was not paused"),
    ),
    Story(
        "https://github.com/aio-libs/aiokafka/issues/44", "aiokafka 0.1", "Kafka 0.10",
        "the broker restarts; Metadata and FindCoordinator are asked and answered for ever, JoinGroup is not sent again",
        "the consumer finds its coordinator and does not join its group again: its fault",
        member_after_a_restart, frozenset({"not-joined-again"}), (r"mygroup", r"found the coordinator \d+ times", r"JoinGroup again"),
    ),
    Story(
        "https://github.com/confluentinc/librdkafka/issues/3396", "librdkafka 1.6.1", "Kafka 2.2",
        "JoinGroup is answered MEMBER_ID_REQUIRED; the client stays connected and sends no JoinGroup with that id",
        "the client must join with the id that it got, and does not: its fault",
        member_id_that_is_not_used, frozenset({"not-joined-again"}), (r"MEMBER_ID_REQUIRED", r"KIP-394", r"client's fault"),
    ),
)  # fmt: skip
