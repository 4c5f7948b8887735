"""A cap takes away what depends on it: held to the tables of all releases, to the definitions, and to raw requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from barnabas import decoder
from barnabas.decoder.connection.hit_notes import causes_in
from barnabas.decoder.reference import releases
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.plan import StructPlan, plan
from barnabas.plugins.rules.rules import Rule
from barnabas.plugins.versions import dependencies
from barnabas.plugins.versions.adapter import Close, Forward
from barnabas.plugins.versions.emulated_release import EmulatedRelease
from barnabas.plugins.versions.profile import Profile

NEWEST = releases.release(releases.releases()[-1])
METADATA = facts.api_key("Metadata")
CAPS = sorted({(each.other, each.needed - 1) for each in dependencies.table() if each.needed})
"""Every cap that something depends on."""


def request(key: int, version: int) -> bytes:
    return decoder.encode_request(key, version, {}, correlation_id=7, client_id="t")


def offered(profile: Profile) -> dict[int, tuple[int, int]]:
    """What a client is offered in front of the newest broker."""
    adapter = EmulatedRelease(profile)
    listed = [{"api_key": k, "min_version": low, "max_version": high} for k, (low, high) in NEWEST.offered.items()]
    return {each["api_key"]: (each["min_version"], each["max_version"]) for each in adapter.offered_entries(listed)}


def closed(ranges: dict[int, tuple[int, int]]) -> bool:
    """Whether no version is offered without what it needs."""
    return all(
        ranges.get(each.api_key, (0, -1))[1] < each.version or ranges.get(each.other, (0, -1))[1] >= each.needed
        for each in dependencies.table()
    )


@pytest.mark.parametrize("name", releases.releases(roles=True))
def test_every_released_broker_offers_them_together(name: str) -> None:
    release = releases.release(name)
    if release.role != "controller":  # clients of a controller are brokers, which know topics from its log
        assert closed({key: (offer.low, offer.high) for key, offer in release.offers.items()})


@pytest.mark.parametrize(("key", "version"), CAPS)
def test_a_cap_takes_away_what_depends_on_it(key: int, version: int) -> None:
    """The adapter lets no raw request through that a client would send only together with the capped versions."""
    profile = Profile.of("", {facts.api_name(key): version})
    adapter, found = EmulatedRelease(profile), offered(profile)
    assert closed(found)
    before = NEWEST.offered
    changed = {each for each in before if found.get(each) != before[each]}
    assert changed == {key} | {each for each in profile.follows if each in before}
    for each in changed:
        low, high = before[each]
        highest = profile.highest[each]
        assert isinstance(adapter.request(request(each, highest + 1)), Close)
        assert highest < low or isinstance(adapter.request(request(each, highest)), Forward)
        assert highest == -1 or highest < high


def test_the_documented_example() -> None:
    profile = Profile.of("", {"Fetch": 12, "Metadata": 9})
    found = {facts.api_name(key): high for key, (_, high) in offered(profile).items()}
    assert (found["Produce"], found["Fetch"], found["OffsetCommit"], found["OffsetFetch"]) == (12, 12, 9, 9)
    assert found["TxnOffsetCommit"] == 5 and "ConsumerGroupHeartbeat" not in found and "ShareFetch" not in found
    assert "StreamsGroupHeartbeat" in found  # names topics
    assert "(and so Produce up to v12, OffsetCommit up to v9" in profile.offer
    assert profile == Profile.from_dict(profile.to_dict()) and profile.to_dict() == {"cap": {"Fetch": 12, "Metadata": 9}}


def names_by_id_alone(struct: StructPlan) -> Iterator[bool]:
    """For each entry with a topic's id: whether it has no name beside it."""
    fields = {field.name for field in struct.fields}
    if "topic_id" in fields:
        yield not fields & {"name", "topic", "topic_name"}
    for field in struct.fields:
        if field.struct is not None and not field.name.startswith("forgotten"):
            yield from names_by_id_alone(field.struct)


def test_all_versions_that_name_topics_by_id_are_known() -> None:
    """By the definitions: requests of clients that have only the id. Ids that a client was given otherwise are its own affair."""
    between_brokers = {"InitializeShareGroupState", "ReadShareGroupState", "WriteShareGroupState", "DeleteShareGroupState"}
    between_brokers |= {"ReadShareGroupStateSummary", "AlterPartition", "AssignReplicasToDirs"}
    found = offered(Profile.of("", {"Metadata": 11}))
    seen = set()
    for key in sorted(NEWEST.offered):
        for version in range(NEWEST.offered[key][0], NEWEST.offered[key][1] + 1):
            if facts.api_name(key) in between_brokers or not any(names_by_id_alone(plan("request", key, version).root)):
                continue
            seen.add(facts.api_name(key))
            assert found.get(key, (0, -1))[1] < version, (facts.api_name(key), version)
    assert {"Produce", "Fetch", "OffsetCommit", "OffsetFetch", "ConsumerGroupHeartbeat", "ShareFetch"} <= seen


def test_a_release_is_closed_already() -> None:
    for name in releases.releases():
        assert not Profile.of(name).follows
    assert {facts.api_name(key) for key in Profile.of("3.9", {"Metadata": 9}).follows} == {
        "Fetch", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe",
    }  # fmt: skip


def test_notes_name_the_cap_as_the_cause() -> None:
    profile = Profile.of("", {"Metadata": 9})
    refusal = profile.refusal(0, 13)
    assert refusal == (
        "Produce v13 refused: the client is offered Metadata up to v9 (v13 needs Metadata v12, names topics by id (KIP-516))"
    )
    for note in (refusal, profile.offer, profile.refusal(METADATA, 12)):
        assert causes_in([note]) == ["versions offered: Metadata up to v9"]
    rule = Rule.of("client == x", {"cap": {"Metadata": 9}}, name="old")
    assert causes_in([f"rule {rule.name!r} (hit 1): {profile.offer}"]) == ["old", "versions offered: Metadata up to v9"]


def test_a_malformed_line_is_refused() -> None:
    with pytest.raises(ValueError, match="line 2: expected 'API 1  API 2  KIP-3 reason', not 'Fetch Metadata 12'"):
        dependencies.read("# facts\nFetch Metadata 12\n")
