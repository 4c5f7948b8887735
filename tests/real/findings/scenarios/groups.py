"""Groups whose members do the wrong thing, and some that only look like it: a function per scenario.

Each takes the bootstrap address of a running cluster (through the proxy), makes topics and groups of its own, and returns
when the scene is over. They go on when they have seen what they wait for: an assignment, an error, a state of the group at
its coordinator. `poll_for` and `sleep` are there only where time must pass at least. `SCENARIOS` names them as their
recordings are named.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable
from time import sleep

from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from harness.run.lines import line
from harness.waiting import PATIENCE, PATIENCE_MS, until
from kafka import KafkaConsumer
from real.findings.scenarios.group_clients import (
    CALM,
    NEW_PROCESS,
    SESSION_MS,
    Group,
    RawMember,
    Served,
    consumer,
    java,
    old_fashioned,
    poll,
    poll_for,
    process,
    read,
    topic,
    topics,
    unique,
    until_assigned,
)


def storm(bootstrap: str) -> None:
    """A consumer that subscribes for every small piece of work, and unsubscribes after it."""
    name, group = topic(bootstrap, "jobs"), Group(bootstrap, unique("jobs"))
    member = consumer(bootstrap, group.name, "job", **CALM)
    for _ in range(13):
        member.subscribe([name])
        until_assigned(member)
        member.unsubscribe()
        group.until("EMPTY", meanwhile=lambda: poll(member))
    member.close()


def short_lived(bootstrap: str) -> None:
    """A job that makes a consumer for every small piece of work."""
    name, group = topic(bootstrap, "jobs", 1, 1), unique("jobs")
    for _ in range(13):
        member = old_fashioned(bootstrap, group, "job")
        member.subscribe([name])
        assert member.poll(PATIENCE_MS)
        member.close()


def poll_librdkafka(bootstrap: str) -> None:
    """librdkafka: work on one record takes longer than max.poll.interval.ms."""
    name, group = topic(bootstrap, "orders", 1, 3), Group(bootstrap, unique("billing"))
    member = consumer(bootstrap, group.name, "billing-1", **{"max.poll.interval.ms": SESSION_MS})
    member.subscribe([name])
    read(member, 1)
    group.until("EMPTY")
    group.until("STABLE", meanwhile=lambda: poll(member))
    member.close()


def poll_new_protocol(bootstrap: str) -> None:
    """librdkafka with the protocol of KIP-848: the same; it leaves only when it is polled again."""
    name, group = topic(bootstrap, "orders", 1, 3), unique("billing")
    config = {"max.poll.interval.ms": SESSION_MS, "group.protocol": "consumer"}
    member = consumer(bootstrap, group, "billing-4", **config)
    given: list[object] = []
    member.subscribe([name], on_assign=lambda _, partitions: given.append(partitions))
    read(member, 1)
    sleep(7.5)

    def back() -> bool:
        poll(member)
        return len(given) > 1

    until(back, lambda: f"it was assigned {given}")
    member.close()


def poll_kafka_python(bootstrap: str) -> None:
    """kafka-python: the same."""
    name, group = topic(bootstrap, "orders", 1, 3), Group(bootstrap, unique("billing"))
    member: KafkaConsumer = old_fashioned(
        bootstrap, group.name, "billing-2", max_poll_interval_ms=2500, max_poll_records=1
    )
    member.subscribe([name])
    assert member.poll(PATIENCE_MS)
    group.until("EMPTY")
    group.until("STABLE", meanwhile=lambda: member.poll(500))
    member.close()


def poll_aiokafka(bootstrap: str) -> None:
    """aiokafka: the same."""
    name, group = topic(bootstrap, "orders", 1, 3), Group(bootstrap, unique("billing"))

    async def work() -> None:
        member = AIOKafkaConsumer(
            name, bootstrap_servers=bootstrap, group_id=group.name, client_id="billing-3",
            auto_offset_reset="earliest", enable_auto_commit=False, session_timeout_ms=SESSION_MS,
            max_poll_interval_ms=2500, heartbeat_interval_ms=500,
        )  # fmt: skip
        await member.start()
        await member.getone()
        await asyncio.to_thread(group.until, "EMPTY")
        back = asyncio.create_task(asyncio.to_thread(group.until, "STABLE"))
        while not back.done():
            await member.getmany(timeout_ms=200)
        await back
        await member.stop()

    asyncio.run(work())


def _java_works_too_long(bootstrap: str, protocol: str) -> None:
    name, group = topic(bootstrap, "orders", 1, 3), Group(bootstrap, unique("java-slow"))
    with java("PollInterval", bootstrap, group.name, name, protocol) as running:
        line(running, "a record", PATIENCE)
        group.until("EMPTY")
        running.communicate("\n", timeout=PATIENCE)


def poll_java(bootstrap: str) -> None:
    """Java: the same."""
    _java_works_too_long(bootstrap, "classic")


def poll_java_new_protocol(bootstrap: str) -> None:
    """Java with the protocol of KIP-848: the same."""
    _java_works_too_long(bootstrap, "consumer")


def unsubscribed(bootstrap: str) -> None:
    """No fault: a consumer leaves by unsubscribe(), stays connected, and subscribes again."""
    name, group = topic(bootstrap, "orders", 1, 3), Group(bootstrap, unique("billing"))
    member = consumer(bootstrap, group.name, "billing-5")
    member.subscribe([name])
    read(member, 1)
    member.unsubscribe()
    group.until("EMPTY", meanwhile=lambda: poll(member))
    poll_for(member, 2.5)
    member.subscribe([name])
    until_assigned(member)
    member.close()


def same_instance(bootstrap: str) -> None:
    """Two processes have the same group.instance.id: the second one fences the first."""
    name, group = topic(bootstrap, "orders", 2), unique("billing")
    config = {"group.instance.id": "billing-a"}
    first = consumer(bootstrap, group, "host-1", **config)
    second = consumer(bootstrap, group, "host-2", **config)
    first.subscribe([name])
    until_assigned(first)
    second.subscribe([name])
    with Served(first) as served:
        until_assigned(second)
        until(lambda: served.errors, "the first one is not fenced")
    first.close()
    second.close()


def _second_is_refused(first: Consumer, second: Consumer, name: str) -> None:
    """One member is served while the other asks to join."""
    first.subscribe([name])
    until_assigned(first)
    second.subscribe([name])
    with Served(first):
        until(lambda: poll(second), "the second one is not refused")
    second.close()
    first.close()


def same_instance_new_protocol(bootstrap: str) -> None:
    """The same with the protocol of KIP-848: the second one is kept out."""
    name, group = topic(bootstrap, "orders", 2), unique("billing")
    config = {"group.instance.id": "billing-a", "group.protocol": "consumer"}
    first = consumer(bootstrap, group, "host-1", **config)
    second = consumer(bootstrap, group, "host-2", **config)
    _second_is_refused(first, second, name)


def killed(bootstrap: str) -> None:
    """A consumer's process is killed; the other member waits for its session to end."""
    name, group = topic(bootstrap, "orders", 2), unique("billing")
    with process(bootstrap, group, name, "billing-doomed") as doomed:
        other = consumer(bootstrap, group, "billing-left")
        other.subscribe([name])
        until_assigned(other)
        doomed.send_signal(signal.SIGKILL)
        until_assigned(other, partitions=2)
        other.close()


