"""The order of findings: causes before effects, then by the failures that they explain."""

from __future__ import annotations

from barnabas.decoder.findings import Finding, Severity
from barnabas.decoder.findings.engine.ranking import ranked


def finding(id_: str, severity: Severity, client: str = "shop", *explains: str, failures: int = 0, count: int = 1) -> Finding:
    about = {"client_id": client, "client": "10.0.0.5:40001", "broker": "10.0.0.1:9092"}
    return Finding(id_, severity, "", "", "", count=count, about=about, explains=explains, failures=failures)


def order(*findings: Finding) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(each.id, str(each.severity), each.effects) for each in ranked(findings)]


def test_a_cause_is_as_severe_as_its_worst_effect_and_comes_first() -> None:
    effect, cause = finding("closed", Severity.HIGH, count=9), finding("cut", Severity.LOW, "shop", "closed")
    assert order(effect, cause) == [("cut", "high", ("closed",)), ("closed", "high", ())]
    assert cause.severity is Severity.LOW and not cause.effects  # it may be ranked again


def test_an_effect_on_another_client_is_not_explained() -> None:
    assert order(finding("closed", Severity.HIGH, "bill"), finding("cut", Severity.LOW, "shop", "closed")) == [
        ("closed", "high", ()),
        ("cut", "low", ()),
    ]


def test_effects_of_effects_count() -> None:
    found = [
        finding("a", Severity.LOW, "shop", "b"),
        finding("b", Severity.MEDIUM, "shop", "c"),
        finding("c", Severity.HIGH),
        finding("other", Severity.HIGH, "bill", failures=5),
    ]
    assert order(*found) == [("other", "high", ()), ("a", "high", ("b", "c")), ("b", "high", ("c",)), ("c", "high", ())]
    found[2].failures = 6
    assert [each.id for each in ranked(found)] == ["a", "other", "b", "c"]


def test_detectors_that_explain_each_other_are_ranked_by_what_they_explain() -> None:
    found = order(finding("a", Severity.HIGH, "shop", "b"), finding("b", Severity.LOW, "shop", "a", failures=3))
    assert sorted(found) == [("a", "high", ("b",)), ("b", "high", ("a",))]


def test_failures_rank_above_habits_of_the_same_severity() -> None:
    often, failing = finding("habit", Severity.MEDIUM, count=900), finding("refused", Severity.MEDIUM, failures=2, count=2)
    assert [each.id for each in ranked([often, failing])] == ["refused", "habit"]
