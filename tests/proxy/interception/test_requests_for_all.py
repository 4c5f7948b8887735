"""Rules about a name also apply where a request asks for everything: to the item of the response that has the name."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder.schema import facts
from barnabas.plugins.rules.rules import Rule
from harness import wire
from harness.testbed import Testbed

NODE = {"node_id": 1, "host": "127.0.0.1", "port": 9}
OTHER = NODE | {"node_id": 2, "port": 10}
PARTITION = {"partition_index": 0, "leader_id": 1}
ANSWERS: dict[str, dict[str, Any]] = {
    "Metadata": {"brokers": [NODE, OTHER], "topics": [{"name": name, "partitions": [PARTITION]} for name in "ab"]},
    "OffsetFetch": {"topics": [{"name": name, "partitions": [{"partition_index": 0, "committed_offset": 3}]} for name in "ab"]},
    "DescribeLogDirs": {"results": [{"log_dir": "/d", "topics": [{"name": "a"}, {"name": "b"}]}]},
}


class Kafka:
    """A broker that answers with `ANSWERS`, and counts the requests."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, sock: socket.socket) -> None:
        while frame := wire.read_frame(sock):
            key, version, number = (int.from_bytes(frame[a:b], "big") for a, b in ((4, 6), (6, 8), (8, 12)))
            self.asked += 1
            fields = ANSWERS[facts.api_name(key)]
            sock.sendall(wire.with_size(decoder.encode_response(key, version, fields, correlation_id=number)))


def codes(testbed: Testbed, rule: Rule, api: str, version: int, *asked: dict[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """What a client gets for each of these requests, and how many of them the broker has got."""
    broker = Kafka()
    proxy = testbed.proxy(testbed.broker(broker).address, rules=[rule])
    client = testbed.client(proxy.address)
    found = []
    key = facts.api_key(api)
    for number, fields in enumerate(asked):
        frame = decoder.encode_request(key, version, fields, correlation_id=number, client_id="t")
        answer = wire.ask(client, wire.with_size(frame))[4:]
        found.append(decoder.decode_response(answer, api_key=key, api_version=version).to_dict())
    return found, broker.asked


def errors(answer: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: facts.error_name(each["error_code"]) for each in answer["topics"]}


@pytest.mark.parametrize("broker", ["skipped", "executed"])
@pytest.mark.parametrize(("version", "all_of_them"), [(0, []), (1, None), (9, None)])
def test_metadata_of_all_topics(testbed: Testbed, broker: str, version: int, all_of_them: Any) -> None:
    """As sarama asks by default. Named, only what is named is refused; a topic that is not there is refused to nobody."""
    rule = Rule.of("api == Metadata and topic == a", {"error": "TOPIC_AUTHORIZATION_FAILED", "broker": broker})
    everything, other, named = {"topics": all_of_them}, {"topics": [{"name": "b"}]}, {"topics": [{"name": "a"}]}
    answers, asked = codes(testbed, rule, "Metadata", version, everything, everything, other, named)
    for answer in answers[:2]:
        assert errors(answer) == {"a": "TOPIC_AUTHORIZATION_FAILED", "b": "NONE"}
        assert [each["partitions"] != [] for each in answer["topics"]] == [False, True]
    assert errors(answers[3])["a"] == "TOPIC_AUTHORIZATION_FAILED"
    assert asked == (3 if broker == "skipped" else 4)


def test_hits_are_counted_once(testbed: Testbed) -> None:
    rule = Rule.of("api == Metadata and topic == a", {"error": "TOPIC_AUTHORIZATION_FAILED"}, when={"after": 1, "times": 1})
    answers, _ = codes(testbed, rule, "Metadata", 1, *[{"topics": None}] * 3)
    assert [errors(answer)["a"] for answer in answers] == ["NONE", "TOPIC_AUTHORIZATION_FAILED", "NONE"]


def test_no_item_has_the_name(testbed: Testbed) -> None:
    rule = Rule.of("api == Metadata and topic == c", {"error": "TOPIC_AUTHORIZATION_FAILED"})
    (answer,), asked = codes(testbed, rule, "Metadata", 1, {"topics": None})
    assert set(errors(answer).values()) == {"NONE"} and asked == 1


def test_a_leader_is_moved(testbed: Testbed) -> None:
    (answer,), _ = codes(testbed, Rule.of("api == Metadata and topic == a", leader="moved"), "Metadata", 1, {"topics": None})
    assert [each["partitions"][0]["leader_id"] for each in answer["topics"]] == [2, 1]


def test_offsets_of_all_topics_of_a_group(testbed: Testbed) -> None:
    rule = Rule.of("api == OffsetFetch and group == g and topic == b", {"error": "TOPIC_AUTHORIZATION_FAILED"})
    asked = [{"group_id": "g", "topics": None}, {"group_id": "h", "topics": None}]
    answers, _ = codes(testbed, rule, "OffsetFetch", 5, *asked)
    assert [[topic["partitions"][0]["error_code"] for topic in answer["topics"]] for answer in answers] == [[0, 29], [0, 0]]


def test_an_action_before_the_broker_still_needs_the_name(testbed: Testbed) -> None:
    """A request that is on its way cannot be taken back."""
    rule = Rule.of("api == Metadata and topic == a", drop="request")
    answers, asked = codes(testbed, rule, "Metadata", 1, {"topics": None})
    assert asked == 1 and len(answers) == 1
