"""Fetch sessions (KIP-227): recordings of clients that lose them, waste them, get none or use none."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.decoder.findings import Finding, Severity
from retold.exchanges import again, look, recorded

Replay = Callable[..., list[Finding]]


def test_a_forgotten_session(replay: Replay) -> None:
    (found,) = replay("fetching-unknown-session", only=["fetch-session-refused"])
    assert (found.severity, found.count) == (Severity.LOW, 6)
    assert found.about["error"] == "FETCH_SESSION_ID_NOT_FOUND" and "client 'amnesiac'" in found.seen
    assert "max.incremental.fetch.session.cache.slots" in found.remedy


def test_some_refusals_over_minutes_are_evictions() -> None:
    told = recorded("fetching-unknown-session", "Fetch")
    assert look(told[:3], "fetch-session-refused") == []
    assert look([again(e, after=n * 30) for n, e in enumerate(told)], "fetch-session-refused") == []
    (found,) = look([again(told[0], after=n) for n in range(40)], "fetch-session-refused")
    assert (found.severity, found.count) == (Severity.MEDIUM, 40)


def test_a_session_with_each_request(replay: Replay) -> None:
    (found,) = replay("fetching-session-each-time", only=["fetch-session-churn"])
    assert found.severity is Severity.LOW and found.count == 8 and not found.about["slots_full"]
    assert "began a new fetch session" in found.seen and "session_epoch" in found.remedy


def test_no_slot_left(replay: Replay) -> None:
    (found,) = replay("fetching-no-slot-left", only=["fetch-session-churn"])
    assert found.about["slots_full"] and "no slot is left" in found.seen
    assert "max.incremental.fetch.session.cache.slots" in found.remedy


def test_clients_that_keep_their_session_or_want_none(replay: Replay) -> None:
    ids = ["fetch-session-refused", "fetch-session-churn", "full-fetches"]
    for name in ("falls-behind", "behind-a-transaction-with-a-session", "empty-loop", "throttled-consumer"):
        assert replay(f"fetching-{name}", only=ids) == []


def test_big_requests_for_few_records() -> None:
    (told,) = recorded("fetching-all-partitions-each-time", "Fetch")
    # Recorded once, and told again as the client would go on.
    often = [again(told, after=n * 0.1) for n in range(80)]
    (found,) = look(often, "full-fetches")
    assert found.severity is Severity.LOW and found.about["partitions"] == 150 and found.count == 80
    assert "names 150 partitions in each of 80 Fetch requests" in found.seen
    assert look([again(e, after=n) for n, e in enumerate(often)], "full-fetches") == []
    topics = told.request_message["topics"]
    fewer = [topics[0] | {"partitions": topics[0]["partitions"][:80]}]
    assert look([again(e, request={"topics": fewer}) for e in often], "full-fetches") == []
