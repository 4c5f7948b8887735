"""What the rows of Fetch say of incremental sessions (KIP-227): Apache Kafka answers what the whole session asks for,
and a recording does not always have the whole session."""

from __future__ import annotations

from typing import Any

import pytest
from barnabas.decoder.findings.invariants import fetching
from traffic.conversations import Conversations

SESSION = 77
Topics = dict[str, list[int]]


class Session:
    """Fetches of one connection, v12."""

    def __init__(self) -> None:
        self.made = Conversations("impossible-answer")
        self.connection = self.made.open()

    def fetch(
        self,
        epoch: int,
        asks: Topics,
        answered: Topics | None,
        *,
        forgets: Topics | None = None,
        session: int = SESSION,
        answers_session: int | None = None,
        **answer: Any,
    ) -> Session:
        """One exchange; `answered` None: the recording has no answer."""
        request = {
            "replica_id": -1,
            "session_id": session if epoch > 0 else 0,
            "session_epoch": epoch,
            "topics": [
                {"topic": name, "partitions": [{"partition": number} for number in numbers]}
                for name, numbers in asks.items()
            ],
            "forgotten_topics_data": [
                {"topic": name, "partitions": numbers} for name, numbers in (forgets or {}).items()
            ],
        }
        response = {
            "session_id": session if answers_session is None else answers_session,
            "responses": [
                {"topic": name, "partitions": [{"partition_index": n, "records": b""} for n in numbers]}
                for name, numbers in (answered or {}).items()
            ],
            **answer,
        }
        self.made.ask(self.connection, "Fetch", 12, request, response if answered is not None else None)
        return self

    def rows(self) -> set[str]:
        return {finding.about["row"] for finding in self.made.findings()}


def begun() -> Session:
    return Session().fetch(0, {"a": [0, 1]}, {"a": [0, 1]})


def test_what_a_session_asks_for_may_be_answered() -> None:
    session = begun().fetch(1, {}, {"a": [1]}).fetch(2, {"a": [2], "b": [0]}, {"b": [0]})
    session.fetch(3, {}, {"a": [0, 2]}, forgets={"a": [1]})
    assert session.rows() == set()


@pytest.mark.parametrize("forgets", [None, {"a": [2]}], ids=["never asked for", "forgotten at once"])
def test_a_partition_that_the_session_does_not_ask_for(forgets: Topics | None) -> None:
    session = begun().fetch(1, {"a": [2]} if forgets else {}, {"a": [2]}, forgets=forgets)
    assert session.rows() == {"fetch-unasked"}


def test_a_partition_that_the_session_forgot() -> None:
    assert begun().fetch(1, {}, {}, forgets={"a": [1]}).fetch(2, {}, {"a": [1]}).rows() == {"fetch-unasked"}


def test_a_request_that_is_not_in_the_recording() -> None:
    """It may have added the partition."""
    assert begun().fetch(2, {}, {"a": [2]}).fetch(3, {}, {"a": [2]}).rows() == set()


def test_a_request_whose_answer_is_not_in_the_recording() -> None:
    assert begun().fetch(1, {"a": [2]}, None).fetch(2, {}, {"a": [2]}).rows() == set()


def test_a_session_whose_beginning_has_no_answer_in_the_recording() -> None:
    """The session before it is no measure for it."""
    session = begun().fetch(0, {"b": [0]}, None)
    assert session.fetch(1, {}, {"b": [0]}, session=SESSION + 1).rows() == set()


@pytest.mark.parametrize("error", [70, 71], ids=["FETCH_SESSION_ID_NOT_FOUND", "INVALID_FETCH_SESSION_EPOCH"])
def test_a_refused_request_changes_nothing(error: int) -> None:
    session = begun().fetch(1, {}, {}, forgets={"a": [1]}, answers_session=0, error_code=error)
    assert session.fetch(1, {}, {"a": [1]}).rows() == set()


def test_the_epoch_after_the_last_is_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_LAST_EPOCH", 2)
    session = begun().fetch(1, {}, {}).fetch(2, {"a": [2]}, {"a": [2]}).fetch(1, {}, {"a": [2]})
    assert session.rows() == set()
    assert session.fetch(2, {}, {"a": [3]}).rows() == {"fetch-unasked"}


def test_a_session_that_asks_for_nothing_ends() -> None:
    """The broker closes it, and answers what this request asks for with session id 0."""
    assert begun().fetch(1, {}, {}, forgets={"a": [0, 1]}, answers_session=0).rows() == set()
    asked = begun().fetch(1, {"b": [0]}, {"b": [0]}, forgets={"a": [0, 1], "b": [0]}, answers_session=0)
    assert asked.rows() == set()


def test_id_0_to_a_session_that_lasts() -> None:
    assert begun().fetch(1, {}, {"a": [1]}, answers_session=0).rows() == {"fetch-session-changed"}


def test_id_0_to_a_throttled_client() -> None:
    """A broker that lacks the session has no error for a client that it throttles."""
    assert begun().fetch(1, {}, {}, answers_session=0, throttle_time_ms=100).rows() == set()


def test_id_0_in_a_session_that_is_not_wholly_known() -> None:
    assert Session().fetch(4, {}, {}, forgets={"a": [0]}, answers_session=0).rows() == set()
    assert Session().fetch(4, {}, {}, answers_session=5).rows() == {"fetch-session-changed"}
