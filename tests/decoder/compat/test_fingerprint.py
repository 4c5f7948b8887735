"""Java clients that do not name themselves, told by the versions they use."""

from __future__ import annotations

import pytest
from barnabas.decoder.compat import ObservedClient, VersionUse, java_releases
from barnabas.decoder.reference import releases
from barnabas.decoder.reference.bugs import Status, bugs_of
from barnabas.decoder.schema import facts

APIS = ("ApiVersions", "Metadata", "FindCoordinator", "JoinGroup", "SyncGroup", "OffsetFetch", "Fetch", "OffsetCommit")
SEEN = {"ApiVersions": 2, "Metadata": 8, "FindCoordinator": 2, "JoinGroup": 5, "OffsetFetch": 5, "Fetch": 11}
"""Of the Java client 2.3.1 and a broker that offers newer versions, except of ApiVersions."""
NEW = {"ApiVersions": 2, "Metadata": 13, "FindCoordinator": 3, "JoinGroup": 6, "OffsetFetch": 6, "Fetch": 16}


def client(used: dict[str, int], offered: dict[str, int], client_id: str = "consumer-1", name: str = "") -> ObservedClient:
    found = ObservedClient("10.0.0.5", client_id, name, "1.0" if name else "")
    for api, version in used.items():
        found.uses[facts.api_key(api), version] = VersionUse(facts.api_key(api), version, 1)
    found.offered["10.0.0.1:9092"] = {facts.api_key(api): (0, newest) for api, newest in offered.items()}
    return found


def test_versions_that_were_seen():
    assert java_releases(client(SEEN, NEW)) == "2.3 to 2.3"


@pytest.mark.parametrize("number", ["0.11.0", "1.0", "1.1", "2.0", "2.1", "2.2", "2.3"])
@pytest.mark.parametrize("broker", ["2.3", "3.9", "4.0"])
def test_a_client_of_a_release_with_a_newer_broker(number, broker):
    known, there = releases.release(number), releases.release(broker)
    used = {}
    for api in APIS:
        mine, theirs = known.range(facts.api_key(api)), there.range(facts.api_key(api))
        assert mine and theirs
        used[api] = mine[1] if api == "ApiVersions" else min(mine[1], theirs[1])
    offered = {api: there.range(facts.api_key(api))[1] for api in APIS}
    oldest, _, newest = java_releases(client(used, offered)).partition(" to ")
    names = releases.releases()
    assert names.index(oldest) <= names.index(number) <= names.index(newest)


def test_a_broker_that_knows_little_leaves_much_open():
    old = releases.release("0.11.0")
    offered = {api: old.range(facts.api_key(api))[1] for api in APIS}
    assert java_releases(client({"Metadata": offered["Metadata"]}, offered)).startswith("0.11.0 to 4")


@pytest.mark.parametrize(
    "other",
    [
        client(SEEN, NEW, client_id="orders"),  # nothing says that it is a Java client
        client(SEEN, NEW, client_id="rdkafka"),
        client(SEEN, NEW, name="apache-kafka-java"),
        client(SEEN | {"Fetch": 99}, NEW),
        client(SEEN | {"Fetch": 3}, NEW),  # no release uses Fetch v3 and Metadata v8
    ],
)
def test_what_is_no_java_client_of_any_release(other):
    assert java_releases(other) == ""


@pytest.mark.parametrize(
    ("version", "id_", "status"),
    [
        ("2.3 to 2.3", "CVE-2021-38153", Status.PRESENT),
        ("2.3 to 2.3", "CVE-2026-35554", Status.NOT_YET),
        ("1.0 to 2.0", "CVE-2021-38153", Status.UNKNOWN),
        ("2.5 to 2.6", "CVE-2021-38153", Status.UNKNOWN),  # fixed in 2.6.3
        ("4.2 to 4.3", "CVE-2026-35554", Status.FIXED),
    ],
)
def test_what_several_releases_mean_for_a_bug(version, id_, status):
    (bug,) = (bug for bug in bugs_of("apache-kafka-java") if bug.id == id_)
    assert bug.status(version) is status
