"""Error codes as old clients know them; the judge of which release knows what is in tests/real."""

from __future__ import annotations

import pytest
from barnabas.decoder.schema import facts
from barnabas.plugins.translation.error_codes import changes

CASES = [
    ("Produce", 0),
    ("Produce", 1),
    ("Produce", 2),
    ("Fetch", 3),
    ("Metadata", 0),
    ("OffsetFetch", 1),
    ("JoinGroup", 0),
]


@pytest.mark.parametrize(("api", "version"), CASES)
def test_what_may_be_retried_may_still_be_and_nothing_else(api, version):
    table = facts.errors()
    changed = changes(facts.api_key(api), version)
    assert changed and max(table) in changed
    for code, nearest in changed.items():
        assert nearest not in changed, "a client of this version does not know that one either"
        assert table[nearest].retriable == table[code].retriable, table[code].name


@pytest.mark.parametrize(
    ("api", "version", "error", "nearest"),
    [
        ("Produce", 0, "KAFKA_STORAGE_ERROR", "NOT_LEADER_OR_FOLLOWER"),
        ("Produce", 2, "KAFKA_STORAGE_ERROR", "NOT_LEADER_OR_FOLLOWER"),
        ("Fetch", 3, "FENCED_LEADER_EPOCH", "NOT_LEADER_OR_FOLLOWER"),
        ("Fetch", 0, "TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_SERVER_ERROR"),
        ("OffsetFetch", 1, "UNSTABLE_OFFSET_COMMIT", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("Produce", 0, "THROTTLING_QUOTA_EXCEEDED", "REQUEST_TIMED_OUT"),
        ("CreateTopics", 0, "POLICY_VIOLATION", "INVALID_REQUEST"),
    ],
)
def test_later_codes_become_the_nearest_known_one(api, version, error, nearest):
    assert changes(facts.api_key(api), version)[facts.error_code(error)] == facts.error_code(nearest)


def test_what_a_client_knows_stays():
    assert facts.error_code("TOPIC_AUTHORIZATION_FAILED") not in changes(facts.api_key("Produce"), 1)  # 0.9.0
    assert changes(facts.api_key("Produce"), 9) == {}
