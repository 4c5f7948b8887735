"""The model of groups: what the members' timelines, generations and assignments are after recorded traffic."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Iterable
from typing import Any

import pytest
from barnabas.decoder import Exchange, encode_request, encode_response
from barnabas.decoder.connection.events import ConnectionEvent
from barnabas.decoder.findings import Inspector
from barnabas.decoder.findings.models.group import GONE, Group, MemberState, RebalanceCause
from barnabas.decoder.findings.models.group_calls import GROUP_APIS
from barnabas.decoder.findings.models.groups import GROUPS, Groups
from barnabas.decoder.schema import facts
from harness.wire import with_size
from traffic.conversations import Conversations
from traffic.edited_exchanges import copied, edited
from traffic.recordings import GROUPS as GROUP_DETECTORS
from traffic.recordings import findings, inspected, recording


def groups_of(events: str | Iterable[ConnectionEvent]) -> list[Group]:
    """The model's groups after these events, or after a recording of groups."""
    seen = inspected(f"groups-{events}" if isinstance(events, str) else events, *GROUP_DETECTORS)
    return Groups.of(seen.traffic).all()


def steps(name: str, client_id: str) -> list[str]:
    (group,) = groups_of(name)
    members = [m for m in group.members.values() if m.conn.client_id == client_id]
    return ["".join(moment.step for moment in m.timeline) for m in members]


def test_a_member_that_joins_reads_and_leaves() -> None:
    (group,) = groups_of("commit-per-record")
    (member,) = group.members.values()
    assert (group.protocol, group.assignor, group.leader) == ("classic", "range", member.member_id)
    assert (member.session_timeout_ms, member.rebalance_timeout_ms, member.assignors) == (
        6000,
        300_000,
        ("range", "roundrobin"),
    )
    assert member.state is MemberState.LEFT and not group.live
    assert member.topics is not None and member.assignment == {member.topics[0]: (0,)}
    line = "".join(moment.step for moment in member.timeline)
    assert line.startswith("JjSs") and line.endswith(("Lx", "L")) and line.count("c") == 40


def test_the_states_of_a_group_and_the_last_poll() -> None:
    inspector = Inspector(GROUP_DETECTORS)
    states: list[str] = []
    polled = None
    for event in recording("groups-held-up"):
        inspector.feed(event)
        for group in Groups.of(inspector.traffic).all():
            if [group.state] != states[-1:]:
                states.append(group.state)
            for member in group.live:
                polled = Groups.of(inspector.traffic).polled_ns(member) or polled
    assert states[:5] == ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "PreparingRebalance"]
    assert states[-3:] == ["CompletingRebalance", "Stable", "Empty"]
    assert polled is not None and polled <= inspector.traffic.now_ns


@pytest.mark.parametrize("version", [2, 5], ids=["before KIP-394", "a broker that does not ask for the id"])
def test_a_first_join_without_an_id_belongs_to_the_member_that_its_response_names(version: int) -> None:
    talk = Conversations(*GROUP_DETECTORS)
    first, second = talk.open(), talk.open()
    asked = {"group_id": "g", "protocol_type": "consumer", "session_timeout_ms": 6000}

    def answer(member: str, generation: int) -> dict[str, Any]:
        return {"generation_id": generation, "member_id": member, "leader": "first", "protocol_name": "range"}

    talk.ask(first, "JoinGroup", version, asked, answer("first", 1), took=0.9)
    talk.wait(1)
    talk.sent(second, with_size(encode_request(11, version, asked, correlation_id=77, client_id="other")))
    talk.wait(1)
    talk.ask(first, "Heartbeat", 3, {"group_id": "g", "generation_id": 1, "member_id": "first"}, {"error_code": 27})
    talk.wait(1)
    talk.received(second, with_size(encode_response(11, version, answer("second", 2), correlation_id=77)))
    (group,) = Groups.of(talk.inspector.traffic).all()
    assert {m.member_id: "".join(moment.step for moment in m.timeline) for m in group.members.values()} == {
        "first": "Jjhr", "second": "Jj",
    }  # fmt: skip
    assert [each.cause for each in group.rebalances] == [RebalanceCause.FIRST, RebalanceCause.JOIN]
    assert [each.first_join_ns > 0 for each in group.rebalances] == [True, True]


