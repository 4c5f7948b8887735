"""Rules: read with positions, matched and counted, answered at every version."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder import facts
from barnabas.plugins.rules import Rule, RuleBook, RuleError, load

PRODUCE_VERSIONS = facts.api(0).versions
TOPIC_ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    return path


def load_text(tmp_path: Path, text: str) -> list[Rule]:
    return load(write(tmp_path, text))


def test_a_whole_rule(tmp_path: Path) -> None:
    rules = load_text(
        tmp_path,
        """
        rules:
          - name: leader moved
            match: api == Produce and topic == orders and partition == 3
            do: {error: NOT_LEADER_OR_FOLLOWER, broker: executed}
            when: {after: 10, times: 3}
          - match: 'partition == 0 and topic == "a b" and api == produce'
            do:
              error: not_enough_replicas
        """,
    )
    assert rules == [
        Rule("leader moved", 0, 6, "orders", 3, True, 10, 3),
        Rule("rule 2", 0, 19, "a b", 0),
    ]
    assert [Rule.from_dict(rule.to_dict()) for rule in rules] == rules


HEAD = "rules:\n  - match: api == Produce\n    "


@pytest.mark.parametrize(
    ("text", "line", "column", "part"),
    [
        ("", 1, 1, "is empty"),
        ("rule: []", 1, 1, "did you mean rules?"),
        ("[]", 1, 1, "'key: value'"),
        ("rules: 3", 1, 8, "is a list"),
        ("rules: [x", 1, 10, "is not YAML"),
        ("rules:\n  - x", 2, 5, "'key: value'"),
        ("rules:\n  - do: {error: NONE}", 2, 5, "no 'match'"),
        ("rules:\n  - match: api == Produce", 2, 5, "no 'do'"),
        (HEAD + "doo: {}", 3, 5, "did you mean do?"),
        (HEAD + "do: {eror: X}", 3, 10, "did you mean error?"),
        (HEAD + "do: {}", 3, 9, "no action"),
        (HEAD + "do: {error: NOT_LEADER_OR_FOLOWER}", 3, 17, "did you mean NOT_LEADER_OR_FOLLOWER?"),
        (HEAD + "do: {error: [1]}", 3, 17, "is text"),
        (HEAD + "do: {error: NONE, broker: skiped}", 3, 31, "did you mean skipped?"),
        (HEAD + "do: {error: NONE}\n    when: {times: 0}", 4, 19, "whole number from 1"),
        (HEAD + "do: {error: NONE}\n    when: {after: -1}", 4, 19, "whole number from 0"),
        (HEAD + "do: {error: NONE}\n    when: {every: 1}", 4, 12, "possible: after, times"),
        (HEAD + "do: {error: NONE}\n    name: [a]", 4, 11, "is text"),
        (HEAD + "do: {error: NONE}\n    do: {error: NONE}", 4, 5, "twice"),
        ("rules:\n  - match: api == Prodce\n    do: {error: NONE}", 2, 19, "did you mean Produce?"),
        ("rules:\n  - match: apy == Produce\n    do: {error: NONE}", 2, 12, "did you mean api?"),
        ("rules:\n  - match: 'api = Produce'\n    do: {error: NONE}", 2, 17, "expected =="),
        ("rules:\n  - match: api == Produce or topic == x\n    do: {error: NONE}", 2, 27, "expected 'and'"),
        ("rules:\n  - match: api == Produce and\n    do: {error: NONE}", 2, 30, "expected a field"),
        ("rules:\n  - match: topic == x\n    do: {error: NONE}", 2, 12, "no api"),
        ("rules:\n  - match: api == Produce and partition == x\n    do: {error: NONE}", 2, 44, "whole number"),
        ("rules:\n  - match: api == Fetch\n    do: {error: NONE}", 2, 12, "only for Produce"),
        (
            "rules:\n  - {name: a, match: api == Produce, do: {error: NONE}}\n"
            "  - {name: a, match: api == Produce, do: {error: NONE}}",
            3,
            5,
            "a second rule is named 'a'",
        ),
        ("rules: !!python/object/apply:os.system ['true']", 1, 41, "'key: value'"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, text: str, line: int, column: int, part: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(RuleError) as caught:
        load(path)
    error = caught.value
    assert part in error.text
    assert (error.line, error.column) == (line, column), error
    assert str(error).startswith(f"{path}:{line}:{column}: ")
    assert "\n" not in str(error)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="no such file"):
        load(tmp_path / "nothing.yaml")


def produce(version: int, topics: dict[str, list[int]], acks: int = -1) -> decoder.Message:
    entries: list[dict[str, Any]] = []
    for number, (name, partitions) in enumerate(topics.items()):
        topic: dict[str, Any] = {"partition_data": [{"index": p, "records": b"r"} for p in partitions]}
        if version >= 13:
            topic["topic_id"] = uuid.UUID(int=TOPIC_ID.int + number)
        else:
            topic["name"] = name
        entries.append(topic)
    frame = decoder.encode_request(
        0, version, {"acks": acks, "timeout_ms": 1, "topic_data": entries}, correlation_id=1, client_id="c"
    )
    return decoder.decode_request(frame)


@pytest.mark.parametrize("version", range(PRODUCE_VERSIONS.low, PRODUCE_VERSIONS.high + 1))
def test_a_produce_answer_names_every_partition(version: int) -> None:
    request = produce(version, {"a": [0, 5], "b": [1], "c": []})
    answer = RuleBook([Rule("r", 0, 6)]).decide(0, version, request)
    assert answer is not None and answer.hits == 1
    message = decoder.decode_response(answer.encode(4711), api_key=0, api_version=version)
    assert message.header["correlation_id"] == 4711
    fields = message.to_dict()
    got = []
    for topic in fields["responses"]:
        for partition in topic["partition_responses"]:
            got.append((topic.get("name") or topic["topic_id"].int - TOPIC_ID.int, partition["index"]))
            assert partition["error_code"] == 6
            assert partition["base_offset"] == -1
            assert partition.get("log_append_time_ms", -1) == -1
            assert partition.get("log_start_offset", -1) == -1
            assert partition.get("record_errors", []) == []
    first, second = (0, 1) if version >= 13 else ("a", "b")
    assert got == [(first, 0), (first, 5), (second, 1)]
    assert len(fields["responses"]) == 3
    assert fields.get("throttle_time_ms", 0) == 0


@pytest.mark.parametrize("version", range(PRODUCE_VERSIONS.low, PRODUCE_VERSIONS.high + 1))
def test_executed_changes_only_what_matches(version: int) -> None:
    book = RuleBook([Rule("r", 0, 6, topic="b", partition=1, forward=True)])
    book.learn(uuid.UUID(int=TOPIC_ID.int + 1), "b")
    answer = book.decide(0, version, produce(version, {"a": [1], "b": [0, 1]}))
    assert answer is not None and answer.forward
    responses: list[dict[str, Any]] = []
    for number, name in enumerate("ab"):
        partitions = [{"index": index, "base_offset": 9} for index in (0, 1)]
        topic = {"topic_id": uuid.UUID(int=TOPIC_ID.int + number)} if version >= 13 else {"name": name}
        responses.append(topic | {"partition_responses": partitions})
    original = decoder.encode_response(0, version, {"responses": responses}, correlation_id=3)
    changed = decoder.decode_response(answer.apply(original), api_key=0, api_version=version)
    where = "responses[1].partition_responses[1]."
    assert list(changed.errors()) == [(where + "error_code", 6)]
    assert changed.replace({where + "error_code": 0, where + "base_offset": 9}).encode() == original


def test_after_and_times_count_matches() -> None:
    book = RuleBook([Rule("few", 0, 6, topic="a", after=2, times=3), Rule("rest", 0, 7, topic="a", after=1)])
    fired = []
    for number in range(8):
        answer = book.decide(0, 7, produce(7, {"a" if number != 1 else "z": [0]}))
        fired.append(answer.rule if answer else None)
    assert fired == [None, None, "rest", "few", "few", "few", "rest", "rest"]
    assert book.hits() == {"few": 3, "rest": 3}


def test_what_does_not_match_passes() -> None:
    book = RuleBook([Rule("r", 0, 6, topic="a", partition=2)])
    assert book.interest() == {0}
    assert book.decide(0, 7, produce(7, {"a": [0, 1], "b": [2]})) is None
    assert book.decide(0, 7, produce(7, {"a": [2]}, acks=0)) is None
    assert book.decide(0, 13, produce(13, {"a": [2]})) is None  # the id's name was never seen
    fetch = decoder.decode_request(decoder.encode_request(1, 4, {}))
    assert book.decide(1, 4, fetch) is None
    assert book.hits() == {"r": 0}
    assert RuleBook([]).interest() == frozenset()
