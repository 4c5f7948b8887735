"""A client with a cap is offered only features that some broker offers together with such versions."""

from __future__ import annotations

from typing import Any

import pytest
from barnabas.decoder.reference import releases
from barnabas.decoder.schema import facts
from barnabas.plugins.versions.features import of_release
from barnabas.plugins.versions.profile import Profile

NEWEST = releases.release(releases.releases()[-1])


def offered(profile: Profile) -> dict[str, tuple[int, int]]:
    """The features offered to a client by a broker that has all."""
    all_of_them = of_release(NEWEST).supported
    fields: dict[str, Any] = {
        "supported_features": [{"name": n, "min_version": a, "max_version": b} for n, (a, b) in all_of_them.items()],
        "finalized_features": [{"name": n, "max_version_level": b, "min_version_level": b} for n, (_, b) in all_of_them.items()],
        "finalized_features_epoch": 9,
    }  # fmt: skip
    if profile.features is not None:
        fields |= profile.features.restrict(fields)
    for each in fields["finalized_features"]:
        assert each["name"] in {feature["name"] for feature in fields["supported_features"]}
    return {each["name"]: (each["min_version"], each["max_version"]) for each in fields["supported_features"]}


def test_every_cap_leaves_features_that_some_release_offers() -> None:
    """By brute force over the tables of all releases: some broker has all these features and no version above the cap."""
    brokers = [(each, of_release(each).supported) for each in map(releases.release, releases.releases())]
    for key in facts.api_keys():
        for version in facts.api(key).versions.every():
            try:
                profile = Profile.of("", {facts.api_name(key): version})
            except ValueError:
                continue
            features = offered(profile)
            assert any(
                (each.range(key) or (0, version))[1] <= version
                and all(name in supported and supported[name][1] >= high for name, (_, high) in features.items())
                for each, supported in brokers
            ), (facts.api_name(key), version, features)


@pytest.mark.parametrize("cap", [{"Produce": 7}, {"Produce": 11}, {"AddPartitionsToTxn": 3}, {"TxnOffsetCommit": 3}])
def test_old_transaction_versions_exclude_the_transaction_feature(cap: dict[str, int]) -> None:
    assert "transaction.version" not in offered(Profile.of("", cap))


def test_features_without_a_cap_are_unchanged() -> None:
    assert offered(Profile()) == of_release(NEWEST).supported
    assert offered(Profile.of("", {"LeaderAndIsr": 3})) == of_release(NEWEST).supported
    assert offered(Profile.of("4.0", {"Produce": 12})) == of_release(releases.release("4.0")).supported
    assert "transaction.version" not in offered(Profile.of("4.0", {"Produce": 9}))
