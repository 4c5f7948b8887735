"""Every field of every version has a meaning, and it is the one that Kafka's own definitions give it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from barnabas.decoder.reference.definitions import previews
from barnabas.decoder.schema import facts, meaning
from barnabas.decoder.schema.meaning import Meaning
from barnabas.decoder.schema.notation import Definition, snake_case
from barnabas.decoder.schema.plan import StructPlan, compile_plan, field_paths, plan

ENTITIES = {
    "topicName": Meaning.TOPIC,
    "groupId": Meaning.GROUP,
    "transactionalId": Meaning.TRANSACTIONAL_ID,
    "producerId": Meaning.PRODUCER_ID,
    "brokerId": Meaning.BROKER_ID,
}
# How Kafka's definitions describe fields, and what these are then.
ABOUT = {
    r"The (\S+ )?error code": {Meaning.ERROR},
    r".*throttled": {Meaning.THROTTLE},
    r"The (\S+ )?error message": {Meaning.MESSAGE},
    r"The (unique )?topic id": {Meaning.TOPIC_ID},
    r"The (topic name|name of the topic)": {Meaning.TOPIC},
    r"The partition (index|id)": {Meaning.PARTITION},
    r"The (\S+ )?group (id|identifier)": {Meaning.GROUP},
    r"The (\S+ )?member id": {Meaning.MEMBER_ID},
    r"The (node|broker|leader|\S+)('s)? hostname": {Meaning.HOST},
    r"The (node|broker|leader)('s)? port": {Meaning.PORT},
    r"The rack of|The rack which": {Meaning.RACK},
    r"The (\S+ )?cluster id": {Meaning.CLUSTER_ID},
    r"The (latest known |current )?leader epoch": {Meaning.LEADER_EPOCH},
    r"The (current )?(broker|controller|state) epoch": {Meaning.EPOCH},
    r"The (current )?(member|group|assignment) epoch": {Meaning.GENERATION},
    r"The ACL host|The host for the ACL": {Meaning.ACL_HOST},
    r"The (ACL |resource )?principal": {Meaning.PRINCIPAL, Meaning.TERM},
    r"The (\S+ )?resource name": {Meaning.RESOURCE_NAME},
    r"The (\S+ )?resource type": {Meaning.RESOURCE_TYPE},
    r"The (\S+ )?(fetch )?session epoch|The current share session epoch": {Meaning.SESSION_EPOCH},
    r".*HMAC": {Meaning.SECRET},
    r"The record data": {Meaning.RECORDS},
    r"The (base|committed|current log start|first|last|start) offset": {Meaning.OFFSET},
}


def definitions() -> Iterator[tuple[Definition, int]]:
    """Every definition of a release, with its API key."""
    for key in facts.api_keys():
        yield facts.api(key).request, key
        yield facts.api(key).response, key
    for file in facts.extra_files():
        yield from ((each, -1) for each in facts.extra(file).values())
    yield from ((overlay.definition, overlay.definition.key or 0) for overlay in previews.every())


def test_every_field_of_every_version_has_a_meaning() -> None:
    missing = {
        (of.name, path)
        for of, key in definitions()
        for version in of.versions.every()
        for path, field, _ in field_paths(compile_plan(of, version, key).root)
        if (field.meaning is None) is (field.struct is None)
    }
    assert missing == set()


def test_every_meaning_is_that_of_a_field() -> None:
    found = {rule.meaning for of, _ in definitions() for rule in meaning.of_definition(of).values()}
    assert found == set(Meaning)


@pytest.mark.parametrize(
    ("kind", "api", "version", "path", "wanted", "volatile"),
    [
        ("request", "Produce", 3, "topic_data.partition_data.index", Meaning.PARTITION, False),
        ("response", "JoinGroup", 7, "leader", Meaning.MEMBER_ID, True),
        ("request", "LeaderAndIsr", 1, "live_leaders.host_name", Meaning.HOST, True),
        ("request", "CreateAcls", 3, "creations.host", Meaning.ACL_HOST, False),
        ("response", "Fetch", 12, "responses.partitions.high_watermark", Meaning.OFFSET, True),
        ("request", "Fetch", 12, "topics.partitions.fetch_offset", Meaning.OFFSET, False),
        ("request", "ConsumerGroupHeartbeat", 0, "instance_id", Meaning.INSTANCE_ID, False),
        ("request", "StreamsGroupHeartbeat", 0, "topology.subtopologies.source_topics", Meaning.TOPIC, False),
        (
            "request",
            "StreamsGroupHeartbeat",
            0,
            "topology.subtopologies.copartition_groups.source_topics",
            Meaning.VALUE,
            False,
        ),
        ("response", "StreamsGroupDescribe", 0, "groups.topology.epoch", Meaning.TOPOLOGY_EPOCH, False),
    ],
)
def test_names_that_mean_different_things(
    kind: str, api: str, version: int, path: str, wanted: Meaning, volatile: bool
) -> None:
    found = {each.path: each.field for each in field_paths(plan(kind, facts.api_key(api), version).root)}[path]
    assert (found.meaning, found.volatile) == (wanted, volatile)


def test_hosts_stand_beside_their_ports() -> None:
    def walk(struct: StructPlan) -> None:
        means = [field.meaning for field in struct.fields]
        assert (Meaning.HOST in means) is (Meaning.PORT in means), struct.name
        assert Meaning.APPLICATION_PORT not in means or Meaning.APPLICATION_HOST in means, struct.name
        for field in struct.fields:
            if field.struct is not None:
                walk(field.struct)

    for of, key in definitions():
        for version in of.versions.every():
            walk(compile_plan(of, version, key).root)


def kafkas_fields(reference: Path) -> Iterator[tuple[str, str, dict[str, Any], Meaning]]:
    """The fields of Kafka's definitions that are here too: definition, path, Kafka's facts, the meaning here."""
    own = {of.name: of for of, key in definitions() if key >= 0}
    for file in sorted((reference / "kafka-messages-3.9").glob("*.json")):
        raw = json.loads(re.sub(r"^\s*//.*$", "", file.read_text(), flags=re.M))
        if raw["name"] in own:
            known = meaning.of_definition(own[raw["name"]])
            shared = {each["name"]: each["fields"] for each in raw.get("commonStructs", [])}
            for path, field in _leaves(raw["fields"], shared, ""):
                if path in known:
                    yield raw["name"], path, field, known[path].meaning


def _leaves(
    fields: list[dict[str, Any]], shared: dict[str, list[dict[str, Any]]], prefix: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    for field in fields:
        path = prefix + snake_case(field["name"]) + ("[*]" if field["type"].startswith("[]") else "")
        inside = field.get("fields") or shared.get(field["type"].removeprefix("[]"))
        if inside:
            yield from _leaves(inside, shared, path + ".")
        else:
            yield path, field


def test_kafka_marks_the_same_entities(reference: Path) -> None:
    marked = [(name, path, ENTITIES[field["entityType"]], found)
              for name, path, field, found in kafkas_fields(reference) if "entityType" in field]  # fmt: skip
    assert len(marked) > 180
    assert [each for each in marked if each[2] is not each[3]] == []


def test_kafka_describes_the_fields_so(reference: Path) -> None:
    seen, wrong = set(), []
    for name, path, field, found in kafkas_fields(reference):
        for words, wanted in ABOUT.items():
            if re.match(words + r"\b", field.get("about", ""), re.I):
                seen.add(words)
                if found not in wanted:
                    wrong.append((name, path, found.value, field["about"]))
                break
    assert wrong == []
    assert seen == set(ABOUT)
