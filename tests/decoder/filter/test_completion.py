"""Completion while a filter is typed."""

from __future__ import annotations

import pytest
from barnabas.decoder.filter import FIELDS, ValueKind, compile, complete

COMPLETED = [
    ("", "api", "not", "any("),
    ("la", "latency"),
    ("kafka.cl", "kafka.client_id"),
    ("api", "api"),
    ("api ", "==", "in", "~", "and"),
    ("latency ", ">", "in"),
    ("err and (topic == orders ", "and", "or", ")"),
    ("api == Prod", "Produce"),
    ("api == PROD", "Produce"),
    ("api in {Produce, Fe", "Fetch"),
    ("api in {Produce", "Produce"),
    ("api in ", "{", "Produce"),
    ("err == NOT_L", "NOT_LEADER_OR_FOLLOWER"),
    ("state == ", "paired", "orphan"),
    ("codec == z", "zstd"),
    ("latency > 50", "50ms", "50us"),
    ("size.req > 1", "1MB", "1KiB"),
    ("ver > bro", "broker.max"),
    ("req.to", "req.topics[*]", "req.topic_data[*]"),
    ("api == Produce and req.to", "req.topic_data[*]"),
    ("api == Produce and any(req.topic_data[*].", "req.topic_data[*].partition_data[*]"),
    ("any(resp.responses[*].partition_responses[*].error_code == NOT_L", "NOT_LEADER_OR_FOLLOWER"),
    ("err not ", "in"),
]


@pytest.mark.parametrize("case", COMPLETED, ids=lambda case: case[0])
def test_completion(case: tuple[str, ...]) -> None:
    text, *wanted = case
    found = {candidate.text: candidate for candidate in complete(text)}
    for word in wanted:
        candidate = found[word]
        assert candidate.end == len(text)
        part = text[candidate.start :]
        assert part.lower() in word.lower() and not part.startswith(" ")
    if "api == Produce and req.to" in text:
        assert "req.topics[*]" not in found


def test_completion_in_the_middle_replaces_the_word() -> None:
    text = "api == Prodxyz and err"
    candidate = next(c for c in complete(text, 10) if c.text == "Produce")
    assert text[: candidate.start] + candidate.text + text[candidate.end :] == "api == Produce and err"
    assert complete('client == "sto') == [] and complete("client == sto") == []


def test_completed_fields_and_values_are_accepted() -> None:
    for field in FIELDS:
        for candidate in complete(f"{field.name} == "):
            if candidate.kind in ("API", "error", "state", "codec", "flag"):
                compile(f"{field.name} == {candidate.text}")
        for candidate in complete(f"{field.name} "):
            if candidate.kind == "operator" and field.kind is ValueKind.TEXT:
                compile(f"{field.name} {candidate.text} {'{a}' if candidate.text.endswith('in') else 'a'}")
    for candidate in complete("resp.topics[*].")[:50]:
        compile(f"any({candidate.text})")
