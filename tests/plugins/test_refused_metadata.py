"""A Metadata request that a rule refuses is answered with the brokers of the newest Metadata response.

librdkafka 2.16 gives up every broker that a Metadata response does not list, and a response without any leaves it with
nobody to ask again.
"""

from __future__ import annotations

from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder import Exchange
from barnabas.decoder.connection.exchange import State
from barnabas.decoder.schema import facts
from barnabas.plugins.answers.responses import with_cluster
from barnabas.plugins.rules.rule_engine import RuleEngine, exchange_of
from barnabas.plugins.rules.rules import Rule

METADATA = 3
VERSIONS = facts.api(METADATA).versions.every()
BROKERS = [{"node_id": 1, "host": "one", "port": 9091}, {"node_id": 2, "host": "two", "port": 9092}]


def learnt(engine: RuleEngine, version: int = 12, **fields: Any) -> RuleEngine:
    frame = decoder.encode_response(METADATA, version, fields, correlation_id=1)
    engine.learn(Exchange(api_key=METADATA, api_version=version, response=frame, state=State.PAIRED))
    return engine


def refused(engine: RuleEngine, version: int) -> dict[str, Any]:
    request = decoder.encode_request(METADATA, version, {"topics": [{"name": "t"}]}, correlation_id=2)
    faults = engine.decide(exchange_of(request))
    assert faults is not None and faults.answer is not None
    return decoder.decode_response(faults.answer, api_key=METADATA, api_version=version).to_dict()


def places(fields: dict[str, Any]) -> list[dict[str, Any]]:
    return [{name: each[name] for name in ("node_id", "host", "port")} for each in fields["brokers"]]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seen", [0, 1, VERSIONS[-1]])
def test_the_answer_lists_the_brokers_that_are_known(version: int, seen: int) -> None:
    engine = RuleEngine([Rule.of("api == Metadata", error="LEADER_NOT_AVAILABLE")])
    whole = {"controller_id": 2} if seen else {}
    learnt(engine, seen, brokers=BROKERS, **whole, **({"cluster_id": "c"} if seen > 1 else {}))
    fields = refused(engine, version)
    assert places(fields) == BROKERS
    assert [(topic["name"], topic["error_code"]) for topic in fields["topics"]] == [("t", 5)]
    if version >= 1 and seen:
        assert fields["controller_id"] == 2
    if version >= 2 and seen > 1:
        assert fields["cluster_id"] == "c"


def test_the_newest_response_counts_that_names_brokers() -> None:
    engine = RuleEngine([Rule.of("api == Metadata", error="LEADER_NOT_AVAILABLE")])
    assert places(refused(engine, 9)) == []  # nothing was seen yet
    learnt(engine, brokers=BROKERS)
    learnt(engine, brokers=BROKERS[1:])
    assert places(refused(engine, 9)) == BROKERS[1:]
    learnt(engine, brokers=[])
    assert places(refused(engine, 9)) == BROKERS[1:]


def test_a_response_that_fails_as_a_whole_stays_as_kafka_makes_it() -> None:
    """A client that is sent back to its bootstrap servers (KIP-1102) is not shown others."""
    engine = learnt(RuleEngine([Rule.of("api == Metadata", error="REBOOTSTRAP_REQUIRED")]), brokers=BROKERS)
    fields = refused(engine, 13)
    assert fields["error_code"] == facts.error_code("REBOOTSTRAP_REQUIRED") and fields["brokers"] == []


@pytest.mark.parametrize(
    "fields",
    [
        {"topics": []},  # nothing is refused
        {"topics": [{"error_code": 5, "name": "t"}], "brokers": [{"node_id": 9, "host": "nine", "port": 9}]},
        {"topics": [{"error_code": 0, "name": "t"}]},
    ],
)
def test_other_answers_of_plugins_stay_as_they_are(fields: dict[str, Any]) -> None:
    frame = decoder.encode_response(METADATA, 9, fields, correlation_id=2)
    assert with_cluster(frame, 9, {"brokers": BROKERS}) == frame
