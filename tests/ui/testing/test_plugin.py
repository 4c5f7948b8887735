"""The pytest plugin as its users have it: test files of theirs, run by pytest in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from harness.waiting import PATIENCE

CLIENTS = f"""
PATIENCE = {PATIENCE:g}

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

def send(bootstrap, topic, count=3, first=0):
    producer = Producer({{"bootstrap.servers": bootstrap, "client.id": "shop", "linger.ms": 0, "retry.backoff.ms": 20}})
    failed = []
    for number in range(first, first + count):
        producer.produce(topic, str(number), partition=0, on_delivery=lambda e, _: failed.append(e) if e else None)
        assert producer.flush(PATIENCE) == 0
    return failed
"""


ONLINE = """
import pathlib
import pytest

def test_recorded(barnabas):
    assert send(barnabas.bootstrap, "orders") == []
    barnabas.expect("api == Produce", at_least=1)

def test_a_client_retries_through_a_fault(barnabas):
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

def test_a_fault_never_fires(barnabas):
    barnabas.inject(api="Fetch", error="OFFSET_OUT_OF_RANGE")
    send(barnabas.bootstrap, "orders", 1)

def test_a_fault_need_not_fire(barnabas):
    barnabas.inject(api="Fetch", error="OFFSET_OUT_OF_RANGE", required=False)
    pathlib.Path("pids").write_text(" ".join(str(child.pid) for child in barnabas.proxy._children.values()))

def test_more_than_expected(barnabas):
    barnabas.inject(api="Produce", delay="1ms")
    send(barnabas.bootstrap, "orders", 2)
    barnabas.expect("api == Produce", at_most=1)

def test_fewer_than_expected(barnabas):
    barnabas.inject(api="Produce", delay="1ms", name="slow")
    send(barnabas.bootstrap, "orders", 1)
    barnabas.expect("api == Produce and topic == payments", timeout=0)

def test_anew(barnabas):
    moved = barnabas.inject(api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=1)
    assert send(barnabas.bootstrap, "orders", 1) == []
    assert moved.wait(1) == 1
    barnabas.reset()
    assert barnabas.injected == [] and moved.hits == 1
    barnabas.expect("api == Produce", at_most=0)
    assert send(barnabas.bootstrap, "orders", 1) == []
    barnabas.expect("api == Produce", exactly=1)
    barnabas.expect("err != 0 and api == Produce", at_most=0)

WRONG = [
    ({"api": "Prodce", "error": "NONE"}, "did you mean Produce"),
    ({"api": "Produce", "error": "NOT_LEADER"}, "did you mean NOT_LEADER_OR_FOLLOWER"),
    ({"api": "Produce", "errror": "NONE"}, "did you mean error"),
    ({"error": "NONE"}, "needs a target"),
    ({"api": "Produce", "topc": "a", "error": "NONE"}, "did you mean topic"),
    ({"api": "Produce", "do": {"delay": "1ms"}, "drop": "response"}, "given twice, by do and by drop"),
]

def test_what_is_wrong_says_what_is_right(barnabas):
    for given, says in WRONG:
        with pytest.raises(ValueError, match=says):
            barnabas.inject(**given)
    with pytest.raises(ValueError, match="did you mean medium"):
        barnabas.findings("medum")

def test_a_fault_that_has_not_fired(barnabas):
    late = barnabas.inject(api="Produce", error="NONE", from_="1h", required=False)
    with pytest.raises(AssertionError, match="has fired 0 times in 0.1 s, not 1"):
        late.wait(1, 0.1)
    late.remove()
    assert late.wait(0) == 0
    with pytest.raises(AssertionError, match="has fired 0 times before it was removed, not 1"):
        late.wait(1)

def test_a_wrong_fault(barnabas):
    barnabas.inject(api="Prodce", error="NONE")

def test_a_wrong_filter(barnabas):
    barnabas.expect("api = Produce")
"""
"""In front of the embedded cluster, recorded."""

OFFLINE = """
import socket, struct
import pytest

def ask_for_groups(barnabas):
    with socket.create_connection(barnabas.proxy.address, PATIENCE) as sock:
        sock.sendall(struct.pack(">ihhih", 10, 16, 0, 1, -1))  # ListGroups v0
        assert sock.recv(1)

