"""Profiles and what they make of requests and of ApiVersions responses, for every release in the tables."""

from __future__ import annotations

from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder.reference import releases
from barnabas.decoder.schema import facts
from barnabas.plugins.versions.adapter import AdaptedRequest, Answer, Close, Forward, Silence
from barnabas.plugins.versions.emulated_release import EmulatedRelease, offers
from barnabas.plugins.versions.features import read as read_features
from barnabas.plugins.versions.profile import Profile, caps

API_VERSIONS, PRODUCE, FETCH = 18, 0, 1
NEWEST = releases.releases()[-1]
ALL = releases.releases(roles=True)


def request(name: str, version: int) -> bytes:
    return decoder.encode_request(facts.api_key(name), version, {}, correlation_id=7, client_id="t")


def broker_of(release: str, version: int = 0, **more: Any) -> bytes:
    """The ApiVersions response of a broker of that release."""
    ranges = [
        {"api_key": key, "min_version": low, "max_version": high}
        for key, (low, high) in releases.release(release).offered.items()
    ]
    return decoder.encode_response(API_VERSIONS, version, {"api_keys": ranges} | more, correlation_id=7)


def offered(profile: Profile, frame: bytes, version: int = 0) -> dict[int, tuple[int, int]]:
    return offers(EmulatedRelease(profile).response(AdaptedRequest(API_VERSIONS, version, 7), frame), version) or {}


@pytest.mark.parametrize("name", ALL)
def test_versions_are_served_by_the_broker_and_the_release(name: str) -> None:
    profile, newest = Profile.of(name), releases.release(NEWEST)
    found = offered(profile, broker_of(NEWEST))
    for key, (low, high) in found.items():
        for version in range(low, high + 1):
            # 4.x says Produce 0 and serves 3 and up: so does a pretended 4.x
            assert profile.release is not None
            assert profile.release.serves(key, version) or (
                key == PRODUCE and profile.release.range(key) == (low, high)
            )
            assert newest.serves(key, version) or key == PRODUCE
        assert newest.serves(key, high)
    missing = {each.api_key for each in profile.shortfall(newest.offered)}
    assert missing.isdisjoint(found)
    promised = releases.release(name).offered
    assert {key for key in promised if key in newest.offered} <= missing | set(found)


@pytest.mark.parametrize("name", [name for name in ALL if "controller" not in name])
def test_the_answer_of_a_broker_of_the_same_release_is_unchanged(name: str) -> None:
    if releases.release(name).negotiates:
        assert EmulatedRelease(Profile.of(name)).response(AdaptedRequest(API_VERSIONS, 0, 7), broker_of(name)) == broker_of(name)
    assert Profile.of(name).shortfall(releases.release(name).offered) == []


@pytest.mark.parametrize(
    ("name", "refused", "unknown", "silent"),
    [
        ("0.8.2", None, Close, False), ("0.9.0", None, Silence, True), ("0.10.2", [], Close, False),
        ("2.3", [], Close, False), ("2.4", [(18, 0, 3)], Close, False), ("3.9-zk", [(18, 0, 4)], Close, False),
    ],
)  # fmt: skip
def test_unknown_requests_are_handled_as_by_the_release(name: str, refused: Any, unknown: type, silent: bool) -> None:
    """As brokers of those releases do; tests/real/translation/test_pretend.py has real ones."""
    emulated = EmulatedRelease(Profile.of(name))
    if refused is None:
        assert isinstance(emulated.request(request("ApiVersions", 0)), unknown)
    else:
        assert isinstance(emulated.request(request("ApiVersions", 0)), Forward)
        step = emulated.request(request("ApiVersions", 4) if name != "3.9-zk" else b"\0\x12\0\x05\0\0\0\x07\0\0")
        assert isinstance(step, Answer)
        message = decoder.decode_response(step.frame, api_key=API_VERSIONS, api_version=0)
        listed = [tuple(each.values()) for each in message.to_dict()["api_keys"]]
        assert (message["error_code"], listed) == (35, refused)
    step = emulated.request(request("ShareFetch", 1))
    assert isinstance(step, unknown) and getattr(step, "onwards", False) is silent


def test_a_refusal_of_the_broker_is_unchanged() -> None:
    refusal = decoder.encode_response(API_VERSIONS, 0, {"error_code": 35, "api_keys": []}, correlation_id=7)
    assert EmulatedRelease(Profile.of("4.0")).response(AdaptedRequest(API_VERSIONS, 3, 7), refusal) == refusal


