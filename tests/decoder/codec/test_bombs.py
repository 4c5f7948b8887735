"""Few bytes that announce or decompress to very many: each is refused with at most 32 MiB of memory.

The bombs are made and measured in a process of their own (torture/decoder/bombs.py prints the table). How long each takes is
judged by torture/decoder/test_speed.py.
"""

from __future__ import annotations

import struct
import tracemalloc
from collections import Counter
from collections.abc import Iterator

import pytest
from barnabas import decoder
from barnabas.decoder.codec.decode import FAULTS, FREE_ITEMS, most_items, python_decoder
from barnabas.decoder.codec.decode import decoder as compiled
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.plan import StructPlan, plan
from barnabas.decoder.wire.varint import write_uvarint
from harness.run.steps import assert_linear
from torture.decoder.bombs import LINEAR, SEARCHED, Measure, run, search, searched_streams
from torture.decoder.corpus import triples

MOST_KIB = 32 << 10
KINDS = ("classic", "compact", "tags", "tag")
"""What announces a count or size: the first word of a bomb's name."""

MOST_TIMES, MOST_MORE_KIB = 20, 16 << 10
"""Memory for what is all there: so many times its size, and so much more."""

# Refused by a limit; all other bombs contradict the bytes that are there.
LIMITED = {
    "5 million 2-byte tags, 10 MB",
    "5 million 2-byte tags in the request header",
    "5 million empty strings, classic",
    "5 million empty strings, compact",
    "5 million empty structs",
    "1 million topics and a fault behind them",
    "1 million empty headers in a record",
    "CVE-2026-111115: 2-byte tags in header 2 before authentication",
}
# Nothing is wrong with these, or what is wrong shows as an event: they only must cost nothing.
READ = {
    *(name for name in LINEAR if name != "100,000 empty gzip members"),
    "batch length 2147483647",
    "CVE-2026-10142: a frame size of 2 GiB",
    "CVE-2022-34917: a SASL frame of 500 MiB announced before authentication",
    "a negative frame size",
    "5000 nested Envelopes, masked",
    "5000 nested Envelopes, shown",
    "CVE-2026-10143: SCRAM's iteration count",
    "CVE-2020-26418: memory of failed decompressions",
}
ADVISORIES = {
    "CVE-2020-17498", "CVE-2020-26418", "CVE-2021-4190", "CVE-2022-34917", "CVE-2025-13499", "CVE-2026-10142",
    "CVE-2026-10143", "CVE-2026-111073", "CVE-2026-111108", "CVE-2026-111115",
}  # fmt: skip


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=pytest.mark.slow)], ids=["accelerated", "pure"])
def measured(request) -> list[Measure]:
    return run(pure=request.param)


def arrays(struct_: StructPlan) -> Iterator[str]:
    """The kind of every array of a message."""
    for field in struct_.fields:
        if field.array:
            yield "compact" if field.compact else "classic"
        if field.struct:
            yield from arrays(field.struct)


def test_every_count_of_the_schema(measured):
    plans = [plan(*triple) for triple in triples()]
    expected = Counter(kind for of in plans for kind in arrays(of.root))
    expected["tags"] = expected["tag"] = sum(of.root.flexible for of in plans)
    assert expected["classic"] > 500 and expected["compact"] > 800 and expected["tags"] > 380
    announced = [m for m in measured if m.name.split()[0] in KINDS]
    assert Counter(m.name.split()[0] for m in announced) == expected
    for m in announced:
        assert m.outcome in ("BadLength", "Truncated"), m
        assert m.kib < 1024, m


def test_every_other_bomb(measured):
    bombs = [m for m in measured if m.name.split()[0] not in KINDS]
    assert len(bombs) > 60
    for m in bombs:
        searched = m.name.startswith(SEARCHED)
        if m.name in LINEAR or searched:
            assert m.kib < MOST_TIMES * m.size // 1024 + MOST_MORE_KIB, m
        else:
            # a compressed batch is copied out of its area before it is looked at
            assert m.kib < MOST_KIB + m.size // 1024, m
        assert (m.outcome == "read") == (m.name in READ or searched), m
        if m.name in LIMITED or m.name.startswith("1 GiB of zeros"):
            assert m.limit and m.outcome == "LimitExceeded", m
        else:
            assert not m.limit, m


@pytest.mark.parametrize("side", ["client", "broker"])
@pytest.mark.parametrize("name", searched_streams(0))
def test_a_stream_is_searched_once(name, side):
    """A capture that begins in the middle of a stream without any frame: each byte is looked at a bounded number of times."""
    assert_linear(lambda size: lambda: search(searched_streams(size)[name], side), 1 << 13)


def test_every_advisory_has_its_bomb(measured):
    assert {m.name.split(":")[0] for m in measured if m.name.startswith("CVE-")} == ADVISORIES


def test_both_decoders_have_the_same_limit():
    of = plan("request", 3, 1)
    readers = {compiled(of), python_decoder(of)}
    most = next(n for n in range(FREE_ITEMS, 2 * FREE_ITEMS) if n + 1 > most_items(4 + 2 * (n + 1)))
    for read in readers:
        values, _ = read(struct.pack(">i", most) + b"\0\0" * most, 0)
        assert values == ((("",),) * most,)
        with pytest.raises(FAULTS):
            read(struct.pack(">i", most + 1) + b"\0\0" * (most + 1), 0)
    with pytest.raises(decoder.LimitExceeded, match="limit: ") as fault:
        decoder.decode_body("request", 3, 1, struct.pack(">i", most + 1) + b"\0\0" * (most + 1))
    assert fault.value.path == "topics" and fault.value.offset == 0


def test_a_fault_at_the_end_of_a_large_message_keeps_its_beginning():
    body = decoder.encode_body("request", 3, 1, {"topics": [{"name": f"topic-{i}"} for i in range(30_000)]})
    with pytest.raises(decoder.Truncated) as fault:
        decoder.decode_body("request", 3, 1, body[:-1])
    assert fault.value.path == "topics[29999].name"
    topics = fault.value.partial["topics"]
    assert topics[:2] == [{"name": "topic-0"}, {"name": "topic-1"}] and len(topics) < 20_000


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
def test_the_memory_of_a_message_is_bounded_by_its_size(name: str) -> None:
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
def test_many_short_names_are_read(count: int, length: int) -> None:
    """Names of so many letters, all different, in the array with the least around each."""
    names = [f"{number:0{length}x}" for number in range(min(count, 16**length))]
    body = decoder.encode_body("request", facts.api_key("DeleteGroups"), 2, {"groups_names": names})
    assert decoder.decode_body("request", facts.api_key("DeleteGroups"), 2, body)["groups_names"] == names
