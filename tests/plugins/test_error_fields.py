"""What a rule's error has around it; tests/real/kafka_classes/test_error_fields.py compares it with a broker's own answers."""

from __future__ import annotations

import gc
import tracemalloc
import uuid
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder import Exchange, State
from barnabas.decoder.codec.message import Message
from barnabas.decoder.connection.api_versions import PeerInfo
from barnabas.decoder.filter.entities import TopicPartition
from barnabas.decoder.reference import releases
from barnabas.decoder.schema import error_places, facts
from barnabas.plugins.answers import leaders
from barnabas.plugins.rules.rule_engine import RuleEngine
from barnabas.plugins.rules.rules import Rule

ORDERS = uuid.UUID(int=7)
NODE = {"node_id": 2, "host": "b", "port": 9093, "rack": "r2"}
METADATA: dict[str, Any] = {
    "brokers": [{"node_id": 1, "host": "a", "port": 9092, "rack": None}, NODE],
    "controller_id": 1,
    "topics": [
        {
            "name": "orders",
            "topic_id": ORDERS,
            "partitions": [
                {"partition_index": 0, "leader_id": 2, "leader_epoch": 5},
                {"partition_index": 1, "leader_id": -1, "leader_epoch": 5, "error_code": 5},
            ],
        }
    ],
}


def asked(api: str, version: int, fields: dict[str, Any]) -> Exchange:
    frame = decoder.encode_request(facts.api_key(api), version, fields, correlation_id=7, client_id="shop")
    return Exchange(api_key=facts.api_key(api), api_version=version, correlation_id=7, request=frame)


def answered(exchange: Exchange, fields: dict[str, Any]) -> bytes:
    return decoder.encode_response(exchange.api_key, exchange.api_version, fields, correlation_id=7)


def learned(version: int = 12) -> RuleEngine:
    """An engine that has seen Metadata."""
    engine = RuleEngine([])
    metadata = asked("Metadata", version, {"topics": None})
    fields = METADATA
    if version < 10:
        partitions = [{"partition_index": 0, "leader_id": 2}]
        fields = METADATA | {"topics": [{"name": "orders", "partitions": partitions}]}
    metadata.response = answered(metadata, fields)
    engine.learn(metadata)
    return engine


def error(engine: RuleEngine, exchange: Exchange, name: str, fine: dict[str, Any] | None = None) -> Message:
    """The response with an error; of the request that the broker executes if it has answered it with `fine`."""
    rule = Rule.of(f"api == {exchange.api}", {"error": name, "broker": "skipped" if fine is None else "executed"})
    faults = engine.with_rules([rule], {}).decide(exchange)
    assert faults is not None
    frame = faults.answer if fine is None else faults.respond(exchange, answered(exchange, fine))
    assert frame is not None
    return decoder.decode_response(frame, api_key=exchange.api_key, api_version=exchange.api_version)


def produce(version: int, *partitions: int) -> Exchange:
    topic = {"topic_id": ORDERS} if version >= 13 else {"name": "orders"}
    data = [{"index": each, "records": b""} for each in partitions]
    return asked("Produce", version, {"acks": 1, "timeout_ms": 1, "topic_data": [topic | {"partition_data": data}]})


@pytest.mark.parametrize("version", [10, 13])
def test_the_leader_is_named_with_its_epoch_and_its_address(version: int) -> None:
    found = error(learned(), produce(version, 0, 1, 2), "NOT_LEADER_OR_FOLLOWER").to_dict()
    named = [each["current_leader"] for each in found["responses"][0]["partition_responses"]]
    nobody = {"leader_id": -1, "leader_epoch": -1}
    assert named == [{"leader_id": 2, "leader_epoch": 5}, nobody, nobody]
    assert found["node_endpoints"] == [NODE]


def test_the_leader_is_named_where_the_broker_was_asked() -> None:
    partitions = [{"partition_index": 0, "high_watermark": 9}, {"partition_index": 1, "high_watermark": 9}]
    exchange = asked("Fetch", 17, {"topics": [{"topic_id": ORDERS, "partitions": [{"partition": 0}, {"partition": 1}]}]})
    fine = {"responses": [{"topic_id": ORDERS, "partitions": partitions}]}
    found = error(learned(), exchange, "FENCED_LEADER_EPOCH", fine).to_dict()
    assert [each["current_leader"]["leader_id"] for each in found["responses"][0]["partitions"]] == [2, -1]
    assert [each["aborted_transactions"] for each in found["responses"][0]["partitions"]] == [None, None]
    assert found["node_endpoints"] == [NODE]


