"""Rules: read with positions, from YAML, TOML, JSON and Python alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from barnabas import plugins
from barnabas.decoder.codec.codec import decode_body
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.plan import StructPlan
from barnabas.plugins.answers import responses
from barnabas.plugins.answers.leaves import leaves
from barnabas.plugins.conditions.reach import shadowed
from barnabas.plugins.rules.rules import InvalidInput, Rule, RuleError, load_rules, parse_rules
from harness.generator import Generator, triples


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    return path


def load_text(tmp_path: Path, text: str) -> list[Rule]:
    return load_rules(write(tmp_path, text))


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
    moved, other = rules
    assert moved == Rule.of(
        "api == Produce and topic == orders and partition == 3",
        name="leader moved",
        error="NOT_LEADER_OR_FOLLOWER",
        broker="executed",
        when={"after": 10, "times": 3},
    )
    assert other.name == "rule 2" and other.to_dict()["do"] == {"error": "NOT_ENOUGH_REPLICAS", "broker": "skipped"}
    assert [Rule.from_dict(rule.to_dict()) for rule in rules] == rules


HEAD = "rules:\n  - match: api == Produce\n    "


@pytest.mark.parametrize(
    ("text", "line", "column", "part"),
    [
        ("", 1, 1, "is empty"),
        ("rule: []", 1, 1, "did you mean rules?"),
        ("[]", 1, 1, "'key: value'"),
        ("rules: 3", 1, 8, "must be a list"),
        ("rules: [x", 1, 10, "is not YAML"),
        ("rules:\n  - x", 2, 5, "'key: value'"),
        ("rules:\n  - do: {error: NONE}", 2, 5, "no 'match'"),
        ("rules:\n  - match: api == Produce", 2, 5, "no 'do'"),
        (HEAD + "doo: {}", 3, 5, "did you mean do?"),
        (HEAD + "do: {eror: X}", 3, 10, "did you mean error?"),
        (HEAD + "do: {}", 3, 9, "no action"),
        (HEAD + "do: []", 3, 9, "no action"),
        (HEAD + "do: [{error: NONE}, {delay: 3}]", 3, 33, "a duration with a unit"),
        (HEAD + "do: {error: NONE, delay: 3ms}", 3, 30, "write a list"),
        (HEAD + "do: [{error: NONE}, {drop: request}]", 3, 32, "cannot be combined"),
        (HEAD + "do: [{error: NOT_LEADER_OR_FOLLOWER}, {drop: response}]", 3, 50, "drop and error cannot be combined"),
        (HEAD + "do: [{edit: {throttle_time_ms: 1}}, {disconnect: before-response}]", 3, 54, "the client gets no response"),
        ("rules:\n  - {match: api == Heartbeat and ver == 0, do: {edit: {throttle_time_ms: 9}}}", 2, 56, "in none of the versions"),
        (HEAD + "do: {drop: both}", 3, 16, "response or request"),
        (HEAD + "do: {disconnect: befor-request}", 3, 22, "did you mean before-request?"),
        (HEAD + "do: {edit: {responses.nme: x}}", 3, 17, "no version of Produce"),
        (HEAD + "do: {edit: {throttle_time_ms: soon}}", 3, 35, "throttle_time_ms: expected a whole number"),
        (HEAD + "do: {edit: {throttle_time_ms: 3000000000}}", 3, 35, "is not a valid int32"),
        (HEAD + "do: {edit: {responses.partition_responses.base_offset: x}}", 3, 60, "base_offset: expected a whole number"),
        (HEAD + "do: {edit: {'responses[0].name': 7}}", 3, 38, "responses.name: expected"),
        (HEAD + "do: {respond: {throttle_time_ms: [1]}}", 3, 38, "throttle_time_ms: expected a whole number"),
        (HEAD + "do: {error: 6}", 3, 17, "6 is NOT_LEADER_OR_FOLLOWER"),
        (HEAD + "do: {edit: {responses.partition_responses.error_code: NOT_LEADER_OR_FOLOWER}}", 3, 59, "did you mean NOT_LEADER_OR_FOLLOWER?"),
        (HEAD + "do: {corrupt: crc}", 3, 19, "no response that matches contains any"),
        (HEAD + "do: {leader: moved}", 3, 18, "api == Metadata"),
        (HEAD + "do: {delay: 1ms, distribution: normal}", 3, 36, "needs a 'jitter'"),
        (HEAD + "do: {error: NOT_LEADER_OR_FOLOWER}", 3, 17, "did you mean NOT_LEADER_OR_FOLLOWER?"),
        (HEAD + "do: {error: [1]}", 3, 17, "must be text"),
        (HEAD + "do: {error: NONE, broker: skiped}", 3, 31, "did you mean skipped?"),
        (HEAD + "do: {error: NONE}\n    when: {times: 0}", 4, 19, "whole number from 1"),
        (HEAD + "do: {error: NONE}\n    when: {after: -1}", 4, 19, "whole number from 0"),
        (HEAD + "do: {error: NONE}\n    when: {evry: 1}", 4, 12, "did you mean every?"),
        (HEAD + "do: {error: NONE}\n    when: {probability: 2}", 4, 25, "at most 1"),
        (HEAD + "do: {error: NONE}\n    when: {seed: 2}", 4, 18, "without a probability"),
        (HEAD + "do: {error: NONE}\n    when: {from: 10s, until: 5s}", 4, 30, "never fire"),
        (HEAD + "do: {error: NONE}\n    when: {until: soon}", 4, 19, "a duration since the rule began"),
        (HEAD + "do: {error: NONE}\n    name: [a]", 4, 11, "must be text"),
        (HEAD + "do: {error: NONE}\n    do: {error: NONE}", 4, 5, "twice"),
        ("rules:\n  - match: api == Prodce\n    do: {error: NONE}", 2, 19, "did you mean Produce?"),
        ("rules:\n  - match: apy == Produce\n    do: {error: NONE}", 2, 12, "did you mean api?"),
        ("rules:\n  - match: 'api = Produce'\n    do: {error: NONE}", 2, 17, "=="),
        ("rules:\n  - match: err != 0\n    do: {error: NONE}", 3, 17, "takes effect before the response"),
        ("rules:\n  - match: api == Produce and\n    do: {error: NONE}", 2, 30, ""),
        ("rules:\n  - match: api == Produce and changed\n    do: {delay: 1s}", 2, 12, "'changed' is not known"),
        ("rules:\n  - match: err and not noted\n    do: {delay: 1s}", 2, 12, "'noted' is not known"),
        ("rules:\n  - match: pending > 10s\n    do: {delay: 1s}", 2, 12, "'pending' is not known"),
        ("rules:\n  - match: rule == x\n    do: {delay: 1s}", 2, 12, "'rule' is not known"),
        ("rules:\n  - match: api == Produce and partition == x\n    do: {error: NONE}", 2, 44, "number"),
        (
            "rules:\n  - {name: a, match: api == Produce, do: {error: NONE}}\n"
            "  - {name: a, match: api == Produce, do: {error: NONE}}",
            3,
            5,
            "two rules are named 'a'",
        ),
        ("rules: !!python/object/apply:os.system ['true']", 1, 41, "'key: value'"),
    ],
)
def test_errors_have_their_place(tmp_path: Path, text: str, line: int, column: int, part: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(RuleError) as caught:
        load_rules(path)
    error = caught.value
    assert part in error.text
    assert (error.line, error.column) == (line, column), error
    assert str(error).startswith(f"{path}:{line}:{column}: ")
    assert "\n" not in str(error)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="no such file"):
        load_rules(tmp_path / "nothing.yaml")


SAME = Rule.of("topic == a", [{"delay": "20ms"}, {"drop": "response"}], name="both", when={"every": 2, "from": "1s"})
TOML = """
[[rules]]
name = "both"
match = "topic == a"
do = [{delay = "20ms"}, {drop = "response"}]
when = {every = 2, from = "1s"}
"""
JSON = """{"rules": [{"name": "both", "match": "topic == a", "do": [{"delay": "20ms"}, {"drop": "response"}],
           "when": {"every": 2, "from": "1s"}}]}"""


def test_all_notations_give_the_same_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(TOML)
    assert load_rules(tmp_path / "rules.toml") == [SAME]
    assert parse_rules(JSON) == [SAME]
    assert load_text(tmp_path, JSON) == [SAME]
    assert load_text(tmp_path, JSON.replace(" ", "\t").replace("topic\t==\ta", "topic == a")) == [SAME]
    with pytest.raises(RuleError, match=r"2:2: a rule has no .*mach"):
        parse_rules('{"name": "n",\n\t"mach": "api == Fetch", "do": {"delay": "1ms"}}')
    assert parse_rules(str(SAME.to_dict())) == [SAME]  # one rule alone
    assert parse_rules(f"[{SAME.to_dict()}]") == [SAME]


@pytest.mark.parametrize(
    ("text", "line", "column", "part"),
    [
        ('[[rules]]\nmatch = "api == Prodce"\ndo = {error = "NONE"}', 2, 17, "did you mean Produce?"),
        ('[[rules]]\nmatch = "api == Fetch"\n[rules.do]\nerror = "NON"', 4, 9, "NON"),
        ('[[rules]]\nmatch = "topic == x"\n[rules.do]\ndrop = "response"\n\n[[rules]]\nmatch = 3', 6, 3, "no 'do'"),
        ('[[rules]]\nmatch = "topic == x"\ndo = {drp = "response"}', 3, 13, "did you mean drop?"),
        ("[[rules]]\nmatch = ", 2, 9, "is not TOML"),
    ],
)
def test_places_in_toml(tmp_path: Path, text: str, line: int, column: int, part: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(RuleError) as caught:
        load_rules(path)
    assert part in caught.value.text
    assert (caught.value.line, caught.value.column) == (line, column), caught.value


def test_errors_of_rules_in_python_have_the_path() -> None:
    with pytest.raises(InvalidInput, match=r"do.error: .*did you mean NOT_COORDINATOR"):
        Rule.of("api == Heartbeat", error="NOT_CORDINATOR")
    with pytest.raises(ValueError, match=r"do\[1\].drop: "):
        Rule.of("api == Heartbeat", [{"delay": "1s"}, {"drop": "all"}])


@pytest.mark.parametrize(
    ("match", "do", "part"),
    [
        ("api == Produce and api == Fetch", {"delay": "1s"}, "no API matches all of this at once"),
        ("api == Produce and group == stock", {"delay": "1s"}, "or has all these fields"),
        ("api == Produce and ver > 40", {"delay": "1s"}, "no version matches (Produce 0 to "),
        ("api == Produce and ver == 3 and ver == 4", {"delay": "1s"}, "no version matches"),
        ("api == Metadata and ver == 99", {"error": "UNKNOWN_TOPIC_OR_PARTITION"}, "no version matches"),
        ("api == DescribeLogDirs", [{"error": "NONE"}, {"respond": {}}], "a request has one answer"),
        ("api == Produce and acks == 0", {"error": "NOT_LEADER_OR_FOLLOWER"}, "a Produce with acks=0 gets none"),
        ("api == Produce and acks < 1 and acks != -1", {"drop": "response"}, "a Produce with acks=0 gets none"),
        ("topic == a and acks == 0", [{"delay": "1ms", "of": "request"}, {"delay": "1s"}], "do[1].delay: delay applies to the response"),
        ("api == Fetch and ver < 7", {"error": "FETCH_SESSION_ID_NOT_FUND"}, "did you mean FETCH_SESSION_ID_NOT_FOUND"),
    ],
)
def test_impossible_rules_are_refused(match: str, do: Any, part: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Rule.of(match, do)
    assert part in str(caught.value)


def test_fields_of_errors_take_their_names() -> None:
    answer = Rule.of("api == Heartbeat", respond={"error_code": "REBALANCE_IN_PROGRESS"})
    assert answer.to_dict()["do"] == {"respond": {"error_code": 27}}
    parts = [{"partition_index": 0, "error_code": "NOT_LEADER_OR_FOLLOWER"}]
    whole = Rule.of("api == Metadata", edit={"topics": [{"name": "a", "partitions": parts}]})
    assert whole.to_dict()["do"]["edit"]["topics"][0]["partitions"][0]["error_code"] == 6
    # What only some of the versions that match can say is right.
    assert Rule.of("api == Metadata", edit={"topics.name": None})


def test_rules_about_requests_may_match_acks_0() -> None:
    for do in ({"delay": "1ms", "of": "request"}, {"drop": "request"}, {"disconnect": "before-request"}):
        assert Rule.of("api == Produce and acks == 0", do)
    assert Rule.of("api == Produce and acks in {0, 1}", error="NOT_LEADER_OR_FOLLOWER")
    assert Rule.of("api == Produce and not acks == 0", error="NOT_LEADER_OR_FOLLOWER")


def without_errors() -> list[tuple[int, int, int]]:
    """(api key, a version whose response has no error code, the first that has one), from the definitions alone."""
    found = []
    for key in facts.api_keys():
        carrying = {version: responses.has_error_code(key, version) for version in facts.api(key).versions.every()}
        if any(carrying.values()) and not all(carrying.values()):
            bare = next(version for version, has in carrying.items() if not has)
            found.append((key, bare, min(version for version, has in carrying.items() if has)))
    return found


def test_an_error_needs_a_version_with_an_error_code() -> None:
    for key, bare, first in without_errors():
        name = facts.api_name(key)
        with pytest.raises(InvalidInput, match=f"no error code at the versions that match: it has one from version {first} on"):
            Rule.of(f"api == {name} and ver == {bare}", error="UNKNOWN_SERVER_ERROR")
        Rule.of(f"api == {name} and ver >= {bare}", error="UNKNOWN_SERVER_ERROR")


@pytest.mark.parametrize(
    ("first", "second", "hidden"),
    [
        ("api == Produce", "api == Produce and topic == a", True),
        ("api in {Produce, Fetch}", "api == Fetch and client == x", True),
        ("topic == a", "api == Produce and topic == a and partition == 3", True),
        ("client == x and api == Produce", "api  ==  Produce and client == x and acks == 1", True),
        ("api == Produce", "api == Produce and err != 0", True),
        ("not api == Metadata", "api == Fetch", True),
        ("api == Produce and topic == b", "api == Produce and topic == a", False),
        ("api == Fetch", "api == Produce", False),
        ("topic == a and partition == 3", "topic == a", False),
        ("not api == Fetch", "api == Fetch", False),
        ("api == Produce or client == x", "api == Fetch", False),
    ],
)
def test_rules_shadowed_by_earlier_ones_are_found(first: str, second: str, hidden: bool) -> None:
    one, two = Rule.of(first, delay="1s", name="one"), Rule.of(second, delay="2s", name="two")
    assert shadowed([one, two]) == ([(two, one)] if hidden else [])
    assert shadowed([Rule.of(first, delay="1s", name="one", when={"times": 9}), two]) == []


def test_a_rule_about_responses_is_shadowed_by_later_ones_about_requests() -> None:
    late, early = Rule.of("api == Produce and err != 0", drop="response"), Rule.of("api == Produce", delay="1s", name="e")
    assert shadowed([late, early]) == [(late, early)]


def test_the_package_exports_what_programs_use() -> None:
    for name in plugins.__all__:
        assert getattr(plugins, name).__doc__, name
    assert plugins.Rule is Rule
    with pytest.raises(AttributeError):
        plugins.nothing  # noqa: B018


# the topic around a field, against the marks of Kafka's definitions


def topics_of(
    struct: StructPlan, values: tuple[Any, ...], prefix: str, around: str | None
) -> Iterator[tuple[str, str | None]]:
    """Every plain field by its path, with the name that a field marked as a topic's has in the structs around it."""
    fields = list(zip(struct.fields, values, strict=False))
    for field, value in fields:
        if field.entity == "topicName" and isinstance(value, str) and value:
            around = value
    for field, value in fields:
        path = prefix + field.name
        if field.struct is None:
            yield path, around
        elif value is not None:
            for number, item in enumerate(value if field.array else (value,)):
                yield from topics_of(field.struct, item, f"{path}[{number}]." if field.array else f"{path}.", around)


def test_every_field_has_the_topic_around_it() -> None:
    generator = Generator(11)
    named = 0
    for triple in triples():
        message = decode_body(*triple, generator.body(*triple)[1])
        found = [(leaf.path, leaf.part.pair.topic) for leaf in leaves(message)]
        assert found == list(topics_of(message.plan.root, message.values, "", None)), triple
        named += sum(topic is not None for _, topic in found)
    assert named > 500
