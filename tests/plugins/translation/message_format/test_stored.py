"""What an old broker has stored, as batches: the same records with their offsets and times, for clients that read no
other."""

from __future__ import annotations

import random

import pytest
from barnabas.decoder.records import Batch, Record, batches, encode_messages
from barnabas.plugins.translation.message_format import down, stored

GZIP, SNAPPY, LZ4 = 1, 2, 3


def read(data: bytes) -> list[tuple[int, int | None, bytes | None, bytes | None]]:
    found = []
    for entry in batches(data):
        assert isinstance(entry, Batch) and entry.crc_ok
        found += [(r.offset, r.timestamp, r.key, r.value) for r in entry.records()]
    return found


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4])
def test_offsets_and_times_stay(magic: int, codec: int) -> None:
    """Gaps too, which compaction leaves; the codec is that of each wrapper."""
    times = [-1] * 4 if magic == 0 else [1_000, 5_000, 3_000, 4_000]
    records = [Record(offset, time, b"k", bytes([offset])) for offset, time in zip((7, 8, 11, 30), times, strict=True)]
    sets = encode_messages(records[:3], magic=magic, codec=codec) + encode_messages(records[3:], magic=magic)
    made = stored(sets + sets[:20])
    assert read(made) == [(r.offset, r.timestamp, r.key, r.value) for r in records]
    assert [entry.codec for entry in batches(made)] == ([codec, 0] if codec else [0])
    # and there and back again
    assert stored(down(made, magic=magic)) == made


def test_the_times_of_appending_are_a_batch_of_their_own() -> None:
    created = encode_messages([Record(1, 10, None, b"a")], magic=1)
    appended = encode_messages([Record(2, 20, None, b"b")], magic=1, log_append=True, timestamp=20)
    made = list(batches(stored(created + appended)))
    assert [entry.timestamp_type for entry in made] == ["create", "log_append"]
    assert read(stored(created + appended)) == [(1, 10, None, b"a"), (2, 20, None, b"b")]


def test_batches_stay_and_nothing_becomes_nothing() -> None:
    batch = stored(encode_messages([Record(1, 10, None, b"a")], magic=1))
    assert stored(batch) == batch and stored(b"") == b"" and stored(batch[:30]) == b""


@pytest.mark.parametrize("seed", range(20))
def test_damage_comes_as_it_is(seed: int) -> None:
    """With all that follows it: the reader says what is wrong."""
    chance = random.Random(seed)
    good = encode_messages([Record(n, 10, None, b"a" * 30) for n in range(3)], magic=1)
    bad = bytearray(encode_messages([Record(9, 10, None, b"b" * 30)], magic=1, codec=chance.choice((0, GZIP))))
    bad[chance.randrange(18, len(bad))] ^= 1
    made = stored(good + bytes(bad) + good)
    assert made.endswith(bytes(bad) + good)
    assert len(read(made[: -len(bad) - len(good)])) == 3
