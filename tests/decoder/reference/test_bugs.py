"""The table of known client bugs: its facts are whole, and versions compare as their clients number them."""

from __future__ import annotations

import re

import pytest
from barnabas.decoder.findings import detectors
from barnabas.decoder.reference import bugs, clients
from barnabas.decoder.reference.bugs import Status, version_order
from barnabas.decoder.reference.explanations.blocks import BlockError
from packaging.version import Version

TABLES = bugs.tables()
BUGS = [bug for table in TABLES.values() for bug in table.bugs]
SOURCE = re.compile(
    r"[A-Za-z0-9-]+/[A-Za-z0-9-]+#\d+|[A-Za-z0-9-]+/[A-Za-z0-9-]+ CHANGELOG\.md v[\d.]+|v[\d.]+"
    r"|CVE-\d{4}-\d+|KAFKA-\d+|GHSA(-[a-z0-9]{4}){3}"
)
PINNED = """
table
  date: 2026-01-31
  source: a changelog
  newest: 3.0

bug-1
  versions: 1.2 until 1.4.1
  versions: 2.0 until 2.0.3
  severity: high
  what: It breaks.
  wire: Nothing.
  source: a/b#1

bug-2
  versions: any until 1.9
  severity: low
  what: It is slow.
  wire: Nothing.
  finding metadata-storm: api=Metadata|Fetch
  source: a/b#2

bug-3
  versions: 2.10 on
  severity: low
  what: It is odd.
  wire: Nothing.
  source: a/b#3
"""


def test_there_are_many_bugs_of_many_clients():
    assert len(BUGS) >= 150
    assert set(TABLES) >= {
        "librdkafka", "apache-kafka-java", "kafka-python", "aiokafka", "kafkajs", "sarama", "kgo", "kafka-go",
        "confluent-kafka-python", "confluent-kafka-dotnet", "rskafka",
    }  # fmt: skip
    assert len({bug.id for bug in BUGS}) == len(BUGS)


def test_every_client_of_the_table_is_known_by_the_name_it_sends():
    assert set(TABLES) <= set(clients.clients())


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)
def test_a_row_has_all_its_parts(bug):
    assert bug.what[0].isupper() or bug.what.split()[0].isidentifier() or "()" in bug.what
    assert bug.what.endswith(".") and bug.wire.endswith(".")
    assert all(SOURCE.fullmatch(source) for source in bug.source.split(", ")), bug.source
    for affected in bug.affected:
        assert affected.first or affected.fixed
    fixed = [each.fixed for each in bug.affected if each.fixed]
    assert all(bug.status(version) is Status.FIXED for version in fixed), "a branch of a later row has it"


def test_every_finding_that_a_row_names_has_a_detector():
    ids = {kind.id for kind in detectors()}
    assert {pattern.finding for bug in BUGS for pattern in bug.patterns} <= ids


@pytest.mark.parametrize(
    "versions",
    [
        ["2.9.1", "2.10.0-RC1", "2.10.0", "2.10.1"],
        ["0.9.6", "0.36.2", "1.0.0"],
        ["v1.20.7", "v1.21.0-rc.1", "v1.21.0"],
        ["3.0.0.dev0", "3.0.0", "3.0.0.1"],
        ["3.9.2-SNAPSHOT", "3.9.2"],
        ["2.0.0rc1", "2.0.0", "2.0.0.1"],
        ["4.0.0-rc2", "4.0.0.redhat-00003"],
    ],
)
def test_versions_are_in_order(versions):
    ordered = list(map(version_order, versions))
    assert ordered == sorted(ordered) and len(set(ordered)) == len(ordered)


def test_what_is_the_same_version():
    assert version_order("2.10") == version_order("2.10.0") == version_order("v2.10.0-3-gdeadbee")
    assert version_order("2.6.0-rdkafka-2.6.0") == version_order("2.6.0")


@pytest.fixture
def pinned() -> dict[str, bugs.ClientBug]:
    return {bug.id: bug for bug in bugs.read(PINNED, "client.txt").bugs}


@pytest.mark.parametrize(
    ("id_", "version", "status"),
    [
        ("bug-1", "1.1.9", Status.NOT_YET),
        ("bug-1", "1.2.0", Status.PRESENT),
        ("bug-1", "1.4", Status.PRESENT),
        ("bug-1", "1.4.1", Status.FIXED),
        ("bug-1", "1.10", Status.FIXED),
        ("bug-1", "2.0.2", Status.PRESENT),
        ("bug-1", "2.0.3-rc1", Status.PRESENT),
        ("bug-1", "2.0.3", Status.FIXED),
        ("bug-1", "2.0.0-rc1", Status.PRESENT),
        ("bug-2", "0.1", Status.PRESENT),
        ("bug-2", "1.9", Status.FIXED),
        ("bug-3", "2.9.9", Status.NOT_YET),
        ("bug-3", "3.0", Status.PRESENT),
        ("bug-3", "3.0.1", Status.UNKNOWN),  # newer than the table
        ("bug-3", "", Status.UNKNOWN),
        ("bug-3", "devel", Status.UNKNOWN),
    ],
)
def test_which_versions_have_a_bug(pinned, id_, version, status):
    assert pinned[id_].status(version) is status