def static_member_closes(bootstrap: str) -> None:
    """No fault: a static member closes without LeaveGroup, as it should, and comes back."""
    name, group = topic(bootstrap, "orders", 2), unique("billing")
    other = consumer(bootstrap, group, "billing-left")
    other.subscribe([name])
    until_assigned(other)
    with Served(other):
        for _ in range(2):
            member = consumer(bootstrap, group, "billing-static", **{"group.instance.id": "a"})
            member.subscribe([name])
            until_assigned(member)
            member.close()
            sleep(1)  # as a restart takes
    other.close()


def stopped(bootstrap: str) -> None:
    """A process stands still (garbage collection, a frozen machine) for nearly its session timeout, then for more."""
    name, group = topic(bootstrap, "orders", 1), Group(bootstrap, unique("billing"))
    with process(bootstrap, group.name, name, "billing-frozen") as frozen:
        sleep(1)  # some heartbeats
        frozen.send_signal(signal.SIGSTOP)
        sleep(4.7)
        frozen.send_signal(signal.SIGCONT)
        sleep(1)
        frozen.send_signal(signal.SIGSTOP)
        group.until("EMPTY")
        frozen.send_signal(signal.SIGCONT)
        group.until("STABLE")


def held_up(bootstrap: str) -> None:
    """A member sends heartbeats and does not join again; a new one waits for it until the rebalance timeout."""
    name, group = topic(bootstrap, "orders", 2), unique("billing")
    with RawMember(bootstrap, group, name, "billing-busy", rebalance_ms=11_000) as busy:
        busy.join()
        busy.sync()
        busy.heartbeat()
        new = consumer(bootstrap, group, "billing-new", **{"max.poll.interval.ms": 11_000})
        new.subscribe([name])
        with Served(new):
            while busy.heartbeat() in ("NONE", "REBALANCE_IN_PROGRESS"):
                sleep(0.5)
        until_assigned(new)
        new.close()


