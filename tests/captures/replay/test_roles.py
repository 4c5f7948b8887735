"""Which fields are ids, epochs, offsets: derived from the schema, for every API and version."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from barnabas.captures.replay.roles import RolePlace, paths, places
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.meaning import Meaning
from barnabas.decoder.schema.plan import FieldPlan, plan


def everything() -> Iterator[tuple[str, int, int]]:
    for key in facts.api_keys():
        for version in facts.api(key).versions.every():
            for kind in ("request", "response"):
                yield kind, key, version


def fields_of(kind: str, key: int, version: int) -> dict[str, FieldPlan]:
    found: dict[str, FieldPlan] = {}

    def walk(fields: tuple[FieldPlan, ...], prefix: str) -> None:
        for field in fields:
            path = prefix + field.name + ("[*]" if field.array else "")
            found[path] = field
            if field.struct is not None:
                walk(field.struct.fields, path + ".")

    walk(plan(kind, key, version).root.fields, "")
    return found


@pytest.mark.parametrize(
    ("kind", "api", "version", "path", "role"),
    [
        ("request", "Produce", 9, "topic_data[*].name", Meaning.TOPIC),
        ("request", "Produce", 13, "topic_data[*].topic_id", Meaning.TOPIC_ID),
        ("request", "Produce", 3, "topic_data[*].partition_data[*].records", Meaning.RECORDS),
        ("response", "Produce", 3, "responses[*].partition_responses[*].base_offset", Meaning.OFFSET),
        ("request", "Fetch", 12, "session_epoch", Meaning.SESSION_EPOCH),
        ("request", "Fetch", 12, "topics[*].partitions[*].current_leader_epoch", Meaning.LEADER_EPOCH),
        ("response", "Fetch", 12, "session_id", Meaning.SESSION_ID),
        ("response", "Metadata", 13, "brokers[*].host", Meaning.HOST),
        ("response", "Metadata", 13, "cluster_id", Meaning.CLUSTER_ID),
        ("request", "FindCoordinator", 0, "key", Meaning.COORDINATOR_KEY),
        ("request", "FindCoordinator", 4, "coordinator_keys[*]", Meaning.COORDINATOR_KEY),
        ("response", "JoinGroup", 7, "leader", Meaning.MEMBER_ID),
        ("request", "OffsetCommit", 9, "generation_id_or_member_epoch", Meaning.GENERATION),
        ("request", "ConsumerGroupHeartbeat", 0, "member_epoch", Meaning.GENERATION),
        ("response", "InitProducerId", 4, "producer_epoch", Meaning.PRODUCER_EPOCH),
        ("request", "EndTxn", 3, "transactional_id", Meaning.TRANSACTIONAL_ID),
        ("request", "OffsetForLeaderEpoch", 4, "topics[*].partitions[*].leader_epoch", Meaning.LEADER_EPOCH),
        ("request", "SaslAuthenticate", 2, "auth_bytes", Meaning.SECRET),
        ("response", "ShareFetch", 1, "responses[*].partitions[*].current_leader.leader_id", Meaning.BROKER_ID),
    ],
)
def test_examples(kind: str, api: str, version: int, path: str, role: Meaning) -> None:
    assert paths(kind, facts.api_key(api), version)[path] is role


def test_hosts_that_are_no_brokers_have_no_role() -> None:
    assert Meaning.HOST not in paths("request", facts.api_key("CreateAcls"), 3).values()
    assert "user_endpoint.host" not in paths("request", facts.api_key("StreamsGroupHeartbeat"), 0)


def test_every_entity_and_every_uuid_has_a_role() -> None:
    """A new release's fields are either annotated, or named as they always were, or this test fails."""
    known_others = {"incarnation_id"}  # of brokers and controllers that start: never replayed
    missing = set()
    for kind, key, version in everything():
        known = {place.path for place in places(kind, key, version)}
        for path, field in fields_of(kind, key, version).items():
            if field.struct is None and (field.entity or field.type == "uuid") and path not in known:
                missing.add(f"{facts.api_name(key)} {kind} {field.name}")
    assert {text for text in missing if text.split()[-1] not in known_others} == set()


def test_every_offset_epoch_and_timestamp_has_a_role() -> None:
    words = ("epoch", "timestamp", "throttle_time_ms", "offset", "watermark")
    amounts = {
        "commit_timestamp",
        "assignment_epoch",
        # a topology's, or of an application's end points: what the clients of a group agree on, no cluster changes it
        "topology_epoch",
        "endpoint_information_epoch",
        "epoch",
        "max_num_offsets",
        "task_offset_interval_ms",
        "current_metadata_offset",
    }
    missing = set()
    for kind, key, version in everything():
        known = {place.path for place in places(kind, key, version)}
        for path, field in fields_of(kind, key, version).items():
            named = any(field.name.endswith(word) or field.name.endswith(word + "s") for word in words)
            if named and field.struct is None and field.name not in amounts and path not in known:
                missing.add(f"{facts.api_name(key)} {kind} {path} {field.type}")
    assert missing == set()


def test_places_lead_to_their_fields() -> None:
    for kind, key, version in everything():
        of = plan(kind, key, version).root
        for place in places(kind, key, version):
            assert walked(of.fields, place) == place.path


def walked(fields: tuple[FieldPlan, ...], place: RolePlace) -> str:
    names = []
    for step in place.steps:
        field = fields[step]
        names.append(field.name + ("[*]" if field.array else ""))
        fields = field.struct.fields if field.struct is not None else ()
    return ".".join(names)


def test_volatile_fields() -> None:
    produced = {p.path: p.volatile for p in places("response", 0, 8)}
    assert not produced["responses[*].partition_responses[*].base_offset"]
    assert produced["responses[*].partition_responses[*].log_start_offset"]
    assert produced["throttle_time_ms"]
