"""Traffic as in the stories without their faults: nothing in it is worth more than `low`."""

from __future__ import annotations

from barnabas import decoder
from harness.wire import with_size
from traffic.conversations import Conversations

from . import inside, more_clients
from .admin import topic_that_is_not_waited_for
from .brokers import (
    closed_on_an_expired_token,
    epoch_that_the_log_has_not,
    epoch_without_a_value,
    groups_that_are_not_offered,
    leader_by_the_wrong_name,
    log_directories_that_are_not_shown,
    out_of_range_though_inside,
    records_of_an_open_transaction,
    records_that_a_proxy_cannot_read,
    topic_that_is_not_deleted,
)
from .clients import (
    aborted_records_again_and_again,
    address_that_metadata_no_longer_names,
    coordinator_that_is_not_looked_for,
    kerberos_that_is_not_finished,
    one_beyond_the_committed_offset,
    topics_that_cannot_be_made,
)
from .connections import brokers_of_two_clusters, raw_token_after_the_old_handshake, sessions_of_the_same_length
from .fetching import offsets_by_time, records_with_a_filler
from .groups import (
    join_that_waits_too_long,
    member_after_a_restart,
    member_id_that_is_not_used,
    offsets_refused_once,
    offsets_that_are_never_used,
)
from .producing import commit_without_the_offsets, sequence_that_overflows
from .products import (
    balancer_in_front_of_brokers,
    deletion_refused_for_the_cluster,
    end_of_a_new_leader,
    end_that_is_the_last_record,
    epoch_of_now_for_the_earliest_record,
    epoch_that_metadata_does_not_show,
    generations_of_one_member,
    leader_that_one_broker_hears_of_later,
    names_within_kubernetes,
    partition_given_twice,
    request_with_two_sizes,
    segment_without_the_offset,
    time_without_a_timestamp,
    unknown_error_when_the_leader_moves,
)
from .telling import LATER, NOW_MS, Talk, assignment, batch, java, librdkafka, subscription, topic

TOKEN = b"n,,\x01auth=Bearer eyJhbGciOiJub25lIn0.e30.\x01\x01"


def address_that_works() -> Conversations:
    talk = Talk("sarama", "1.45.0", client_id="jaeger-collector", broker="10.0.0.1:30001")
    conn = talk.meet()
    for at in range(0, 18, 3):
        talk.metadata(conn, [topic("jaeger-spans")], ((1, "10.0.0.1", 30001),), 7)
        talk.produce(conn, batch(at), "jaeger-spans", base=at)
        talk.wait(LATER)
    talk.close(conn)
    return talk


def answered_in_order() -> Conversations:
    talk = java("3.8.0", release="3.7", client_id="consumer-test_group-1")
    conn = talk.meet()
    talk.metadata(conn, [topic()])
    for _ in range(20):
        parts = [{"partition": 0, "fetch_offset": 3, "partition_max_bytes": 1 << 20}]
        first, second = talk.pipelined(
            conn,
            ("Fetch", 10, {"max_wait_ms": 500, "topics": [{"topic": "orders", "partitions": parts}]}),
            ("Heartbeat", 3, {"group_id": "g", "generation_id": 2, "member_id": "m"}),
        )
        part = {
            "partition_index": 0,
            "high_watermark": 3,
            "last_stable_offset": 3,
            "log_start_offset": 0,
            "records": b"",
        }
        answer = {"responses": [{"topic": "orders", "partitions": [part]}]}
        talk.received(conn, with_size(decoder.encode_response(1, 10, answer, correlation_id=first)), 0.5)
        talk.received(conn, with_size(decoder.encode_response(12, 3, {}, correlation_id=second)), 0.501)
        talk.wait(3)
    talk.close(conn)
    return talk


def log_in_again_in_turn() -> Conversations:
    talk = Talk("@platformatic/kafka", "1.22.0", release="3.7", client_id="events", tls=True)
    conn = talk.meet()
    for at in range(0, 60, 20):
        talk.ask(conn, "SaslHandshake", 1, {"mechanism": "OAUTHBEARER"}, {"mechanisms": ["OAUTHBEARER", "PLAIN"]})
        talk.ask(
            conn, "SaslAuthenticate", 2, {"auth_bytes": TOKEN}, {"auth_bytes": b"", "session_lifetime_ms": 1_800_000}
        )
        talk.metadata(conn, [topic()])
        for more in range(20):
            talk.fetch(conn, at + more, batch(at + more, 1), at + more + 1, took=0.3)
            talk.wait(59.6)
    talk.close(conn)
    return talk


