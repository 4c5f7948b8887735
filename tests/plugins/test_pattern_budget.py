"""The cost of searching hostile names for the regular expressions of rules, in steps and with an injected clock."""

from __future__ import annotations

import re
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder import Exchange
from barnabas.decoder.filter.language import patterns
from barnabas.decoder.filter.language.patterns import WORK, PatternError, PatternTimeout, pattern, within
from barnabas.plugins.rules import rule_engine, rules
from barnabas.plugins.rules.rule_engine import RuleEngine


def exchange(topics: list[str]) -> Exchange:
    asked: list[dict[str, Any]] = [{"name": topic} for topic in topics]
    return Exchange(api_key=3, api_version=8, request=decoder.encode_request(3, 8, {"topics": asked}, correlation_id=1))


@pytest.mark.parametrize("text", [r".*-dlq$", r"^.*-dlq$", "a.*b", "a.*b.*c", "a.*b.*c.*d", ".*a.*b.*c.*d", "x?a.*b", r"(?:prod|test)-.*-eu"])
def test_no_search_takes_more_steps_than_allowed(text: str) -> None:
    """The length that is seen, to the power that the engine needs at most for it."""
    found = pattern(text)
    begins = text.startswith((".*", "^"))
    power = len(re.findall(r"\*", text)) + (0 if begins else 1)
    assert found.seen ** max(power, 1) <= WORK or found.seen == patterns.LEAST_SEEN


@pytest.mark.parametrize("text", [".*-dlq$", ".*?b", "(?s).*b", "(?m).*b$", ".*", "(?i).*B"])
@pytest.mark.parametrize("value", ["", "orders-dlq", "orders", "a\nb-dlq", "a-dlq\nb", "\n", "x\n\nb", "b\n", "aab"])
def test_patterns_find_what_python_finds(text: str, value: str) -> None:
    assert pattern(text).search(value) == (re.search(text, value) is not None)


@pytest.mark.parametrize(("text", "value", "matches"), [("a.*", "abc", True), ("a.*", "cab", False), ("(?i)ABC", "abc", True), ("a", "a" * 99_999, False)])
def test_a_whole_match(text: str, value: str, matches: bool) -> None:
    assert pattern(text).matches(value) is matches


def test_topics_of_every_length_are_searched_whole() -> None:
    for text in ("x", "^a.*", ".*-dlq$", "a.*b", "^a.*b.*c$", "a.*b.*c", r"(?:prod|test)-.*-eu"):
        assert min(pattern(text).seen, pattern(text).whole) >= 249, text


def test_one_frame_has_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock takes a millisecond: a few dozen of 10,000 topics are searched, and then the frame passes."""
    now = [0.0]

    def tick() -> float:
        now[0] += 0.001
        return now[0]

    monkeypatch.setattr(rule_engine.time, "monotonic", tick)
    engine = RuleEngine([rules.Rule.of('topic ~ ".*-dlq$"', {"error": "UNKNOWN_TOPIC_OR_PARTITION"})])
    with pytest.raises(PatternTimeout, match="too long"):
        engine.decide(exchange(["x" * 200] * 10_000))
    assert now[0] <= rule_engine.SEARCH_SECONDS + 0.01
    assert engine.decide(exchange(["orders-dlq"])) is not None


def test_a_deadline_ends_with_its_block() -> None:
    now = [5.0]
    with within(1.0, lambda: now[0]):
        now[0] = 7.0
        with pytest.raises(PatternTimeout):
            pattern("a").search("a")
    assert pattern("a").search("a")


def test_patterns_without_a_bound_are_refused() -> None:
    with pytest.raises(PatternError, match="too long"):
        pattern("(a|b.)(a|b.)(a|b.)(a|b.)(a|b.)(a|b.)(a|b.)(a|b.)(a|b.)(a|b.)(a|b.)(a|b.)x.*y.*z.*v.*w")