def rolling(bootstrap: str) -> None:
    """No fault: two consumers start one after the other and stop one after the other."""
    name, group = topic(bootstrap, "orders", 3), unique("billing")
    config = {"partition.assignment.strategy": "cooperative-sticky", **CALM}
    first, second = (consumer(bootstrap, group, f"billing-{number}", **config) for number in range(2))
    first.subscribe([name])
    until_assigned(first)
    with Served(first):
        second.subscribe([name])
        until_assigned(second)
    with Served(second):
        first.close()
    until_assigned(second, partitions=3)
    second.close()


def two_assignors(bootstrap: str) -> None:
    """Two members of one group that have no assignor in common."""
    name, group = topic(bootstrap, "orders", 2), unique("billing")
    first = consumer(bootstrap, group, "old-release", **{"partition.assignment.strategy": "range"})
    second = consumer(bootstrap, group, "new-release", **{"partition.assignment.strategy": "cooperative-sticky"})
    _second_is_refused(first, second, name)


def session_too_short(bootstrap: str) -> None:
    """A session timeout below the broker's group.min.session.timeout.ms."""
    name, group = topic(bootstrap, "orders", 1), unique("billing")
    member = consumer(bootstrap, group, "hasty", **{"session.timeout.ms": 900})
    member.subscribe([name])
    until(lambda: poll(member), "it is not refused")
    member.close()


def outsider_commits(bootstrap: str) -> None:
    """A client that is no member commits offsets of a group that has members."""
    name, group = topic(bootstrap, "orders", 1, 3), unique("billing")
    member = consumer(bootstrap, group, "billing-1")
    member.subscribe([name])
    read(member, 1)
    outsider = consumer(bootstrap, group, "offset-tool")
    with contextlib.suppress(KafkaException):
        outsider.commit(offsets=[TopicPartition(name, 0, 2)], asynchronous=False)
    outsider.close()
    member.close()


def _all_assigned(bootstrap: str, names: list[str], members: int) -> None:
    """Members of a group, all served, until their assignment has lasted long enough to be judged (5 s)."""
    group = Group(bootstrap, unique("billing"))
    with contextlib.ExitStack() as stack:
        for number in range(members):
            member = consumer(bootstrap, group.name, f"billing-{number}", **CALM)
            stack.callback(member.close)
            member.subscribe(names)
            stack.enter_context(Served(member))
        group.until("STABLE", members)
        sleep(8)


def skewed(bootstrap: str) -> None:
    """Four topics of one partition, three members, the range assignor: one member gets everything."""
    _all_assigned(bootstrap, topics(bootstrap, *(f"small-{number}" for number in range(4))), 3)


def too_many_members(bootstrap: str) -> None:
    """Two members, one partition."""
    _all_assigned(bootstrap, [topic(bootstrap, "orders")], 2)


def commit_per_record(bootstrap: str) -> None:
    """A synchronous commit after every record."""
    name, group = topic(bootstrap, "orders", 1, 40), unique("billing")
    member = consumer(bootstrap, group, "billing-1")
    member.subscribe([name])
    for _ in range(40):
        member.commit(read(member, 1)[0], asynchronous=False)
    member.close()


def commit_per_batch(bootstrap: str) -> None:
    """No fault: a commit after every ten records."""
    name, group = topic(bootstrap, "orders", 1, 250), unique("billing")
    member = consumer(bootstrap, group, "billing-1")
    member.subscribe([name])
    for _ in range(25):
        member.commit(read(member, 10)[-1], asynchronous=False)
    member.close()