def test_a_member_that_rejoins_shows_when_it_heard_of_the_rebalance_and_waited() -> None:
    slow, other = steps("late-commit", "slow-worker")[0], steps("late-commit", "other")[0]
    assert slow.startswith("JjSsc") and "rJjSs" in slow and slow.endswith("Lx")
    assert other == "JjSsLx"


def test_the_new_protocol_in_the_same_terms() -> None:
    (group,) = groups_of("poll-new-protocol")
    (member,) = group.members.values()
    assert group.protocol == "consumer" and member.heartbeat_interval_ms == 200 and member.rebalance_timeout_ms == 6000
    assert member.assignment == {member.topics[0]: (0,)} if member.topics else False
    line = "".join(moment.step for moment in member.timeline)
    assert line.startswith("Jjsh") and line.count("L") == 2 and line.count("J") == 2


def test_rebalances_record_why_they_began_and_how_long_they_took() -> None:
    (group,) = groups_of("killed")
    causes = [r.cause for r in group.rebalances]
    assert causes[0] is RebalanceCause.FIRST and RebalanceCause.JOIN in causes and RebalanceCause.TIMEOUT in causes
    after_death = next(r for r in group.rebalances if r.cause is RebalanceCause.TIMEOUT)
    assert "billing-doomed" in after_death.who and after_death.duration_ns > 0
    doomed = next(m for m in group.members.values() if m.conn.client_id == "billing-doomed")
    assert doomed.state is MemberState.DROPPED and doomed.timeline[-1].step == "d"


def test_a_subscription_that_changes_is_distinguished_from_what_an_assignor_remembers() -> None:
    # members of a cooperative group join with other bytes each time: what they have
    (group,) = groups_of("rolling")
    assert group.assignor == "cooperative-sticky" and len(group.rebalances) >= 3
    assert RebalanceCause.SUBSCRIPTION not in [r.cause for r in group.rebalances]

    def resubscribed(e: Exchange) -> Exchange:
        assert e.request_message is not None
        joined = e.request_message["member_epoch"] > 0
        return copied(e, request={"subscribed_topic_names": ["another"]}) if joined else e

    (group,) = groups_of(edited(recording("groups-killed-new-protocol"), resubscribed, "ConsumerGroupHeartbeat"))
    assert RebalanceCause.SUBSCRIPTION in [r.cause for r in group.rebalances]
    (group,) = groups_of("killed-new-protocol")
    assert RebalanceCause.SUBSCRIPTION not in [r.cause for r in group.rebalances]


def test_a_static_member_that_comes_back_is_no_rebalance() -> None:
    (group,) = groups_of("static-member-closes")
    generations = [r.generation for r in group.rebalances if r.generation >= 0]
    assert generations == sorted(set(generations)) and len(generations) <= 3
    assert len([m for m in group.members.values() if m.instance_id == "a" and m.live]) == 1


