"""Groups whose members do the wrong thing, and some that only look like it: a function per scenario.

Each takes the bootstrap address of a running cluster (through the proxy), makes names of its own, and returns when
the scene is over. `SCENARIOS` names them as their recordings are named.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Callable

from aiokafka import AIOKafkaConsumer
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from real.findings.group_clients import (
    CALM,
    NEW_PROCESS,
    SECONDS,
    SESSION_MS,
    RawMember,
    consumer,
    java,
    old_fashioned,
    poll_for,
    process,
    read,
    served,
    topic,
    topics,
    unique,
    until_assigned,
)


def storm(bootstrap: str) -> None:
    """A consumer that subscribes for every small piece of work, and unsubscribes after it."""
    name, group = topic(bootstrap, "jobs"), unique("jobs")
    member = consumer(bootstrap, group, "job", **CALM)
    for _ in range(13):
        member.subscribe([name])
        until_assigned(member)
        member.unsubscribe()
        poll_for(member, 0.2)
    member.close()


def short_lived(bootstrap: str) -> None:
    """A job that makes a consumer for every small piece of work."""
    name, group = topic(bootstrap, "jobs", 1, 1), unique("jobs")
    for _ in range(7):
        member = old_fashioned(bootstrap, group, "job")
        member.subscribe([name])
        assert member.poll(SECONDS * 1000)
        member.close()


def poll_librdkafka(bootstrap: str) -> None:
    """librdkafka: work on one record takes longer than max.poll.interval.ms."""
    name, group = topic(bootstrap, "orders", 1, 3), unique("billing")
    member = consumer(bootstrap, group, "billing-1", **{"max.poll.interval.ms": SESSION_MS})
    member.subscribe([name])
    read(member, 1)
    time.sleep(7.5)
    poll_for(member, 2.5)
    member.close()


def poll_kafka_python(bootstrap: str) -> None:
    """kafka-python: the same."""
    name, group = topic(bootstrap, "orders", 1, 3), unique("billing")
    member = old_fashioned(bootstrap, group, "billing-2", max_poll_interval_ms=2500, max_poll_records=1)
    member.subscribe([name])
    assert member.poll(SECONDS * 1000)
    time.sleep(4)
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        member.poll(200)
    member.close()


def poll_aiokafka(bootstrap: str) -> None:
    """aiokafka: the same."""
    name, group = topic(bootstrap, "orders", 1, 3), unique("billing")

    async def work() -> None:
        member = AIOKafkaConsumer(
            name, bootstrap_servers=bootstrap, group_id=group, client_id="billing-3", auto_offset_reset="earliest",
            enable_auto_commit=False, session_timeout_ms=SESSION_MS, max_poll_interval_ms=2500,
            heartbeat_interval_ms=500,
        )  # fmt: skip
        await member.start()
        await member.getone()
        await asyncio.sleep(4)
        await member.getmany(timeout_ms=1500)
        await asyncio.sleep(1)
        await member.stop()

    asyncio.run(work())


def poll_new_protocol(bootstrap: str) -> None:
    """librdkafka with the protocol of KIP-848: the same."""
    name, group = topic(bootstrap, "orders", 1, 3), unique("billing")
    config = {"max.poll.interval.ms": SESSION_MS, "group.protocol": "consumer"}
    member = consumer(bootstrap, group, "billing-4", **config)
    member.subscribe([name])
    read(member, 1)
    time.sleep(7.5)
    poll_for(member, 2)
    member.close()


def poll_java(bootstrap: str) -> None:
    """Java: the same."""
    java("PollInterval", bootstrap, unique("java-slow"), topic(bootstrap, "orders", 1, 3), "classic")


def poll_java_new_protocol(bootstrap: str) -> None:
    """Java with the protocol of KIP-848: the same."""
    java("PollInterval", bootstrap, unique("java-slow"), topic(bootstrap, "orders", 1, 3), "consumer")


def unsubscribed(bootstrap: str) -> None:
    """No fault: a consumer leaves by unsubscribe(), stays connected, and subscribes again."""
    name, group = topic(bootstrap, "orders", 1, 3), unique("billing")
    member = consumer(bootstrap, group, "billing-5")
    member.subscribe([name])
    read(member, 1)
    member.unsubscribe()
    poll_for(member, 3)
    member.subscribe([name])
    until_assigned(member)
    member.close()


def same_instance(bootstrap: str) -> None:
    """Two processes with the same group.instance.id."""
    name, group = topic(bootstrap, "orders", 2), unique("billing")
    config = {"group.instance.id": "billing-a"}
    first = consumer(bootstrap, group, "host-1", **config)
    second = consumer(bootstrap, group, "host-2", **config)
    first.subscribe([name])
    until_assigned(first)
    second.subscribe([name])
    with served(first):
        until_assigned(second)
        poll_for(second, 1.5)
    first.close()
    second.close()


def same_instance_new_protocol(bootstrap: str) -> None:
    """The same with the protocol of KIP-848: the second one is kept out."""
    name, group = topic(bootstrap, "orders", 2), unique("billing")
    config = {"group.instance.id": "billing-a", "group.protocol": "consumer"}
    first = consumer(bootstrap, group, "host-1", **config)
    second = consumer(bootstrap, group, "host-2", **config)
    first.subscribe([name])
    until_assigned(first)
    second.subscribe([name])
    with served(first):
        poll_for(second, 1.5)
    second.close()
    first.close()


def killed(bootstrap: str) -> None:
    """A consumer's process is killed; the other member waits for its session to end."""
    name, group = topic(bootstrap, "orders", 2), unique("billing")
    with process(bootstrap, group, name, "billing-doomed") as doomed:
        other = consumer(bootstrap, group, "billing-left")
        other.subscribe([name])
        until_assigned(other)
        doomed.send_signal(signal.SIGKILL)
        until_assigned(other, partitions=2)
        poll_for(other, 0.5)
        other.close()