def test_features_are_those_of_the_release() -> None:
    supported = [
        {"name": "metadata.version", "min_version": 7, "max_version": 30},
        {"name": "group.version", "min_version": 0, "max_version": 1},
        {"name": "share.version", "min_version": 0, "max_version": 1},
    ]
    finalized = [
        {"name": each["name"], "max_version_level": each["max_version"], "min_version_level": each["max_version"]}
        for each in supported
    ]
    more = {"supported_features": supported, "finalized_features": finalized, "finalized_features_epoch": 5}
    for release, names, level, epoch in (
        ("4.0", ["metadata.version", "group.version"], 25, 5), ("3.9", ["metadata.version"], 21, 5),
        ("3.9-zk", [], None, -1), ("2.8", [], None, -1),
    ):  # fmt: skip
        frame = EmulatedRelease(Profile.of(release)).response(AdaptedRequest(API_VERSIONS, 3, 7), broker_of(NEWEST, 3, **more))
        fields = decoder.decode_response(frame, api_key=API_VERSIONS, api_version=3).to_dict()
        assert [each["name"] for each in fields["supported_features"]] == names
        assert [each["name"] for each in fields["finalized_features"]] == names
        levels = [each["max_version_level"] for each in fields["finalized_features"]]
        assert (levels[0] if levels else None) == level and fields["finalized_features_epoch"] == epoch


def test_malformed_features_are_refused() -> None:
    with pytest.raises(ValueError, match=r"line 2: expected 'name 0-1', not 'kraft\.version'"):
        read_features("# facts\n4.9  kraft.version\n")


def test_caps() -> None:
    profile = Profile.of("", caps(["Fetch=11, Produce=v7", "ApiVersions=2"]))
    found, before = offered(profile, broker_of(NEWEST)), releases.release(NEWEST).offered
    lower = {FETCH: (4, 11), PRODUCE: (0, 7), API_VERSIONS: (0, 2)}
    lower |= {facts.api_key("EndTxn"): (0, 4), facts.api_key("TxnOffsetCommit"): (0, 4)}  # go with Produce 12
    assert found == before | lower
    emulated = EmulatedRelease(profile)
    assert [emulated.wants(FETCH, version) for version in (4, 11, 12)] == [False, False, True]
    assert isinstance(emulated.request(request("Fetch", 12)), Close)
    step = emulated.request(request("ApiVersions", 3))
    assert isinstance(step, Answer)
    assert offers(step.frame, 0) is None  # an error, with the range that is served
    assert profile == Profile.from_dict(profile.to_dict())
    # a cap below what this broker serves leaves the API out, and says so
    low = Profile.of("", {"Fetch": 3})
    assert FETCH not in offered(low, broker_of(NEWEST))
    assert [each.text for each in low.shortfall(before)] == [f"Fetch 0-3 (the broker serves 4-{before[FETCH][1]})"]


@pytest.mark.parametrize(
    ("pretend", "cap", "error"),
    [
        ("0.10.9", {}, "unknown Kafka release '0.10.9', did you mean 0.10.2?"),
        ("two", {}, "unknown Kafka release 'two'; known are 0.8.0 to"),
        ("", {"Fecht": 3}, "there is no API 'Fecht', did you mean Fetch?"),
        ("", {"Fetch": -1}, "a cap of -1 leaves no version of Fetch: Fetch has versions 0-"),
        ("", {"Fetch": 99}, "a cap of 99 removes nothing: Fetch has versions 0-"),
        ("0.10.2", {"Fetch": 9}, "a cap of 9 removes nothing: Kafka 0.10.2 serves Fetch 0-3"),
        ("4.0", {"Fetch": 1}, "a cap of 1 leaves no version of Fetch: Kafka 4.0 serves Fetch 4-17"),
        ("0.9", {"CreateTopics": 1}, "Kafka 0.9.0 has no CreateTopics: leave its cap out"),
    ],
)
def test_impossible_profiles_are_refused(pretend: str, cap: dict[str, int], error: str) -> None:
    with pytest.raises(ValueError) as raised:
        Profile.of(pretend, cap)
    assert str(raised.value).startswith(error)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("Fetch", "'Fetch' is not API=VERSION, such as Fetch=11"),
        ("Fetch=1,Fetch=2", "Fetch is capped twice"),
        ("", "'' is"),
    ],
)
def test_malformed_caps_are_refused(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        caps([text])