@pytest.mark.parametrize("api_key", sorted(GROUP_APIS))
def test_every_version_of_every_group_api_is_read(api_key: int) -> None:
    name = facts.api_name(api_key)
    for version in facts.api(api_key).versions.every():
        conversation = Conversations(*GROUP_DETECTORS)
        connection = conversation.open()
        request: dict[str, Any] = {"group_id": "g"}
        if name == "LeaveGroup" and version >= 3:
            request["members"] = [{"member_id": "m"}]
        elif not (name == "OffsetCommit" and version < 1) and not (name == "TxnOffsetCommit" and version < 3):
            request["member_id"] = "m"
        if "Commit" in name:
            request["topics"] = [{"partitions": [{"partition_index": 0, "committed_offset": 5}]}]
        for error in (0, 25, 25, 25):
            answer: dict[str, Any] = {"error_code": error}
            if "Commit" in name:
                answer = {"topics": [{"partitions": [{"partition_index": 0, "error_code": error}]}]}
            elif name == "JoinGroup":
                answer |= {"member_id": "m", "leader": "m", "generation_id": 3}
            elif name.endswith("GroupHeartbeat"):
                answer |= {"member_id": "m", "member_epoch": 3, "heartbeat_interval_ms": 5000}
            conversation.ask(connection, name, version, request, answer)
        found = conversation.findings()
        assert "detector-failed" not in [f.id for f in found], (version, found)
        (group,) = Groups.of(conversation.inspector.traffic).all()
        assert group.id == "g"
        commits = "Commit" in name
        expected = {"commit-failed"} if commits else {"unknown-member"}
        if (
            name == "LeaveGroup"
            or (name == "OffsetCommit" and version == 0)
            or (name == "TxnOffsetCommit" and version < 3)
        ):
            expected = {"outsider-commit"} if commits else set()
        if name == "JoinGroup":
            assert ("m" in group.members) and group.generation == 3
        assert {f.id for f in found} == expected, version


def test_two_clusters_have_a_group_each() -> None:
    inspector = Inspector(GROUP_DETECTORS)
    groups, traffic = Groups.of(inspector.traffic), inspector.traffic
    assert groups is Groups.of(traffic)
    one, other = traffic.cluster_of("a:1"), traffic.cluster_of("b:1")
    assert groups.group("g", one) is groups.group("g", other)  # nothing shows yet that they are two
    one.id, other.id = "one", "other"
    assert groups.group("g", one) is not groups.group("g", other)
    assert len(groups.all()) == 2


def test_what_is_kept_is_bounded() -> None:
    conversation = Conversations(*GROUP_DETECTORS)
    connection, traffic = conversation.open(), conversation.inspector.traffic
    groups, cluster = Groups.of(traffic), traffic.cluster_of("a:1")
    for number in range(GROUPS + 50):
        groups.group(f"g{number}", cluster)
    assert len(groups.all()) == GROUPS and groups.all()[0].id == "g50"

    for number in range(GONE + 100):
        member = {"group_id": "busy", "member_id": f"m{number}"}
        conversation.ask(connection, "Heartbeat", 3, member | {"generation_id": number}, {})
        conversation.ask(connection, "LeaveGroup", 1, member, {})
    busy = next(g for g in groups.all() if g.id == "busy")
    assert len(busy.members) == GONE and not groups._open


def test_the_model_goes_with_its_scene() -> None:
    inspector = Inspector(GROUP_DETECTORS)
    model = weakref.ref(Groups.of(inspector.traffic))
    del inspector
    gc.collect()
    assert model() is None


@pytest.mark.parametrize("name", ["killed-new-protocol", "poll-java", "static-member-closes"])
def test_damaged_messages_put_no_detector_out(name: str) -> None:
    happened = recording(f"groups-{name}")

    def damaged(exchange: Exchange) -> Exchange:
        changed: dict[str, bytes] = {}
        for side, start in (("request", 8), ("response", 4)):  # behind the API key and version
            frame = getattr(exchange, side)
            if frame and len(frame) > start and chance.random() < 0.3:
                data = bytearray(frame)
                for _ in range(chance.choice((1, 1, 2, 5))):
                    data[chance.randrange(start, len(data))] = chance.choice((0, 1, 127, 128, 255))
                changed[side] = bytes(data)
        return copied(exchange, **changed)

    for seed in range(60):
        chance = random.Random(seed)
        assert "detector-failed" not in {f.id for f in findings(edited(happened, damaged), *GROUP_DETECTORS)}, seed
