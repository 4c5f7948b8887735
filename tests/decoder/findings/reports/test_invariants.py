"""Public bug reports about answers that Apache Kafka never gives: the first finding above info names the answer."""

from __future__ import annotations

from typing import Any

from barnabas.decoder.findings import Finding, Severity
from traffic.conversations import Conversations

from ..invariants.cases import batch, marker

LIBRDKAFKA = {"client_software_name": "librdkafka", "client_software_version": "2.13.0"}
OFFER = {"api_keys": [{"api_key": key, "min_version": 0, "max_version": high} for key, high in
                      ((0, 9), (1, 12), (2, 7), (3, 12), (8, 8), (9, 8), (10, 4), (11, 7), (12, 4), (14, 5), (18,
                      3))]}  # fmt: skip


def first(conversations: Conversations) -> Finding:
    """The first finding above info."""
    return next(f for f in conversations.findings() if f.severity is not Severity.INFO)


def above_low(conversations: Conversations) -> list[str]:
    return [f.seen for f in conversations.findings() if f.severity in (Severity.MEDIUM, Severity.HIGH)]


def started(software: dict[str, str] = LIBRDKAFKA) -> tuple[Conversations, Any]:
    made = Conversations()
    connection = made.open()
    made.ask(connection, "ApiVersions", 3, software, OFFER)
    return made, connection


def metadata(*nodes: int, leader: int = 1, controller: int = 1) -> dict[str, Any]:
    partition = {
        "partition_index": 0,
        "leader_id": leader,
        "leader_epoch": 1,
        "replica_nodes": [leader],
        "isr_nodes": [leader],
    }
    return {
        "brokers": [{"node_id": node, "host": f"10.0.0.{node}", "port": 9092} for node in nodes],
        "controller_id": controller,
        "cluster_id": "c",
        "topics": [{"name": "orders", "partitions": [partition]}],
    }


ASKED = {"topics": [{"name": "orders"}]}


def test_metadata_without_brokers() -> None:
    """librdkafka#5301: librdkafka 2.10 to 2.13 never recovers from it."""
    made, connection = started()
    empty = {**metadata(), "controller_id": -1, "topics": [{"name": "orders", "error_code": 5}]}
    made.ask(connection, "Metadata", 12, ASKED, metadata(1))
    made.wait(300)
    made.ask(connection, "Metadata", 12, ASKED, empty)
    found = first(made)
    assert (found.id, found.severity) == ("impossible-answer", Severity.MEDIUM)
    assert "names no broker" in found.seen
    assert "librdkafka#5301" in found.why


def test_metadata_without_brokers_while_a_broker_starts() -> None:
    made, connection = started()
    empty = {**metadata(), "controller_id": -1, "topics": [{"name": "orders", "error_code": 5}]}
    made.ask(connection, "Metadata", 12, ASKED, empty)
    made.wait(1)
    made.ask(connection, "Metadata", 12, ASKED, metadata(1))
    assert above_low(made) == []


def test_a_leader_that_is_no_broker() -> None:
    made, connection = started()
    for _ in range(4):
        made.ask(connection, "Metadata", 12, ASKED, metadata(1, leader=7))
        made.wait(1)
    found = first(made)
    assert (found.id, found.severity, found.count) == ("impossible-answer", Severity.HIGH, 4)
    assert "leader 7" in found.seen and "none of the brokers 1" in found.seen


def test_a_leader_that_is_down() -> None:
    made, connection = started()
    answer = metadata(1, leader=1)
    answer["topics"][0]["partitions"][0].update(replica_nodes=[1, 7], offline_replicas=[7])
    made.ask(connection, "Metadata", 12, ASKED, answer)
    assert above_low(made) == []


def fetch(made: Conversations, connection: Any, version: int = 11, **changes: Any) -> None:
    part = {"partition_index": 0, "high_watermark": 9, "last_stable_offset": 9, "log_start_offset": 0, "records": b""}
    asked = {"max_wait_ms": 500, "min_bytes": 1, "session_epoch": -1, "isolation_level": 1,
             "topics": [{"topic": "orders", "partitions": [{"partition": 0, "fetch_offset": 0,
             "partition_max_bytes": 1 << 20}]}]}  # fmt: skip
    made.ask(
        connection,
        "Fetch",
        version,
        asked,
        {"responses": [{"topic": "orders", "partitions": [{**part, **changes}]}]},
        took=0.5,
    )
    made.wait(1)


