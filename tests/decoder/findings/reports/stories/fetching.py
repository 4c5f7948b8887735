"""Stories of consumers that fetch: offsets that contradict each other, damaged and cut data, positions that do not move."""

from __future__ import annotations

import zlib
from functools import partial

from barnabas.decoder import records
from barnabas.decoder.records import Record
from traffic.conversations import Conversations

from .telling import LATER, NOW_MS, Story, Talk, batch, java, librdkafka, topic


def epoch_that_ends_too_early() -> Conversations:
    talk = Talk("kgo", "v1.6.0", release="2.8", client_id="repeat01")
    conn = talk.meet()
    talk.metadata(conn, [topic("scale_000000")], version=7)
    for at in range(160, 219, 3):
        talk.fetch(conn, at, batch(at, 3, partition_leader_epoch=4), 230, "scale_000000", 11, took=0.02, epoch=4)
    talk.close(conn)
    talk.wait(1)
    conn = talk.meet()
    talk.metadata(conn, [topic("scale_000000")], version=7)
    for _ in range(2):
        asked = {
            "topic": "scale_000000",
            "partitions": [{"partition": 0, "current_leader_epoch": 4, "leader_epoch": 4}],
        }
        given = {"partition": 0, "error_code": 0, "leader_epoch": 4, "end_offset": 163}
        talk.ask(
            conn, "OffsetForLeaderEpoch", 3, {"replica_id": -1, "topics": [asked]},
            {"topics": [{"topic": "scale_000000", "partitions": [given]}]},
        )  # fmt: skip
        talk.fetch(conn, 163, batch(163, 58, partition_leader_epoch=4), 230, "scale_000000", 11, took=0.02, epoch=4)
    talk.close(conn)
    return talk


def high_watermark_below_zero() -> Conversations:
    talk = Talk(release="2.0", client_id="vector")
    conn = talk.meet(version=0)
    talk.metadata(conn, [topic("test-02")], version=5)
    for _ in range(150):
        talk.fetch(
            conn, 15670319, b"", -1, "test-02", 8, took=0.1, isolation=1, last_stable_offset=-1, log_start_offset=-1,
            aborted_transactions=None,
        )  # fmt: skip
    talk.close(conn)
    return talk


def timed_out_in_a_fetch() -> Conversations:
    talk = java("2.8.1", release="2.0", client_id="consumer-sub-1")
    conn = talk.meet()
    talk.metadata(conn, [topic("test-topic")], version=5)
    talk.fetch(conn, 0, batch(0, 1), 1, "test-topic", 8)
    for _ in range(4):
        talk.fetch(conn, 1, b"", -1, "test-topic", 8, error=7)
        talk.wait(0.1)
    talk.close(conn)
    return talk


def damaged_in_the_store() -> Conversations:
    talk = java("3.4.0", release="3.4", client_id="consumer-1")
    conn = talk.meet()
    talk.metadata(conn, [topic("test-topic")])
    for at in (0, 3, 6):
        talk.fetch(conn, at, batch(at), 30, "test-topic", took=0.01)
    damaged = bytearray(batch(9))
    damaged[-5] ^= 0x40
    for _ in range(3):
        talk.fetch(conn, 9, bytes(damaged), 30, "test-topic", took=0.01)
        talk.wait(1)
    talk.close(conn)
    return talk


def message_larger_than_the_fetch() -> Conversations:
    talk = librdkafka("", release="0.10.0", client_id="rdkafka")
    whole = records.encode_messages([Record(773854, NOW_MS, b"k", bytes(range(256)) * 8192)], magic=1)
    conn = talk.meet(version=0)
    talk.metadata(conn, [topic("test")], version=1)
    for _ in range(60):
        asked = {"partition": 0, "fetch_offset": 773854, "partition_max_bytes": 1 << 20}
        part = {"partition_index": 0, "high_watermark": 773900, "records": whole[: 1 << 20]}
        talk.ask(
            conn, "Fetch", 2, {"max_wait_ms": 100, "min_bytes": 1, "topics": [{"topic": "test", "partitions": [asked]}]},
            {"responses": [{"topic": "test", "partitions": [part]}]}, took=0.01,
        )  # fmt: skip
    talk.close(conn)
    return talk


def offsets_asked_of_a_follower() -> Conversations:
    talk = librdkafka("2.4.0", release="3.7", client_id="rdkafka")
    two = ((1, "10.0.0.1", 9092), (2, "10.0.0.2", 9092))
    conn = talk.meet()
    talk.metadata(conn, [topic(leader=1, nodes=(1, 2))], two)
    talk.fetch(conn, 400, b"", 400, version=11, took=0.01, preferred_read_replica=2)
    follower = talk.meet("10.0.0.2:9092")
    talk.fetch(follower, 400, b"", -1, version=11, took=0.01, error=1)
    for _ in range(200):
        asked = {"name": "orders", "partitions": [{"partition_index": 0, "current_leader_epoch": 4, "timestamp": -1}]}
        given = {"name": "orders", "partitions": [{"partition_index": 0, "error_code": 6, "offset": -1}]}
        talk.ask(follower, "ListOffsets", 5, {"replica_id": -1, "topics": [asked]}, {"topics": [given]})
        talk.wait(0.1)
    talk.close(follower)
    talk.close(conn)
    return talk


