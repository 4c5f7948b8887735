"""Payloads inside of messages as fields of the tree, and records of aborted transactions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import Capture, open_capture
from barnabas.decoder import Exchange, embedded
from barnabas.decoder.records import Record, encode_batch
from barnabas.ui.tui.exchange.fields import record_fields, request_tree, response_tree
from barnabas.ui.tui.widgets.field_tree import TreeField
from harness.recordings import RecordingBuilder, produce, produced
from traffic.every_kind import batch

CAPTURES = Path(__file__).parents[3] / "decoder" / "findings" / "captures"


def first(capture: Capture, api: str) -> Exchange:
    """The first successful exchange of an API."""
    return capture.exchange(next(row for row in capture.rows() if row.api == api and not row.error))


def inside(fields: list[TreeField], path: str) -> dict[str, str]:
    """The values below a path, by the rest of theirs."""
    return {field.path.removeprefix(path): field.value for field in fields if field.path.startswith(path) and field.path != path}


def sound(fields: list[TreeField]) -> None:
    """What is said to be inside of a field is what is deeper than it."""
    for at, field in enumerate(fields):
        behind = fields[at + 1 :]
        assert field.below == next((i for i, each in enumerate(behind) if each.depth <= field.depth), len(behind))


def test_a_members_subscription_and_assignment() -> None:
    with open_capture(CAPTURES / "groups-storm.pcapng") as capture:
        joined, synced = first(capture, "JoinGroup"), first(capture, "SyncGroup")
        fields = request_tree(joined).fields
        assert inside(fields, "protocols[0].metadata")[".topics"] == '["jobs-7bb5"]'
        sound(fields)
        fields = response_tree(synced).fields
        assert inside(fields, "assignment")[".assigned_partitions[0].topic"] == '"jobs-7bb5"'
        assert next(field for field in fields if field.path == "assignment").value.endswith("consumer assignment")
        sound(fields)


def test_a_large_response_reads_payloads_when_members_are_opened(tmp_path: Path) -> None:
    metadata = embedded.encode("ConsumerProtocolSubscription", 1, {"topics": ["orders"], "user_data": b"x" * 400})
    members = [{"member_id": f"m-{i}", "metadata": (1).to_bytes(2, "big") + metadata} for i in range(400)]
    with RecordingBuilder(tmp_path / "run") as written:
        written.exchange("JoinGroup", 5, {"group_id": "g", "protocol_type": "consumer"}, {"members": members})
    with open_capture(tmp_path / "run") as capture:
        tree = response_tree(first(capture, "JoinGroup"))
        assert tree.fields[-1].later is not None  # not made yet
        at = tree.reveal("members[399].metadata")
        assert at is not None
        assert inside(tree.fields, "members[399].metadata")[".topics"] == '["orders"]'
        sound([field for field in tree.fields if field.path.startswith("members[399]")])


def test_steps_of_sasl_are_named_and_secrets_are_not_shown(tmp_path: Path) -> None:
    with RecordingBuilder(tmp_path / "run", redact=False) as written:
        written.exchange("SaslAuthenticate", 2, {"auth_bytes": b"\0alice\0pa55word"}, {})
    with open_capture(tmp_path / "run") as capture:
        fields = request_tree(first(capture, "SaslAuthenticate"), True).fields
    found = inside(fields, "auth_bytes")
    assert found[".mechanism"] == '"PLAIN"' and "alice" in str(found)
    assert "pa55word" not in str([field.value for field in fields])


def test_records_of_internal_topics_are_read_where_values_are_shown(tmp_path: Path) -> None:
    key = (1).to_bytes(2, "big") + embedded.encode("OffsetCommitKey", 0, {"group": "billing", "topic": "orders", "partition": 7})
    value = (3).to_bytes(2, "big") + embedded.encode("OffsetCommitValue", 3, {"offset": 4711})
    data = encode_batch([Record(0, 1, b"other", b"thing")]) + encode_batch([Record(1, 1, b"x", b"y"), Record(2, 1, key, value)])
    with RecordingBuilder(tmp_path / "run") as written:
        written.exchange("Produce", 9, produce("__consumer_offsets", data), produced("__consumer_offsets"))
    path = "topic_data[0].partition_data[0].records[2]"
    with open_capture(tmp_path / "run") as capture:
        exchange = first(capture, "Produce")
        assert ".value.offset" not in inside(request_tree(exchange).fields, path)
        fields = request_tree(exchange, True).fields
        found = inside(fields, path)
        assert (found[".type"], found[".key.group"], found[".value.offset"]) == ('"OffsetCommit"', '"billing"', "4711")
        sound(fields)


def sent(producer: int, offset: int, control: bytes | None = None, transactional: bool = True) -> bytes:
    """A batch of two records of a producer, or its marker."""
    if control is not None:
        marker = Record(offset, 1, control, bytes(6))
        return encode_batch([marker], transactional=True, control=True, producer_id=producer)
    records = [Record(offset + i, 1, None, b"x") for i in range(2)]
    return encode_batch(records, transactional=transactional, producer_id=producer)


ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"
AREA = b"".join((
    sent(1, 0), sent(2, 2), sent(1, 4, ABORT), sent(1, 5), sent(2, 7, COMMIT), sent(1, 8, COMMIT),
    sent(2, 9), sent(1, 11, transactional=False), sent(2, 13, ABORT), batch(),
))  # fmt: skip
"""Producer 1 aborts its first transaction, producer 2 its second."""


def test_batches_of_aborted_transactions_are_marked() -> None:
    def marked(**options: Any) -> Iterator[str]:
        for field in record_fields(AREA, **options):
            if field.name.startswith("batch ") and field.name != "batch header" and field.value.startswith("aborted"):
                assert field.role == "waiting"
                yield field.name.removeprefix("batch ")

    from barnabas.decoder.records import Aborted

    assert list(marked()) == []
    assert list(marked(aborted=[Aborted(2, 9), Aborted(1, 0)])) == ["0", "6"]
    assert list(marked(aborted=[Aborted(2, 10)])) == ["6"]  # it began in an earlier response
    assert list(marked(aborted=[Aborted(2, 50)])) == []


def test_a_brokers_list_of_aborted_transactions() -> None:
    # kafka-python reads committed records of Kafka 4 behind a transaction that timed out
    with open_capture(CAPTURES / "fetching-behind-a-transaction-with-a-session.pcapng") as capture:
        fields = response_tree(capture.exchange(capture.rows()[31])).fields
    assert [field.value[:7] for field in fields if field.name in ("batch 0", "batch 1")] == ["aborted", "offsets"]


@pytest.mark.parametrize("name", ["groups-held-up", "producing-aborts", "groups-same-instance-new-protocol"])
def test_trees_of_real_recordings_are_sound(name: str) -> None:
    with open_capture(CAPTURES / f"{name}.pcapng") as capture:
        for row in capture.rows():
            exchange = capture.exchange(row)
            for tree in (request_tree(exchange, True), response_tree(exchange, True)):
                sound(tree.fields)