def backwards(bootstrap: str) -> None:
    """A consumer seeks back and commits what it reads again."""
    name, group = topic(bootstrap, "orders", 1, 10), unique("billing")
    member = consumer(bootstrap, group, "billing-1")
    member.subscribe([name])
    member.commit(read(member, 8)[-1], asynchronous=False)
    member.seek(TopicPartition(name, 0, 2))
    member.commit(read(member, 2)[-1], asynchronous=False)
    member.close()


def unknown_member(bootstrap: str) -> None:
    """A client goes on with a member id that the coordinator does not know."""
    name, group = topic(bootstrap, "orders"), unique("billing")
    with RawMember(bootstrap, group, name, "stubborn") as member:
        member.join()
        member.sync()
        member.leave()
        for _ in range(12):
            assert member.heartbeat() == "UNKNOWN_MEMBER_ID"


def late_commit(bootstrap: str) -> None:
    """A commit for records that were read before the last rebalance."""
    name, group = topic(bootstrap, "orders"), unique("billing")
    with (
        RawMember(bootstrap, group, name, "slow-worker") as member,
        RawMember(bootstrap, group, name, "other") as other,
    ):
        member.join()
        member.sync()
        assert member.commit(5, member.generation) == "NONE"
        before = member.generation
        joining = threading.Thread(target=other.join)
        joining.start()
        until(lambda: member.heartbeat() == "REBALANCE_IN_PROGRESS")
        member.join()
        joining.join()
        for each in (member, other):
            each.sync()
        assert member.commit(9, before) == "ILLEGAL_GENERATION"
        other.leave()
        member.leave()


def commit_refused(bootstrap: str) -> None:
    """Commits of a partition that is not there, and with metadata that is too long."""
    name, group = topic(bootstrap, "orders"), unique("billing")
    member = consumer(bootstrap, group, "billing-1")
    member.subscribe([name])
    until_assigned(member)
    for offset in (TopicPartition(name, 7, 1), TopicPartition(name, 0, 1, "x" * 5000)):
        with contextlib.suppress(KafkaException):
            member.commit(offsets=[offset], asynchronous=False)
    member.close()


def reset_by_tool(bootstrap: str) -> None:
    """Nearly no fault: an administrator sets the offsets of a group without members back."""
    name, group = topic(bootstrap, "orders", 1, 5), unique("billing")
    member = consumer(bootstrap, group, "billing-1")
    member.subscribe([name])
    member.commit(read(member, 5)[-1], asynchronous=False)
    member.close()
    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": "admin"})
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(name, 0, 1)])
    admin.alter_consumer_group_offsets([asked])[group].result(PATIENCE)


def slow_leader(bootstrap: str) -> None:
    """The leader takes its time between JoinGroup and SyncGroup."""
    name, group = topic(bootstrap, "orders"), unique("billing")
    with RawMember(bootstrap, group, name, "ponderous", rebalance_ms=60_000, session_ms=60_000) as leader:
        leader.join()
        sleep(5.5)
        leader.sync()
        leader.leave()


def killed_new_protocol(bootstrap: str) -> None:
    """A consumer of KIP-848 is killed; the capture ends before its session does."""
    name, group = topic(bootstrap, "orders", 2), unique("billing")
    with process(bootstrap, group, name, "billing-doomed", NEW_PROCESS) as doomed:
        other = consumer(bootstrap, group, "billing-left", **{"group.protocol": "consumer", "fetch.wait.max.ms": 3000})
        other.subscribe([name])
        until_assigned(other)
        doomed.send_signal(signal.SIGKILL)
        poll_for(other, 6)
        other.close()


SCENARIOS: dict[str, Callable[[str], None]] = {
    scenario.__name__.replace("_", "-"): scenario
    for scenario in (
        storm, short_lived, poll_librdkafka, poll_kafka_python, poll_aiokafka, poll_new_protocol, poll_java,
        poll_java_new_protocol, unsubscribed, same_instance, same_instance_new_protocol, killed, static_member_closes,
        stopped, held_up, rolling, two_assignors, session_too_short, outsider_commits, skewed, too_many_members,
        commit_per_record, commit_per_batch, backwards, unknown_member, late_commit, commit_refused, reset_by_tool,
        slow_leader, killed_new_protocol,
    )
}  # fmt: skip
