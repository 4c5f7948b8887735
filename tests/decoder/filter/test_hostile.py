"""Any text gives a filter that works on any exchange, or a FilterError with its place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from barnabas.decoder import Exchange
from barnabas.decoder.filter import FilterError, compile, complete
from barnabas.decoder.filter.language.lexer import MAX_FILTER
from barnabas.decoder.filter.language.parser import MAX_DEPTH
from barnabas.decoder.filter.language.patterns import PatternError, pattern
from harness.generator import Generator
from harness.run.examples import times
from harness.run.steps import assert_linear, steps
from hypothesis import given
from hypothesis import strategies as st
from torture.decoder.worst_cases import FILTERS, PATTERNS, SEARCHED
from traffic.generated_filters import ALL_TESTS, Sample, exchanges, filters

PIECES = st.sampled_from(
    [
        "api", "err", "==", "!=", "~", "in", "not", "and", "or", "(", ")", "{", "}", ",", "..", "any", "all", '"', "'",
        "resp.", "req.topics[*].name", "[*]", "[", "]", "50ms", "1e99", "-1", "0x", "12:01", "::1", "10.0.0.0/8", "1..2",
        "topic", "partition", "latency", "time", "\\", "\x00", "\ud800", "é", "𝄞", "\u202e", "99999999999999999999999",
        "2026-13-45", "(a+)+", "time", "addr", "topic.id", "=", "&", "|", "!", "client", "\n", "1e-99", "nan", "inf", "%",
    ]
)  # fmt: skip


@pytest.fixture(scope="module")
def sample() -> list[Exchange]:
    return Sample(exchanges(Generator(3))[::7])


def compiled_or_filter_error(text: str, sample: list[Exchange]) -> None:
    try:
        found = compile(text, now=1_700_000_000_000_000_000)
    except FilterError as error:
        assert 0 <= error.start <= error.end <= len(text)
        assert error.message and "\n" not in error.message
        lines = error.pointer().split("\n")
        assert len(lines) == 2 and set(lines[1].strip()) == {"^"}
        return
    for exchange in sample:
        assert found(exchange) in (True, False)
    assert found.apis() is None or found.apis() is not None
    assert isinstance(found.request_only, bool) and found.needs


@given(st.text(max_size=200))
def test_any_text(sample: list[Exchange], text: str) -> None:
    compiled_or_filter_error(text, sample[:3])


@times(2)
@given(st.lists(st.tuples(PIECES, st.sampled_from(("", " ")))))
def test_pieces_of_filters(sample: list[Exchange], pieces: list[tuple[str, str]]) -> None:
    compiled_or_filter_error("".join(piece + gap for piece, gap in pieces), sample[:3])


@given(filters(ALL_TESTS), st.data())
def test_a_good_filter_with_a_letter_changed(sample: list[Exchange], text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    compiled_or_filter_error(text[:at] + data.draw(PIECES | st.characters()) + text[at + data.draw(st.integers(0, 3)) :], sample[:3])


@given(filters(ALL_TESTS))
def test_good_filters_decide_on_everything(sample: list[Exchange], text: str) -> None:
    compile(text)
    compiled_or_filter_error(text, sample)


@given(st.lists(PIECES).map(" ".join) | filters(ALL_TESTS) | st.text(max_size=50), st.integers(-3, 300))
def test_completion_never_fails(text: str, cursor: int) -> None:
    for candidate in complete(text, cursor):
        assert 0 <= candidate.start <= candidate.end <= len(text)
        assert candidate.text and candidate.kind


def refused(text: str, *words: str) -> FilterError:
    with pytest.raises(FilterError) as caught:
        compile(text)
    for word in words:
        assert word in str(caught.value)
    return caught.value


def test_depth_is_bounded() -> None:
    compile("(" * MAX_DEPTH + "err" + ")" * MAX_DEPTH)
    for opening in ("(", "not ", "!", "!(", "not ("):
        refused(opening * 10_000 + "err", f"{MAX_DEPTH} levels")
    deepest = "err"
    for _ in range(MAX_DEPTH // 3):
        deepest = f"not (api == Fetch and (ver == 1 or {deepest}))"
    assert compile(deepest).index_only


@pytest.mark.parametrize("text", ["err and " * 150_000 + "err", '"' + "x" * 1_000_000])
def test_a_megabyte_is_refused_without_being_parsed(text: str) -> None:
    assert steps(lambda: refused(text, f"{MAX_FILTER} characters")) < 200


def test_the_longest_filters_that_are_allowed(sample: list[Exchange]) -> None:
    longest = [written(terms) for written, terms in zip(FILTERS, (4000, 10_000, 2800), strict=True)]
    for text in (*longest, '"' + "x" * (MAX_FILTER - 2) + '"'):
        assert len(text) <= MAX_FILTER
        found = compile(text)
        for exchange in sample[:5]:
            assert found(exchange) in (True, False)


@pytest.mark.parametrize("written", FILTERS)
def test_a_filter_takes_steps_for_its_terms_only(sample: list[Exchange], written: Callable[[int], str]) -> None:
    def work(count: int) -> Callable[[], object]:
        text = written(count)
        return lambda: [compile(text)(exchange) for exchange in sample[:2]]

    assert_linear(work, 200)


@pytest.mark.parametrize("text", PATTERNS)
def test_expensive_patterns_are_refused_or_bounded(text: str) -> None:
    """A pattern is refused, or its search ends even on the worst text that it sees."""
    try:
        found = pattern(text)
    except PatternError as error:
        assert "regular expression" in str(error) or "repeat" in str(error) or "group" in str(error)
        return
    for searched in SEARCHED:
        assert found.search(searched) in (True, False)


@times(1.5)
@given(st.text(st.sampled_from("ab.*+?|(){},2[]^$\\w"), max_size=25))
def test_the_search_of_every_accepted_pattern_ends(text: str) -> None:
    try:
        found = pattern(text)
    except PatternError:
        return
    for searched in ("a" * 70_000 + "!", "ab" * 40_000 + "!", "b" * 70_000):
        assert found.search(searched) in (True, False)


def test_ordinary_patterns_are_accepted() -> None:
    for text in (
        "^stock-", "stock-[0-9]+$", "(?i)ORDERS", r"^(orders|payments)-\d{1,3}$", "a.*b", r"\bv\d+\.\d+", "(ab)+",
        "x{2,5}", "^[^.]+\\.[^.]+$", "(?:prod|test)-.*-eu",
    ):  # fmt: skip
        assert pattern(text).seen >= 100
    with pytest.raises(PatternError, match="1000 characters"):
        pattern("a" * 1001)


def test_a_pattern_sees_the_first_part_of_a_value_only() -> None:
    assert pattern("b").search("a" * 60_000 + "b")
    assert not pattern("b").search("a" * 70_000 + "b")