def test_no_leader_is_named_that_is_not_known_or_for_other_errors() -> None:
    for engine, version, name in (
        (RuleEngine([]), 13, "NOT_LEADER_OR_FOLLOWER"), (learned(), 9, "NOT_LEADER_OR_FOLLOWER"),
        (learned(6), 10, "NOT_LEADER_OR_FOLLOWER"), (learned(), 13, "NOT_ENOUGH_REPLICAS"),
    ):  # fmt: skip
        found = error(engine, produce(version, 0), name).to_dict()
        assert not found.get("node_endpoints")
        assert found["responses"][0]["partition_responses"][0].get("current_leader", {"leader_id": -1})["leader_id"] == -1


def test_the_newest_metadata_counts_and_little_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaders, "MOST_PARTITIONS", 2)
    engine, metadata = learned(), asked("Metadata", 12, {"topics": None})
    known = engine.cluster_view.leaders
    newer = METADATA["topics"][0] | {"partitions": [{"partition_index": 0, "leader_id": 1, "leader_epoch": 6}]}
    metadata.response = answered(metadata, METADATA | {"topics": [newer]})
    engine.learn(metadata)
    found = error(engine, produce(13, 0), "NOT_LEADER_OR_FOLLOWER").to_dict()
    assert found["responses"][0]["partition_responses"][0]["current_leader"] == {"leader_id": 1, "leader_epoch": 6}
    monkeypatch.setattr(leaders, "MOST_BYTES", 3 * len(metadata.response))
    for number in range(10):
        topic = METADATA["topics"][0] | {"name": f"order{number}", "topic_id": uuid.UUID(int=number + 10)}
        metadata = asked("Metadata", 12, {"topics": None})
        metadata.response = answered(metadata, METADATA | {"topics": [topic]})
        engine.learn(metadata)
    assert len(known._unread) <= 3
    error(engine, produce(13, 0), "NOT_LEADER_OR_FOLLOWER")
    assert len(known._known) <= 2 and not known._unread


def test_a_member_gets_an_id_to_join_with() -> None:
    """KIP-394: kafkajs crashes without one. If the broker was asked, it is the one that the broker has given."""
    join = asked("JoinGroup", 9, {"group_id": "g", "member_id": "", "protocol_type": "consumer", "protocols": []})
    skipped = error(RuleEngine([]), join, "MEMBER_ID_REQUIRED")
    assert skipped["member_id"].startswith("shop-") and len(skipped["member_id"]) == len("shop-") + 36
    assert skipped["generation_id"] == -1
    assert error(RuleEngine([]), join, "MEMBER_ID_REQUIRED", {"member_id": "shop-1"})["member_id"] == "shop-1"
    join = asked("JoinGroup", 9, {"group_id": "g", "member_id": "shop-2", "protocol_type": "consumer", "protocols": []})
    assert error(RuleEngine([]), join, "UNKNOWN_MEMBER_ID")["member_id"] == "shop-2"
    assert error(RuleEngine([]), join, "GROUP_AUTHORIZATION_FAILED")["member_id"] == ""


def test_messages_where_brokers_have_them() -> None:
    create = asked("CreateTopics", 7, {"topics": [{"name": "a", "num_partitions": 1, "replication_factor": 1}]})
    found = error(RuleEngine([]), create, "TOPIC_ALREADY_EXISTS").to_dict()
    assert found["topics"][0]["error_message"] == "TOPIC_ALREADY_EXISTS, injected by Barnabas"
    assert found["throttle_time_ms"] == 0
    found = error(RuleEngine([]), create, "THROTTLING_QUOTA_EXCEEDED").to_dict()
    assert found["topics"][0]["error_code"] == 89 and found["throttle_time_ms"] > 0  # KIP-599
    found = error(RuleEngine([]), create, "THROTTLING_QUOTA_EXCEEDED", {"topics": [{"name": "a"}]}).to_dict()
    assert found["topics"][0]["error_code"] == 89 and found["throttle_time_ms"] > 0
    found = error(RuleEngine([]), produce(9, 0), "NOT_ENOUGH_REPLICAS").to_dict()
    assert found["responses"][0]["partition_responses"][0]["error_message"] is None


@pytest.mark.parametrize("version", [0, 1, 12])
def test_brokers_have_their_racks(version: int) -> None:
    exchange = asked("Metadata", version, {"topics": [{"name": "orders"}]})
    found = error(learned(), exchange, "UNKNOWN_TOPIC_OR_PARTITION").to_dict()
    assert [each.get("rack") for each in found["brokers"]] == [None, "r2" if version else None]


