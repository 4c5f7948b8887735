"""Damaged messages of formats 0 and 1: alone, compressed, and inside of compressed ones; and what is small."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import pytest
from barnabas.decoder import Exchange
from barnabas.decoder.findings import Finding
from barnabas.decoder.present import Presenter
from barnabas.decoder.records import Record, compress, encode_batch, encode_messages
from traffic.conversations import Conversations
from traffic.recordings import findings

RECORDS = [Record(5, 1_700_000_000_000, b"k", b"a letter")]
GZIP = 1


def _alone(magic: int) -> bytes:
    return encode_messages(RECORDS, magic=magic).replace(b"letter", b"better")


def _wrapper(magic: int) -> bytes:
    """The wrapper's own bytes are changed."""
    data = bytearray(encode_messages(RECORDS, magic=magic, codec=GZIP))
    data[-1] ^= 1
    return bytes(data)


def _inner(magic: int) -> bytes:
    """The wrapper is right, and the message inside of it is not: compressed after it was damaged."""
    wrapper = encode_messages([Record(5, 1_700_000_000_000, None, compress(GZIP, _alone(magic)))], magic=magic)
    data = bytearray(wrapper)
    data[17] |= GZIP

    data[12:16] = zlib.crc32(data[16:]).to_bytes(4, "big")
    return bytes(data)


def _findings(exchanges: list[Exchange]) -> list[Finding]:
    return findings(exchanges, "corrupt-batch")


def _exchange(api: str, version: int, asked: dict[str, Any], response: dict[str, Any]) -> Exchange:
    conversation = Conversations()
    conversation.ask(conversation.open(), api, version, asked, response)
    return conversation.exchanges[0]


def _fetched(records: bytes, version: int = 2) -> Exchange:
    response = {"responses": [{"topic": "t", "partitions": [{"partition_index": 3, "records": records}]}]}
    return _exchange("Fetch", version, {"topics": []}, response)


def _produced(records: bytes) -> Exchange:
    asked = {"acks": 1, "topic_data": [{"name": "t", "partition_data": [{"index": 3, "records": records}]}]}
    response = {"responses": [{"name": "t", "partition_responses": [{"index": 3, "error_code": 2}]}]}
    return _exchange("Produce", 2, asked, response)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("damaged", [_alone, _wrapper, _inner])
def test_a_damaged_message_is_found(damaged: Callable[[int], bytes], magic: int) -> None:
    (fetched,) = _findings([_fetched(damaged(magic))])
    assert "a damaged message of t-3 at offset 5" in fetched.seen and fetched.about["crc_ok"] is False
    (produced,) = _findings([_produced(damaged(magic))])
    assert "sent damaged" in produced.seen and produced.about["crc_ok"] is False
    for found in (fetched, produced):
        assert ("inside a compressed message" in found.seen) == (damaged is _inner)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, GZIP])
def test_a_right_message_is_none(magic: int, codec: int) -> None:
    whole = encode_messages(RECORDS, magic=magic, codec=codec)
    assert _findings([_fetched(whole), _fetched(whole[:-3])]) == []
    (found,) = _findings([_produced(whole)])
    assert "its CRC is right here" in found.seen and found.about["crc_ok"] is True


@pytest.mark.parametrize("records", [encode_batch([Record(0, 1, None, b"v")]), encode_messages([Record(0, None, None, None)], magic=0)])
def test_the_smallest_responses_are_checked(records: bytes) -> None:
    damaged = bytearray(records)
    damaged[20] ^= 1  # in a batch the CRC's last byte, in a message the key's length
    damaged[15] ^= 1
    small = _fetched(bytes(damaged), 0 if records[16] == 0 else 4)
    assert (small.response_size or 0) <= 120
    (found,) = _findings([small])
    assert "t-3" in found.seen


def test_answers_without_records_do_not_count() -> None:
    """One of sixteen answers with records is checked; a poll that found nothing is no answer with records."""
    empty = [_fetched(b"", 4) for _ in range(8)]
    last = _fetched(_alone(1))
    (found,) = _findings([*empty, last])
    assert found.exchanges == [last]


@pytest.mark.parametrize("magic", [0, 1])
def test_decoding_shows_wrong_crcs_inside(magic: int) -> None:
    """`decode --json` names the inner messages, by their offsets as they stand in the wrapper."""
    (damaged,) = Presenter().record_area(_inner(magic))
    assert damaged["crc_ok"] is True and damaged["inner_crc_wrong"] == [5]
    (right,) = Presenter().record_area(encode_messages(RECORDS, magic=magic, codec=GZIP))
    assert "inner_crc_wrong" not in right
