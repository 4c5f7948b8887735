"""Retention and the flight recorder in a running proxy: scripted peers for what must be exact, and a real client
against librdkafka's mock cluster. ``tests/captures`` tries the flight recorder itself, by a clock of its own."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.captures import open_capture
from barnabas.captures.recording.flight_recorder import read_note
from barnabas.proxy import events
from barnabas.proxy.control import Control, ControlConfig, ControlError
from barnabas.proxy.events import Counts, Recording, RecordingFailed
from barnabas.proxy.observers.settings import FlightConfig, RecordingConfig
from harness import scripted, wire
from harness.run.lines import line
from harness.testbed import Script, Testbed, next_event
from harness.waiting import PATIENCE

HEARTBEAT = 12


def beat(number: int, group: str = "g" * 2000) -> bytes:
    fields = {"group_id": group, "generation_id": 3, "member_id": "m"}
    return wire.with_size(decoder.encode_request(HEARTBEAT, 0, fields, correlation_id=number, client_id="t"))


def answering(errors: dict[int, int] | None = None) -> Script:
    """A broker that answers heartbeats; `errors`: by correlation id."""

    def answer(_: bytes, number: int) -> bytes:
        fields = {"error_code": (errors or {}).get(number, 0)}
        return wire.with_size(decoder.encode_response(HEARTBEAT, 0, fields, correlation_id=number))

    return scripted.each(answer)


class Traffic:
    """A client that asks and waits for the answer, and counts."""

    def __init__(self, testbed: Testbed, address: tuple[str, int]) -> None:
        self._sock = testbed.client(address)
        self.number = 0

    def send_heartbeats(self, count: int = 1) -> None:
        for _ in range(count):
            self.number += 1
            self._sock.sendall(beat(self.number))
            assert wire.read_frame(self._sock)


def numbers(path: str | Path) -> list[int]:
    with open_capture(path) as capture:
        return [row.correlation_id for row in capture.rows()]


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # renamed, or removed
        return 0


def test_a_recording_stays_within_its_size(testbed: Testbed, tmp_path: Path) -> None:
    broker = testbed.broker(answering())
    config = RecordingConfig(rotate_bytes=64 << 10, keep_bytes=300 << 10)
    (tmp_path / "rec").mkdir()
    proxy = testbed.proxy(broker.address, record=tmp_path / "rec", recording=config)
    (tmp_path / "rec" / "mine.txt").write_text("x")
    traffic = Traffic(testbed, proxy.address)
    most = 0
    for _ in range(20):
        traffic.send_heartbeats(25)
        most = max(most, sum(map(size_of, (tmp_path / "rec").iterdir())))
    event = next_event(proxy, events.SegmentsRemoved)
    assert event.segments >= 1 and event.first in event.text and event.directory == str(tmp_path / "rec")
    proxy.stop()
    assert traffic.number * 2000 > 2 * (300 << 10) and most <= (300 << 10) * 1.2
    found = numbers(tmp_path / "rec")
    assert found == list(range(found[0], 501)) and len(found) > 60
    assert (tmp_path / "rec" / "mine.txt").exists()


def test_written_on_demand_with_what_follows(testbed: Testbed, tmp_path: Path) -> None:
    """For ten minutes, but the proxy ends before: then it is written out with what there is."""
    broker = testbed.broker(answering())
    flight = FlightConfig(tmp_path / "flights", seconds=None, bytes=256 << 10, after=600.0)
    control = ControlConfig(directory=tmp_path / "control")
    proxy = testbed.proxy(broker.address, flight=flight, control=control)
    assert next_event(proxy, events.FlightStands).directory == str(tmp_path / "flights")
    traffic = Traffic(testbed, proxy.address)
    traffic.send_heartbeats(400)  # 800 kB: the ring has lost the first ones
    client = Control(proxy.control.access.url, proxy.control.access.token)
    assert client.recording()["recording"] is False
    with pytest.raises(ControlError) as refused:
        client.stop_recording()
    assert refused.value.status == 404
    done = client.write_flight("incident 7", "the pager went off")
    traffic.send_heartbeats(5)
    again = client.write_flight()  # while it is being written
    assert again["flight"] == done["flight"] and Path(done["flight"]).name.startswith("incident-7-")
    state = client.recording()["flight"]
    assert state["written"] == 0 and state["writing"] is not None
    proxy.stop()
    event = next_event(proxy, events.FlightWritten)
    assert event.path == done["flight"] and event.others == 1 and event.reason == "the pager went off"
    found = numbers(event.path)
    assert found == list(range(found[0], 406)) and 60 < len(found) < 200


def test_a_recording_takes_the_rings_place_while_it_is_wanted(testbed: Testbed, tmp_path: Path) -> None:
    """Flight recordings come out of it then, and out of the ring again afterwards."""
    flight = FlightConfig(tmp_path / "flights", seconds=None, bytes=256 << 10, after=0.0)
    control = ControlConfig(directory=tmp_path / "control")
    proxy = testbed.proxy(testbed.broker(answering()).address, flight=flight, control=control)
    client = Control(proxy.control.access.url, proxy.control.access.token)
    traffic = Traffic(testbed, proxy.address)

    def written(label: str) -> list[int]:
        """The correlation ids in a flight recording that is asked for now."""
        client.write_flight(label)
        return numbers(next_event(proxy, events.FlightWritten).path)

    traffic.send_heartbeats(5)
    assert written("ring") == [1, 2, 3, 4, 5]
    state = client.recording()["flight"]
    assert state["written"] == 1 and state["writing"] is None
    client.start_recording(str(tmp_path / "rec"), keep_bytes=10 << 20)
    traffic.send_heartbeats(3)
    assert {6, 7, 8} <= set(written("from-recording"))
    client.stop_recording()
    traffic.send_heartbeats(3)
    assert {9, 10, 11} <= set(written("ring-again"))
    assert numbers(tmp_path / "rec") == [6, 7, 8]


@pytest.mark.slow
def test_written_by_itself_once_per_window(testbed: Testbed, tmp_path: Path) -> None:
    errors = dict.fromkeys([*range(50, 60), *range(100, 1100)], 27)
    broker = testbed.broker(answering(errors))
    flight = FlightConfig(
        tmp_path / "flights", seconds=60, after=0.0, filters=("api == Heartbeat and err == REBALANCE_IN_PROGRESS",)
    )
    proxy = testbed.proxy(broker.address, flight=flight, control=ControlConfig(directory=tmp_path / "control"))
    control = Control(proxy.control.access.url, proxy.control.access.token)
    traffic = Traffic(testbed, proxy.address)
    traffic.send_heartbeats(49)
    assert not list((tmp_path / "flights").glob("match*"))
    traffic.send_heartbeats(1)
    event = next_event(proxy, events.FlightWritten)
    note = read_note(Path(event.path))
    assert note is not None and note["kind"] == "filter" and note["complete"] is True
    assert note["about"]["correlation_id"] == 50 and note["about"]["api"] == "Heartbeat"
    assert set(range(1, 51)) <= set(numbers(event.path))
    traffic.send_heartbeats(1110)
    while control.recording()["flight"]["counted"] + event.others + 1 < 1010:
        next_event(proxy, Counts)  # one a second
    proxy.stop()
    rest = list(proxy.events())
    assert not [each for each in rest if isinstance(each, (events.FlightWritten, events.FlightFailed))]
    counted = [each.count for each in rest if isinstance(each, events.FlightCounted)]
    assert counted == [1010 - 1 - event.others] and counted[0] >= 1000
    assert len(list((tmp_path / "flights").glob("match*"))) == 1


def test_written_on_a_finding(testbed: Testbed, tmp_path: Path) -> None:
    """An answer that nobody asked for is a finding of its own."""

    def answer(_: bytes, number: int) -> bytes:
        answered = number if number <= 3 else number + 100
        return wire.with_size(decoder.encode_response(HEARTBEAT, 0, {}, correlation_id=answered))

    broker = testbed.broker(scripted.each(answer))
    flight = FlightConfig(tmp_path / "flights", after=0.0, findings=("odd-correlation-ids",))
    proxy = testbed.proxy(broker.address, flight=flight)
    traffic = Traffic(testbed, proxy.address)
    traffic.send_heartbeats(6)
    event = next_event(proxy, events.FlightWritten)
    note = read_note(Path(event.path))
    assert note is not None and note["kind"] == "finding" and note["label"] == "odd-correlation-ids"
    assert note["about"]["finding"] == "odd-correlation-ids" and note["about"]["severity"] == "high"
    assert Path(event.path).name.startswith("odd-correlation-ids-")


def limit_files(pid: int, size: int) -> None:
    """The limit on file sizes stands for the end of the disk: write(2) fails with EFBIG as it does with ENOSPC (Python
    ignores SIGXFSZ)."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_a_full_disk_stops_no_traffic(testbed: Testbed, tmp_path: Path) -> None:
    broker = testbed.broker(answering())
    flight = FlightConfig(tmp_path / "flights", seconds=None, after=0.0)
    proxy = testbed.proxy(broker.address, record=tmp_path / "rec", flight=flight)
    next_event(proxy, Recording)
    traffic = Traffic(testbed, proxy.address)
    traffic.send_heartbeats(10)
    while next_event(proxy, Counts).exchanges < 10:  # behind the flush of that second
        pass
    observer = next(child.pid for name, child in proxy._children.items() if name == "observer")
    limit_files(observer, 10)
    stop = threading.Event()

    def go_on() -> None:
        while not stop.is_set():
            traffic.send_heartbeats(1)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        failed = next_event(proxy, RecordingFailed)
        assert "cannot write to" in failed.text and "continues" in failed.text
        before = traffic.number
        proxy.write_flight()
        assert "cannot write" in next_event(proxy, events.FlightFailed).text
        assert traffic.number > before
        limit_files(observer, 1 << 40)
        resumed = next_event(proxy, events.RecordingResumed)
        assert "recording continues" in resumed.text and "frames not recorded" in resumed.text
    finally:
        stop.set()
        thread.join(PATIENCE)
    assert not thread.is_alive()
    traffic.send_heartbeats(5)
    proxy.stop()
    with open_capture(tmp_path / "rec") as capture:
        found = [row.correlation_id for row in capture.rows() if row.state == "paired"]
    assert found[:10] == list(range(1, 11)) and found[-5:] == list(range(traffic.number - 4, traffic.number + 1))


