"""Kafka's own classes as judges of conversions between message formats: what the brokers' down-conversion and LogValidator
make of the same bytes, what clients of 0.8, 0.10 and 3.9 read of ours, and sets that such producers wrote."""

from __future__ import annotations

import random
import struct
import zlib
from dataclasses import dataclass

import pytest
from barnabas.decoder import records as R
from barnabas.decoder.records import Record
from barnabas.plugins.translation.message_format import ConversionError, down, up
from real.clients import java_programs

pytestmark = pytest.mark.real

TIME = 1_690_000_000_000
CODECS = ("NONE", "GZIP", "SNAPPY", "LZ4")


def rows(random_: random.Random, first: int, count: int) -> list[Record]:
    """Records with gaps in their offsets, nulls, empty values, times out of order and some headers."""
    made, offset = [], first
    for _ in range(count):
        offset += random_.choice((1, 1, 1, 2, 40))
        key, value = (random_.choice((None, b"", random_.randbytes(random_.choice((3, 70, 300))))) for _ in range(2))
        headers = (("h", b"1"),) if random_.random() < 0.2 else ()
        made.append(Record(offset, TIME + random_.randrange(-500, 500), key, value, headers))
    return made


def text(data: bytes | None) -> str:
    return "null" if data is None else data.hex()


def as_java(records: list[Record]) -> str:
    """Records as the Java programs print them; a time that is not there is -1."""
    return " ".join(
        f"{r.offset}:{-1 if r.timestamp is None else r.timestamp}:{text(r.key)}:{text(r.value)}" for r in records
    )


def read(data: bytes) -> list[Record]:
    return [record for entry in R.batches(data) for record in entry.records()]


def shape(data: bytes) -> list[tuple]:
    """Everything but the compressed bytes themselves and what depends on them (sizes and CRCs, which must be right)."""
    shapes = []
    for entry in R.batches(data):
        assert entry.crc_ok
        if isinstance(entry, R.Message):
            inner = [(m.offset, m.magic, m.timestamp, m.key, m.value) for m in entry.messages()]
            assert all(m.crc_ok for m in entry.messages())
            value = None if entry.codec else entry.value
            shapes.append((entry.offset, entry.magic, entry.attributes, entry.timestamp, entry.key, value, inner))
        else:
            head = [getattr(entry, name) for name in ("base_offset", "attributes", "last_offset_delta", "producer_id")]
            times = [entry.base_timestamp, entry.max_timestamp, entry.base_sequence, entry.record_count]
            shapes.append((*head, *times, entry.payload()))
    return shapes


def fetched() -> list[tuple[bytes, int]]:
    """(records of a Fetch response, asked offset): several batches of every kind, now and then cut."""
    random_ = random.Random(1)
    cases = []
    for number in range(60):
        offset, data = random_.randrange(10**6), b""
        first = offset
        for _ in range(random_.randrange(1, 4)):
            part = rows(random_, offset, random_.randrange(1, 8))
            kind = random_.choice(("plain", "plain", "transaction", "marker", "appended", "empty", "magic 1"))
            codec = random_.choice((0, 0, 1, 2, 3))
            if kind == "magic 1":
                data += R.encode_messages(part, magic=1, codec=codec)
            elif kind == "marker":
                marker = Record(part[0].offset, TIME, b"\0\0\0\1", b"\0\0\0\0\0\7")
                data += R.encode_batch([marker], control=True, transactional=True, producer_id=5, producer_epoch=1)
            elif kind == "empty":
                data += R.encode_batch([], base_offset=offset, last_offset_delta=part[-1].offset - offset, codec=codec)
            else:
                more = {"transactional": True, "producer_id": 5} if kind == "transaction" else {}
                more |= {"log_append": True, "max_timestamp": TIME + 9999} if kind == "appended" else {}
                data += R.encode_batch(part, codec=codec, **more)
            offset = part[-1].offset
        if number % 4 == 0:
            data += R.encode_batch(rows(random_, offset, 3))[: random_.randrange(1, 90)]
        cases.append((data, random_.choice((first, first + 2, first + 5))))
    return cases


def written() -> list[bytes]:
    """Message sets of our own, as producers send them."""
    random_ = random.Random(2)
    parts = [(rows(random_, random_.choice((-1, 100)), 9), magic, codec) for magic in (0, 1) for codec in range(4)]
    return [
        R.encode_messages(part, magic=magic, codec=codec, wrapper_offset=offset)
        for part, magic, codec in parts
        for offset in (None, 0)
    ]


