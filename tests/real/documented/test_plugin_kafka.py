"""`--barnabas-kafka`: a real Apache Kafka behind the fixture, as users of the pytest plugin have it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from barnabas.ui.testing.kafka import answers_api_versions
from harness.waiting import PATIENCE, until
from real.brokers.broker import jar_directory

pytestmark = pytest.mark.slow

TESTS = f"""
import os, time
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

PATIENCE = {PATIENCE:g}

@pytest.mark.parametrize("number", range(4))
def test_admin_and_records(barnabas, number):
    admin = AdminClient({{"bootstrap.servers": barnabas.bootstrap}})
    topic = f"orders-{{number}}"
    admin.create_topics([NewTopic(topic, 1)])[topic].result(PATIENCE)
    moved = barnabas.inject(api="Produce", topic=topic, error="NOT_LEADER_OR_FOLLOWER", times=1)
    producer = Producer({{"bootstrap.servers": barnabas.bootstrap, "retry.backoff.ms": 20, "transactional.id": topic}})
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    producer.produce(topic, "one")
    producer.commit_transaction(PATIENCE)
    assert moved.wait(1) == 1
    consumer = Consumer({{"bootstrap.servers": barnabas.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}})
    consumer.subscribe([topic])
    assert consumer.poll(PATIENCE).value() == b"one"
    consumer.close()
    assert barnabas.findings("high") == []
    (first, *_) = barnabas.exchanges("api == Metadata")
    worker = os.environ.get("PYTEST_XDIST_WORKER", "alone")
    (broker,) = {{each["broker"] for each in barnabas.exchanges()}}
    with open("seen", "a") as seen:
        print(worker, first["response"]["cluster_id"], broker, file=seen)

def test_a_broker_that_is_down(barnabas):
    producer = Producer({{"bootstrap.servers": barnabas.bootstrap, "retry.backoff.ms": 20, "reconnect.backoff.max.ms": 100}})
    failed = []
    def send():
        producer.produce("down", "x", on_delivery=lambda error, _: failed.append(error))
    send()
    assert producer.flush(PATIENCE) == 0 and failed == [None]
    with barnabas.broker_down(1):
        send()
        assert producer.flush(1) == 1 and failed == [None]
    assert producer.flush(PATIENCE) == 0 and failed == [None, None]
    assert barnabas.findings("medium") == []

def test_sleep():
    if os.environ.get("SLEEP"):
        open("asleep", "w").close()
        time.sleep(PATIENCE)
"""


@pytest.fixture
def folder() -> Path:
    """With the tests, a cache that has the jars of `make broker` in it, and where temporary files go; its name is short, as
    those of Unix sockets have to be. It goes with the run of the tests."""
    tmp_path = Path(tempfile.mkdtemp(prefix="k"))
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "cache/barnabas/kafka").mkdir(parents=True)
    (tmp_path / "cache/barnabas/kafka/4.4.0").symlink_to(jar_directory())
    (tmp_path / "t").mkdir()
    return tmp_path


def session(folder: Path, *options: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--barnabas-kafka", "4.4.0", *options, "test_it.py"]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}  # not a worker of ours
    places = {"XDG_CACHE_HOME": str(folder / "cache"), "TMPDIR": str(folder / "t")}
    return subprocess.Popen(
        command, cwd=folder, env={**inherited, **places, **environment}, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def nothing_is_left(folder: Path) -> None:
    until(lambda: not list((folder / "t").glob("barnabas-*")), lambda: list((folder / "t").iterdir()))
    for line in (folder / "seen").read_text().splitlines():
        host, port = line.split()[2].rsplit(":", 1)
        until(lambda host=host, port=port: not answers_api_versions((host, int(port))), "the broker still answers")


@pytest.mark.parametrize(("options", "workers"), [((), {"alone"}), (("-n", "2"), {"gw0", "gw1"})])
def test_one_broker_for_all_tests_and_workers(folder: Path, options: tuple[str, ...], workers: set[str]) -> None:
    run = session(folder, *options)
    output, _ = run.communicate(timeout=3 * PATIENCE)
    assert run.returncode == 0, output
    seen = [line.split() for line in (folder / "seen").read_text().splitlines()]
    assert {worker for worker, _, _ in seen} == workers
    assert len({cluster for _, cluster, _ in seen}) == len({broker for _, _, broker in seen}) == 1
    nothing_is_left(folder)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_nothing_is_left_after_an_interrupted_run(folder: Path, options: tuple[str, ...], ending: signal.Signals) -> None:
    run = session(folder, *options, SLEEP="1")
    until(lambda: (folder / "asleep").exists() or run.poll() is not None, "the tests do not run")
    run.send_signal(ending)
    run.communicate(timeout=PATIENCE)
    nothing_is_left(folder)
