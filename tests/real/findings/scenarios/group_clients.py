"""Members of groups for the scenarios: consumers of three libraries, one in a process of its own, one by hand."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from barnabas.decoder import embedded
from barnabas.decoder.schema import facts
from confluent_kafka import Consumer, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.run.lines import line
from harness.waiting import PATIENCE, attempts, until
from kafka import KafkaConsumer
from real.brokers.broker import jar_directory
from real.findings.scenarios.raw_client import RawClient

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
        future.result(PATIENCE)
    return made


def topic(bootstrap: str, name: str, partitions: int = 1, records: int = 0) -> str:
    """A new topic with some records in every partition."""
    (name,) = topics(bootstrap, name, partitions=partitions)
    if records:
        producer = Producer({"bootstrap.servers": bootstrap, "client.id": "setup"})
        for partition in range(partitions):
            for number in range(records):
                producer.produce(name, f"{number}".encode(), partition=partition)
        producer.flush(PATIENCE)
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


class Served:
    """A thread polls a consumer meanwhile; `errors` are the names of the errors that it got."""

    def __init__(self, member: Consumer) -> None:
        self.errors: list[str] = []
        self._member, self._over = member, threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        while not self._over.is_set():
            self.errors += poll(self._member)

    def __enter__(self) -> Served:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def poll(member: Consumer) -> list[str]:
    """Serve a consumer for a moment; the error that it gets, if any."""
    try:
        message = member.poll(0.1)
    except KafkaException as error:
        return [error.args[0].name()]
    error = message.error() if message is not None else None
    return [error.name()] if error is not None else []


def poll_for(member: Consumer, seconds: float) -> None:
    """Serve a consumer for at least so long."""
    for _ in attempts(seconds, pause=0):
        poll(member)


def read(member: Consumer, count: int) -> list[Message]:
    """So many records."""
    found: list[Message] = []

    def enough() -> bool:
        found.extend(m for m in member.consume(count - len(found), timeout=0.2) if not m.error())
        return len(found) == count

    until(enough, lambda: f"{len(found)} of {count} records")
    return found


def until_assigned(*members: Consumer, partitions: int = 1) -> None:
    """Serve consumers until each has so many partitions."""

    def assigned() -> bool:
        lacking = [member for member in members if len(member.assignment()) < partitions]
        for member in members if lacking else ():
            poll(member)
        return not lacking

    until(assigned, lambda: f"assigned: {[member.assignment() for member in members]}")


class Group:
    """A group as its coordinator sees it."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.name = name
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": "observer"})

    @property
    def state(self) -> str:
        """EMPTY, STABLE, …; nothing if there is no such group."""
        found = self._admin.list_consumer_groups(request_timeout=PATIENCE).result(PATIENCE)
        return next((group.state.name for group in found.valid if group.group_id == self.name), "")

    @property
    def members(self) -> int:
        """How many a classic group has."""
        described = self._admin.describe_consumer_groups([self.name], request_timeout=PATIENCE)
        return len(described[self.name].result(PATIENCE).members)

    def until(self, state: str, members: int | None = None, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Wait until it is in a state, with so many members if given; `meanwhile` is called again and again."""

        def so() -> bool:
            meanwhile()
            return self.state == state and members in (None, self.members)

        until(so, lambda: f"group {self.name} is {self.state} with {self.members} members", pause=0.2)


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
class Assigned(ConsumerRebalanceListener):
    def on_partitions_revoked(self, partitions):
        pass
    def on_partitions_assigned(self, partitions):
        if partitions:
            print("assigned", flush=True)
bootstrap, group, topic, client_id = sys.argv[1:]
member = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, client_id=client_id,
                       session_timeout_ms=6000, heartbeat_interval_ms=500, enable_auto_commit=False)
member.subscribe([topic], listener=Assigned())
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
    """A consumer in a process of its own (kafka-python by default), yielded when it has partitions, killed in the end."""
    command = [sys.executable, "-c", program, bootstrap, group, topic_name, client_id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert line(running, f"partitions of {client_id}", PATIENCE).strip() == "assigned"
            yield running
        finally:
            running.kill()


@contextlib.contextmanager
def java(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A program of tests/real/clients/java, which must come to a good end."""
    source = Path(__file__).parents[2] / "clients" / "java" / f"{program}.java"
    command = ["java", "-Xmx128m", "-cp", f"{jar_directory()}/*", str(source), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running
            assert running.wait(PATIENCE) == 0
        finally:
            running.kill()


class RawMember(RawClient):
    """A member of a classic group that takes part step by step, and only on request."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topic_name: str,
        client_id: str,
        rebalance_ms: int = SESSION_MS,
        session_ms: int = SESSION_MS,
    ) -> None:
        super().__init__(bootstrap, client_id)
        self.group, self.member_id, self.generation, self.leader = group, "", -1, ""
        metadata = embedded.encode("ConsumerProtocolSubscription", 0, {"topics": [topic_name], "user_data": None})
        self.topic = topic_name
        self.asked = {
            "group_id": group,
            "session_timeout_ms": session_ms,
            "rebalance_timeout_ms": rebalance_ms,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"\0\0" + metadata}],
        }
        until(lambda: not self.answer_to("FindCoordinator", 2, {"key": group, "key_type": 0})["error_code"], pause=0.1)

    def answer_to(self, api: str, version: int, body: dict[str, Any]) -> dict[str, Any]:
        """A request's answer as plain values."""
        answer = self.ask(api, version, body)
        assert answer is not None
        return answer.to_dict()

    def join(self) -> None:
        """JoinGroup, with the member id that it gets first; retried while the coordinator is loading."""
        errors: list[str] = []

        def joined() -> bool:
            answer = self.answer_to("JoinGroup", 5, {**self.asked, "member_id": self.member_id})
            self.member_id = answer["member_id"] or self.member_id
            self.generation, self.leader = answer["generation_id"], answer["leader"]
            errors.append(facts.error_name(answer["error_code"]))
            return errors[-1] == "NONE" or (errors[-1] == "MEMBER_ID_REQUIRED" and joined())

        until(joined, lambda: f"JoinGroup was answered {errors}", pause=0.1)

    @property
    def me(self) -> dict[str, Any]:
        """The fields that name the member."""
        return {"group_id": self.group, "generation_id": self.generation, "member_id": self.member_id}

    def sync(self) -> None:
        """SyncGroup; a leader takes partition 0 for itself."""
        given = {"assigned_partitions": [{"topic": self.topic, "partitions": [0]}], "user_data": None}
        mine = b"\0\0" + embedded.encode("ConsumerProtocolAssignment", 0, given)
        leads = self.leader == self.member_id
        self.answer_to("SyncGroup", 3, {
            **self.me, "assignments": [{"member_id": self.member_id, "assignment": mine}] if leads else [],
        })  # fmt: skip

    def heartbeat(self, **changed: Any) -> str:
        """Heartbeat; the error's name."""
        return facts.error_name(self.answer_to("Heartbeat", 3, {**self.me, **changed})["error_code"])

    def commit(self, offset: int, generation: int) -> str:
        """OffsetCommit of partition 0; the error's name."""
        answer = self.answer_to("OffsetCommit", 7, {
            "group_id": self.group, "generation_id_or_member_epoch": generation, "member_id": self.member_id,
            "topics": [{"name": self.topic, "partitions": [{"partition_index": 0, "committed_offset": offset}]}],
        })  # fmt: skip
        return facts.error_name(answer["topics"][0]["partitions"][0]["error_code"])

    def leave(self) -> None:
        """LeaveGroup."""
        self.answer_to("LeaveGroup", 1, {"group_id": self.group, "member_id": self.member_id})