def leader_that_moved() -> Conversations:
    talk = java("3.8.1", release="3.8", client_id="producer-1")
    two = ((1, "10.0.0.1", 9092), (3, "10.0.0.3", 9092))
    conn = talk.meet()
    talk.metadata(conn, [topic(nodes=(1, 3))], two, 12)
    talk.produce(conn, batch(0), version=11)
    moved = {"index": 0, "error_code": 6, "base_offset": -1, "current_leader": {"leader_id": 3, "leader_epoch": 5}}
    parts = [{"index": 0, "records": batch(3)}]
    talk.ask(
        conn, "Produce", 11, {"acks": -1, "timeout_ms": 30000, "topic_data": [{"name": "orders", "partition_data": parts}]},
        {
            "responses": [{"name": "orders", "partition_responses": [moved]}],
            "node_endpoints": [{"node_id": 3, "host": "10.0.0.3", "port": 9092}],
        },
    )  # fmt: skip
    other = talk.meet("10.0.0.3:9092")
    for at in range(3, 30, 3):
        talk.produce(other, batch(at), version=11, base=at)
    talk.close(other)
    talk.close(conn)
    return talk


def old_broker_that_falls_back() -> Conversations:
    talk = librdkafka("1.4.4", release="2.3", client_id="rdkafka")
    conn = talk.open()
    keys = [{"api_key": 18, "min_version": 0, "max_version": 2}]
    refused = decoder.encode_response(18, 0, {"error_code": 35, "api_keys": keys})
    talk.ask(
        conn, "ApiVersions", 3, {"client_software_name": "librdkafka", "client_software_version": "1.4.4"}, refused
    )
    all_keys = [{"api_key": k, "min_version": low, "max_version": high} for k, (low, high) in talk.offered.items()]
    talk.ask(conn, "ApiVersions", 0, {}, {"api_keys": all_keys})
    talk.metadata(conn, [topic()], version=4)
    for at in range(0, 30, 3):
        talk.fetch(conn, at, batch(at), at + 3, took=0.1)
    talk.close(conn)
    return talk


def group_at_kafka_4() -> Conversations:
    talk = Talk("kgo", "v1.19.5", release="4.0", client_id="reader")
    conn = talk.meet()
    talk.metadata(conn, [topic()])
    for _ in range(3):
        talk.coordinator(conn, "billing", None, 15, version=2)
        talk.wait(0.2)
    talk.coordinator(conn, "billing", version=2)
    ask = {
        "group_id": "billing", "session_timeout_ms": 45000, "rebalance_timeout_ms": 60000, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription(["orders"])}],
    }  # fmt: skip
    talk.ask(
        conn,
        "JoinGroup",
        6,
        ask,
        {"error_code": 79, "generation_id": -1, "protocol_name": "", "leader": "", "member_id": "m-1"},
    )
    members = [{"member_id": "m-1", "metadata": subscription(["orders"])}]
    talk.ask(
        conn, "JoinGroup", 6, ask | {"member_id": "m-1"},
        {"generation_id": 1, "protocol_name": "range", "leader": "m-1", "member_id": "m-1", "members": members}, took=3,
    )  # fmt: skip
    mine = assignment("orders", 0)
    sync = {
        "group_id": "billing",
        "generation_id": 1,
        "member_id": "m-1",
        "assignments": [{"member_id": "m-1", "assignment": mine}],
    }
    talk.ask(conn, "SyncGroup", 4, sync, {"assignment": mine})
    asked = {"group_id": "billing", "topics": [{"name": "orders", "partition_indexes": [0]}], "require_stable": True}
    had = {"partition_index": 0, "committed_offset": 30, "metadata": ""}
    talk.ask(conn, "OffsetFetch", 7, asked, {"topics": [{"name": "orders", "partitions": [had]}]})
    data = talk.meet()
    for at in range(30, 60, 3):
        talk.fetch(data, at, batch(at), 60, took=0.05)
        talk.ask(conn, "Heartbeat", 4, {"group_id": "billing", "generation_id": 1, "member_id": "m-1"}, {})
        talk.wait(3)
    commit = {
        "group_id": "billing", "generation_id_or_member_epoch": 1, "member_id": "m-1",
        "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 60, "committed_metadata": ""}]}],
    }  # fmt: skip
    talk.ask(conn, "OffsetCommit", 8, commit, {"topics": [{"name": "orders", "partitions": [{"partition_index": 0}]}]})
    talk.ask(
        conn,
        "LeaveGroup",
        4,
        {"group_id": "billing", "members": [{"member_id": "m-1", "group_instance_id": None}]},
        {"members": [{"member_id": "m-1", "group_instance_id": None}]},
    )
    talk.close(data)
    talk.close(conn)
    return talk


