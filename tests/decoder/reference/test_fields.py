"""The descriptions of fields against the schema, and against the texts of Kafka's own definitions, which are not to be copied."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from barnabas.decoder.records.batch import Batch
from barnabas.decoder.records.record import Record
from barnabas.decoder.reference import fields
from barnabas.decoder.reference.definitions import drafts
from barnabas.decoder.reference.fields import Place, describe_field
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.plan import extra_plan, field_paths, plan

DEFINITIONS = Path(__file__).parents[4] / "shared" / "reference" / "kafka-messages-3.9"


def test_the_apis_that_clients_send_most():
    assert len(fields.described_apis()) == len(set(fields.described_apis())) == 45
    assert all(facts.api_name(facts.api_key(name)) == name for name in fields.described_apis())


@pytest.mark.parametrize("api", fields.described_apis())
def test_every_field_of_every_version_is_described(api: str):
    key = facts.api_key(api)
    missing = {
        (side, path)
        for side in ("request", "response")
        for version in facts.api(key).versions.every()
        for path, _, _ in field_paths(plan(side, key, version).root)
        if not describe_field(api, path, side)
    }
    assert not missing


def test_every_line_describes_a_field():
    used = {
        fields.place_of(each.api, each.side, each.path)
        for api in (*fields.described_apis(), *drafts.names())
        for each in fields.fields(api).values()
    }
    headers = {
        Place("", "", fields.HEADER + field.name)
        for name, version in (("RequestHeader", 2), ("ResponseHeader", 1))
        for field in extra_plan("headers", name, version).root.fields
    }
    batch = {field.name for field in dataclasses.fields(Batch)} - {"data", "start", "end"}
    records = {Place("", "", f"batch.{name}") for name in batch} | {Place("", "", f"record.{name}") for name in Record._fields}
    frames = {Place("", "", "frame.size"), Place("", "", "frame.message")}
    assert used | headers | records | frames == set(fields.places())


def test_lines_are_short_plain_and_of_our_own_words():
    for place, text in fields.places().items():
        assert 8 < len(text) <= 110 and text[0].isupper() and not text.endswith("."), place
    if not DEFINITIONS.is_dir():
        pytest.skip("Kafka's definitions are not on this machine")
    theirs = {
        _plain(about)
        for path in DEFINITIONS.glob("*.json")
        for about in re.findall(r'"about":\s*"([^"]*)"', path.read_text("utf-8"))
    }
    assert len(theirs) > 500
    assert not [text for text in fields.places().values() if _plain(text) in theirs]


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()


@pytest.mark.parametrize(
    ("api", "side", "path", "place"),
    [
        ("Fetch", "request", "max_bytes", Place("", "", "max_bytes")),
        ("CreateTopics", "request", "topics.configs.name", Place("", "", "configs.name")),
        ("Metadata", "request", "topics", Place("Metadata", "request", "topics")),
        ("Metadata", "response", "topics", Place("", "", "topics")),
        ("Fetch", "request", "topics.partitions.high_watermark", Place("Fetch", "request", "high_watermark")),
        ("DeleteAcls", "response", "filter_results.matching_acls.host", Place("DeleteAcls", "", "host")),
    ],
)
def test_the_most_specific_line_counts(api: str, side: str, path: str, place: Place):
    assert fields.place_of(api, side, path) == place
    assert describe_field(api, path, side) == fields.places()[place]


def test_a_header_is_the_same_for_all_apis():
    assert describe_field("Fetch", "header.client_id") == describe_field("DescribeGroups", "header.client_id")
    assert describe_field("DescribeGroups", "groups.members.client_id") != describe_field("DescribeGroups", "header.client_id")
    assert describe_field("Fetch", "header.acks") is None


def test_paths_as_messages_write_them():
    assert describe_field("Fetch", "topics[0].partitions[12].fetch_offset") == "The offset to read from"
    assert describe_field("fetch", "responses[0].topic") == describe_field("Fetch", "topics.topic") == "The topic's name"
    # Without a side, that of the request if both have it.
    assert describe_field("Metadata", "topics") == describe_field("Metadata", "topics", "request")
    for api, path in (("Fetch", "nothing"), ("Fetch", "topics.name"), ("Vote", "topics"), ("Nothing", "topics"), ("Fetch", "")):
        assert describe_field(api, path) is None


def test_fields_by_name():
    assert {each.api for each in fields.by_name()["max_bytes"]} == {"Fetch", "FetchSnapshot", "ShareFetch"}
    (versions,) = {each.versions for each in fields.by_name()["max_bytes"] if each.api == "Fetch"}
    assert versions == "3+"