def test_the_first_release_after_a_version_that_fixes_it(pinned):
    assert pinned["bug-1"].fixed_for("1.3") == "1.4.1"
    assert pinned["bug-1"].fixed_for("2.0.0") == "2.0.3"
    assert pinned["bug-3"].fixed_for("2.11") == ""


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("7.9.1-ccs", Status.UNKNOWN),  # of Kafka 3.9, whose last patch release has it fixed
        ("7.8.0-ccs", Status.PRESENT),
        ("5.5.1-ccs", Status.NOT_YET),
        ("6.2.0-ce", Status.PRESENT),
        ("8.2.0-ccs", Status.FIXED),
        ("3.9.1", Status.PRESENT),
        ("3.9.2", Status.FIXED),
        ("4.0.1", Status.PRESENT),
        ("4.2.0", Status.FIXED),
    ],
)
def test_confluents_builds_of_the_java_client(version, status):
    bug = next(bug for bug in bugs.bugs_of("apache-kafka-java") if bug.id == "CVE-2026-35554")
    assert bug.status(version) is status


@pytest.mark.parametrize(
    ("name", "version", "client_id", "libraries"),
    [
        ("librdkafka", "2.6.0", "rdkafka", [("librdkafka", "2.6.0")]),
        (
            "confluent-kafka-python", "2.6.0-rdkafka-2.6.0", "",
            [("confluent-kafka-python", "2.6.0-rdkafka-2.6.0"), ("librdkafka", "2.6.0")],
        ),
        (
            "confluent-kafka-javascript", "1.3.0-librdkafka-2.10.0", "",
            [("confluent-kafka-javascript", "1.3.0-librdkafka-2.10.0"), ("librdkafka", "2.10.0")],
        ),
        ("", "", "kafka-python-2.0.2", [("kafka-python", "2.0.2")]),
        ("", "", "aiokafka-0.12.0", [("aiokafka", "0.12.0")]),
        ("", "", "kafkajs", [("kafkajs", "")]),
        ("", "", "orders", []),
        ("sarama", "1.50.1", "", [("sarama", "1.50.1")]),
        ("sarama", "v2.3.1", "", [("sarama", "")]),  # the version of the program that uses it
        ("sarama", "dev", "", [("sarama", "")]),
        ("something", "1.0", "", [("something", "1.0")]),
    ],
)  # fmt: skip
def test_which_libraries_a_client_consists_of(name, version, client_id, libraries):
    assert [each[:2] for each in bugs.named(name, version, client_id)] == libraries


def test_a_client_that_the_table_does_not_have():
    assert bugs.bugs_of("something") == () and bugs.statuses("something", "1.0", None) == []


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("2026-01-31", "today", 3, "is not a date"),
        ("severity: high", "severity: bad", 10, "is not a severity"),
        ("1.2 until 1.4.1", "1.2 to 1.4.1", 8, "'1.2 to 1.4.1' is not"),
        ("1.2 until 1.4.1", "1.5 until 1.4.1", 8, "1.5 is not before 1.4.1"),
        ("  wire: Nothing.\n  source: a/b#1", "  source: a/b#1", 7, "has no wire"),
        ("api=Metadata|Fetch", "api", 20, "'api' is not NAME=VALUE"),
        ("table\n", "tables\n", 2, "the first block is not table"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_line(old, new, line, says):
    assert old in PINNED
    with pytest.raises(BlockError, match=re.escape(says)) as caught:
        bugs.read(PINNED.replace(old, new, 1), "client.txt")
    assert caught.value.line == line


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)
def test_the_versions_of_a_bug_as_another_library_compares_them(bug):
    newest = TABLES[bug.client].newest
    bounds = {text for each in bug.affected for text in each[:2] if text} | {newest}
    numbers = [list(map(int, text.split("."))) for text in bounds]
    for parts in numbers:
        for last in (-1, 0, 1):
            for more in ([], [0], [7]):
                moved = [*parts[:-1], parts[-1] + last, *more]
                text = ".".join(map(str, moved))
                if moved[-1] < 0 or min(moved) < 0 or Version(text) > Version(newest):
                    continue
                has_it = any(
                    (not first or Version(first) <= Version(text)) and (not fixed or Version(text) < Version(fixed))
                    for first, fixed, _ in bug.affected
                )
                assert (bug.status(text) is Status.PRESENT) == has_it, text
