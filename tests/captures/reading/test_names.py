"""Topics, groups and transactional ids that a capture remembers: filters give the same answer with and without them."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pytest
from barnabas import decoder
from barnabas.captures import Capture, Recorder, open_capture
from barnabas.captures.pcap.packets import build
from barnabas.captures.reading.selection import Selection
from barnabas.captures.reading.verify import verify
from barnabas.captures.recording.names import NameTable
from barnabas.captures.recording.retention import remove
from barnabas.decoder import Exchange, State
from barnabas.decoder.filter import compile
from barnabas.decoder.filter.values import pairs
from harness.run.examples import times
from harness.run.slices import thin
from harness.wire import with_size
from hypothesis import given
from traffic.generated_filters import NAME_TESTS, filters
from traffic.packets import as_pcap
from traffic.recordings import CAPTURES

NOW = 1_795_223_022_000_000_000
IDS = {name: bytes(15) + bytes([number]) for number, name in enumerate(("orders", "a", "abc"), 1)}
WAYS = (
    "topic == orders", "topic != orders", "topic", "not topic", "any(topic != orders)", "all(topic ~ r)", "topic ~ o and partition == 1",
    "topic == orders and topic.id", "topic.id", "group == stock or topic == a", "group != stock and err", "txn == pay or latency > 3ms",
    "topic == abc or api == Heartbeat", "not (topic == a and partition != 1)", "(topic == a or topic == abc) and partition == 0",
    "topic == orders and acks == 1", "group in {stock, web} and not client == c-1",
)  # fmt: skip


def record(directory: Path, count: int = 200, segment_bytes: int = 12_000) -> Path:
    """Exchanges with names, ids, both or neither; the names of ids come late."""
    chosen = random.Random(3)
    recorder = Recorder(directory, segment_bytes=segment_bytes, flush_seconds=3600)
    for connection in range(3):
        recorder.opened(connection, NOW, client=("10.0.0.1", 50000 + connection), broker=("kafka", 9092))
    for number in range(count):
        topic, partition = chosen.choice(tuple(IDS)), chosen.randrange(3)
        several = [{"topic": name, "partitions": [{"partition": partition}]} for name in chosen.sample(tuple(IDS), 2)]
        group, txn = chosen.choice(("stock", "web", "")), chosen.choice(("pay", None))
        by_id = [{"topic_id": IDS[topic], "partitions": [{"partition": partition}]}]
        produced = [{"name": topic, "partition_data": [{"index": partition}]}]
        api, version, asked, answered = chosen.choice(
            (
                (0, 9, {"transactional_id": txn, "acks": chosen.choice((1, -1)), "topic_data": produced}, {}),
                (1, 12, {"topics": several}, {"responses": []}),
                (1, 13, {"topics": by_id}, {"error_code": chosen.choice((0, 6))}),
                (12, 4, {"group_id": group}, {"error_code": chosen.choice((0, 27))}),
                (10, 3, {"key": group, "key_type": chosen.choice((0, 1))}, {}),
                (18, 0, {}, {}),
                (3, 12, {"topics": None}, {"topics": [{"name": topic, "topic_id": IDS[topic]}]} if number > count * 0.7 else {}),
            )
        )
        request = decoder.encode_request(api, version, asked, correlation_id=number, client_id=f"c-{number % 3}")
        response = decoder.encode_response(api, version, answered, correlation_id=number)
        if number % 40 == 7:
            request = request[:-1]  # cannot be decoded
        at = NOW + number * 1_000_000_000
        recorder.data(number % 3, 0, at, with_size(request))
        if number % 23:
            recorder.data(number % 3, 1, at + chosen.randrange(1, 6) * 1_000_000, with_size(response))
    recorder.close()
    return directory


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("names") / "recording")


@pytest.fixture
def recording(recorded: Path, tmp_path: Path) -> Path:
    """A copy to which nothing was written yet."""
    return Path(shutil.copytree(recorded, tmp_path / "recording"))


@pytest.fixture(scope="module")
def warm(recorded: Path) -> Iterator[tuple[Capture, list[Exchange]]]:
    """A capture of which some names are known, and each exchange, for the function over exchanges."""
    with open_capture(recorded) as capture:
        selection = Selection(capture, compile("software"), topics=True)
        whole = [selection.exchange(number) for number in range(len(capture.rows()))]
        assert list(Selection(capture, compile("api in {Produce, Metadata, Heartbeat} and topic == x or group == x")).rows(stop=150)) == []
        yield capture, whole


def by_hand(capture: Capture, text: str) -> list[int]:
    """Each exchange read and decoded, and asked."""
    selection = Selection(capture, compile("software"), topics=True)
    wanted = compile(text)
    return [number for number in range(len(capture.rows())) if wanted(selection.exchange(number))]


@times(1)
@given(filters(NAME_TESTS))
def test_filters_of_names_agree_with_the_exchanges(warm: tuple[Capture, list[Exchange]], text: str) -> None:
    capture, whole = warm
    wanted = compile(text)
    expected = [number for number, exchange in enumerate(whole) if wanted(exchange)]
    for vector in (True, False):
        assert list(Selection(capture, wanted, vector).rows()) == expected
        assert list(Selection(capture, wanted, vector).rows(newest_first=True)) == expected[::-1]
    assert Selection(capture, wanted).count(20, 120) == sum(20 <= number < 120 for number in expected)


@pytest.mark.parametrize("vector", [True, False])
@pytest.mark.parametrize("text", WAYS)
def test_what_was_decoded_once_is_known_to_the_next_filter_and_the_next_command(recording: Path, text: str, vector: bool) -> None:
    with open_capture(recording) as capture:
        expected = by_hand(capture, text)
        undecoded = sum(row.undecoded for row in capture.rows())
        first = Selection(capture, compile(text), vector)
        assert list(first.rows()) == expected
        second = Selection(capture, compile(text), vector)
        assert list(second.rows()) == expected
        if first.filter.names_decide:
            assert second.decoded <= undecoded < first.decoded
        else:
            assert second.decoded <= first.decoded
        assert list(recording.glob("*.names")) == []  # nothing is written that nobody has asked for
        assert capture.save_names() == len(capture.segments)
    written = list(recording.glob("*.names"))
    assert len(written) > 2 and {path.stat().st_mode & 0o777 for path in written} == {0o600}
    with open_capture(recording) as capture:
        third = Selection(capture, compile(text), not vector)
        assert list(third.rows()) == expected and third.decoded == second.decoded
        assert list(Selection(capture, compile(text)).rows(newest_first=True)) == expected[::-1]


@pytest.mark.parametrize("name", thin([path.stem for path in sorted(CAPTURES.glob("*.pcapng"))], 8))
def test_recordings_of_real_clients(name: str) -> None:
    before = sorted(CAPTURES.iterdir())
    with open_capture(CAPTURES / f"{name}.pcapng") as capture:
        topics = set(WAYS)
        selection = Selection(capture, compile("software"), topics=True)
        for number in range(min(len(capture.rows()), 200)):
            for pair in pairs(selection.exchange(number)):
                if pair.topic and pair.topic.isprintable() and pair.topic.isascii():
                    topics.add(f'topic == "{pair.topic}"')
        for text in sorted(topics):
            expected = by_hand(capture, text)
            for vector in (True, False):
                assert list(Selection(capture, compile(text), vector).rows()) == expected, text
    assert sorted(CAPTURES.iterdir()) == before


def know(recording: Path) -> list[Path]:
    """Ask for all names; return the files."""
    with open_capture(recording) as capture:
        list(Selection(capture, compile("topic == orders")).rows())
        capture.save_names()
    return sorted(recording.glob("*.names"))


def test_damaged_and_foreign_files_of_names_are_ignored(recording: Path) -> None:
    files = know(recording)
    whole = files[0].read_bytes()
    chosen = random.Random(1)
    damaged = [whole[:size] for size in (0, 15, 16, 79, 100, len(whole) - 1)]
    for at in (*range(0, 80, 7), *(chosen.randrange(len(whole)) for _ in range(20))):
        damaged.append(whole[:at] + bytes([whole[at] ^ 1 << chosen.randrange(8)]) + whole[at + 1 :])
    for bad in (*damaged, files[1].read_bytes()):
        files[0].write_bytes(bad)
        with open_capture(recording) as capture:
            selection = Selection(capture, compile("topic == orders"))
            assert list(selection.rows()) == by_hand(capture, "topic == orders")
            assert selection.decoded > 10
            capture.save_names()
        with open_capture(recording) as capture:  # it was written anew
            selection = Selection(capture, compile("topic == orders"))
            list(selection.rows())
            assert selection.decoded < 10


@pytest.mark.parametrize(
    "stored",
    [b"", b"[]", b"{}", b"null", b'{"release":"0.0","sets":[]}', b'{"release":RELEASE,"sets":[]}', b'{"release":RELEASE,"sets":7}',
     b'{"release":RELEASE,"sets":[[[["a",7]],[],[],[]]]}', b'{"release":RELEASE,"sets":[[[[7,null]],[],[],[]]]}',
     b'{"release":RELEASE,"sets":[[[],[[]],[],[]]]}', b"[" * 100_000],
)  # fmt: skip
def test_hostile_files_of_names_are_ignored(recording: Path, stored: bytes) -> None:
    """With a right checksum."""
    import json
    import struct
    import zlib

    from barnabas import __version__

    file = know(recording)[0]
    with open_capture(recording) as capture:
        count = capture.segments[0].index.count
    for ids in (bytes(4 * count), struct.pack("<I", 9) * count):
        data = file.read_bytes()[16:80] + ids + stored.replace(b"RELEASE", json.dumps(__version__).encode())
        file.write_bytes(struct.pack("<8sII", b"BRNBNAM1", 1, zlib.crc32(data)) + data)
        with open_capture(recording) as capture:
            selection = Selection(capture, compile("topic == orders"))
            assert list(selection.rows()) == by_hand(capture, "topic == orders") and selection.decoded


def test_a_folder_that_cannot_be_written_to(recording: Path) -> None:
    """Nothing is left behind."""
    for segment in recording.glob("*.pcapng"):
        segment.with_suffix(".names").mkdir()
    before = sorted(recording.iterdir())
    with pytest.raises(IsADirectoryError):
        know(recording)
    assert sorted(recording.iterdir()) == before


def test_what_a_killed_command_left_behind_is_removed(recording: Path) -> None:
    name = next(recording.glob("*.pcapng")).with_suffix(".names").name
    old, new, other = recording / f".{name}.abc.part", recording / f".{name}.xyz.part", recording / ".other.names.abc.part"
    for path in (old, new, other):
        path.write_bytes(b"BRNB")
    for path in (old, other):
        os.utime(path, (1, 1))
    know(recording)
    assert not old.exists() and new.exists() and other.exists()
    assert {path.name for path in recording.glob(".*")} == {new.name, other.name}


def test_a_link_and_a_pipe_in_the_place_of_names_are_replaced(recording: Path, tmp_path: Path) -> None:
    first, second = (path.with_suffix(".names") for path in sorted(recording.glob("*.pcapng"))[:2])
    (tmp_path / "theirs").write_bytes(b"theirs")
    first.symlink_to(tmp_path / "theirs")
    os.mkfifo(second)
    know(recording)
    assert (tmp_path / "theirs").read_bytes() == b"theirs"
    assert first.is_file() and not first.is_symlink() and second.is_file()


@pytest.mark.parametrize("vector", [True, False])
def test_a_filter_knows_whether_it_has_to_read(recording: Path, vector: bool) -> None:
    with open_capture(recording) as capture:

        def knows(text: str) -> bool:
            return Selection(capture, compile(text), vector).knows_names()

        assert not knows("topic == orders") and not knows("api == Heartbeat and group == stock")
        list(Selection(capture, compile("api == Heartbeat and group == x"), vector).rows())
        assert knows("api == Heartbeat and group == stock") and not knows("topic == orders")
        list(Selection(capture, compile("not topic"), vector).rows())
        assert knows("topic == orders") and knows("group != x")
        assert any(row.undecoded for row in capture.rows())
        capture.save_names()
    with open_capture(recording) as capture:
        assert knows("topic == orders")


def test_the_file_goes_with_its_segment_and_its_index(recording: Path) -> None:
    files = know(recording)
    remove(files[0].with_suffix(".pcapng"))
    assert not files[0].exists() and files[1].exists()
    files[1].with_suffix(".index").unlink()
    verify(files[1].with_suffix(".pcapng"), write=True)
    assert files[1].with_suffix(".index").exists() and not files[1].exists()


def test_a_segment_that_was_removed_leaves_no_names_behind(recording: Path) -> None:
    with open_capture(recording) as capture:
        list(Selection(capture, compile("topic == orders")).rows())
        for path in list(recording.iterdir()):
            path.unlink()
        assert capture.save_names() == 0
    assert list(recording.iterdir()) == []


def test_names_without_end_take_bounded_memory(recording: Path) -> None:
    with open_capture(recording) as capture:
        capture.name_table = NameTable(room=400)
        for text in ("topic == orders", "group == stock", "topic != a"):
            for _ in range(2):
                selection = Selection(capture, compile(text))
                assert list(selection.rows()) == by_hand(capture, text)
                assert selection.decoded
        assert 2 < len(capture.name_table.sets) < 8


@pytest.mark.parametrize("vector", [True, False])
def test_filters_that_take_turns(recording: Path, vector: bool) -> None:
    """As on a screen: each learns what the others have not seen yet, within the same stretch of rows."""
    with open_capture(recording) as capture:
        expected = [by_hand(capture, text) for text in WAYS]
        turns = [iter(Selection(capture, compile(text), vector).rows()) for text in WAYS]
        found: list[list[int]] = [[] for _ in WAYS]
        for row in zip_longest(*turns):
            for numbers, number in zip(found, row, strict=True):
                numbers.extend([] if number is None else [number])
    assert found == expected


def test_a_live_recording(tmp_path: Path) -> None:
    """What is added is decoded, the rest is known; nothing is written beside a segment that grows."""
    recorder = Recorder(tmp_path / "live", flush_seconds=3600)
    recorder.opened(0, NOW, client=("10.0.0.1", 5), broker=("kafka", 9092))

    def heartbeats(numbers: range) -> None:
        for number in numbers:
            group = ("stock", "web")[number % 2]
            frame = decoder.encode_request(12, 4, {"group_id": group}, correlation_id=number, client_id="c")
            recorder.data(0, 0, NOW + number, with_size(frame))
            recorder.data(0, 1, NOW + number, with_size(decoder.encode_response(12, 4, {}, correlation_id=number)))
        recorder.flush()

    heartbeats(range(30))
    with open_capture(tmp_path / "live") as capture:
        selection = Selection(capture, compile("group == web"))
        assert list(selection.rows()) == list(range(1, 30, 2)) and selection.decoded == 30
        heartbeats(range(30, 50))
        capture.refresh()
        assert list(selection.rows()) == list(range(1, 50, 2)) and selection.decoded == 50
        assert capture.save_names() == 0
    assert not list((tmp_path / "live").glob("*.names"))
    recorder.close()


@pytest.mark.parametrize("vector", [True, False])
def test_responses_that_a_growing_capture_of_another_tool_has_late(tmp_path: Path, vector: bool) -> None:
    """A request is in flight when the filter looks at it first; its response names the topics."""
    asked = with_size(decoder.encode_request(3, 1, {"topics": None}, correlation_id=1))
    answered = with_size(decoder.encode_response(3, 1, {"topics": [{"name": "orders"}]}, correlation_id=1))
    ends = [(("10.0.0.1", 40_000 + number), ("10.0.0.9", 9092)) for number in range(100)]
    packets = [[(NOW, build(client, broker, 1, 1, 0x18, asked, 0)) for client, broker in ends],
               [(NOW + 1000, build(broker, client, 1, 1 + len(asked), 0x18, answered, 1)) for client, broker in ends]]  # fmt: skip
    path = tmp_path / "grows.pcap"
    path.write_bytes(as_pcap(packets[0]))
    with open_capture(path) as capture, open(path, "ab") as file:
        selection = Selection(capture, compile("topic == orders"), vector)
        while len(capture.rows()) < len(ends) and capture.refresh():
            pass
        assert not list(selection.rows())
        assert [row.state for row in capture.rows()] == [State.PENDING] * len(ends)
        file.write(as_pcap(packets[0] + packets[1])[len(as_pcap(packets[0])) :])
        file.flush()
        while capture.refresh():
            pass
        assert {row.state for row in capture.rows()} == {State.PAIRED}
        assert len(list(selection.rows())) == len(ends)