def committed_offset_that_is_gone() -> Conversations:
    talk = Talk("kafka-python", "2.0.2", release="2.6", client_id="kafka-python-2.0.2")
    conn = talk.meet(version=0)
    talk.metadata(conn, [topic()], version=1)
    talk.coordinator(conn, "g", version=0)
    member = {"group_id": "g", "generation_id_or_member_epoch": 3, "member_id": "kafka-python-1"}
    for offset in (4000, 4500, 5000):
        parts = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
        talk.ask(
            conn, "OffsetCommit", 2, member | {"topics": [{"name": "orders", "partitions": parts}]},
            {"topics": [{"name": "orders", "partitions": [{"partition_index": 0}]}]},
        )  # fmt: skip
        talk.wait(5)
    talk.close(conn, by="broker")
    talk.wait(LATER)
    conn = talk.meet(version=0)
    talk.metadata(conn, [topic()], version=1)
    talk.coordinator(conn, "g", version=0)
    empty = {"partition_index": 0, "committed_offset": -1, "metadata": "", "error_code": 0}
    talk.ask(
        conn, "OffsetFetch", 1, {"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [0]}]},
        {"topics": [{"name": "orders", "partitions": [empty]}]},
    )  # fmt: skip
    earliest = [{"partition_index": 0, "timestamp": -2}]
    talk.ask(
        conn, "ListOffsets", 1, {"replica_id": -1, "topics": [{"name": "orders", "partitions": earliest}]},
        {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "offset": 12}]}]},
    )  # fmt: skip
    for at in range(12, 60, 3):
        talk.fetch(conn, at, batch(at), 5003, version=4, took=0.01)
    talk.close(conn)
    return talk


def offsets_by_time(ahead: int, *answers: tuple[int, int]) -> Conversations:
    """ListOffsets for a time `ahead` of the first record; `answers`: timestamps (relative to the first record; -1) and offsets."""
    talk = java("3.1.0", release="3.1", client_id="consumer-1")
    conn = talk.meet()
    talk.metadata(conn, [topic()])
    talk.fetch(conn, 0, batch(0, 4), 4)
    for timestamp, offset in answers:
        asked = {"partition_index": 0, "current_leader_epoch": 4, "timestamp": NOW_MS + ahead}
        found = {"partition_index": 0, "timestamp": NOW_MS + timestamp if timestamp >= 0 else -1, "offset": offset, "leader_epoch": 4}
        body = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "orders", "partitions": [asked]}]}
        talk.ask(conn, "ListOffsets", 5, body, {"topics": [{"name": "orders", "partitions": [found]}]})
        talk.wait(1)
    talk.close(conn)
    return talk


def batch_over_the_consumers_limits() -> Conversations:
    talk = librdkafka("0.11.6", release="1.0", client_id="rdkafka")
    conn = talk.meet(version=0)
    talk.metadata(conn, [topic("t")], version=1)
    for _ in range(20):
        talk.fetch(conn, 88, b"", -1, "t", 4, took=0.01, error=10)
    talk.close(conn)
    return talk


def records_with_a_filler(stays: float = 0.01) -> Conversations:
    talk = Talk(release="2.0", client_id="sarama")
    inner = bytes([1, 0]) + NOW_MS.to_bytes(8, "big") + b"\xff\xff\xff\xff" + (2).to_bytes(4, "big") + b"{}"
    message = zlib.crc32(inner).to_bytes(4, "big") + inner
    data = (0).to_bytes(8, "big") + len(message).to_bytes(4, "big") + message
    filler = b"\xff" * 8 + (62).to_bytes(4, "big") + bytes(49)
    for _ in range(5):
        conn = talk.open()
        body = {
            "max_wait_ms": 250, "min_bytes": 1,
            "topics": [{"topic": "user.created", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 32768}]}],
        }  # fmt: skip
        part = {"partition_index": 0, "error_code": 0, "high_watermark": 1, "records": data + filler}
        talk.ask(conn, "Fetch", 2, body, {"responses": [{"topic": "user.created", "partitions": [part]}]})
        talk.wait(stays)
        talk.close(conn)
        talk.wait(2)
    return talk


