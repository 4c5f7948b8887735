"""What brokers of each release serve, against other tables and Kafka's own definitions."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from barnabas.decoder.reference import release_tables, releases
from barnabas.decoder.reference.definitions import importer
from barnabas.decoder.reference.releases import Offer, release, removed, since
from barnabas.decoder.schema import facts

CLIENTS = Path(__file__).parents[3] / ".cache" / "clients"
REFERENCE = Path(__file__).parents[4] / "shared" / "reference" / "broker-versions.json"
FILE = Path(str(facts.schema_folder())) / "releases.txt"

# Kafka's jars in .cache/clients with definitions; 0.8.2.2 has none.
JARS = ["2.7.2", "3.5.2", "3.6.2", "3.7.2", "3.8.1", "3.9.1", "4.0.0", "4.1.0", "4.3.1", "4.4.0"]


def definitions(version: str):
    path = CLIENTS / f"kafka-clients-{version}.jar"
    assert path.is_file(), "Kafka's jars are fetched by: make broker"
    with zipfile.ZipFile(path) as jar:
        files = {name: jar.read(name).decode() for name in importer.definition_files(jar.namelist())}
    return importer.read_definitions(files)


@pytest.mark.skipif(not REFERENCE.is_file(), reason="the reference table is not beside this checkout")
def test_offers_equal_the_reference():
    reference = json.loads(REFERENCE.read_text())
    reference.pop("_notes")
    assert len(reference) == 55
    for name, table in reference.items():
        assert release(name).offered == {int(key): tuple(ends) for key, ends in table.items()}, name


@pytest.mark.parametrize("version", JARS)
def test_tables_equal_the_jars(version):
    found = release_tables.tables_of(definitions(version), version.rpartition(".")[0])
    roles = {"2": {"zk"}, "3": {"zk", "kraft", "controller"}, "4": {"kraft", "controller"}}[version[0]]
    assert {role for _, role in found} == roles
    for (number, role), table in found.items():
        assert table.offers == release(f"{number}-{role}").offers
    assert release_tables.merge_release(releases.read(FILE.read_text()), definitions(version), version)[1] == []


def test_a_release_that_is_not_known_gets_a_table_of_its_own():
    known = releases.read(FILE.read_text())
    older = {key: table for key, table in known.items() if key[0] != "4.4"}
    tables, lines = release_tables.merge_release(older, definitions("4.4.0"), "4.4.0")
    assert tables == known
    assert "release 4.4 kraft: ApiVersions 0-5 (before: 0-4)" in lines
    assert "release 4.4 kraft: UnregisterController 0-0 (before: none)" in lines
    # a patch release that differs from its minor release stands on its own
    tables, lines = release_tables.merge_release(known, definitions("4.3.1"), "4.4.7")
    assert ("4.4.7", "kraft") in tables and tables["4.4", "kraft"] == known["4.4", "kraft"]
    assert tables["4.4.7", "kraft"].offers == known["4.3", "kraft"].offers


def test_the_file_survives_reading_and_writing():
    text = FILE.read_text()
    assert releases.write(releases.read(text), text.partition("\n\n")[0]) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("4.0 kraft\n  Metadata 0-\n", "line 2: expected .*, not 'Metadata 0-'"),
        ("  Metadata 0\n", "line 1: .* is neither a release nor"),
        ("4.0 tea\n", "line 1: '4.0 tea' is neither"),
    ],
)
def test_errors_in_the_file_have_their_line(text, message):
    with pytest.raises(ValueError, match=message):
        releases.read(text)


def test_names():
    names = releases.releases()
    assert names[0] == "0.8.0" and names[-1] == "4.4" and "3.9-zk" not in names
    assert names == sorted(names, key=releases.release_order)
    assert set(names) < set(releases.releases(roles=True)) and "3.9-controller" in releases.releases(roles=True)
    assert (
        release("0.10.2.2").name == "0.10.2" and release("3.9.1").name == "3.9" and release("3.9-kraft").name == "3.9"
    )
    assert release("2.8").role == "zk" and release("3.3").role == "kraft"
    # JoinGroup 0 and 1 are missing in 4.0.0 alone (KAFKA-19444)
    assert [release(name).range(11) for name in ("4.0", "4.0.0", "4.0.1", "4.0.9")] == [(2, 9), (2, 9), (0, 9), (0, 9)]


@pytest.mark.parametrize(
    ("name", "hint"), [("0.10", "0.10.0 or 0.10.1 or 0.10.2"), ("3.10", "did you mean"), ("tea", "0.8.0 to 4.4")]
)
def test_unknown_releases(name, hint):
    with pytest.raises(KeyError, match=f"unknown Kafka release '{name}'.*{hint}"):
        release(name)


def test_versions_that_are_offered_but_not_served():
    produce = facts.api_key("Produce")
    assert release("4.0").range(produce) == (0, 12) and release("4.0").served(produce) == (3, 12)
    assert not release("4.0").serves(produce, 2) and release("4.0").serves(produce, 3)
    assert release("3.9").serves(produce, 0) and release("3.9").range(4) is None
    # telemetry is offered where a receiver is configured
    assert release("4.0").range(71) == (0, 0) and 71 not in release("4.0").offered
    assert release("4.0").offers[71] == Offer(0, 0, 0, True)
    assert not release("0.9.0").negotiates and release("0.10.0").negotiates


def test_when_versions_were_introduced_and_removed():
    assert since(0, 3) == "0.11.0" and since(3, 0) == "0.8.0" and since(68, 0) == "3.7" and since(3, 99) is None
    assert releases.introduced(22) == "0.11.0" and releases.introduced(999) is None
    assert removed(1, 3) == ("4.0", "3.9", "KIP-896") and removed(0, 2).release == "4.0"
    assert removed(4, 7) == ("4.0", "3.9", "KIP-500")
    assert removed(1, 3, by="3.9") is None and removed(1, 3, by="4.3-controller").kip == "KIP-896"
    assert removed(11, 1) is None and removed(11, 1, by="4.0").release == "4.0" and removed(11, 1, by="4.0.1") is None
    assert removed(3, 99) is None


def test_releases_are_recognised_by_their_offer():
    for name in releases.releases(roles=True):
        table = release(name)
        if table.negotiates:
            matches = releases.release_of(table.offered)
            assert name in [match.name for match in matches] and all(match.exact for match in matches)
            assert releases.exact_release(table.offered) == matches[-1].name
    assert [match.name for match in releases.release_of(release("3.4").offered)] == ["3.3", "3.4"]
    with_telemetry = release("4.0").offered | {71: (0, 0), 72: (0, 0)}
    assert [match.name for match in releases.release_of(with_telemetry)] == ["4.0"]
    patched = release("2.6").offered | {1: (0, 10), 99: (0, 0)}
    (match,) = releases.release_of(patched)
    assert match.name == "2.6" and not match.exact and releases.exact_release(patched) is None
    assert match.differs == {1: ((0, 10), (0, 11)), 99: ((0, 0), None)}