def test_null_records() -> None:
    """Estuary Flow#1693: librdkafka refuses them."""
    made, connection = started()
    made.ask(connection, "Metadata", 12, ASKED, metadata(1))
    for _ in range(20):
        fetch(made, connection, high_watermark=0, last_stable_offset=0, records=None)
    found = first(made)
    assert (found.id, found.severity) == ("impossible-answer", Severity.HIGH)
    assert "records (orders-0) is null" in found.seen and "MessageSetSize" in found.why


def test_null_records_with_an_error() -> None:
    """Kafka before 4.0 sends them so."""
    made, connection = started()
    made.ask(connection, "Metadata", 12, ASKED, metadata(1))
    fetch(made, connection, high_watermark=-1, last_stable_offset=-1, log_start_offset=-1, error_code=6, records=None)
    fetch(made, connection)
    assert above_low(made) == []


def test_a_read_replica_that_is_no_broker() -> None:
    """Nisshi#62: the fields of Fetch v11 in the wrong places."""
    made, connection = started()
    made.ask(connection, "Metadata", 12, ASKED, metadata(1))
    for _ in range(5):
        fetch(made, connection, preferred_read_replica=722799104, records=batch(0, 3))
    found = first(made)
    assert (found.id, found.severity) == ("impossible-answer", Severity.HIGH)
    assert "722799104, which is no broker of this cluster (its brokers: 1) and comes with records" in found.seen


def test_a_read_replica_that_is_a_broker() -> None:
    made, connection = started()
    made.ask(connection, "Metadata", 12, ASKED, metadata(1, 2))
    fetch(made, connection, preferred_read_replica=2)
    fetch(made, connection, records=batch(0, 3))
    assert above_low(made) == []


def test_aborted_records_that_are_not_listed() -> None:
    """AutoMQ#754: consumers of read_committed get the records of the aborted transaction."""
    made, connection = started()
    made.ask(connection, "Metadata", 12, ASKED, metadata(1))
    aborted = batch(2, 2, producer=5, sequence=0, transactional=True) + marker(4, 5)
    fetch(made, connection, version=12, records=batch(0, 2) + aborted, aborted_transactions=[])
    found = first(made)
    assert (found.id, found.severity) == ("impossible-answer", Severity.HIGH)
    assert "lacks producer 5: its records from offset 2 to 3 are followed by its abort marker at offset 4" in found.seen


def test_transactions_whose_list_is_right() -> None:
    made, connection = started()
    made.ask(connection, "Metadata", 12, ASKED, metadata(1))
    aborted = batch(2, 2, producer=5, sequence=0, transactional=True) + marker(4, 5)
    fetch(made, connection, version=12, records=aborted, aborted_transactions=[{"producer_id": 5, "first_offset": 2}])
    fetch(made, connection, version=12, records=marker(4, 5), aborted_transactions=[])
    committed = batch(5, 1, producer=5, sequence=2, transactional=True) + marker(6, 5, abort=False)
    fetch(made, connection, version=12, records=committed, aborted_transactions=None)
    assert above_low(made) == []


ASSIGNMENT = bytes.fromhex("0001000000010006") + b"orders" + bytes.fromhex("0000000100000000ffffffff")
GO = {"client_software_name": "kgo", "client_software_version": "v1.18.0"}


def rejoin(made: Conversations, connection: Any, generation: int, assignment: bytes) -> None:
    subscription = bytes.fromhex("0001000000010006") + b"orders" + bytes.fromhex("ffffffff00000000")
    joining = {"group_id": "g", "session_timeout_ms": 45_000, "rebalance_timeout_ms": 60_000, "member_id": "m1",
        "protocol_type": "consumer",
               "protocols": [{"name": "cooperative-sticky", "metadata": subscription}]}  # fmt: skip
    joined = {"generation_id": generation, "protocol_name": "cooperative-sticky", "leader": "m1", "member_id": "m1",
              "members": [{"member_id": "m1", "metadata": subscription}]}  # fmt: skip
    made.ask(connection, "JoinGroup", 5, joining, joined)
    syncing = {
        "group_id": "g",
        "generation_id": generation,
        "member_id": "m1",
        "assignments": [{"member_id": "m1", "assignment": ASSIGNMENT}],
    }
    made.ask(connection, "SyncGroup", 3, syncing, {"assignment": assignment})
    made.wait(2)