def static_member_closes(bootstrap: str) -> None:
    """No fault: a static member closes without LeaveGroup, as it should, and comes back."""
    name, group = topic(bootstrap, "orders", 2), unique("billing")
    other = consumer(bootstrap, group, "billing-left")
    other.subscribe([name])
    until_assigned(other)
    with served(other):
        for _ in range(2):
            member = consumer(bootstrap, group, "billing-static", **{"group.instance.id": "a"})
            member.subscribe([name])
            until_assigned(member)
            member.close()
            time.sleep(1)
    other.close()


def stopped(bootstrap: str) -> None:
    """A process stands still (garbage collection, a frozen machine) for nearly its session timeout, then for more."""
    name, group = topic(bootstrap, "orders", 1), unique("billing")
    with process(bootstrap, group, name, "billing-frozen") as frozen:
        time.sleep(1)
        for seconds in (4.7, 7.0):
            frozen.send_signal(signal.SIGSTOP)
            time.sleep(seconds)
            frozen.send_signal(signal.SIGCONT)
            time.sleep(1.5)


def held_up(bootstrap: str) -> None:
    """A member sends heartbeats and does not join again; a new one waits for it until the rebalance timeout."""
    name, group = topic(bootstrap, "orders", 2), unique("billing")
    with RawMember(bootstrap, group, name, "billing-busy", rebalance_ms=11_000) as busy:
        busy.join()
        busy.sync()
        busy.heartbeat()
        new = consumer(bootstrap, group, "billing-new", **{"max.poll.interval.ms": 11_000})
        new.subscribe([name])
        with served(new):
            for _ in range(9):  # as long as it surely is a member: afterwards it would be told that it is none
                time.sleep(1)
                busy.heartbeat()
        until_assigned(new)
        new.close()


def rolling(bootstrap: str) -> None:
    """No fault: two consumers start one after the other and stop one after the other."""
    name, group = topic(bootstrap, "orders", 3), unique("billing")
    config = {"partition.assignment.strategy": "cooperative-sticky", **CALM}
    members = [consumer(bootstrap, group, f"billing-{number}", **config) for number in range(2)]
    with contextlib.ExitStack() as running:
        for member in members:
            member.subscribe([name])
            until_assigned(member)
            running.enter_context(served(member))
    for member in members:
        poll_for(member, 0.3)
        member.close()


def two_assignors(bootstrap: str) -> None:
    """Two members of one group that have no assignor in common."""
    name, group = topic(bootstrap, "orders", 2), unique("billing")
    first = consumer(bootstrap, group, "old-release", **{"partition.assignment.strategy": "range"})
    first.subscribe([name])
    until_assigned(first)
    second = consumer(bootstrap, group, "new-release", **{"partition.assignment.strategy": "cooperative-sticky"})
    second.subscribe([name])
    with served(first):
        poll_for(second, 2)
    second.close()
    first.close()


def session_too_short(bootstrap: str) -> None:
    """A session timeout below the broker's group.min.session.timeout.ms."""
    name, group = topic(bootstrap, "orders", 1), unique("billing")
    member = consumer(bootstrap, group, "hasty", **{"session.timeout.ms": 900})
    member.subscribe([name])
    poll_for(member, 2)
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


def skewed(bootstrap: str) -> None:
    """Four topics of one partition, three members, the range assignor: one member gets everything."""
    names = topics(bootstrap, *(f"small-{number}" for number in range(4)))
    group = unique("billing")
    members = [consumer(bootstrap, group, f"billing-{n}", **CALM) for n in range(3)]
    for member in members:
        member.subscribe(names)
    with served(members[1]), served(members[2]):
        poll_for(members[0], 9.5)
    for member in members:
        member.close()


def too_many_members(bootstrap: str) -> None:
    """Two members, one partition."""
    name, group = topic(bootstrap, "orders"), unique("billing")
    members = [consumer(bootstrap, group, f"billing-{n}", **CALM) for n in range(2)]
    for member in members:
        member.subscribe([name])
    with served(members[1]):
        poll_for(members[0], 9.5)
    for member in members:
        member.close()


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
            time.sleep(0.1)


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
        while member.heartbeat() != "REBALANCE_IN_PROGRESS":
            time.sleep(0.05)
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
    admin.alter_consumer_group_offsets([asked])[group].result(SECONDS)


def slow_leader(bootstrap: str) -> None:
    """The leader takes its time between JoinGroup and SyncGroup."""
    name, group = topic(bootstrap, "orders"), unique("billing")
    with RawMember(bootstrap, group, name, "ponderous") as leader:
        leader.join()
        time.sleep(5.5)
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