@pytest.mark.barnabas_cassette("tapes/test_recorded")
def test_served(barnabas):
    assert send(barnabas.bootstrap, "orders") == []
    barnabas.expect("api == Produce", at_least=1)

@pytest.mark.barnabas_cassette("tapes/test_recorded")
def test_more_than_was_recorded(barnabas):
    ask_for_groups(barnabas)
    barnabas.expect("api == ListGroups", exactly=2, timeout=0.1)

@pytest.mark.barnabas_cassette("tapes/test_recorded")
def test_unmatched_fails_although_the_client_minds_nothing(barnabas):
    ask_for_groups(barnabas)

@pytest.fixture
def asks_at_its_end(barnabas):
    yield
    ask_for_groups(barnabas)

@pytest.mark.barnabas_cassette("tapes/test_recorded")
def test_unmatched_behind_the_test(asks_at_its_end):
    pass

@pytest.mark.barnabas_cassette("tapes/test_recorded", unmatched="allow")
def test_unmatched_is_allowed(barnabas):
    ask_for_groups(barnabas)
    (miss,) = barnabas.cassette.misses
    assert miss.what == "ListGroups v0"

@pytest.mark.barnabas_cassette("tapes/test_recorded", unused="fail", contents="check")
def test_all_is_used_as_recorded(barnabas):
    assert send(barnabas.bootstrap, "orders") == []
    assert barnabas.cassette.unused() == []

@pytest.mark.barnabas_cassette("tapes/test_recorded", unused="fail")
def test_not_all_is_used(barnabas):
    assert send(barnabas.bootstrap, "orders", 2) == []

@pytest.mark.barnabas_cassette("tapes/test_recorded", contents="check")
def test_other_contents(barnabas):
    assert send(barnabas.bootstrap, "orders", first=1) == []

@pytest.mark.barnabas_cassette("tapes/test_recorded", contents=lambda record: len(record.value))
def test_contents_by_a_function(barnabas):
    assert send(barnabas.bootstrap, "orders", first=1) == []

@pytest.mark.barnabas_cassette("tapes/test_recorded", unused="no")
def test_wrong_word(barnabas):
    pass

@pytest.mark.barnabas_cassette("nothing")
def test_of_nothing(barnabas):
    pass

@pytest.mark.barnabas_cassette("nowhere", on_miss="fial")
def test_wrong(barnabas):
    pass

@pytest.mark.barnabas_cassette()
def test_without_a_name(barnabas):
    pass
