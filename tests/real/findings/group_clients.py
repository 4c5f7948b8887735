"""Members of groups for the scenarios: consumers of three libraries, one in a process of its own, one by hand."""

from __future__ import annotations

import contextlib
import select
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barnabas.decoder import embedded, facts
from confluent_kafka import Consumer, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from real.broker import jar_directory
from real.findings.raw_client import RawClient

SECONDS = 20.0  # for anything that waits for the broker
SESSION_MS = 6000  # the shortest that a broker allows by default
CALM = {"heartbeat.interval.ms": 1500, "fetch.wait.max.ms": 3000}  # little traffic


def unique(name: str) -> str:
    """A name that no other run on the same cluster has."""
    return f"{name}-{uuid.uuid4().hex[:4]}"


def topics(bootstrap: str, *names: str, partitions: int = 1) -> list[str]:
    """New topics, one for each name."""
    made = [unique(name) for name in names]
    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": "setup"})
    for future in admin.create_topics([NewTopic(name, partitions) for name in made]).values():
        future.result(SECONDS)
    return made


def topic(bootstrap: str, name: str, partitions: int = 1, records: int = 0) -> str:
    """A new topic with some records in every partition."""
    (name,) = topics(bootstrap, name, partitions=partitions)
    if records:
        producer = Producer({"bootstrap.servers": bootstrap, "client.id": "setup"})
        for partition in range(partitions):
            for number in range(records):
                producer.produce(name, f"{number}".encode(), partition=partition)
        producer.flush(SECONDS)
    return name


def consumer(bootstrap: str, group: str, client_id: str, **config: Any) -> Consumer:
    """librdkafka's consumer with short timeouts."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": client_id,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": 500,
        **config,
    }
    if settings.get("group.protocol") == "consumer":
        del settings["session.timeout.ms"], settings["heartbeat.interval.ms"]
    return Consumer(settings)


def poll_for(member: Consumer, seconds: float) -> None:
    """Serve a consumer for so long; what it reads or is told does not matter."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(KafkaException):
            member.poll(0.1)


def read(member: Consumer, count: int) -> list[Message]:
    """So many records."""
    found: list[Message] = []
    end = time.monotonic() + SECONDS
    while len(found) < count:
        if time.monotonic() > end:
            raise TimeoutError(f"{count} records, got {len(found)}")
        found += [m for m in member.consume(count - len(found), timeout=0.2) if not m.error()]
    return found


def until_assigned(*members: Consumer, partitions: int = 1) -> None:
    """Serve consumers until each has so many partitions."""
    end = time.monotonic() + SECONDS
    while any(len(member.assignment()) < partitions for member in members):
        if time.monotonic() > end:
            raise TimeoutError("an assignment")
        for member in members:
            poll_for(member, 0.1)


@contextlib.contextmanager
def served(member: Consumer) -> Iterator[None]:
    """A thread polls a consumer meanwhile."""
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            poll_for(member, 0.1)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def old_fashioned(bootstrap: str, group: str, client_id: str, **config: Any) -> KafkaConsumer:
    """kafka-python's consumer with short timeouts."""
    return KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        client_id=client_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **{"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 500, **config},
    )


PROCESS = """
import sys
from kafka import ConsumerRebalanceListener, KafkaConsumer
class Told(ConsumerRebalanceListener):
    def on_partitions_revoked(self, partitions):
        pass
    def on_partitions_assigned(self, partitions):
        if partitions:
            print("assigned", flush=True)
bootstrap, group, topic, client_id = sys.argv[1:]
member = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, client_id=client_id,
                       session_timeout_ms=6000, heartbeat_interval_ms=500, enable_auto_commit=False)
member.subscribe([topic], listener=Told())
while True:
    member.poll(60_000)  # not less: a poll that gives up while its member joins loses the assignment
"""


NEW_PROCESS = """
import sys
from confluent_kafka import Consumer
bootstrap, group, topic, client_id = sys.argv[1:]
member = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "client.id": client_id,
                   "group.protocol": "consumer", "enable.auto.commit": False, "fetch.wait.max.ms": 3000})
member.subscribe([topic])
while True:
    member.poll(0.2)
    if member.assignment():
        print("assigned", flush=True)
"""


