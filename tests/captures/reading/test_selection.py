"""Filters over recordings: the index with and without numpy, the exchanges read back, and tshark as a judge."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.captures import Capture, Recorder, open_capture
from barnabas.captures.reading.selection import Selection, count, select
from barnabas.decoder import Exchange
from barnabas.decoder.filter import compile
from barnabas.plugins.actions.fault_plan import FaultPlan
from harness.run.examples import times
from harness.run.slices import thin
from harness.waiting import PATIENCE
from harness.wire import with_size
from hypothesis import given
from traffic.generated_filters import ALL_TESTS, INDEX_TESTS, Sample, filters

NOW = 1_795_223_022_000_000_000
TOPICS = ("orders", "payments", "returns")
CLIENTS = ("stock-1", "stock-2", "billing")


def frames(chosen: random.Random, number: int) -> tuple[int, int, dict[str, Any], dict[str, Any]]:
    """An API, a version that tshark knows, and the two bodies of an exchange."""
    topic, partition = chosen.choice(TOPICS), chosen.randrange(4)
    error = chosen.choice((0, 0, 0, 6, 15, 27))
    group = chosen.choice(("stock", "web"))
    kind = chosen.randrange(6)
    if kind == 0:
        batch = decoder.records.encode_batch([decoder.records.Record(0, 1_700_000_000_000, b"k", b"v" * number, ())])
        return (
            0,
            7,
            {
                "acks": chosen.choice((1, -1)),
                "timeout_ms": 1000,
                "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
            },
            {"responses": [{"name": topic, "partition_responses": [{"index": partition, "error_code": error}]}]},
        )
    if kind == 1:
        return (
            1,
            6,
            {"topics": [{"topic": topic, "partitions": [{"partition": partition}]}]},
            {"responses": [{"topic": topic, "partitions": [{"partition_index": partition, "error_code": error}]}]},
        )
    if kind == 2:
        parts = [{"partition_index": i, "error_code": chosen.choice((0, 5))} for i in range(2)]
        return 3, 1, {"topics": [{"name": topic}]}, {"topics": [{"name": topic, "error_code": 0, "partitions": parts}]}
    if kind == 3:
        return 12, 3, {"group_id": group, "member_id": f"m-{number}"}, {"error_code": error}
    if kind == 4:
        return 10, 1, {"key": group}, {"error_code": error, "node_id": 1, "host": "kafka", "port": 9092}
    return 18, 0, {}, {"error_code": error, "api_keys": [{"api_key": 0, "min_version": 0, "max_version": 6}]}


def write(recorder: Recorder, numbers: range) -> None:
    chosen = random.Random(numbers.start)
    for number in numbers:
        conn = number % 3
        client = CLIENTS[conn]
        api, version, asked, answered = frames(chosen, number)
        at = NOW + number * 1_000_000_000
        request = decoder.encode_request(api, version, asked, correlation_id=number, client_id=client)
        recorder.data(conn, 0, at, with_size(request))
        if number % 29 != 5:
            response = decoder.encode_response(api, version, answered, correlation_id=number)
            recorder.data(conn, 1, at + chosen.randrange(1, 200) * 1_000_000, with_size(response))
        if number % 31 == 7:
            recorder.note(conn, number, "a rule")


def begin(directory: Path, segment_bytes: int = 1 << 20) -> Recorder:
    recorder = Recorder(directory, segment_bytes=segment_bytes, flush_seconds=3600)
    for conn in range(3):
        recorder.opened(conn, NOW - 1, client=(f"10.0.{conn}.1", 50000 + conn), broker=(f"192.168.0.{conn}", 9092))
    return recorder


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 exchanges of 6 APIs on 3 connections, in several segments."""
    directory = tmp_path_factory.mktemp("selection") / "recording"
    recorder = begin(directory, 30_000)
    write(recorder, range(400))
    recorder.close()
    return directory


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in one segment, for tshark."""
    recorder = begin(tmp_path_factory.mktemp("judged"))
    write(recorder, range(400))
    recorder.close()
    return next(tmp_path_factory.getbasetemp().glob("judged*/*.pcapng"))


@pytest.fixture(scope="module")
def capture(recording: Path) -> Iterator[Capture]:
    with open_capture(recording) as opened:
        assert len(opened.segments) > 3
        yield opened


def whole(capture: Capture) -> list[Exchange]:
    """Every exchange, with the names of topics and what is known of its connection."""
    selection = Selection(capture, compile("software"), topics=True)
    return [selection.exchange(number) for number in range(len(capture.rows()))]


@pytest.fixture(scope="module")
def exchanges(capture: Capture) -> Sample:
    return Sample(whole(capture))


def by_hand(capture: Capture, text: str, exchanges: list[Exchange] | None = None) -> list[int]:
    """Every exchange asked."""
    wanted = Selection(capture, compile(text)).filter  # it knows the recording's time
    return [number for number, exchange in enumerate(exchanges or whole(capture)) if wanted(exchange)]


@times(0.25)
@given(filters(INDEX_TESTS))
def test_the_index_selects_the_same_rows_as_the_exchanges(capture: Capture, exchanges: Sample, text: str) -> None:
    wanted = compile(text)
    expected = by_hand(capture, text, exchanges)
    for vector in (True, False):
        selection = Selection(capture, wanted, vector)
        assert list(selection.rows()) == expected
        assert list(selection.rows(newest_first=True)) == expected[::-1]
        assert selection.count() == len(expected) and selection.decoded == 0
        assert list(selection.rows(start=50, stop=250)) == [n for n in expected if 50 <= n < 250]
        assert selection.count(50, 250) == sum(50 <= n < 250 for n in expected)


@times(0.2)
@given(filters(ALL_TESTS))
def test_index_and_decoder_together_select_the_same_rows(capture: Capture, exchanges: Sample, text: str) -> None:
    expected = by_hand(capture, text, exchanges)
    assert list(select(capture, compile(text))) == expected
    assert list(Selection(capture, compile(text), False).rows(newest_first=True)) == expected[::-1]
    assert count(capture, compile(text)) == len(expected)


@pytest.fixture
def unread(recording: Path, tmp_path: Path) -> Iterator[Capture]:
    """The recording, of which no exchange was decoded before."""
    with open_capture(shutil.copytree(recording, tmp_path / "unread", ignore=shutil.ignore_patterns("*.names"))) as opened:
        yield opened


def test_only_exchanges_that_the_index_cannot_decide_are_decoded(unread: Capture) -> None:
    produced = sum(row.api_key == 0 for row in unread.rows())
    selection = Selection(unread, compile("api == Produce and err and topic == orders"))
    assert 0 < len(list(selection.rows())) < selection.decoded < produced
    known = selection.decoded
    selection = Selection(unread, compile("api == Produce and topic == orders"))
    found = list(selection.rows())
    assert 0 < len(found) < produced == selection.decoded + known
    selection = Selection(unread, compile("acks == 1"))
    assert list(selection.rows()) and selection.decoded == produced


def test_the_first_hits_do_not_wait_for_the_others(unread: Capture) -> None:
    selection = Selection(unread, compile("topic == orders"))
    assert len(list(islice(selection.rows(newest_first=True), 3))) == 3
    assert 0 < selection.decoded < 60


JUDGED = [
    "kafka.api_key == 0",
    "kafka.api_key == 12 || kafka.api_key == 10",
    "!(kafka.api_key == 0) && kafka.api_version >= 3",
    'kafka.client_id == "stock-1"',
    'kafka.client_id contains "stock" && kafka.api_key eq 3',
    'kafka.client_id matches "^b.*g$"',
    "kafka.required_acks == 1",
    'kafka.api_key == 0 && kafka.topic_name == "orders"',
    'kafka.api_key == 1 && kafka.topic_name == "payments" && kafka.partition_id == 2',
    'kafka.consumer_group == "web" && kafka.api_key == 12',
    "kafka.correlation_id ge 100 and kafka.correlation_id lt 120",
    "kafka.correlation_id in {1, 5, 7..9}",
    "tcp.port == 50001",
    "ip.addr == 10.0.2.0/24",
    "ip.addr == 192.168.0.1 and not kafka.api_key == 0",
]


@pytest.mark.parametrize("text", thin(JUDGED, 5))
def test_tshark_selects_the_same_requests_by_the_same_text(segment: Path, tshark: Callable[..., list[str]], text: str) -> None:
    """A display filter that means the same in both languages selects the same requests."""
    seen = set(map(int, tshark(segment, f"kafka.api_key && ({text})", "-T", "fields", "-e", "kafka.correlation_id")))
    with open_capture(segment) as opened:
        found = {opened.rows()[n].correlation_id for n in select(opened, compile(text))}
    assert found == seen
    assert 0 < len(seen) < 400


@pytest.fixture(scope="module")
def failed(segment: Path, tshark: Callable[..., list[str]]) -> list[tuple[int, list[str]]]:
    """Correlation ids and error codes of responses, as tshark sees them."""
    fields = ("-T", "fields", "-e", "kafka.correlation_id", "-e", "kafka.error")
    rows = (line.split("\t") for line in tshark(segment, "kafka.error && kafka.request_frame", *fields))
    return [(int(correlation_id), codes.split(",")) for correlation_id, codes in rows]


@pytest.mark.parametrize("code", [5, 6, 15, 27])
def test_the_same_errors_as_tshark(segment: Path, failed: list[tuple[int, list[str]]], code: int) -> None:
    seen = {correlation_id for correlation_id, codes in failed if str(code) in codes}
    with open_capture(segment) as opened:
        found = {opened.rows()[n].correlation_id for n in select(opened, compile(f"errors == {code}"))}
    assert found == seen
    assert seen


def test_a_recording_that_grows(tmp_path: Path) -> None:
    recorder = begin(tmp_path / "live")
    write(recorder, range(40))
    recorder.flush()
    with open_capture(tmp_path / "live") as opened:
        assert opened.live
        selections = [
            Selection(opened, compile(t)) for t in ("err", "topic == orders", "client == new", "addr == 10.9.9.9")
        ]
        before = [list(selection.rows()) for selection in selections]
        known = len(opened.rows())
        recorder.opened(9, NOW, client=("10.9.9.9", 1), broker=("kafka", 9092))
        frame = decoder.encode_request(18, 0, {}, correlation_id=1, client_id="new")
        recorder.data(9, 0, NOW, with_size(frame))
        recorder.data(9, 1, NOW + 5, with_size(decoder.encode_response(18, 0, {"error_code": 35}, correlation_id=1)))
        write(recorder, range(40, 80))
        recorder.flush()
        assert opened.refresh() > 40
        for selection, old in zip(selections, before, strict=True):
            added = list(selection.rows(start=known))
            assert added and added[0] >= known
            assert list(selection.rows()) == old + added == by_hand(opened, selection.filter.text)
    recorder.close()


def test_pending_is_measured_by_the_clock_or_the_end_of_the_recording(tmp_path: Path) -> None:
    recorder = begin(tmp_path / "live")
    write(recorder, range(40))
    for conn, ago in ((0, 5), (1, 35)):
        frame = decoder.encode_request(18, 0, {}, correlation_id=1000 + conn, client_id="late")
        recorder.data(conn, 0, NOW + (40 - ago) * 10**9, with_size(frame))
    recorder.close()
    with open_capture(tmp_path / "live") as opened:
        waiting = [row for row in opened.rows() if row.state == "pending"]
        end = max(row.time_ns + (row.latency_ns or 0) for row in opened.rows())
        assert {row.correlation_id for row in waiting} == {1000, 1001}
        for vector in (True, False):
            for seconds in (4, 5, 30, 100):
                expected = [row.number for row in waiting if end - row.time_ns > seconds * 10**9]
                assert list(Selection(opened, compile(f"pending > {seconds}s"), vector).rows()) == expected
                assert by_hand(opened, f"pending > {seconds}s") == expected
        later = compile("pending > 1h", now=end + 2 * 3600 * 10**9)
        assert len(list(select(opened, later))) == 2


def test_topics_known_by_their_ids_and_software(tmp_path: Path) -> None:
    """The name of a topic id is known from a Metadata that may come later, and the software from ApiVersions."""
    identity = uuid.UUID(bytes=bytes(range(16)))
    topic = {"topic_id": identity, "partitions": [{"partition": 1}]}
    named = {"topics": [{"name": "orders", "topic_id": identity}]}
    offered = {"api_keys": [{"api_key": 1, "min_version": 4, "max_version": 12}]}
    recorder = begin(tmp_path / "rec")
    exchanges_made: list[tuple[int, int, int, dict[str, Any], dict[str, Any]]] = [
        (0, 1, 13, {"topics": [topic]}, {}),
        (0, 18, 3, {"client_software_name": "librdkafka", "client_software_version": "2.5"}, offered),
        (0, 3, 12, {"topics": None}, named),
        (1, 1, 13, {"topics": [topic]}, {}),
        (1, 1, 13, {"topics": []}, {}),
    ]
    for number, (conn, api, version, asked, answered) in enumerate(exchanges_made):
        request = decoder.encode_request(api, version, asked, correlation_id=number, client_id="c")
        recorder.data(conn, 0, NOW + number, with_size(request))
        response = decoder.encode_response(api, version, answered, correlation_id=number)
        recorder.data(conn, 1, NOW + number, with_size(response))
    recorder.close()
    with open_capture(tmp_path / "rec") as opened:
        assert list(select(opened, compile("topic == orders"))) == [0, 2, 3]
        assert list(select(opened, compile("topic == orders and partition == 1"))) == [0, 3]
        assert list(select(opened, compile("software == librdkafka"))) == [0, 1, 2]
        assert list(select(opened, compile("ver > broker.max"))) == [0]
        assert count(opened, compile("api == Fetch and not broker.max")) == 2


def test_without_numpy_nothing_imports_it(recording: Path, tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "sys.modules['numpy'] = None\n"
        "from barnabas.captures import open_capture; from barnabas.captures.reading import selection\n"
        "from barnabas.decoder.filter import compile\n"
        "assert not selection.has_numpy()\n"
        f"capture = open_capture({str(recording)!r})\n"
        "for text in ('err and latency > 5ms', 'client ~ stock', 'addr == 10.0.0.0/8', 'time > 12:00 or pending > 5s',\n"
        "             'api == Produce and topic == orders'):\n"
        "    print(selection.count(capture, compile(text)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 5


def test_a_selection_of_a_growing_recording_is_repeatable(tmp_path: Path) -> None:
    """As a screen does: stretch by stretch, while the recording grows and the clock goes on."""
    recorder = begin(tmp_path / "live")
    clock = [NOW]
    with_clock = [
        compile(t, now=lambda: clock[0])
        for t in ("pending > 20s", "client ~ new", "err", "software or topic == orders")
    ]
    recorder.flush()
    with open_capture(tmp_path / "live") as opened:
        selections = [Selection(opened, wanted) for wanted in with_clock]
        found: list[list[int]] = [[] for _ in selections]
        seen = 0
        for step in range(5):
            write(recorder, range(step * 20, step * 20 + 20))
            recorder.opened(100 + step, NOW, client=(f"10.0.9.{step}", 1), broker=("kafka", 9092))
            frame = decoder.encode_request(18, 0, {}, correlation_id=step, client_id=f"new-{step}")
            recorder.data(100 + step, 0, NOW, with_size(frame))
            recorder.data(100 + step, 1, NOW + 5, with_size(decoder.encode_response(18, 0, {}, correlation_id=step)))
            recorder.flush()
            opened.refresh()
            clock[0] += 25 * 10**9
            for selection, numbers in zip(selections, found, strict=True):
                numbers.extend(selection.rows(start=seen))
            seen = len(opened.rows())
        for selection, numbers in list(zip(selections, found, strict=True))[1:]:
            assert numbers == by_hand(opened, selection.filter.text) and len(numbers) >= 5
        recorder.data(0, 0, NOW, with_size(decoder.encode_request(18, 0, {}, correlation_id=999, client_id="late")))
        recorder.close()
        opened.refresh()
        waiting = [row.number for row in opened.rows() if row.state == "pending"]
        assert waiting
        for late, expected in ((NOW, []), (NOW + 10**12, waiting)):
            clock[0] = late
            assert list(selections[0].rows()) == expected


def test_exchanges_by_the_rule_that_hit_them(tmp_path: Path) -> None:
    """Of all exchanges with a comment those of one rule; only what has a comment is read."""
    recorder = Recorder(tmp_path / "r", flush_seconds=3600)
    recorder.opened(0, NOW, client=("10.0.0.1", 5), broker=("10.0.0.2", 9092))
    names = ["it's late", 'a "b" \\ c', "other"]
    for number in range(40):
        recorder.data(0, 0, NOW + number, with_size(decoder.encode_request(12, 4, {}, correlation_id=number)))
        if number % 4 == 1:
            recorder.note(0, number, FaultPlan(names[number // 4 % 3], number, ["answered"]).note)
        elif number % 8 == 2:
            recorder.note(0, number, "edited by hand; rule other")
        recorder.data(0, 1, NOW + number + 1, with_size(decoder.encode_response(12, 4, {}, correlation_id=number)))
    recorder.close()
    with open_capture(tmp_path / "r") as capture:
        hit = {name: [n for n in range(1, 40, 4) if names[n // 4 % 3] == name] for name in names}
        for text, expected in (
            ('rule == "it\'s late"', hit["it's late"]),
            (r'rule == "a \"b\" \\ c"', hit['a "b" \\ c']),
            ("api == Heartbeat and rule contains othe", hit["other"]),
            ("rule", range(1, 40, 4)),
        ):
            selection = Selection(capture, compile(text))
            assert list(selection.rows()) == list(expected), text
            assert selection.decoded == 15
        assert len(list(Selection(capture, compile("rule != other")).rows())) == 40 - len(hit["other"])