def compressed_and_idempotent() -> Conversations:
    talk = java("3.9.1", release="3.9", client_id="producer-1", tls=True)
    conn = talk.meet()
    talk.metadata(conn, [topic()])
    talk.ask(
        conn,
        "InitProducerId",
        4,
        {"transactional_id": None, "transaction_timeout_ms": 2147483647},
        {"producer_id": 7, "producer_epoch": 0},
    )
    for at in range(0, 60, 3):
        data = batch(
            at, timestamp=NOW_MS + at, codec=1, base_offset=0, producer_id=7, producer_epoch=0, base_sequence=at
        )
        talk.produce(conn, data, version=9, base=at)
        talk.wait(0.3)
    talk.close(conn)
    return talk


def transaction_after_another() -> Conversations:
    talk = java("3.1.0", release="3.1", client_id="producer-X1")
    conn = talk.meet()
    talk.metadata(conn, [topic()])
    talk.coordinator(conn, "X1", kind=1)
    body = {"transactional_id": "X1", "transaction_timeout_ms": 60000}
    for _ in range(3):
        talk.ask(conn, "InitProducerId", 4, body, {"error_code": 51, "producer_id": -1, "producer_epoch": -1})
        talk.wait(0.02)
    talk.ask(conn, "InitProducerId", 4, body, {"producer_id": 9, "producer_epoch": 3})
    for at in range(0, 9, 3):
        parts = {
            "v3_and_below_transactional_id": "X1", "v3_and_below_producer_id": 9, "v3_and_below_producer_epoch": 3,
            "v3_and_below_topics": [{"name": "orders", "partitions": [0]}],
        }  # fmt: skip
        done = {"name": "orders", "results_by_partition": [{"partition_index": 0, "partition_error_code": 0}]}
        talk.ask(conn, "AddPartitionsToTxn", 3, parts, {"results_by_topic_v3_and_below": [done]})
        data = batch(at, transactional=True, base_offset=0, producer_id=9, producer_epoch=3, base_sequence=at)
        talk.produce(conn, data, version=9, base=at + at // 3, transactional_id="X1")
        talk.ask(
            conn, "EndTxn", 3, {"transactional_id": "X1", "producer_id": 9, "producer_epoch": 3, "committed": True}, {}
        )
        talk.wait(0.5)
    talk.close(conn)
    return talk


def coordinator_that_moves() -> Conversations:
    talk = librdkafka("2.6.1", release="3.9", client_id="rdkafka")
    two = ((1, "10.0.0.1", 9092), (2, "10.0.0.2", 9092))
    conn = talk.meet()
    talk.metadata(conn, [topic(nodes=(1, 2))], two)
    talk.coordinator(conn, "g", two[0])
    beat = {"group_id": "g", "generation_id": 2, "member_id": "m"}
    talk.ask(conn, "Heartbeat", 3, beat, {})
    talk.wait(3)
    talk.ask(conn, "Heartbeat", 3, beat, {"error_code": 16})
    talk.coordinator(conn, "g", two[1])
    other = talk.meet("10.0.0.2:9092")
    talk.ask(other, "Heartbeat", 3, beat, {"error_code": 14})
    for _ in range(10):
        talk.wait(3)
        talk.ask(other, "Heartbeat", 3, beat, {})
    talk.close(other)
    talk.close(conn)
    return talk


def position_checked_against_the_epoch() -> Conversations:
    talk = Talk("kgo", "v1.18.0", release="3.7", client_id="repeat01")
    conn = talk.meet()
    talk.metadata(conn, [topic()], version=7)
    for at in range(160, 220, 3):
        talk.fetch(conn, at, batch(at, 3, partition_leader_epoch=4), 230, version=11, took=0.02, epoch=4)
    asked = {"topic": "orders", "partitions": [{"partition": 0, "current_leader_epoch": 5, "leader_epoch": 4}]}
    given = {"partition": 0, "error_code": 0, "leader_epoch": 4, "end_offset": 226}
    talk.ask(
        conn,
        "OffsetForLeaderEpoch",
        3,
        {"replica_id": -1, "topics": [asked]},
        {"topics": [{"topic": "orders", "partitions": [given]}]},
    )
    for at in (220, 223, 226):
        talk.fetch(conn, at, batch(at, 3, partition_leader_epoch=4 + at // 226), 230, version=11, took=0.02, epoch=5)
    talk.close(conn)
    return talk


def topic_created() -> Conversations:
    talk = Talk("kgo", "v1.13.2", release="2.8", client_id="kadm")
    three = ((0, "10.0.0.1", 9092), (1, "10.0.0.2", 9092), (2, "10.0.0.3", 9092))
    conn = talk.meet()
    talk.metadata(conn, [], three, 7, controller_id=-1)
    talk.wait(0.5)
    talk.metadata(conn, [], three, 7)
    body = {"topics": [{"name": "dev_test", "num_partitions": 3, "replication_factor": 3}], "timeout_ms": 30000}
    made = {"name": "dev_test", "error_code": 0, "num_partitions": 3, "replication_factor": 3, "configs": []}
    talk.ask(conn, "CreateTopics", 5, body, {"topics": [made]}, took=0.2)
    talk.metadata(conn, [topic("dev_test", leader=0, partitions=3, nodes=(0, 1, 2))], three, 7)
    talk.close(conn)
    return talk


def static_member_that_restarts() -> Conversations:
    talk = librdkafka("1.6.0", release="2.7", client_id="rdkafka")
    ask = {
        "group_id": "0", "session_timeout_ms": 60000, "rebalance_timeout_ms": 60000, "protocol_type": "consumer",
        "group_instance_id": "1", "protocols": [{"name": "range", "metadata": subscription(["test"])}],
    }  # fmt: skip
    mine = assignment("test", 0)
    for member in ("1-5a2c", "1-77f0"):
        conn = talk.meet()
        talk.metadata(conn, [topic("test")], version=4)
        talk.coordinator(conn, "0")
        members = [{"member_id": member, "group_instance_id": "1", "metadata": subscription(["test"])}]
        talk.ask(conn, "JoinGroup", 5, ask, {"generation_id": 3, "protocol_name": "range", "leader": member, "member_id": member, "members": members})  # fmt: skip
        place = {"group_id": "0", "generation_id": 3, "member_id": member, "group_instance_id": "1"}
        talk.ask(
            conn,
            "SyncGroup",
            3,
            place | {"assignments": [{"member_id": member, "assignment": mine}]},
            {"assignment": mine},
        )
        for at in range(4):
            talk.ask(conn, "Heartbeat", 3, place, {})
            talk.fetch(conn, at * 3, batch(at * 3), 12, "test", took=0.05)
            talk.wait(2)
        talk.close(conn)
        talk.wait(4)
    return talk


def times_that_are_found_and_not_found() -> Conversations:
    return offsets_by_time(2, (2, 2), (3, 3), (-1, -1))


def connections_that_end_at_different_ages() -> Conversations:
    return sessions_of_the_same_length((5, 17, 9, 30))


def join_that_a_restart_ends() -> Conversations:
    return join_that_waits_too_long(20)


def commit_without_metadata_to_a_newer_broker() -> Conversations:
    talk = librdkafka("0.9.1", release="0.10.0", client_id="rdkafka")
    for _ in range(2):
        conn = talk.meet(version=0)
        talk.coordinator(conn, "g", version=0)
        places = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": None}]
        body = {"group_id": "g", "generation_id_or_member_epoch": 1, "member_id": "m", "topics": [{"name": "t", "partitions": places}]}
        talk.pipelined(conn, ("OffsetCommit", 1, body))
        talk.wait(0.002)
        talk.close(conn, by="broker")
        talk.wait(20)
    return talk


def login_with_the_old_handshake() -> Conversations:
    return raw_token_after_the_old_handshake(answered=True)


def rebalances_with_a_fetch_between() -> Conversations:
    return offsets_that_are_never_used(fetches=True)


def offsets_asked_for_again() -> Conversations:
    return offsets_refused_once(asks_again=True)


def sequences_that_begin_again() -> Conversations:
    return sequence_that_overflows(0, error=0)


def topic_that_is_there_the_second_time() -> Conversations:
    return topic_that_is_not_waited_for(goes_on=True)


def connections_that_last_after_their_records() -> Conversations:
    return records_with_a_filler(stays=30)


def brokers_that_were_set_up_anew() -> Conversations:
    return brokers_of_two_clusters(mixed=False)


def offsets_that_are_accepted_in_the_end() -> Conversations:
    return commit_without_the_offsets(in_the_end=True)


def member_that_comes_back() -> Conversations:
    return member_after_a_restart(comes_back=True)


def member_id_that_is_used() -> Conversations:
    return member_id_that_is_not_used(joins=True)


def log_that_is_read_after_its_leader_moved() -> Conversations:
    return out_of_range_though_inside(refused=False)


def consumer_that_begins_where_it_committed() -> Conversations:
    return one_beyond_the_committed_offset(beyond=0)


def coordinator_that_is_looked_for() -> Conversations:
    return coordinator_that_is_not_looked_for(asks=True)


def topics_of_streams_that_are_made() -> Conversations:
    return topics_that_cannot_be_made(made=True)


def client_that_follows_a_broker() -> Conversations:
    return address_that_metadata_no_longer_names(follows=True)


def login_with_kerberos() -> Conversations:
    return kerberos_that_is_not_finished(finished=True)


def token_that_was_renewed() -> Conversations:
    return closed_on_an_expired_token(renewed=True)


def topic_that_is_deleted_late() -> Conversations:
    return topic_that_is_not_deleted(deleted=True)


def log_directories() -> Conversations:
    return log_directories_that_are_not_shown(shown=True)


def epochs_that_are_not_known() -> Conversations:
    return epoch_that_the_log_has_not((-1, -1))


def offset_without_an_epoch() -> Conversations:
    return epoch_without_a_value(-1)


def metadata_asked_for_by_a_client_that_waits() -> Conversations:
    return groups_that_are_not_offered(offered=True)


def fetches_that_two_stops_of_a_broker_end() -> Conversations:
    return records_that_a_proxy_cannot_read(times=2)


def records_below_the_last_stable_offset() -> Conversations:
    return records_of_an_open_transaction(stable=30)


def leader_that_leads_in_the_end() -> Conversations:
    return leader_by_the_wrong_name(leads=True)


def aborted_records_that_are_left_out() -> Conversations:
    return aborted_records_again_and_again(moves=True)


def members_that_are_waited_for() -> Conversations:
    return generations_of_one_member(waits=True)


def epoch_that_metadata_shows() -> Conversations:
    return epoch_that_metadata_does_not_show(shown=True)


def topic_that_is_not_there_to_be_deleted() -> Conversations:
    return deletion_refused_for_the_cluster(error=3)


def log_that_is_read_to_its_end() -> Conversations:
    return segment_without_the_offset(end=1)


def time_with_its_timestamp() -> Conversations:
    return time_without_a_timestamp(NOW_MS)


def broker_that_was_away_once() -> Conversations:
    return balancer_in_front_of_brokers(turns=1)


def epoch_of_the_earliest_record() -> Conversations:
    return epoch_of_now_for_the_earliest_record(epoch=3)


def end_that_is_the_next_offset() -> Conversations:
    return end_that_is_the_last_record(end=42)


def monitor_within_kubernetes() -> Conversations:
    return names_within_kubernetes("10.8.0.12:9092")


def partition_that_changes_hands() -> Conversations:
    return partition_given_twice(revoked=True)


def request_with_one_size() -> Conversations:
    return request_with_two_sizes(sizes=1)


def leader_that_moves_once() -> Conversations:
    return unknown_error_when_the_leader_moves(error=6)


def log_that_was_truncated() -> Conversations:
    return end_of_a_new_leader(after=90)


TWINS = (
    address_that_works, answered_in_order, log_in_again_in_turn, leader_that_moved, old_broker_that_falls_back, group_at_kafka_4,
    compressed_and_idempotent, transaction_after_another, coordinator_that_moves, position_checked_against_the_epoch,
    topic_created, static_member_that_restarts, times_that_are_found_and_not_found, connections_that_end_at_different_ages,
    join_that_a_restart_ends, commit_without_metadata_to_a_newer_broker, login_with_the_old_handshake, rebalances_with_a_fetch_between,
    offsets_asked_for_again, sequences_that_begin_again, topic_that_is_there_the_second_time, connections_that_last_after_their_records,
    brokers_that_were_set_up_anew, offsets_that_are_accepted_in_the_end,
    member_that_comes_back, member_id_that_is_used, log_that_is_read_after_its_leader_moved, consumer_that_begins_where_it_committed,
    coordinator_that_is_looked_for, topics_of_streams_that_are_made, client_that_follows_a_broker, login_with_kerberos,
    token_that_was_renewed, topic_that_is_deleted_late, log_directories, epochs_that_are_not_known, offset_without_an_epoch,
    metadata_asked_for_by_a_client_that_waits, fetches_that_two_stops_of_a_broker_end, records_below_the_last_stable_offset,
    leader_that_leads_in_the_end, aborted_records_that_are_left_out, *inside.TWINS, *more_clients.TWINS, members_that_are_waited_for,
    epoch_that_metadata_shows, leader_that_one_broker_hears_of_later, topic_that_is_not_there_to_be_deleted,
    log_that_is_read_to_its_end, time_with_its_timestamp, broker_that_was_away_once, epoch_of_the_earliest_record,
    end_that_is_the_next_offset, log_that_was_truncated, monitor_within_kubernetes, partition_that_changes_hands,
    request_with_one_size, leader_that_moves_once,
)  # fmt: skip
