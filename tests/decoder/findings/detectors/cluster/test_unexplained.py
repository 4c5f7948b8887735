"""Every error code of every API is named by some finding; none by two; and what is part of normal life by none."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
from barnabas.decoder import Exchange
from barnabas.decoder.codec.message import is_error_code
from barnabas.decoder.codec.project import error_paths
from barnabas.decoder.findings import Finding, Inspector, Severity
from barnabas.decoder.reference import explain
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.plan import FieldPlan, StructPlan, plan
from traffic.unusual_messages import BATCH, Conversation, Message, body

NORMAL = facts.error_code("NONE")
OF_EVERY_API = ("UNKNOWN_SERVER_ERROR", "INVALID_REQUEST", "UNSUPPORTED_VERSION")
ASKS_FOR_EVERY = ("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit", "CreateTopics", "FindCoordinator", "ListOffsets", "EndTxn")


def _pairs() -> Iterator[tuple[str, str]]:
    """(API, error) as the explanations pair them."""
    for code in facts.errors():
        text = explain.error(code)
        yield from ((api, text.name) for api in text.apis)
    yield from ((api, name) for api in ASKS_FOR_EVERY for name in OF_EVERY_API)


def _answer(key: int, version: int, path: str, code: int, name: str = "orders") -> Message:
    """A response with one item in each array, about the topic or group of that name, and the code at one path."""
    of = plan("response", key, version)
    at: dict[int, int] = {}

    def place(struct: StructPlan, rest: list[str]) -> None:
        field = next(f for f in struct.fields if f.name == rest[0])
        if field.struct is not None:
            place(field.struct, rest[1:])
        else:
            at[id(field)] = code

    place(of.root, path.split("."))
    return Message(of, body(of, lambda field: at.get(id(field), 0) if is_error_code(field) else _usual(field, name), 1), "")


def _usual(field: FieldPlan, name: str) -> Any:
    if field.name == "throttle_time_ms":
        return 0
    if field.type == "string":
        return None if field.nullable and "message" in field.name else name
    if field.type == "uuid":
        return b"\x07" * 16
    if field.type in ("bytes", "records"):
        return BATCH if field.type == "records" else b""
    return False if field.type == "bool" else 0.0 if field.type == "float64" else 1


def _request(key: int, version: int, name: str = "orders") -> Message:
    of = plan("request", key, version)
    return Message(of, body(of, lambda field: _usual(field, name), 1), "")


def _findings(exchanges: list[Exchange], only: list[str] | None = None) -> list[Finding]:
    inspector = Inspector(only)
    for exchange in exchanges:
        inspector.look(exchange)
    return inspector.findings()


def _places(api: str) -> Iterator[tuple[int, int, str]]:
    """The places of error codes in the newest version of an API."""
    key = facts.api_key(api)
    version = facts.api(key).versions.every()[-1]
    for path in error_paths(plan("response", key, version)):
        yield key, version, path


def _names(finding: Finding, error: str) -> bool:
    return re.search(rf"\b{error}\b", f"{finding.seen} {finding.about}") is not None


PAIRS = list(_pairs())
EVERY_DAY = random.Random(21).sample(PAIRS, 45)


def _unnamed(pairs: list[tuple[str, str]]) -> list[tuple[str, str, str]]:
    found = []
    for api, error in pairs:
        for key, version, path in _places(api):
            conversation = Conversation()
            answer = _answer(key, version, path, facts.error_code(error))
            findings = _findings([conversation.exchange(_request(key, version), answer) for _ in range(40)])
            assert "detector-failed" not in {f.id for f in findings}
            if not any(_names(finding, error) for finding in findings):
                found.append((api, error, path))
            doubles = [f.id for f in findings if f.about.get("error") == error and f.about.get("api") == api]
            assert len(doubles) <= 1 or "unexplained-error" not in doubles, (api, error, doubles)
    return found


def test_errors_that_do_not_end_are_named() -> None:
    assert _unnamed(EVERY_DAY) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_every_error_that_does_not_end_is_named(part: int) -> None:
    assert _unnamed(PAIRS[part::8]) == []


def _reported(api: str, errors: list[str], path: str | None = None, only: bool = True) -> list[Finding]:
    """The findings of one client that repeats a request and gets these errors."""
    key, version, first = next(p for p in _places(api) if path in (None, p[2]))
    conversation = Conversation()
    exchanges = [
        conversation.exchange(_request(key, version), _answer(key, version, path or first, facts.error_code(error)))
        for error in errors
    ]
    return [f for f in _findings(exchanges) if f.id == "unexplained-error" or not only]


def test_what_is_wrong_is_named_at_once() -> None:
    (found,) = _reported("CreateTopics", ["INVALID_REPLICA_ASSIGNMENT"], "topics.error_code")
    assert found.severity is Severity.MEDIUM and found.count == 1
    assert "CreateTopics" in found.seen and "INVALID_REPLICA_ASSIGNMENT for orders once" in found.seen
    assert found.why.startswith(explain.error(39).what) and explain.error(39).do[0] in found.remedy
    assert (found.about["error"], found.about["gone"]) == ("INVALID_REPLICA_ASSIGNMENT", False)


def test_what_went_away_is_low() -> None:
    (found,) = _reported("CreateTopics", ["INVALID_CONFIG", "INVALID_CONFIG", "NONE"], "topics.error_code")
    assert found.severity is Severity.LOW and found.count == 2 and found.about["gone"] and "it went away" in found.seen


def test_a_better_answer_about_something_else_is_none() -> None:
    key = facts.api_key("CreateTopics")
    conversation = Conversation()
    refused = _answer(key, 7, "topics.error_code", facts.error_code("POLICY_VIOLATION"))
    well = _answer(key, 7, "topics.error_code", NORMAL, "payments")
    exchanges = [conversation.exchange(_request(key, 7), refused), conversation.exchange(_request(key, 7, "payments"), well)]
    (found,) = _findings(exchanges, ["unexplained-error"])
    assert found.severity is Severity.MEDIUM and found.about["about"] == ["orders"]


@pytest.mark.parametrize(
    ("api", "error", "most"),
    [
        ("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS", 19),
        ("OffsetFetch", "UNSTABLE_OFFSET_COMMIT", 19),
        ("Heartbeat", "REBALANCE_IN_PROGRESS", 19),
        ("ListOffsets", "NOT_LEADER_OR_FOLLOWER", 19),
        ("CreateTopics", "TOPIC_ALREADY_EXISTS", 19),
        ("JoinGroup", "MEMBER_ID_REQUIRED", 19),
    ],
)
def test_what_is_part_of_normal_life_is_named_when_it_does_not_end(api: str, error: str, most: int) -> None:
    assert _reported(api, [error] * most) == []
    assert _reported(api, ([error] * most + ["NONE"]) * 4) == []
    assert any(_names(finding, error) for finding in _reported(api, [error] * (most + 1), only=False))


def test_many_clients_of_one_name_may_each_learn_something_once() -> None:
    key = facts.api_key("JoinGroup")
    conversation = Conversation()
    asked, answer = _request(key, 9), _answer(key, 9, "error_code", facts.error_code("MEMBER_ID_REQUIRED"))
    exchanges = [conversation.exchange(asked, answer) for _ in range(60)]
    for number, exchange in enumerate(exchanges):
        exchange.connection = number
    assert _findings(exchanges, ["unexplained-error"]) == []


def test_a_code_of_no_release() -> None:
    key = facts.api_key("Heartbeat")
    conversation = Conversation()
    (found,) = _findings([conversation.exchange(_request(key, 4), _answer(key, 4, "error_code", 1234))], ["unexplained-error"])
    assert "ERROR(1234)" in found.seen and "no known Kafka release" in found.why