CLIENT = """
import sys
from confluent_kafka import Producer
owner = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0})
broker = next(iter(owner.list_topics(timeout=float(sys.argv[1])).brokers.values()))
print(f"{broker.host}:{broker.port}", flush=True)
address = sys.stdin.readline().strip()
producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "log_level": 0})
for topic in ("good", "bad", "good"):
    for i in range(20):
        producer.produce(topic, b"x" * 100)
        producer.flush(float(sys.argv[1]))
print("done", flush=True)
sys.stdin.readline()
"""


@pytest.mark.slow
def test_the_command_with_a_real_client(tmp_path: Path) -> None:
    client = subprocess.Popen([sys.executable, "-c", CLIENT, str(PATIENCE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    command = [sys.executable, "-m", "barnabas", "proxy", "--listen", "127.0.0.1:0", "--json"]
    with client:
        assert client.stdin is not None and client.stdout is not None
        broker = line(client, "the mock cluster").strip()
        options = ["--flight", tmp_path / "flights", "--flight-keep", "1m,50MB", "--flight-after", "1s"]
        options += ["--flight-on", "api == Produce and topic == bad"]
        proxy = subprocess.Popen(
            [*command, "--broker", broker, *map(str, options)], stdout=subprocess.PIPE, text=True, cwd=tmp_path
        )
        with proxy:
            assert proxy.stdout is not None
            written: list[dict[str, Any]] = []
            while len(written) < 2:
                event = json.loads(line(proxy, "the next event"))
                if event["event"] == "Listening":
                    client.stdin.write("{}:{}\n".format(*event["address"]))
                    client.stdin.flush()
                elif event["event"] == "FlightWritten":
                    written.append(event)
                    if len(written) == 1:
                        assert line(client, "the end of the messages") == "done\n"
                        proxy.send_signal(signal.SIGUSR1)
            proxy.terminate()
            proxy.communicate(timeout=PATIENCE)
            assert proxy.returncode == 0
        client.stdin.close()
    first, second = written
    assert "topic == bad" in first["reason"] and second["reason"] == "SIGUSR1"
    with open_capture(second["path"]) as capture:
        produced = [e for e in capture.exchanges() if e.api == "Produce" and e.error == 0]
        assert len(produced) >= 60
        assert {topic["name"] for e in produced for topic in e.request_message.to_dict()["topic_data"]} == {
            "good",
            "bad",
        }
    shown = subprocess.run(
        [sys.executable, "-m", "barnabas", "decode", first["path"]],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert "flight recording: a filter matched: api == Produce and topic == bad" in shown.stderr