"""
"""With the recordings of the other session, and without any broker."""


class Session:
    """A run of pytest that has ended: ``outcomes`` by test, and what was printed."""

    def __init__(self, folder: Path, name: str, text: str, *options: str) -> None:
        (folder / "clients.py").write_text(CLIENTS)
        (folder / f"{name}.py").write_text("from clients import *\n" + text)
        command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider"]
        if not installed():
            command += ["-p", "barnabas.ui.testing.plugin"]
        done = subprocess.run(
            [*command, *options, f"{name}.py"], cwd=folder, capture_output=True, text=True, timeout=2 * PATIENCE
        )
        self.folder, self.status, self.output = folder, done.returncode, done.stdout + done.stderr
        summary = done.stdout.rpartition("short test summary info")[2]
        self.outcomes: dict[str, set[str]] = {}
        for line in summary.splitlines():
            outcome, _, rest = line.partition(f" {name}.py::")
            if rest:
                self.outcomes.setdefault(outcome, set()).add(rest.partition(" - ")[0].partition("[")[0])

    def failure(self, test: str) -> str:
        """What is printed of a test that failed, up to the next one."""
        begin = self.output.index(f" {test} _")
        end = self.output.find("\n______", begin)
        return self.output[begin : end if end > 0 else self.output.index("short test summary info")]


@pytest.fixture(scope="module")
def online(tmp_path_factory: pytest.TempPathFactory) -> Session:
    folder = tmp_path_factory.mktemp("plugin")
    return Session(folder, "test_online", ONLINE, "--barnabas-record", str(folder / "tapes"))


@pytest.fixture(scope="module")
def offline(online: Session) -> Session:
    return Session(online.folder, "test_offline", OFFLINE, "--barnabas-broker", "127.0.0.1:1")


def installed() -> bool:
    """Whether pytest finds the plugin by itself."""
    from importlib.metadata import entry_points

    return any(each.value == "barnabas.ui.testing.plugin" for each in entry_points(group="pytest11"))


def test_clients_through_a_proxy_of_their_own(online: Session) -> None:
    assert online.status == 1
    assert online.outcomes == {
        "PASSED": {
            "test_recorded",
            "test_a_client_retries_through_a_fault",
            "test_each_test_has_its_own",
            "test_a_fault_need_not_fire",
            "test_anew",
            "test_what_is_wrong_says_what_is_right",
            "test_a_fault_that_has_not_fired",
        },
        "FAILED": {
            "test_a_fault_never_fires",
            "test_more_than_expected",
            "test_fewer_than_expected",
            "test_a_wrong_fault",
            "test_a_wrong_filter",
        },
    }, online.output


def test_a_fault_that_never_fires_fails_the_test(online: Session) -> None:
    assert "never hit: fault 'fault 1' (api ==" in online.failure("test_a_fault_never_fires")


def test_wrong_arguments_are_reported_where_they_are_written(online: Session, offline: Session) -> None:
    assert "no API is called 'Prodce', did you mean Produce?" in online.failure("test_a_wrong_fault")
    assert "'=' alone has no meaning" in online.failure("test_a_wrong_filter")
    assert "passthrough, record and not 'fial'" in offline.output
    assert "contents='ignore'): missing 1 required positional argument: 'file'" in offline.output
    # What is wrong is a line of the test: nothing is shown of the inside.
    for inside in ("given.py", "fixture.py", "plugin.py"):
        assert inside not in online.output and inside not in offline.output


def test_a_failing_test_shows_the_traffic(online: Session) -> None:
    shown = online.failure("test_more_than_expected")
    assert "Kafka traffic through barnabas" in shown and "Produce v" in shown and "shop" in shown
    assert "2 exchanges match api == Produce, not at most 1" in shown
    assert "fault 'fault 1'" in shown and "2 hits" in shown
    assert sum("Produce v" in line and line.endswith("[fault 1]") for line in shown.splitlines()) >= 2
    fewer = online.failure("test_fewer_than_expected")
    assert "0 exchanges match api == Produce and topic == payments, not 1 or more; there are:" in fewer
    assert any("Produce v" in line and line.endswith("[slow]") for line in fewer.splitlines())


def test_what_was_recorded_is_served_offline(offline: Session) -> None:
    assert offline.status == 1 and offline.outcomes["PASSED"] >= {"test_served"}, offline.output
    assert "test_served" not in offline.outcomes.get("ERROR", ())
    assert "on_miss='record' creates it" in offline.output


def test_a_cassette_that_does_not_fit_fails_the_test(offline: Session) -> None:
    fits = {"test_served", "test_unmatched_is_allowed", "test_all_is_used_as_recorded", "test_contents_by_a_function"}
    behind = "test_unmatched_behind_the_test"
    assert offline.outcomes["PASSED"] - {behind} == fits, offline.output
    assert behind in offline.outcomes["ERROR"] and "test_more_than_was_recorded" not in offline.outcomes["ERROR"]
    unmatched = "not in the cassette: ListGroups v0: UNKNOWN_SERVER_ERROR (1x)"
    for test in ("test_more_than_was_recorded", "test_unmatched_fails_although_the_client_minds_nothing"):
        assert unmatched in offline.failure(test)
    assert "in the cassette, but not used: 1 record of orders not produced again" in offline.failure("test_not_all_is_used")
    other = offline.failure("test_other_contents")
    assert "produced a record to orders-0 that was not recorded: value 3; the recording has value 0" in other
    assert other.count("not as recorded: ") >= 1 and "not as recorded: value 1" not in other
    assert "unused is fail, allow and not 'no'" in offline.output


def test_nothing_stays_behind(online: Session) -> None:
    pids = (online.folder / "pids").read_text().split()
    assert len(pids) >= 3
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
