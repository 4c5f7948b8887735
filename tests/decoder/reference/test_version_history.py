"""What versions changed: the changes lead from each layout to the next, and some are known by name."""

from __future__ import annotations

import pytest
from barnabas.decoder.reference.version_history import (
    ChangeKind,
    became_flexible,
    changes,
    first_versions,
    kips_of,
    layout,
    type_text,
)
from barnabas.decoder.schema import facts

KINDS = ("request", "response")
METADATA, FETCH = facts.api_key("Metadata"), facts.api_key("Fetch")


@pytest.mark.parametrize("key", facts.api_keys())
@pytest.mark.parametrize("kind", KINDS)
def test_changes_lead_from_each_layout_to_the_next(kind: str, key: int) -> None:
    first, *later = facts.api(key).versions.every()
    assert changes(kind, key, first) == []
    for version in later:
        before = {path: type_text(each.field) for path, each in layout(kind, key, version - 1).items()}
        after = {path: type_text(each.field) for path, each in layout(kind, key, version).items()}
        for change in changes(kind, key, version):
            of_it = {path for path in (*before, *after) if path == change.path or path.startswith(f"{change.path}.")}
            if change.kind is ChangeKind.ADDED:
                before |= {path: after[path] for path in of_it}
            elif change.kind is ChangeKind.REMOVED:
                before = {path: what for path, what in before.items() if path not in of_it}
            else:
                before[change.path] = after[change.path]
        assert before == after, version


def test_known_changes() -> None:
    assert changes("request", METADATA, 10) == [
        (ChangeKind.ADDED, "topics.topic_id", "uuid"),
        (ChangeKind.CHANGED, "topics.name", "string → string, nullable"),
    ]
    assert changes("request", METADATA, 11) == [(ChangeKind.REMOVED, "include_cluster_authorized_operations", "bool")]
    assert changes("response", FETCH, 13) == [
        (ChangeKind.ADDED, "responses.topic_id", "uuid"),
        (ChangeKind.REMOVED, "responses.topic", "string"),
    ]
    assert changes("response", FETCH, 16) == [(ChangeKind.ADDED, "node_endpoints", "[]NodeEndpoint, tag 0")]


def test_the_encoding() -> None:
    assert [version for version in facts.api(METADATA).versions.every() if became_flexible("request", METADATA, version)] == [9]
    assert not became_flexible("request", facts.api_key("DescribeCluster"), 0)


def test_first_versions() -> None:
    first = first_versions("response", METADATA)
    assert (first["topics.name"], first["topics.topic_id"], first["throttle_time_ms"], first["error_code"]) == (0, 10, 3, 13)


def test_kips() -> None:
    assert "KIP-516" in {kip.name for kip in kips_of(FETCH, 13)}
    assert "KIP-516" not in {kip.name for kip in kips_of(FETCH, 14)}
