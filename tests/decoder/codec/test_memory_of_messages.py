"""What a message takes in memory, where many small things are all there: at most 20 times its bytes, and 3 MiB."""

from __future__ import annotations

import tracemalloc

import pytest
from barnabas import decoder
from barnabas.decoder.codec.encode import write_uvarint
from barnabas.decoder.schema import facts

MOST_TIMES, MOST_MORE = 20, 3 << 20
EMPTY_TOPIC = b"\1\1\0"  # an empty name, no partitions, no tags
OFTEN = {
    "OffsetCommit v8, empty topics": ("OffsetCommit", 8, b"\2g" + bytes(4) + b"\1\0", EMPTY_TOPIC, b"\0"),
    "OffsetCommit v8, topics of one letter": ("OffsetCommit", 8, b"\2g" + bytes(4) + b"\1\0", b"\3\xc4\x80\1\0", b"\0"),
    "DeleteGroups v2, groups of one letter": ("DeleteGroups", 2, b"", b"\3\xc4\x80", b"\0"),
    "DeleteGroups v2, empty groups": ("DeleteGroups", 2, b"", b"\1", b"\0"),
    "Metadata v12, topics without ids": ("Metadata", 12, b"", bytes(16) + b"\0\0", b"\0\0\0"),
    "unknown tags": ("DeleteGroups", 2, b"\1", b"", b""),
}


def counted(count: int, spare: int = 1) -> bytes:
    out = bytearray()
    write_uvarint(out, count + spare)
    return bytes(out)


def message(name: str, size: int) -> bytes:
    """A body of about so many bytes."""
    _, _, head, item, tail = OFTEN[name]
    if not item:
        tags = b"".join(counted(tag, 0) + b"\0" for tag in range(size // 4))
        return head + counted(size // 4, 0) + tags
    count = size // len(item)
    return head + counted(count) + item * count + tail


@pytest.mark.parametrize("name", OFTEN)
def test_a_message_of_small_things_costs_so_many_times_its_size(name: str) -> None:
    api, version = OFTEN[name][:2]
    read = 0
    for size in (1 << 14, 1 << 17, 1 << 19):
        data = message(name, size)
        tracemalloc.start()
        try:
            decoded: decoder.Message | None = decoder.decode_body("request", facts.api_key(api), version, data)
            read += decoded is not None
        except decoder.LimitExceeded:
            decoded = None
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= MOST_TIMES * len(data) + MOST_MORE, f"{peak / len(data):.1f} times {len(data)} bytes"
    assert read, "none of them was read"


@pytest.mark.parametrize(("count", "length"), [(256, 2), (60_000, 4), pytest.param(400_000, 8, marks=pytest.mark.slow)])
def test_names_that_may_be_are_read(count: int, length: int) -> None:
    """Names of so many letters, all different, in the array with the least around each."""
    names = [f"{number:0{length}x}" for number in range(min(count, 16**length))]
    body = decoder.encode_body("request", facts.api_key("DeleteGroups"), 2, {"groups_names": names})
    assert decoder.decode_body("request", facts.api_key("DeleteGroups"), 2, body)["groups_names"] == names