def test_mechanisms_of_the_broker_are_kept() -> None:
    hello = asked("SaslHandshake", 1, {"mechanism": "PLAIN"})
    found = error(RuleEngine([]), hello, "UNSUPPORTED_SASL_MECHANISM", {"mechanisms": ["SCRAM-SHA-256"]})
    assert found.to_dict()["mechanisms"] == ["SCRAM-SHA-256"]


def test_every_line_of_the_table_is_of_fields_that_exist() -> None:
    for key, names in ((key, row.values) for key, rows in error_places._rows().items() for row in rows):
        text = facts.schema_folder().joinpath(f"{key:03}-{facts.api_name(key)}.kafka").read_text("utf-8")
        response = text.partition("\nresponse ")[2].replace("_", "").lower()
        for name in names:
            assert f" {name.replace('_', '')} " in response, (facts.api_name(key), name)


def with_offers(exchange: Exchange, release: str) -> Exchange:
    """The exchange of a client that was offered what brokers of a release offer."""
    exchange.about = PeerInfo()
    exchange.about.offered = releases.release(release).offered
    return exchange


@pytest.mark.parametrize(("release", "generation"), [("0.10.2", 0), ("2.1", 0), ("2.2", -1), ("4.4", -1), ("", -1)])
def test_the_broker_that_the_client_was_offered_decides(release: str, generation: int) -> None:
    join = asked("JoinGroup", 1, {"group_id": "g", "member_id": "", "protocol_type": "consumer", "protocols": []})
    if release:
        with_offers(join, release)
    assert error(RuleEngine([]), join, "UNKNOWN_MEMBER_ID")["generation_id"] == generation
    assert error(RuleEngine([]), join, "UNKNOWN_MEMBER_ID", {"generation_id": 5})["generation_id"] == generation


def test_brokers_with_zookeeper_are_told_from_others_of_the_release() -> None:
    create = asked("CreatePartitions", 3, {"topics": [{"name": "a", "count": 3, "assignments": None}], "timeout_ms": 1})
    texts = {}
    for release in ("3.9", "3.9-zk"):
        (found,) = error(RuleEngine([]), with_offers(create, release), "UNKNOWN_TOPIC_OR_PARTITION").to_dict()["results"]
        texts[release] = found["error_message"]
    assert texts["3.9"] is None and texts["3.9-zk"].startswith("UNKNOWN_TOPIC_OR_PARTITION")


def test_only_rules_that_need_the_offers_read_them() -> None:
    """Holding ApiVersions costs each connection a frame."""
    for match, name, needed in (
        ("api == JoinGroup", "UNKNOWN_MEMBER_ID", True),
        ("api == CreatePartitions", "UNKNOWN_TOPIC_OR_PARTITION", True),
        ("api == CreatePartitions", "INVALID_PARTITIONS", False),
        ("api == Produce", "NOT_ENOUGH_REPLICAS", False),
    ):
        engine = RuleEngine([Rule.of(match, {"error": name})])
        assert (facts.api_key("ApiVersions") in engine.interest()) is needed, (match, name)


@pytest.mark.parametrize("broker", ["skipped", "executed"])
def test_a_client_over_its_quota_is_muted(broker: str) -> None:
    """KIP-219: brokers answer first, and read nothing from the connection for the time that the response names."""
    create = asked("CreateTopics", 7, {"topics": [{"name": "a", "num_partitions": 1, "replication_factor": 1}]})
    for name, muted in (("THROTTLING_QUOTA_EXCEEDED", 1_000_000_000), ("TOPIC_ALREADY_EXISTS", 0)):
        rule = Rule.of("api == CreateTopics", {"error": name, "broker": broker})
        faults = RuleEngine([rule]).decide(create)
        assert faults is not None and faults.mute == muted


def test_metadata_whose_leaders_nobody_asks_for_takes_its_bytes() -> None:
    """Not its decoded values, which take several times as much; and it is read when somebody asks."""
    partitions = [{"partition_index": n, "leader_id": 1, "leader_epoch": 7} for n in range(4)]
    body = {"topics": [{"name": f"topic-{n}", "partitions": partitions} for n in range(2000)]}
    frames = [decoder.encode_response(3, 8, body, correlation_id=n) for n in range(4)]
    engine = RuleEngine(())
    tracemalloc.start()
    try:
        for frame in frames:
            engine.learn(Exchange(api_key=3, api_version=8, response=frame, state=State.PAIRED))
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < sum(map(len, frames))  # the frames themselves were there before
    finally:
        tracemalloc.stop()
    place = TopicPartition("topic-1999", None, 3, None, None)
    assert engine.cluster_view.leaders.of(place) == leaders.Leader(1, 7)