def test_an_assignment_that_was_cut() -> None:
    """Nisshi#679: franz-go joins again and again."""
    made, connection = started(GO)
    for generation in range(1, 6):
        rejoin(made, connection, generation, ASSIGNMENT[:2])
    found = first(made)
    assert (found.id, found.severity, found.count) == ("impossible-answer", Severity.HIGH, 5)
    assert f"assignment has 2 bytes; the leader of group 'g' sent {len(ASSIGNMENT)} for this member" in found.seen
    assert "cannot be read" in found.seen


def test_an_assignment_as_the_leader_sent_it() -> None:
    made, connection = started(GO)
    rejoin(made, connection, 1, ASSIGNMENT)
    assert above_low(made) == []


def test_what_a_session_leaves_out_and_adds() -> None:
    """KIP-227: an incremental answer has other partitions than its request."""
    made, connection = started()
    made.ask(connection, "Metadata", 12, ASKED, metadata(1))

    def session(
        epoch: int, session_id: int, asked: list[int], answered: list[int], forgotten: tuple[int, ...] = ()
    ) -> None:
        topics = (
            [{"topic": "orders", "partitions": [{"partition": p, "partition_max_bytes": 1 << 20} for p in asked]}]
            if asked
            else []
        )
        drop = [{"topic": "orders", "partitions": list(forgotten)}] if forgotten else []
        parts = [{"partition_index": p, "high_watermark": 9, "last_stable_offset": 9, "records": b""} for p in answered]
        request = {
            "max_wait_ms": 500,
            "min_bytes": 1,
            "session_id": session_id,
            "session_epoch": epoch,
            "topics": topics,
            "forgotten_topics_data": drop,
        }
        made.ask(
            connection,
            "Fetch",
            11,
            request,
            {"session_id": 77, "responses": [{"topic": "orders", "partitions": parts}] if parts else []},
            took=0.5,
        )
        made.wait(1)

    session(0, 0, [0, 1, 2], [0, 1, 2])
    session(1, 77, [], [])
    session(2, 77, [], [1])
    session(3, 77, [3], [2, 3])
    assert above_low(made) == []
    session(4, 77, [], [], forgotten=(1,))
    session(5, 77, [], [1])
    found = first(made)
    assert (found.id, found.about["row"]) == ("impossible-answer", "fetch-unasked")
    assert "orders-1, which was not asked for" in found.seen


def test_a_session_that_began_before_the_capture() -> None:
    made, connection = started()
    made.ask(connection, "Metadata", 12, ASKED, metadata(1))
    part = {"partition_index": 4, "high_watermark": 9, "last_stable_offset": 9, "records": b""}
    asked = {"max_wait_ms": 500, "min_bytes": 1, "session_id": 77, "session_epoch": 9, "topics": []}
    made.ask(
        connection,
        "Fetch",
        11,
        asked,
        {"session_id": 77, "responses": [{"topic": "orders", "partitions": [part]}]},
        took=0.5,
    )
    assert above_low(made) == []


def test_a_producer_that_sends_again_gets_its_first_offset() -> None:
    made, connection = started()
    made.ask(connection, "Metadata", 12, ASKED, metadata(1))
    for sequence, offset in ((0, 40), (1, 41), (0, 40), (1, 41), (2, 42), (1, 41), (0, 40), (3, 43)):
        data = batch(0, 1, producer=8, sequence=sequence)
        asked = {
            "acks": -1,
            "timeout_ms": 30_000,
            "topic_data": [{"name": "orders", "partition_data": [{"index": 0, "records": data}]}],
        }
        made.ask(
            connection,
            "Produce",
            9,
            asked,
            {"responses": [{"name": "orders", "partition_responses": [{"index": 0, "base_offset": offset}]}]},
        )
    assert [f for f in made.findings() if f.id == "impossible-answer"] == []