STORIES = (
    Story(
        "https://github.com/redpanda-data/redpanda/issues/5435", "franz-go 1.6", "Redpanda 22.1",
        "records up to 219 were fetched in epoch 4; OffsetForLeaderEpoch says epoch 4 ends at 163; the watermark is 230",
        "the end offset of the epoch (163) is below what was fetched in it: the broker's answer is wrong, nothing was truncated",
        epoch_that_ends_too_early, frozenset({"log-truncated"}),
        (r"163", r"217", r"(?i)broker"),
    ),
    Story(
        "https://github.com/streamnative/kop/issues/1415", "librdkafka in vector", "KoP 2.9",
        "Fetch answers without error: high watermark -1, last stable offset -1, no records; offset 15670319, for ever",
        "a high watermark of -1 without an error: Kafka never answers that; the broker's fault",
        high_watermark_below_zero, frozenset({"impossible-answer"}), (r"(?i)high.watermark", r"-1"),
    ),
    Story(
        "https://github.com/streamnative/kop/issues/1032", "Java 2.8.1", "KoP 2.9.1",
        "Fetch answers REQUEST_TIMED_OUT for a partition; the client knows no such error there",
        "REQUEST_TIMED_OUT has no place in a Fetch answer: Kafka never sends it; the broker's fault",
        timed_out_in_a_fetch, frozenset({"impossible-answer"}),
        (r"REQUEST_TIMED_OUT", r"(?i)Fetch", r"(?i)never|out of place|not an error|no place"),
    ),
    Story(
        "https://github.com/AutoMQ/automq/issues/560", "Java 3.4", "AutoMQ",
        "a fetched batch does not match its CRC, each time it is fetched",
        "the batch at test-topic-0@9 is damaged on the broker's side (same bytes each time)",
        damaged_in_the_store, frozenset({"corrupt-batch"}), (r"CRC", r"test-topic", r"\b9\b"),
    ),
    Story(
        "https://github.com/confluentinc/librdkafka/issues/482", "librdkafka 0.9", "Kafka 0.10.0",
        "Fetch v2 with 1 MiB per partition returns the first 1 MiB of a message of 2 MiB, at the same offset 60 times",
        "the message at this offset is larger than the client's limit: raise fetch.message.max.bytes",
        message_larger_than_the_fetch, frozenset({"batch-over-fetch-limit"}),
        (r"fetch\.message\.max\.bytes|max\.partition\.fetch\.bytes", r"773854"),
    ),
    Story(
        "https://github.com/confluentinc/librdkafka/pull/4616", "librdkafka 2.4.0", "Kafka 3.7 with fetch from followers",
        "ListOffsets is sent to the follower: NOT_LEADER_OR_FOLLOWER, 200 times in 20 s; Metadata said broker 1 leads",
        "the client asks a follower for offsets, which only leaders answer: librdkafka 2.4.0 (#4616), newer one",
        offsets_asked_of_a_follower, frozenset({"metadata-ignored"}),
        (r"ListOffsets", r"follower", r"librdkafka#4616"),
    ),
    Story(
        "https://github.com/dpkp/kafka-python/pull/2428", "kafka-python 2.0.2", "Kafka 2.6, its coordinator loading",
        "offset 5000 was committed; 2 s later OffsetFetch v1 has -1 without an error; the client starts over at 12",
        "the offset committed is not there any more, without an error: the broker's answer, to which v1 cannot add one; use v2+",
        committed_offset_that_is_gone, frozenset({"committed-offset-lost"}), (r"5000", r"-1|no offset|none", r"OffsetFetch"),
    ),
    Story(
        "https://github.com/redpanda-data/redpanda/issues/4322", "Java 3.1", "Redpanda 22.1",
        "ListOffsets for a time after the last record: offset 4, timestamp -1",
        "Kafka answers -1 and -1 if there is no record: the broker's bug",
        partial(offsets_by_time, 999_999, (-1, 4), (-1, 4)), frozenset({"impossible-answer"}), (r"offset 4 and timestamp -1", r"-1 and -1"),
    ),
    Story(
        "https://github.com/streamnative/kop/issues/334", "Java 2.6", "KoP",
        "ListOffsets for a time: the record before it is answered",
        "the answer's timestamp is below the one that was asked for: the broker's bug",
        partial(offsets_by_time, 3, (2, 2), (2, 2)), frozenset({"impossible-answer"}), (r"1 ms before", r"as new or newer"),
    ),
    Story(
        "https://github.com/confluentinc/librdkafka/issues/2385", "librdkafka 0.11.6", "Kafka-compatible broker",
        "Fetch answered MESSAGE_TOO_LARGE, again and again",
        "the batch is over the consumer's limits: max.partition.fetch.bytes, fetch.message.max.bytes",
        batch_over_the_consumers_limits, frozenset({"unexplained-error"}), (r"MESSAGE_TOO_LARGE", r"fetch\.message\.max\.bytes"),
    ),
    Story(
        "https://github.com/IBM/sarama/issues/1144", "sarama 1.17", "Kafka 2.0",
        "Fetch v2: the converted records end with an entry of offset -1; the client ends the connection after each response",
        "the client takes the filler of converted records (KIP-283) for a message whose CRC is wrong",
        records_with_a_filler, frozenset({"ends-after-answer"}), (r"user\.created-0", r"filler", r"KIP-283", r"CRC "
            r"didn't match"),
    ),
)  # fmt: skip
