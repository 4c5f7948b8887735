"""Fetch sessions (KIP-227): recordings of clients that lose them, waste them, get none or use none."""

from __future__ import annotations

from barnabas.decoder.findings import Severity
from traffic.edited_exchanges import copied
from traffic.recordings import exchanges, findings, one


def test_some_refusals_over_minutes_are_evictions() -> None:
    recorded = exchanges("fetching-unknown-session", "Fetch")
    assert findings(recorded[:3], "fetch-session-refused") == []
    assert findings([copied(e, after=n * 30) for n, e in enumerate(recorded)], "fetch-session-refused") == []
    found = one([copied(recorded[0], after=n) for n in range(40)], "fetch-session-refused")
    assert (found.severity, found.count) == (Severity.MEDIUM, 40)


def test_big_requests_for_few_records() -> None:
    (recorded,) = exchanges("fetching-all-partitions-each-time", "Fetch")
    # Recorded once, and repeated as the client would go on.
    often = [copied(recorded, after=n * 0.1) for n in range(80)]
    found = one(often, "full-fetches")
    assert found.severity is Severity.LOW and found.about["partitions"] == 150 and found.count == 80
    assert "names 150 partitions in each of 80 Fetch requests" in found.seen
    assert findings([copied(e, after=n) for n, e in enumerate(often)], "full-fetches") == []
    topics = recorded.request_message["topics"]
    fewer = [topics[0] | {"partitions": topics[0]["partitions"][:80]}]
    assert findings([copied(e, request={"topics": fewer}) for e in often], "full-fetches") == []
