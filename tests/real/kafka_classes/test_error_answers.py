"""Kafka's own `AbstractRequest.getErrorResponse` as judge of typed errors: every API, every version of two releases."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder.codec.message import Message
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.plan import FieldPlan, StructPlan, plan
from barnabas.plugins.answers import responses
from harness.run.slices import only
from real.clients import java_programs

CLUSTER_AUTHORIZATION_FAILED = 31
"""An error of the whole request: where the response has a place for that, Java's uses it."""

OURS = {
    "error_message": "Java puts its own sentences there, or none",
    "expiry_timestamp_ms": "Java has 0 where a token could not be renewed, and -1 where it could not be made",
    "principal_type": "Java has User:ANONYMOUS, the definition's default is empty",
    "principal_name": "the same",
    "token_requester_principal_type": "the same",
    "token_requester_principal_name": "the same",
    "records": "null in some releases, empty in others",
    "user": "Java leaves it empty in DescribeUserScramCredentials",
    "start_offset": "Java leaves 0 in share group states; -1 is what stands for unknown",
    "leader_epoch": "the same",
}
"""Fields that may differ, and why."""
LISTS = {
    ("ListPartitionReassignments", "topics"): "has no error codes; Java repeats what was asked",
}


def sample(struct: StructPlan, chance: random.Random) -> dict[str, Any]:
    return {field.name: value(field, chance) for field in struct.fields if field.tag is None}


def value(field: FieldPlan, chance: random.Random, item: bool = False) -> Any:
    if field.array and not item:
        return [value(field, chance, True) for _ in range(2)]
    if field.struct is not None:
        return sample(field.struct, chance)
    if field.type in ("bool", "float64"):
        return True if field.type == "bool" else 1.0
    if field.type == "uuid":
        return uuid.UUID(int=chance.getrandbits(128) | 1)
    if field.type == "string":
        return "".join(chance.choices("abcdef", k=6))
    if field.type in ("bytes", "records"):
        return b""
    return chance.randrange(1, 100)


def ordered(value: Any) -> Any:
    """Java keeps some answers in maps, without an order."""
    if isinstance(value, dict):
        return {name: ordered(item) for name, item in value.items()}
    if isinstance(value, list):
        return sorted((ordered(item) for item in value), key=repr)
    return value


def differences(api: str, java: Any, ours: Any, path: str = "") -> Iterator[str]:
    if isinstance(java, dict):
        for name in java:
            if name not in OURS:
                yield from differences(api, java[name], ours[name], f"{path}.{name}")
    elif isinstance(java, list) or isinstance(ours, list):
        if (api, path[1:]) in LISTS:
            return
        java, ours = java or [], ours or []
        if len(java) != len(ours):
            yield f"{path}: {len(java)} entries, ours {len(ours)}"
            return
        for one, other in zip(java, ours, strict=True):
            yield from differences(api, one, other, path + "[]")
    elif java != ours:
        yield f"{path}: {java!r}, ours {ours!r}"


RELEASES = only([("3.9.1", 310), ("4.3.1", 285), ("4.4.0", 285)], ("4.4.0", 285))
"""With the least number of requests that each release answers."""


def answered_by_kafka(release: str, codes: Sequence[int]) -> Iterator[tuple[Message, int, Message]]:
    """(request, error, response of Kafka's classes) of every API and version with each error, where the release has one."""
    chance = random.Random(1)
    asked, lines = [], []
    for key in facts.api_keys():
        for version in facts.api(key).versions.every():
            fields = sample(plan("request", key, version).root, chance)
            request = decoder.decode_request(decoder.encode_request(key, version, fields, correlation_id=1, client_id="c"))
            for code in codes:
                asked.append((request, code))
                lines.append(f"{key} {version} {code} {request.frame[request.body_start :].hex() or '-'}")
    answers = java_programs.answers("ErrorAnswers", java_programs.jars_of(release), lines)
    for (request, code), line in zip(asked, answers, strict=True):
        if line in ("-", "null") or line.startswith("! "):
            continue
        try:
            body = bytes.fromhex(line.rstrip("x"))
            theirs = decoder.decode_body("response", request.api_key, request.api_version, body)
        except decoder.DecodeError:  # laid out anew since
            continue
        yield request, code, theirs


def answered_here(request: Message, code: int) -> Message:
    """Our response with this error."""
    made = responses.error_response(request, code, 1)
    return decoder.decode_response(made, api_key=request.api_key, api_version=request.api_version)


@pytest.mark.real
@pytest.mark.parametrize(("release", "least"), RELEASES)
def test_answers_are_those_of_kafka(release: str, least: int) -> None:
    found, compared = [], 0
    for request, code, java in answered_by_kafka(release, [CLUSTER_AUTHORIZATION_FAILED]):
        where, ours = f"{request.api} v{request.api_version}", answered_here(request, code)
        theirs = ordered(java.to_dict())
        found += [f"{where} {each}" for each in differences(request.api, theirs, ordered(ours.to_dict()))]
        assert bool(list(java.errors())) <= bool(list(ours.errors())), f"{where}: no error in ours"
        compared += 1
    assert found == []
    assert compared >= least


def test_errors_of_parts_stand_with_the_parts() -> None:
    fields = {"topics": [{"topic": "a", "partitions": [{"partition": 3}]}]}
    frame = decoder.encode_request(1, 7, fields, correlation_id=1, client_id=None)
    request = decoder.decode_request(frame)
    for error, where in (
        ("NOT_LEADER_OR_FOLLOWER", "responses[0].partitions[0].error_code"),
        ("INVALID_FETCH_SESSION_EPOCH", "error_code"),
    ):
        code = facts.error_code(error)
        assert next(answered_here(request, code).errors()) == (where, code)
