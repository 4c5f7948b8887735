"""Errors of filters: what is wrong, where, and suggestions."""

from __future__ import annotations

import pytest
from barnabas.decoder.filter import FilterError, compile

WRONG = [
    ("", "empty", ""),
    ("   ", "empty", ""),
    ("foo", "no field is called 'foo'", "foo"),
    ("lattency > 5ms", "did you mean latency?", "lattency"),
    ("api = Produce", "did you mean ==?", "="),
    ("api == Prodce", "did you mean Produce?", "Prodce"),
    ("err == NOT_LEADER", "no error is called 'NOT_LEADER'", "NOT_LEADER"),
    ("err == REBALANCE_IN_PROGES", "did you mean REBALANCE_IN_PROGRESS?", "REBALANCE_IN_PROGES"),
    ("err == any", "a field alone matches any", "any"),
    ("latency > 5", "needs a unit", "5"),
    ("latency > 5kB", "needs a unit", "5kB"),
    ("size > 5ms", "not a duration", "5ms"),
    ("ver == 5ms", "not a duration", "5ms"),
    ("ver == x", "ver is a number", "x"),
    ("ver > topic", "cannot be compared with topic", "topic"),
    ("ver ~ 5", "works on texts", "ver ~ 5"),
    ("client > a", "no order", "client > a"),
    ("client in a..b", "no ranges", "a..b"),
    ("ver in 9..3", "lower value first", "9..3"),
    ("ver in {1, 2", "never closed", "{"),
    ("ver in {}", "expected a value", "}"),
    ("ver == {1, 2}", "in takes a set", "{"),
    ("(err", "never closed", "("),
    ("err)", "a ( is missing", ")"),
    ("err latency", "between two tests", "latency"),
    ("err and", "expected a field", ""),
    ("and err", "expected a field", "and"),
    ("api ==", "expected a value after '=='", ""),
    ("not", "expected a field", ""),
    ('"text', "must end with it", '"text'),
    ('""', "matches everything", '""'),
    ('"api" == Produce', "without quotes", '"api"'),
    ("state == lost", "the states are pending, paired, no_response, orphan", "lost"),
    ("paired == maybe", "true or false", "maybe"),
    ("addr == 10.0.0.0/99", "not an address", "10.0.0.0/99"),
    ("topic.id == xyz", "not an id", "xyz"),
    ("time > 25:00", "not a time", "25:00"),
    ("time > 2023-02-30", "not a time", "2023-02-30"),
    ("time in 12:00..2023-11-14", "a range must be", "12:00..2023-11-14"),
    ('client ~ "("', "not a regular expression", '"("'),
    ('client ~ "(a+)+"', "forever", '"(a+)+"'),
    ("any(client == a)", "leave out any(...)", "client"),
    ("any(err and ver)", "expected )", "and"),
    ('any("x")', "a test of one field", '"x"'),
    ("resp.topics.name == a", "put the test into any(...)", "resp.topics.name"),
    ("any(resp.topics[*].partitions[*].eror_code == 0)", "did you mean error_code?", "resp.topics[*].partitions[*].eror_code"),
    ("any(resp.topics.partition_errorz == 0)", "did you mean", "resp.topics.partition_errorz"),
    ("req.nothing_like_it", "no version of any API", "req.nothing_like_it"),
    ("resp.topics == 1", "is a structure", "resp.topics"),
    ("corr == 99999999999999999999", "64 bits", "99999999999999999999"),
    ("api == Produce and topic == and", "put it in quotes", "and"),
    ("client == stock;drop", None, ""),
    ("err ==== 5", "expected a value", "=="),
    ("err [x", "has no meaning here", "["),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message", "pointed"), WRONG)
def test_errors_point_at_the_fault(text: str, message: str | None, pointed: str) -> None:
    if message is None:
        compile(text)
        return
    with pytest.raises(FilterError) as caught:
        compile(text)
    error = caught.value
    assert message in error.message
    assert text[error.start : error.end] == pointed
    first, second = error.pointer().splitlines() if text else ("", error.pointer().splitlines()[-1])
    assert first.strip() == text.strip()
    assert second == " " * error.start + "^" * max(1, len(pointed))


def test_a_long_filter_is_shown_around_the_fault() -> None:
    text = "err and " * 100 + "foo and " + "err and " * 100 + "err"
    with pytest.raises(FilterError) as caught:
        compile(text)
    first, second = caught.value.pointer().splitlines()
    assert len(first) < 120 and first[second.index("^") : second.rindex("^") + 1] == "foo"
    with pytest.raises(FilterError) as caught:
        compile('"日本" and foo')
    assert caught.value.pointer().splitlines()[1] == " " * 11 + "^^^"
