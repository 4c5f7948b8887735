"""Public bug reports, played as traffic: the first finding above info names the cause; healthy traffic of the same kind is well."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from barnabas.decoder.findings import Finding, Severity
from traffic.conversations import Conversations

from .stories import (
    admin,
    brokers,
    clients,
    connections,
    fetching,
    groups,
    healthy,
    inside,
    more_clients,
    producing,
    products,
    versions,
)
from .stories.telling import Story

AREAS = connections, versions, producing, fetching, groups, admin, brokers, products, clients, inside, more_clients
STORIES = [story for area in AREAS for story in area.STORIES]
NAMED = [story for story in STORIES if story.named]
OPEN = [story for story in STORIES if not story.named]


def above_info(conversation: Conversations) -> list[Finding]:
    return [finding for finding in conversation.findings() if finding.severity is not Severity.INFO]


def text(finding: Finding) -> str:
    return " ".join((finding.seen, finding.why, finding.remedy))


@pytest.mark.parametrize("story", NAMED, ids=lambda story: story.name)
def test_the_first_finding_names_the_cause(story: Story) -> None:
    found = above_info(story.play())
    assert found, f"nothing is found; expected: {story.expected}"
    first = found[0]
    assert first.id in story.ids, first.seen
    for words in story.words:
        assert re.search(words, text(first)), f"no {words!r} in: {text(first)}"


@pytest.mark.parametrize("story", OPEN, ids=lambda story: story.name)
def test_what_is_not_named_yet_is_not_explained_wrongly(story: Story) -> None:
    assert story.refuted, "says what the traffic refutes"
    for finding in above_info(story.play()):
        for words in story.refuted:
            assert not re.search(words, text(finding)), f"{words!r} is refuted: {text(finding)}"


@pytest.mark.parametrize("play", healthy.TWINS, ids=lambda play: play.__name__)
def test_healthy_twins_have_nothing_above_low(play: Callable[[], Conversations]) -> None:
    worse = [f for f in play().findings() if f.severity.rank > Severity.LOW.rank]
    assert worse == [], [(f.id, f.seen) for f in worse]


def test_a_client_that_asks_again_on_another_connection_has_waited() -> None:
    assert "topic-not-waited-for" not in {found.id for found in healthy.topic_that_is_there_the_second_time().findings()}


def test_requests_one_at_a_time_are_not_taken_for_several_in_flight() -> None:
    first = above_info(connections.requests_without_waiting(together=False))[0]
    assert first.id == "closed-on-first-request" and "without waiting" not in first.seen


def test_topics_that_are_described_at_an_older_kafka_are_nothing_to_report() -> None:
    assert above_info(clients.largest_timestamp_that_cannot_be_asked_for(lacks=False)) == []