def damaged() -> list[bytes]:
    """What a broker refuses from a producer."""
    part = rows(random.Random(5), 0, 3)
    whole, wrapped = (R.encode_messages(part, magic=1, codec=codec) for codec in (0, 1))
    sets = [data[:-1] + bytes((data[-1] ^ 1,)) for data in (whole, wrapped)]
    return [*sets, wrapper(sets[0]), wrapper(wrapped), wrapper(R.encode_messages(part, magic=0))]


def wrapper(inner: bytes) -> bytes:
    """Any bytes as the value of a message that says it is compressed with gzip."""
    value = R.compress(1, inner)
    body = struct.pack(">bbqii", 1, 1, TIME, -1, len(value)) + value
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


@dataclass
class Trial:
    """What is asked of each release, and its answers, all of one run of its classes: a JVM takes a while to start."""

    fetched: list[tuple[int, int, bytes, bytes]]
    """(magic, asked offset, what was fetched, what we make of it)"""
    read: dict[str, list[bytes]]
    answers: dict[str, list[str]]
    downs: list[str]
    produced: list[bytes]
    damaged: list[bytes]
    ups: list[str]


@pytest.fixture(scope="module")
def trial() -> Trial:
    cases = [(magic, at, data, down(data, magic=magic, first_offset=at)) for data, at in fetched() for magic in (0, 1)]
    read_, answers_, produced = {}, {}, written()
    for release, most in (("0.8.2.2", 0), ("0.10.2.2", 1), ("3.9.1", 1)):
        given = [ours for magic, _, _, ours in cases if ours and magic <= most]
        # lz4 in magic 0 has a header checksum that only the oldest take; zstd comes as gzip
        if most:
            given = [data for data in given if not any((e.magic, e.codec) == (0, 3) for e in R.batches(data))]
        given += [down(R.encode_batch(rows(random.Random(3), 7, 40), codec=codec), magic=most) for codec in range(5)]
        lines = [f"read {data.hex()}" for data in given]
        if release == "3.9.1":
            lines += [f"down {magic} {at} {data.hex()}" for magic, at, data, _ in cases]
        else:
            lines += [f"write {codec} {count} {TIME}" for codec in CODECS for count in (1, 30)]
        program = "DownConversion" if release == "3.9.1" else "OldMessageSets"
        answers = java_programs.answers(program, java_programs.jars_of(release), lines)
        read_[release], answers_[release], more = given, answers[: len(given)], answers[len(given) :]
        if release != "3.9.1":
            produced += [bytes.fromhex(answer.rstrip(".")) for answer in more]
    lines = [f"2 {data.hex()}" for one in produced for data in (one, up(one))]
    lines += [f"2 {data.hex()}" for data in damaged()]
    ups = java_programs.answers("UpConversion", java_programs.broker_jars(), lines)
    return Trial(cases, read_, answers_, more, produced, damaged(), ups)


@pytest.mark.slow
def test_down_conversion_as_in_kafka(trial):
    same = 0
    for (magic, _, _, ours), answer in zip(trial.fetched, trial.downs, strict=True):
        assert not answer.startswith("!"), answer
        theirs = bytes.fromhex(answer.rstrip("."))
        assert shape(ours) == shape(theirs), (magic, theirs.hex())
        same += bool(ours) and ours == theirs
    assert same > 20  # nothing compressed in them: every byte


@pytest.mark.slow
@pytest.mark.parametrize("release", ["0.8.2.2", "0.10.2.2", "3.9.1"])
def test_old_consumers_read_down_converted_records(trial, release):
    given = trial.read[release]
    assert [answer.rstrip(".") for answer in trial.answers[release]] == [as_java(read(data)) for data in given]
    assert len(given) > 40


@pytest.mark.slow
def test_up_conversion_as_in_kafka(trial):
    """A 4.x log, given a producer's set, and given ours made of it, holds the same."""
    assert {e.magic for data in trial.produced for e in R.batches(data)} == {0, 1}
    ups = iter(trial.ups)
    for data in trial.produced:
        theirs, appended = next(ups), next(ups)
        assert not theirs.startswith("!") and not appended.startswith("!"), (theirs, appended)
        made = shape(up(data))
        assert shape(bytes.fromhex(appended.rstrip("."))) == shape(bytes.fromhex(theirs.rstrip("."))) == made, data


def test_sets_that_kafka_refuses_are_refused(trial):
    for answer, data in zip(trial.ups[-len(trial.damaged) :], trial.damaged, strict=True):
        assert answer.startswith("! "), answer
        with pytest.raises(ConversionError):
            up(data)
