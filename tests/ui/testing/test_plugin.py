"""The pytest plugin as its users have it: test files of theirs, run by pytest in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

CLIENTS = """
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

def send(bootstrap, topic, count=3):
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "shop", "linger.ms": 0, "retry.backoff.ms": 20})
    failed = []
    for number in range(count):
        producer.produce(topic, str(number), partition=0, on_delivery=lambda e, _: failed.append(e) if e else None)
        assert producer.flush(20) == 0
    return failed
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """``run(test file's text, options...)`` gives pytest's own result."""

    def call(text: str, *options: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "clients.py").write_text(CLIENTS)
        (tmp_path / "test_it.py").write_text("from clients import *\n" + textwrap.dedent(text))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "barnabas.ui.testing.plugin"]
        if installed():
            command = command[:-2]
        return subprocess.run(
            [*command, *options, "test_it.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )

    return call


def installed() -> bool:
    """Whether pytest finds the plugin by itself."""
    from importlib.metadata import entry_points

    return any(each.value == "barnabas.ui.testing.plugin" for each in entry_points(group="pytest11"))


def test_a_client_retries_through_a_fault(run: Run) -> None:
    done = run(
        """
        def test_it(barnabas):
            moved = barnabas.inject(api="Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER", times=2)
            assert send(barnabas.bootstrap, "orders") == []
            assert moved.wait(2) == 2 == moved.hits
            assert [each["error"] for each in moved.exchanges] == ["NOT_LEADER_OR_FOLLOWER"] * 2
            barnabas.expect("api == Produce and err == NOT_LEADER_OR_FOLLOWER", exactly=2)
            barnabas.expect("api == Produce and topic == orders and err == 0", at_least=3)
            (first, *_) = barnabas.exchanges("api == Metadata")
            assert first["response"]["brokers"][0]["host"] == "127.0.0.1"
            barnabas.expect("api == Produce", at_most=2, within=0.0000001)

        def test_each_test_has_its_own(barnabas):
            assert barnabas.exchanges() == [] and barnabas.injected == []
            with barnabas.inject("client == shop", api="Produce", delay="30ms") as slow:
                assert send(barnabas.bootstrap, "other", 1) == []
                assert slow.hits >= 1
            assert barnabas.findings() == []
        """
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_a_fault_that_never_fires_fails_the_test(run: Run) -> None:
    done = run(
        """
        def test_it(barnabas):
            barnabas.inject(api="Fetch", error="OFFSET_OUT_OF_RANGE")
            send(barnabas.bootstrap, "orders", 1)

        def test_unless_it_need_not(barnabas):
            barnabas.inject(api="Fetch", error="OFFSET_OUT_OF_RANGE", required=False)
        """
    )
    assert done.returncode == 1 and "1 failed, 1 passed" in done.stdout
    assert "never hit: fault 'fault 1' (api ==" in done.stdout


def test_what_is_wrong_is_said_where_it_is_written(run: Run) -> None:
    done = run(
        """
        import pytest

        @pytest.mark.parametrize(("given", "says"), [
            ({"api": "Prodce", "error": "NONE"}, "did you mean Produce"),
            ({"api": "Produce", "error": "NOT_LEADER"}, "did you mean NOT_LEADER_OR_FOLLOWER"),
            ({"api": "Produce", "errror": "NONE"}, "did you mean error"),
            ({"error": "NONE"}, "what it is about"),
            ({"api": "Produce", "topc": "a", "error": "NONE"}, "did you mean topic"),
            ({"api": "Produce", "do": {"delay": "1ms"}, "drop": "response"}, "given twice, by do and by drop"),
        ])
        def test_it(barnabas, given, says):
            with pytest.raises(ValueError, match=says):
                barnabas.inject(**given)

        def test_more(barnabas):
            late = barnabas.inject(api="Produce", error="NONE", from_="1h", required=False)
            with pytest.raises(AssertionError, match="has fired 0 times in 0.1 s, not 1"):
                late.wait(1, 0.1)
            late.remove()
            assert late.wait(0) == 0
            with pytest.raises(AssertionError, match="has fired 0 times before it was removed, not 1"):
                late.wait(1)
            with pytest.raises(ValueError, match="did you mean medium"):
                barnabas.findings("medum")

        def test_shown(barnabas):
            barnabas.inject(api="Prodce", error="NONE")

        def test_shown_too(barnabas):
            barnabas.expect("api = Produce")

        @pytest.mark.barnabas_cassette("nowhere", on_miss="fial")
        def test_cassette(barnabas):
            pass

        @pytest.mark.barnabas_cassette()
        def test_cassette_of_nothing(barnabas):
            pass
        """
    )
    assert done.returncode == 1 and "7 passed" in done.stdout, done.stdout
    assert "no API is called 'Prodce', did you mean Produce?" in done.stdout
    assert "'=' alone means nothing" in done.stdout and "passthrough, record and not 'fial'" in done.stdout
    # What is wrong is a line of the test: nothing is shown of the inside.
    assert "not as it is written: missing 1 required positional argument: 'file'" in done.stdout
    assert "given.py" not in done.stdout and "bench.py" not in done.stdout and "plugin.py" not in done.stdout


def test_a_failing_test_shows_the_traffic(run: Run) -> None:
    done = run(
        """
        def test_it(barnabas):
            barnabas.inject(api="Produce", delay="1ms")
            send(barnabas.bootstrap, "orders", 2)
            barnabas.expect("api == Produce", at_most=1)
        """
    )
    assert done.returncode == 1
    assert "Kafka traffic through barnabas" in done.stdout and "Produce v" in done.stdout and "shop" in done.stdout
    assert "2 exchanges are api == Produce, not at most 1" in done.stdout
    assert "fault 'fault 1'" in done.stdout and "2 hits" in done.stdout


def test_cassettes_and_records(run: Run, tmp_path: Path) -> None:
    """Recorded in one run, served offline in the next."""
    text = """
        import pytest
        {marker}
        def test_it(barnabas):
            assert send(barnabas.bootstrap, "orders") == []
            barnabas.expect("api == Produce", at_least=1)
    """
    done = run(text.format(marker=""), "--barnabas-record", str(tmp_path / "tapes"))
    assert done.returncode == 0, done.stdout
    marker = '@pytest.mark.barnabas_cassette("tapes/test_it")'
    done = run(text.format(marker=marker), "--barnabas-broker", "127.0.0.1:1")
    assert done.returncode == 0, done.stdout + done.stderr
    done = run(
        f"""
        import pytest, socket, struct
        @pytest.mark.barnabas_cassette("nothing")
        def test_it(barnabas):
            pass

        {marker}
        def test_more_than_was_recorded(barnabas):
            with socket.create_connection(barnabas.proxy.address, 10) as sock:
                sock.sendall(struct.pack(">ihhih", 10, 16, 0, 1, -1))  # ListGroups v0
                assert sock.recv(1)
            barnabas.expect("api == ListGroups", exactly=2, timeout=0.1)
        """
    )
    assert done.returncode == 1 and "on_miss='record' makes it" in done.stdout
    assert "not in the cassette: ListGroups" in done.stdout, done.stdout


def test_nothing_stays_behind(run: Run, tmp_path: Path) -> None:
    done = run(
        """
        import os, pathlib
        def test_it(barnabas):
            pathlib.Path("pids").write_text(" ".join(str(child.pid) for child in barnabas.proxy._children.values()))
        """
    )
    assert done.returncode == 0, done.stdout
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) >= 3
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