@contextlib.contextmanager
def process(
    bootstrap: str, group: str, topic_name: str, client_id: str, program: str = PROCESS
) -> Iterator[subprocess.Popen[str]]:
    """A consumer in a process of its own (kafka-python unless told), yielded when it has partitions, killed in the end."""
    command = [sys.executable, "-c", program, bootstrap, group, topic_name, client_id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            ready, _, _ = select.select([running.stdout], [], [], 3 * SECONDS)
            assert ready, f"{client_id} has no partitions after {3 * SECONDS:.0f} s"
            assert running.stdout.readline().strip() == "assigned"
            yield running
        finally:
            running.kill()


def java(program: str, *arguments: str) -> None:
    """Run a program of tests/real/java to its end."""
    source = Path(__file__).parents[1] / "java" / f"{program}.java"
    done = subprocess.run(
        ["java", "-Xmx128m", "-cp", f"{jar_directory()}/*", str(source), *arguments],
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr[-2000:]


class RawMember(RawClient):
    """A member of a classic group that takes part step by step, and only when told."""

    def __init__(self, bootstrap: str, group: str, topic_name: str, client_id: str, rebalance_ms: int = SESSION_MS):
        super().__init__(bootstrap, client_id)
        self.group, self.member_id, self.generation, self.leader = group, "", -1, ""
        metadata = embedded.encode("ConsumerProtocolSubscription", 0, {"topics": [topic_name], "user_data": None})
        self.topic = topic_name
        self.asked = {
            "group_id": group,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": rebalance_ms,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"\0\0" + metadata}],
        }
        for _ in range(100):
            if not self.told("FindCoordinator", 2, {"key": group, "key_type": 0})["error_code"]:
                break
            time.sleep(0.1)

    def told(self, api: str, version: int, body: dict[str, Any]) -> dict[str, Any]:
        """A request's answer as plain values."""
        answer = self.ask(api, version, body)
        assert answer is not None
        return answer.to_dict()

    def join(self) -> None:
        """JoinGroup, with the member id that it is told first; retried while the coordinator is loading."""
        for _ in range(50):
            answer = self.told("JoinGroup", 5, {**self.asked, "member_id": self.member_id})
            self.member_id = answer["member_id"] or self.member_id
            if not answer["error_code"]:
                self.generation, self.leader = answer["generation_id"], answer["leader"]
                return
            time.sleep(0 if answer["error_code"] == facts.error_code("MEMBER_ID_REQUIRED") else 0.1)
        raise TimeoutError("to join")

    @property
    def me(self) -> dict[str, Any]:
        """The fields that name the member."""
        return {"group_id": self.group, "generation_id": self.generation, "member_id": self.member_id}

    def sync(self) -> None:
        """SyncGroup; a leader takes partition 0 for itself."""
        given = {"assigned_partitions": [{"topic": self.topic, "partitions": [0]}], "user_data": None}
        mine = b"\0\0" + embedded.encode("ConsumerProtocolAssignment", 0, given)
        leads = self.leader == self.member_id
        self.told("SyncGroup", 3, {
            **self.me, "assignments": [{"member_id": self.member_id, "assignment": mine}] if leads else [],
        })  # fmt: skip

    def heartbeat(self, **changed: Any) -> str:
        """Heartbeat; the error's name."""
        return facts.error_name(self.told("Heartbeat", 3, {**self.me, **changed})["error_code"])

    def commit(self, offset: int, generation: int) -> str:
        """OffsetCommit of partition 0; the error's name."""
        answer = self.told("OffsetCommit", 7, {
            "group_id": self.group, "generation_id_or_member_epoch": generation, "member_id": self.member_id,
            "topics": [{"name": self.topic, "partitions": [{"partition_index": 0, "committed_offset": offset}]}],
        })  # fmt: skip
        return facts.error_name(answer["topics"][0]["partitions"][0]["error_code"])

    def leave(self) -> None:
        """LeaveGroup."""
        self.told("LeaveGroup", 1, {"group_id": self.group, "member_id": self.member_id})
