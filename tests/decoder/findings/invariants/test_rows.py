"""Every row of the invariants: an exchange that contradicts it is found, a nearly identical one of a healthy broker is
not."""

from __future__ import annotations

from typing import Any

import pytest
from barnabas.decoder.findings import detectors
from barnabas.decoder.findings.detectors.cluster import answers
from barnabas.decoder.findings.engine.finding import Severity
from barnabas.decoder.findings.invariants import ROWS
from barnabas.decoder.schema import facts
from traffic.conversations import Conversations

from .cases import CASES, Body, Case

BY_ROW = {row: case for case in CASES for row in case.changes}
KEPT = ("init-producer-id-reused", "init-producer-id-epoch-same")
"""Rows that only a repetition contradicts."""


def told(conversations: Conversations) -> set[str]:
    return {finding.about["row"] for finding in conversations.findings()}


def conversation(case: Case, *bodies: tuple[Body, Body]) -> Conversations:
    """Exchanges on one connection, after Metadata with brokers 1 and 2."""
    made = Conversations("impossible-answer")
    connection = made.open()
    brokers = [{"node_id": node, "host": f"10.0.0.{node}", "port": 9092} for node in (1, 2)]
    made.ask(
        connection,
        "Metadata",
        9,
        {"topics": []},
        {"brokers": brokers, "controller_id": 1, "cluster_id": "c", "topics": []},
    )
    for asked, answer in bodies:
        if case.before is not None:
            made.ask(connection, *case.before)
        made.ask(connection, case.api, case.version, asked, answer)
    return made


def test_every_row_has_a_case() -> None:
    assert sorted(BY_ROW) == sorted(row.id for row in ROWS)
    assert len(BY_ROW) == len(ROWS), "ids are unique"


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.api}-v{case.version}-{next(iter(case.changes))}")
def test_a_healthy_answer(case: Case) -> None:
    assert told(conversation(case, (case.asked, case.answer))) == set()


@pytest.mark.parametrize("row", sorted(BY_ROW))
def test_an_answer_that_contradicts_the_row(row: str) -> None:
    case = BY_ROW[row]
    before: list[tuple[Any, Any]] = [] if case.api == "InitProducerId" else [(case.asked, case.answer)]
    fall = [(case.asked, case.answer), case.changed(row)] * (case.times - 1) if row == "produce-offset-back" else []
    bodies = fall or [*before, *[case.changed(row)] * case.times]
    assert row in told(conversation(case, *bodies))


@pytest.mark.parametrize(
    "row", [row for case in CASES if case.times > 1 for row in case.changes if case.api != "InitProducerId"]
)
def test_a_race_is_no_contradiction(row: str) -> None:
    case = BY_ROW[row]
    good = case.asked, case.answer
    assert row not in told(conversation(case, good, case.changed(row), good))


def test_effects_are_detectors() -> None:
    assert set(answers._EFFECTS) <= set(BY_ROW)
    assert {effect for effects in answers._EFFECTS.values() for effect in effects} <= {kind.id for kind in detectors()}


def test_rows_are_facts_about_known_apis() -> None:
    names = {facts.api_name(key) for key in facts.api_keys()}
    assert len(ROWS) >= 60
    assert len({row.apis for row in ROWS}) >= 25
    for row in ROWS:
        assert set(row.apis.split()) <= names, row.id
        assert row.severity in list(Severity), row.id
        assert row.kafka and row.source, row.id
