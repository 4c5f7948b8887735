"""The fields around an injected error: those of the answer that a real broker gives itself, at every version that it serves."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from barnabas import decoder
from barnabas.decoder import Exchange
from barnabas.decoder.codec.message import Message, is_error_code
from barnabas.decoder.connection.api_versions import PeerInfo
from barnabas.decoder.reference import releases
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.plan import FieldPlan, StructPlan, plan
from barnabas.plugins.answers.leaves import leaves, pattern
from barnabas.plugins.rules.rule_engine import RuleEngine
from barnabas.plugins.rules.rules import Rule
from harness.waiting import until
from matrix.brokers import BROKERS
from real.brokers.broker import Cluster, start_cluster
from real.brokers.old_broker import OldBroker
from real.clients.confluent_client import create_topic
from real.clients.raw_client import RawClient
from real.kafka_classes.test_error_places import FETCH, GONE, NOBODY, STRANGER

METADATA, FIND_COORDINATOR, HEARTBEAT = 3, 10, 68
JOIN = {"group_id": "joining", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocol_type": "consumer"}
JOIN |= {"protocols": [{"name": "range", "metadata": b""}]}
BATCH = bytes.fromhex(
    "0000000000000000000000360000000002" "00000000" "0000" "00000000" "0000000000000001" "0000000000000001"
    "ffffffffffffffff" "ffff" "ffffffff" "00000001" "08000000026100"
)
"""A batch with a wrong CRC."""


def asked(topic: Any, partition: Any) -> list[dict[str, Any]]:
    """One topic with one partition, under the names that APIs have for these."""
    names = {"name": topic, "topic": topic, "topic_name": topic, "topic_id": {"T": "ID", "ELSEWHERE": "OTHER-ID"}.get(topic, GONE)}
    return [names | {"partitions": [partition], "partition_data": [partition], "partition_indexes": [0]}]


PARTITION = {"partition": 0, "partition_index": 0, "index": 0, "timestamp": -1, "current_leader_epoch": -1, "leader_epoch": 0}
PARTITION |= {"partition_max_bytes": 1000}
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("Produce", {"acks": 1, "timeout_ms": 5000, "topic_data": asked("nothing", PARTITION | {"records": BATCH})}),
    ("Produce", {"acks": 1, "timeout_ms": 5000, "topic_data": asked("T", PARTITION | {"records": BATCH})}),
    ("Produce", {"acks": 1, "timeout_ms": 5000, "topic_data": asked("ELSEWHERE", PARTITION | {"records": BATCH})}),
    ("Produce", {"acks": 7, "timeout_ms": 5000, "topic_data": asked("T", PARTITION | {"records": BATCH})}),
    ("Fetch", FETCH | {"session_epoch": -1, "topics": asked("nothing", PARTITION)}),
    ("Fetch", FETCH | {"session_epoch": -1, "topics": asked("T", PARTITION | {"fetch_offset": 77})}),
    ("Fetch", FETCH | {"session_epoch": -1, "topics": asked("ELSEWHERE", PARTITION)}),
    ("Fetch", FETCH | {"session_epoch": -1, "topics": asked("T", PARTITION | {"current_leader_epoch": 77})}),
    ("Fetch", FETCH | {"session_id": 5, "session_epoch": 3}),
    ("ListOffsets", {"replica_id": -1, "topics": asked("nothing", PARTITION)}),
    ("ListOffsets", {"replica_id": -1, "topics": asked("ELSEWHERE", PARTITION)}),
    ("ListOffsets", {"replica_id": -1, "topics": asked("T", PARTITION | {"current_leader_epoch": 77})}),
    ("OffsetForLeaderEpoch", {"replica_id": -1, "topics": asked("nothing", PARTITION)}),
    ("OffsetForLeaderEpoch", {"replica_id": -1, "topics": asked("ELSEWHERE", PARTITION)}),
    ("Metadata", {"topics": [{"name": "nothing"}], "allow_auto_topic_creation": False}),
    ("Metadata", {"topics": [{"name": "a b"}], "allow_auto_topic_creation": False}),
    ("Metadata", {"topics": [{"name": None, "topic_id": GONE}], "allow_auto_topic_creation": False}),
    ("DescribeTopicPartitions", {"topics": [{"name": "nothing"}, {"name": "a b"}]}),
    ("JoinGroup", JOIN | {"member_id": ""}),
    ("JoinGroup", JOIN | {"member_id": "stranger"}),
    ("JoinGroup", JOIN | {"member_id": "", "session_timeout_ms": 1}),
    ("JoinGroup", JOIN | {"member_id": "", "group_id": ""}),
    ("JoinGroup", JOIN | {"member_id": "", "protocols": []}),
    ("JoinGroup", JOIN | {"member_id": "stranger", "group_instance_id": "i"}),
    ("SyncGroup", NOBODY | {"generation_id": 3}),
    ("SyncGroup", NOBODY | {"generation_id": 3, "protocol_type": "consumer", "protocol_name": "range"}),
    ("Heartbeat", NOBODY | {"generation_id": 3}),
    ("LeaveGroup", NOBODY | {"members": [{"member_id": "m"}, {"member_id": "n", "group_instance_id": "i"}]}),
    ("OffsetCommit", NOBODY | {"generation_id_or_member_epoch": 3, "topics": asked("T", PARTITION)}),
    ("OffsetCommit", {"group_id": "nobody", "generation_id_or_member_epoch": -1, "topics": asked("nothing", PARTITION)}),
    ("OffsetFetch", {"group_id": "nobody", "topics": asked("nothing", PARTITION),
                     "groups": [{"group_id": "nobody", "topics": asked("nothing", PARTITION)}]}),
    ("OffsetFetch", {"groups": [STRANGER | {"member_epoch": 3, "topics": asked("T", PARTITION)}]}),
    ("OffsetDelete", {"group_id": "nobody", "topics": asked("T", PARTITION)}),
    ("DescribeGroups", {"groups": ["nobody", "nobody else"]}),
    ("DescribeGroups", {"groups": ["nobody"], "include_authorized_operations": True}),
    ("ConsumerGroupDescribe", {"group_ids": ["nobody"], "include_authorized_operations": True}),
    ("ConsumerGroupHeartbeat", {"group_id": "nobody", "member_id": "m", "member_epoch": 3, "topic_partitions": []}),
    ("ConsumerGroupHeartbeat", {"group_id": "", "member_id": "m", "member_epoch": 3}),
    ("ConsumerGroupHeartbeat", {"group_id": "somebody", "member_id": "m", "member_epoch": 9}),
    ("ConsumerGroupHeartbeat", {"group_id": "somebody", "member_id": "a member", "member_epoch": 99}),
    ("ShareGroupHeartbeat", {"group_id": "nobody", "member_id": "m", "member_epoch": 3}),
    ("ShareGroupDescribe", {"group_ids": ["nobody"]}),
    ("StreamsGroupHeartbeat", {"group_id": "nobody", "member_id": "m", "member_epoch": 3}),
    ("StreamsGroupDescribe", {"group_ids": ["nobody"]}),
    ("ConsumerGroupHeartbeat", {"group_id": "far", "member_id": "m", "member_epoch": 3, "topic_partitions": []}),
    ("ShareGroupHeartbeat", {"group_id": "far", "member_id": "m", "member_epoch": 3}),
    ("StreamsGroupHeartbeat", {"group_id": "far", "member_id": "m", "member_epoch": 3}),
    ("JoinGroup", JOIN | {"member_id": "stranger", "group_id": "far"}),
    ("DescribeGroups", {"groups": ["far"]}),
    ("ConsumerGroupDescribe", {"group_ids": ["far"]}),
    ("ShareGroupDescribe", {"group_ids": ["far"]}),
    ("StreamsGroupDescribe", {"group_ids": ["far"]}),
    ("DeleteGroups", {"groups_names": ["nobody", "nobody else"]}),
    ("FindCoordinator", {"key": "g", "key_type": 9, "coordinator_keys": ["g", "h"]}),
    ("FindCoordinator", {"key": "g", "key_type": 2, "coordinator_keys": ["g"]}),
    ("ListGroups", {"states_filter": [], "types_filter": []}),
    ("InitProducerId", {"transactional_id": "", "transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1}),
    ("InitProducerId", {"transactional_id": "x", "transaction_timeout_ms": -5, "producer_id": -1, "producer_epoch": -1}),
    ("InitProducerId", {"transactional_id": "x", "transaction_timeout_ms": 5000, "producer_id": 5, "producer_epoch": -1}),
    ("EndTxn", {"transactional_id": "x", "producer_id": 5, "producer_epoch": 0, "committed": True}),
    ("AddOffsetsToTxn", {"transactional_id": "x", "producer_id": 5, "producer_epoch": 0, "group_id": "g"}),
    ("AddPartitionsToTxn", {"v3_and_below_transactional_id": "x", "v3_and_below_producer_id": 5,
                            "v3_and_below_topics": [{"name": "T", "partitions": [0]}, {"name": "nothing", "partitions": [0, 1]}]}),
    ("TxnOffsetCommit", {"transactional_id": "x", "group_id": "nobody", "member_id": "m", "generation_id": 3,
                         "topics": asked("T", PARTITION)}),
    ("DescribeProducers", {"topics": asked("nothing", PARTITION)}),
    ("DescribeProducers", {"topics": asked("ELSEWHERE", PARTITION)}),
    ("DescribeTransactions", {"transactional_ids": ["x", "y"]}),
    ("WriteTxnMarkers", {"markers": [{"producer_id": 5, "topics": asked("nothing", PARTITION)}]}),
    ("CreateTopics", {"timeout_ms": 5000, "topics": [{"name": "T", "num_partitions": 1, "replication_factor": 1}]}),
    ("CreateTopics", {"timeout_ms": 5000, "topics": [{"name": "new", "num_partitions": 1, "replication_factor": 9}]}),
    ("CreateTopics", {"timeout_ms": 5000, "topics": [{"name": "a b", "num_partitions": 1, "replication_factor": 1}]}),
    ("DeleteTopics", {"timeout_ms": 5000, "topic_names": ["nothing"], "topics": [{"name": "nothing"}]}),
    ("DeleteTopics", {"timeout_ms": 5000, "topics": [{"name": None, "topic_id": GONE}]}),
    ("CreatePartitions", {"timeout_ms": 5000, "topics": [{"name": "nothing", "count": 3}]}),
    ("CreatePartitions", {"timeout_ms": 5000, "topics": [{"name": "T", "count": 1}]}),
    ("DeleteRecords", {"timeout_ms": 5000, "topics": asked("nothing", PARTITION)}),
    ("DeleteRecords", {"timeout_ms": 5000, "topics": asked("T", PARTITION | {"offset": 77})}),
    ("DescribeConfigs", {"resources": [{"resource_type": 2, "resource_name": "nothing"}]}),
    ("DescribeConfigs", {"resources": [{"resource_type": 4, "resource_name": "77"}]}),
    ("AlterConfigs", {"resources": [{"resource_type": 2, "resource_name": "nothing", "configs": []}]}),
    ("AlterConfigs", {"resources": [{"resource_type": 2, "resource_name": "T", "configs": [{"name": "x", "value": "1"}]}]}),
    ("IncrementalAlterConfigs", {"resources": [{"resource_type": 2, "resource_name": "nothing",
                                                "configs": [{"name": "retention.ms", "value": "1"}]}]}),
    ("IncrementalAlterConfigs", {"resources": [{"resource_type": 2, "resource_name": "T",
                                                "configs": [{"name": "retention.ms", "value": "x"}]}]}),
    ("AlterReplicaLogDirs", {"dirs": [{"path": "/nowhere", "topics": [{"name": "T", "partitions": [0]}]}]}),
    ("ElectLeaders", {"timeout_ms": 5000, "topic_partitions": [{"topic": "nothing", "partitions": [0]}]}),
    ("ElectLeaders", {"timeout_ms": 5000, "topic_partitions": [{"topic": "T", "partitions": [0]}]}),
    ("AlterPartitionReassignments", {"timeout_ms": 5000, "topics": [{"name": "T", "partitions": [PARTITION | {"replicas": [99]}]}]}),
    ("AlterPartitionReassignments", {"timeout_ms": 5000, "topics": [{"name": "nothing", "partitions": [PARTITION | {"replicas": None}]}]}),
    ("AlterClientQuotas", {"entries": [{"entity": [{"entity_type": "user", "entity_name": "u"}], "ops": [{"key": "x", "value": 1.0}]}]}),
    ("DescribeClientQuotas", {"components": [{"entity_type": "x", "match_type": 0, "match": "u"}]}),
    ("DescribeUserScramCredentials", {"users": [{"name": "nobody"}]}),
    ("AlterUserScramCredentials", {"deletions": [{"name": "nobody", "mechanism": 1}]}),
    ("UpdateFeatures", {"timeout_ms": 5000, "feature_updates": [{"feature": "no.feature", "max_version_level": 3, "upgrade_type": 1}]}),
    ("DescribeQuorum", {"topics": asked("nothing", PARTITION)}),
    ("DescribeAcls", {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 2, "permission_type": 3}),
    ("CreateAcls", {"creations": [{"resource_type": 2, "resource_name": "T", "resource_pattern_type": 3, "principal": "User:x",
                                   "host": "*", "operation": 2, "permission_type": 3}]}),
    ("DeleteAcls", {"filters": [{"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 2, "permission_type": 3}]}),
    ("CreateDelegationToken", {"max_lifetime_ms": 5000}),
    ("RenewDelegationToken", {"hmac": b"x", "renew_period_ms": 5}),
    ("ExpireDelegationToken", {"hmac": b"x", "expiry_time_period_ms": 5}),
    ("DescribeDelegationToken", {"owners": []}),
    ("SaslHandshake", {"mechanism": "NONE"}),
    ("SaslAuthenticate", {"auth_bytes": b"x"}),
    ("ShareFetch", {"group_id": "nobody", "member_id": "m" * 22, "share_session_epoch": 5, "max_wait_ms": 1}),
    ("ShareAcknowledge", {"group_id": "nobody", "member_id": "m" * 22, "share_session_epoch": 5}),
    ("DescribeShareGroupOffsets", {"groups": [{"group_id": "nobody", "topics": asked("nothing", PARTITION)}]}),
    ("AlterShareGroupOffsets", {"group_id": "nobody", "topics": asked("nothing", PARTITION)}),
    ("DeleteShareGroupOffsets", {"group_id": "nobody", "topics": [{"topic_name": "T"}]}),
    ("PushTelemetry", {"client_instance_id": GONE, "subscription_id": 5}),
    ("AddRaftVoter", {"cluster_id": "x", "voter_id": 9}),
    ("RemoveRaftVoter", {"cluster_id": "x", "voter_id": 9}),
]  # fmt: skip
"""Requests that a broker refuses, with the fields of all versions. T: a topic that it leads; ELSEWHERE: one that the other broker
leads; far: a group that the other one coordinates."""


def fitted(struct: StructPlan, given: dict[str, Any]) -> dict[str, Any]:
    """The fields that this version has."""

    def value(field: FieldPlan, item: Any) -> Any:
        if field.struct is None or item is None:
            return item
        return [fitted(field.struct, each) for each in item] if field.array else fitted(field.struct, item)

    return {field.name: value(field, given[field.name]) for field in struct.fields if field.name in given}


class Bench(NamedTuple):
    """A broker, rules in front of it that have seen its Metadata, what it offers, and what the words of `ASKED` stand for."""

    address: tuple[str, int]
    engine: RuleEngine
    about: PeerInfo
    names: dict[str, Any]


def exchange(request: bytes, response: bytes | None = None, about: PeerInfo | None = None) -> Exchange:
    key, version, correlation = decoder.peek_request(request)
    return Exchange(
        api_key=key, api_version=version, correlation_id=correlation, request=request, response=response, about=about
    )


def meet(address: tuple[str, int], make: Callable[[str], object], newest: int = 12) -> Bench:
    """Make topics, see Metadata, and find groups and transactional ids that this broker coordinates."""
    topics = [f"t{number}-{uuid.uuid4().hex[:6]}" for number in range(4)]
    for topic in topics:
        make(topic)
    with RawClient(address) as client:
        about, hello = PeerInfo(), client.request("ApiVersions", 0, {})
        about.learn(exchange(hello, client.frame(hello)))
        ranges = about.offered or {}
        version = min(newest, ranges[METADATA][1])

        def leaders() -> dict[str, tuple[int, Any]]:
            asking = client.request("Metadata", version, {"topics": [{"name": topic} for topic in topics]})
            answer = client.frame(asking)
            engine.learn(exchange(asking, answer))
            listed = decoder.decode_response(answer, api_key=METADATA, api_version=version)["topics"]
            found = {each["name"]: (each["partitions"][0]["leader_id"], each.get("topic_id")) for each in listed if each["partitions"]}
            return found if len(found) == len(topics) and all(node >= 0 for node, _ in found.values()) else {}

        engine = RuleEngine([])
        led = until(leaders)
        here = address_node(engine, address)
        names: dict[str, Any] = {}
        for topic, (node, topic_id) in led.items():
            names |= {"T": topic, "ID": topic_id} if node == here else {"ELSEWHERE": topic, "OTHER-ID": topic_id}
        for word in ("nobody", "nobody else", "somebody", "joining", "x", "y"):
            names[word] = until(lambda word=word: coordinated(client, word, here, ranges[FIND_COORDINATOR][1]))
        if "ELSEWHERE" in names:
            names["far"] = until(lambda: coordinated(client, "far", 3 - here, ranges[FIND_COORDINATOR][1]))
        if HEARTBEAT in ranges and not releases.kind_of(frozenset(ranges.items())).zookeeper:
            member = {"group_id": names["somebody"], "member_id": "a member", "rebalance_timeout_ms": 60_000, "topic_partitions": []}
            joined = member | {"subscribed_topic_names": topics[:1]}
            until(lambda: not client.ask("ConsumerGroupHeartbeat", ranges[HEARTBEAT][1], joined)["error_code"])
    return Bench(address, engine, about, names)


def address_node(engine: RuleEngine, address: tuple[str, int]) -> int:
    return next(node for node, at in engine.cluster_view.brokers.items() if at[1] == address[1])


def coordinated(client: RawClient, word: str, here: int, highest: int) -> str:
    """A name that this broker coordinates; empty if there is none yet."""
    for number in range(20):
        kind = {"key_type": int(word in ("x", "y"))} if highest else {}
        found = client.ask("FindCoordinator", min(highest, 3), {"key": f"{word}{number}"} | kind)
        if not found["error_code"] and found["node_id"] == here:
            return f"{word}{number}"
    return ""


def replaced(value: Any, names: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {name: replaced(item, names) for name, item in value.items()}
    if isinstance(value, list):
        return [replaced(item, names) for item in value]
    return names.get(value, value) if isinstance(value, str) else value


MEMBER_ID = re.compile(r"raw-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def named(item: Any) -> str:
    return str(next((item[name] for name in ("name", "group_id") if name in item), "")) if isinstance(item, dict) else ""


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All fields with their paths; of messages whether there is one, and a new member id as such. Topics and groups by name:
    where brokers keep them in a hash map, their order is chance."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from flat(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value:
        for number, item in enumerate(sorted(value, key=named)):
            yield from flat(item, f"{path}[{number}]")
    elif path.endswith("error_message"):
        yield path, value is not None
    elif path == "member_id" and MEMBER_ID.fullmatch(value or ""):
        yield path, "a new one"
    else:
        yield path, value


def one_error(theirs: Message) -> int:
    """The error that everything in a response has; 0 if parts fail differently, or not all."""
    codes: dict[str, set[int]] = {}
    for leaf in leaves(theirs):
        if is_error_code(leaf.field):
            codes.setdefault(pattern(leaf.path), set()).add(leaf.value)
    used = {code for each in codes.values() for code in each if code}
    return used.pop() if len(used) == 1 and not any(len(each) > 1 for each in codes.values()) else 0


def compared(bench: Bench, api: str, version: int, fields: dict[str, Any]) -> Iterator[list[str]]:
    """How an injected error differs from the broker's own answer: one that is skipped, and one that is executed. Nothing if the
    broker does not refuse all of it for one reason."""
    key = facts.api_key(api)
    try:
        given = fitted(plan("request", key, version).root, replaced(fields, bench.names))
        request = decoder.encode_request(key, version, given, correlation_id=7, client_id="raw")
        with RawClient(bench.address) as client:
            theirs = decoder.decode_response(client.frame(request), api_key=key, api_version=version)
    except (decoder.EncodeError, ConnectionResetError):
        return  # it cannot be asked at this version
    code = one_error(theirs)
    for broker in ("skipped", "executed") if code else ():
        error = facts.error_name(code)
        engine = bench.engine.with_rules([Rule.of(f"api == {api}", {"error": error, "broker": broker})], {})
        asked = exchange(request, about=bench.about)
        faults = engine.decide(asked)
        assert faults is not None
        fine = theirs.replace({path: 0 for path, _ in theirs.errors()}).encode()
        made = faults.answer if faults.answer is not None else faults.respond(asked, fine)
        ours, want = (dict(flat(each.to_dict())) for each in (decoder.decode_response(made, api_key=key, api_version=version), theirs))
        yield [
            f"{api} v{version} {error} {broker}: {path} {want.get(path, ABSENT)!r}, ours {ours.get(path, ABSENT)!r}"
            for path in sorted(want.keys() | ours.keys())
            if want.get(path, ABSENT) != ours.get(path, ABSENT) and (api, pattern(path)) not in BY_CHANCE
        ]


ABSENT = "(absent)"
BY_CHANCE = {
    ("Metadata", "controller_id"): "KRaft brokers name any broker",
}
"""Fields that differ between two answers of the same broker, too."""
REASONS = {
    ("Metadata", "INVALID_REQUEST"): "librdkafka drops brokers that are not listed, and would never ask again",
    ("UpdateFeatures", "INVALID_REQUEST"): "brokers with ZooKeeper have it in the entries, others in the response",
    ("SaslHandshake", "mechanisms"): "the proxy does not know which the broker has enabled, unless it has answered",
    ("AlterPartitionReassignments", "error_message"): "of the response, not of its entries: null and empty mean the same",
    ("CreateDelegationToken", "principal_name"): "the proxy does not know who the client has logged in as",
    ("CreateDelegationToken", "principal_type"): "the same",
    ("CreateDelegationToken", "token_requester_principal_name"): "the same",
    ("CreateDelegationToken", "token_requester_principal_type"): "the same",
    ("DescribeTopicPartitions", "topics.topic_authorized_operations"): "what the client may do is known to the broker alone",
}
"""Fields that may differ, or all fields around an error, and why."""


def explained(api: str, difference: str) -> bool:
    _, _, error, _, path, *_ = difference.split(" ")
    return (api, pattern(path)) in REASONS or (api, error) in REASONS


def differences(bench: Bench, newest: bool) -> tuple[int, int, list[str]]:
    """(comparisons, those that are equal, differences without a reason); `newest`: of the newest version of each API alone."""
    count, equal, wrong = 0, 0, []
    for api, fields in ASKED:
        low, high = bench.about.range(facts.api_key(api)) or (0, -1)
        highest = min(high, facts.api(facts.api_key(api)).versions.high or 0, 3 if api == "AddPartitionsToTxn" else high)
        for version in range(max(highest, low) if newest else low, highest + 1):
            for found in compared(bench, api, version, fields):
                count, equal = count + 1, equal + (not found)
                wrong += [each for each in found if not explained(api, each)]
    return count, equal, wrong


@pytest.mark.real
def test_the_newest_versions(broker: Cluster) -> None:
    bench = meet(broker.addresses[0], lambda topic: create_topic(broker.bootstrap, topic))
    count, equal, wrong = differences(bench, newest=True)
    assert wrong == []
    assert equal >= 0.95 * count and count > 100, (equal, count)


@pytest.mark.real
@pytest.mark.slow
def test_all_versions() -> None:
    """Of a cluster of two: a broker that does not lead a partition names the one that does (KIP-951)."""
    with start_cluster(2, {"broker.rack": "r1"}) as cluster:
        bench = meet(cluster.addresses[0], lambda topic: create_topic(cluster.bootstrap, topic, replicas=1))
        assert "ELSEWHERE" in bench.names
        count, equal, wrong = differences(bench, newest=False)
    assert wrong == []
    assert equal >= 0.95 * count and count > 800, (equal, count)


@pytest.mark.real
@pytest.mark.parametrize("newest", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_an_old_broker(old_broker: OldBroker, newest: bool) -> None:
    compare_old(old_broker.address, newest, 30 if newest else 100)


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("name", ["3.9-zookeeper", "2.8"])
def test_brokers_in_between(name: str) -> None:
    (broker,) = (each for each in BROKERS if each.name == name)
    with broker.running() as address:
        compare_old(address, False, 600)


def compare_old(address: tuple[str, int], newest: bool, least: int) -> None:
    """At least `least` comparisons. Topics make themselves when Metadata names them."""
    with RawClient(address) as client:
        bench = meet(address, lambda topic: client.ask("Metadata", 1, {"topics": [{"name": topic}]}))
    count, equal, wrong = differences(bench, newest)
    assert wrong == []
    assert equal >= 0.95 * count and count >= least, (equal, count)
