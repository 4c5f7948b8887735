"""``barnabas audit`` and ``--ignore`` as a user runs them."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest
from barnabas.decoder.schema import facts
from barnabas.ui.cli.analysis.audit import attached
from barnabas.ui.cli.analysis.audited_programs import Verdict, judged
from barnabas.ui.cli.common.failure import Failure
from barnabas.ui.cli.common.ignore_file import IgnoredClient, IgnoreFile
from harness.browsing.html_page import Page
from harness.recordings import RecordingBuilder

OLD, NEW, WRAPPED = "librdkafka 2.6.0", "librdkafka 2.6.1", "confluent-kafka-python 2.6.0-rdkafka-2.6.0"
TODAY = datetime.date(2026, 12, 1)


def offered(fetch: int, version: int = 3) -> dict[str, Any]:
    keys = [
        {"api_key": facts.api_key(name), "min_version": 0, "max_version": newest}
        for name, newest in (("Fetch", fetch), ("Metadata", 9), ("ApiVersions", 3))
    ]
    return {"error_code": 0, "api_keys": keys, **({"throttle_time_ms": 0} if version else {})}


def connect(made: RecordingBuilder, number: int, software: str, client_id: str, fetches: bool = False) -> None:
    """A connection that says who it is; with `fetches` it sends Fetch v12 to a broker that offers up to 11 and closes."""
    name, _, version = software.partition(" ")
    made.open(number, client=(f"10.0.0.{number}", 50_000 + number))
    hello = {"client_software_name": name, "client_software_version": version}
    made.exchange("ApiVersions", 3, hello, offered(11), connection=number, client_id=client_id)
    if fetches:
        asked = {"max_wait_ms": 500, "min_bytes": 1, "topics": []}
        made.request("Fetch", 12, asked, connection=number, client_id=client_id)
        made.close_connection(number, by="broker")


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """An affected client whose capture shows the bug, a fixed one, one that sends no name, and one that no table has."""
    made = RecordingBuilder(tmp_path / "capture")
    connect(made, 1, OLD, "orders", fetches=True)
    connect(made, 2, "librdkafka 999.1.0", "billing")
    made.exchange("ApiVersions", 0, {}, offered(11, 0), connection=3, client_id="kafkajs")
    connect(made, 4, "tea 1.0", "tea-1")
    return made.close()


def audited(run, *arguments: object) -> dict[str, Any]:
    done = run("audit", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_each_client_has(run, capture):
    told = audited(run, capture)
    programs = {program["software"]: program for program in told["programs"]}
    assert next(iter(programs)) == OLD, "the one whose bug is seen comes first"
    assert set(programs) == {OLD, "librdkafka 999.1.0", "probably kafkajs", "tea 1.0"}
    old = {bug["id"]: bug for bug in programs[OLD]["bugs"]}
    seen = old["librdkafka-4870"]
    assert (seen["verdict"], seen["fixed_in"], seen["severity"]) == ("seen", "2.6.1", "high")
    assert seen["seen"][0].startswith("api-versions-ignored: client 'orders'")
    assert old["librdkafka-4804"]["verdict"] == "present" and old["librdkafka-4804"]["fixed_in"] == "2.8.0"
    assert old["librdkafka-4806"]["verdict"] == "fixed", "fixed in 2.6.0"
    assert old["librdkafka-5088"]["verdict"] == "fixed", "not yet in 2.6.0"
    new = {bug["id"]: bug["verdict"] for bug in programs["librdkafka 999.1.0"]["bugs"]}
    assert new["librdkafka-4870"] == "fixed"
    assert new["librdkafka-5301"] == "may be", "not fixed when the table was made, and this release is newer"
    assert {bug["verdict"] for bug in programs["probably kafkajs"]["bugs"]} == {"may be"}
    assert programs["tea 1.0"]["in_table"] is False and programs["tea 1.0"]["bugs"] == []
    assert programs[OLD]["client_ids"] == ["orders"] and programs[OLD]["hosts"] == ["10.0.0.1"]
    assert set(told["tables"]) >= {"librdkafka", "kgo"} and "The table is not complete" in told["notes"][-1]


def test_text(run, capture):
    done = run("audit", capture)
    assert done.returncode == 0 and done.stderr == ""
    head, *programs = done.stdout.split("\n\n")
    assert head.startswith("4 client programs; known bugs: 1 seen in the traffic, ")
    assert "The table is not complete: a client that is not in it can have bugs, too." in head
    first = programs[0].splitlines()
    assert first[0] == f"{OLD}  orders; 1 connection"
    assert any(line.startswith("  do: upgrade librdkafka to ") for line in first)
    seen = next(line for line in first if " seen " in line)
    assert seen.startswith("  high   seen     librdkafka-4870  Consumers send Fetch v12 ") and "(fixed in 2.6.1)" in seen
    assert any("api-versions-ignored: client 'orders'" in line for line in first)
    assert "  not in the table of bugs" in done.stdout
    assert "its version is not known exactly: it may have 14 known bugs" in done.stdout
    assert "librdkafka-4806" not in done.stdout
    everything = run("audit", "--all", capture).stdout
    assert "librdkafka-4806" in everything and "kafkajs-1474" in everything


def test_clients_of_one_software_are_one_program(run, tmp_path):
    made = RecordingBuilder(tmp_path / "capture")
    for number in range(1, 8):
        connect(made, number, OLD, f"orders-{number}")
    done = run("audit", made.close())
    assert f"{OLD}  orders-1, orders-2, orders-3, orders-4 and 3 more; 7 connections" in done.stdout


def test_connections_that_do_not_say_who_they_are(run, tmp_path):
    """kafka-python 2.1 names itself on its first connection only."""
    made = RecordingBuilder(tmp_path / "capture")
    connect(made, 1, "kafka-python 2.1.5", "kafka-python-2.1.5")
    for number, host, client_id in ((2, "10.0.0.1", "kafka-python-2.1.5"), (3, "10.0.0.9", "kafka-python-2.1.5"), (4, "10.0.0.1", "kafkajs")):
        made.open(number, client=(host, 50_000 + number))
        made.exchange("Metadata", 1, {"topics": []}, {"brokers": [], "controller_id": 1, "topics": []}, connection=number, client_id=client_id)
    programs = {each["software"]: each["connections"] for each in audited(run, made.close())["programs"]}
    assert programs == {"kafka-python 2.1.5": 2, "probably kafka-python 2.1.5": 1, "probably kafkajs": 1}


def test_a_wrapper_has_its_own_bugs_and_those_of_its_library(run, tmp_path):
    made = RecordingBuilder(tmp_path / "capture")
    connect(made, 1, WRAPPED, "orders", fetches=True)
    (program,) = audited(run, made.close())["programs"]
    verdicts = {bug["id"]: bug["verdict"] for bug in program["bugs"]}
    assert verdicts["librdkafka-4870"] == "seen" and verdicts["confluent-kafka-python-2122"] == "present"


def test_the_same_version_without_the_trace(run, tmp_path):
    made = RecordingBuilder(tmp_path / "capture")
    connect(made, 1, OLD, "orders")
    (program,) = audited(run, made.close())["programs"]
    assert program["counts"]["seen"] == 0 and program["counts"]["present"] > 10


@pytest.mark.parametrize(("software", "severity", "code"), [(OLD, "high", 1), ("kgo v1.21.3", "high", 1), ("kgo v1.22.3", "info", 0)])
def test_fail_on(run, tmp_path, software, severity, code):
    made = RecordingBuilder(tmp_path / "capture")
    connect(made, 1, software, "orders")
    assert run("audit", made.close(), "--fail-on", severity).returncode == code


def test_page(run, capture, tmp_path):
    assert run("audit", capture, "--html", tmp_path / "page.html").returncode == 0
    text = (tmp_path / "page.html").read_text()
    assert "librdkafka-4870" in text and "The table is not complete" in text and "tea 1.0" in text
    Page(text)


def test_the_table(run):
    done = run("audit", "--list")
    assert "high   librdkafka-4870 " in done.stdout and "2.6.0 until 2.6.1: Consumers send Fetch v12" in done.stdout
    rows = json.loads(run("audit", "--list", "--json").stdout)
    assert len(rows) >= 150 and {"id", "client", "severity", "versions", "what", "wire", "source", "date"} == set(rows[0])


@pytest.mark.parametrize(("arguments", "says"), [([], "which capture?"), (["-"], "reads a capture twice"), (["nowhere"], "does not exist")])
def test_what_cannot_be_audited(run, arguments, says):
    done = run("audit", *arguments)
    assert done.returncode == 2 and says in done.stderr


# -- what is ignored ---------------------------------------------------------------------------------------------


def ignoring(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


ACCEPTED = """ignore:
  - id: librdkafka-4870
    client: orders
    until: 2999-12-31
    why: these brokers are upgraded next week
"""


def test_one_file_for_audit_and_findings(run, capture, tmp_path):
    file = ignoring(tmp_path / "accepted.yaml", ACCEPTED)
    done = run("audit", capture, "--ignore", file)
    assert "0 seen in the traffic" in done.stdout and "librdkafka-4870" not in done.stdout
    assert f"1 known bug left out by {file}" in done.stderr
    done = run("findings", capture, "--ignore", file, "--fail-on", "high")
    assert done.returncode == 0 and "api-versions-ignored" not in done.stdout
    assert f"1 finding left out by {file}" in done.stderr
    assert run("findings", capture, "--fail-on", "high").returncode == 1


def test_what_the_file_does_not_cover_is_still_there(run, capture, tmp_path):
    file = ignoring(tmp_path / "accepted.yaml", ACCEPTED.replace("client: orders", "client: billing"))
    done = run("findings", capture, "--ignore", file, "--fail-on", "high")
    assert done.returncode == 1 and "api-versions-ignored" in done.stdout
    assert f"{file}:2: librdkafka-4870 matches nothing here" in done.stderr


def test_an_entry_ends(run, capture, tmp_path):
    file = ignoring(tmp_path / "accepted.yaml", ACCEPTED.replace("2999-12-31", "2026-01-31"))
    done = run("findings", capture, "--ignore", file, "--fail-on", "high")
    assert done.returncode == 1
    assert f"{file}:2: librdkafka-4870 counts again since 2026-01-31: these brokers are upgraded next week" in done.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ":1:1: is empty"),
        ("ignore:\n  - id: acks-0\n", ":2:5: an entry needs 'why'"),
        ("ignore:\n  - why: so\n", ":2:5: an entry needs 'id'"),
        ("ignore:\n  - id: acks-0\n    why: so\n    untl: 2027-01-01\n", ":4:5: an entry has no key 'untl', did you mean until?"),
        ("ignore:\n  - id: acks-0\n    why: so\n    until: soon\n", ":4:12: 'until' must be a date such as 2027-03-01"),
        ("ignore: acks-0\n", "'ignore' must be a list"),
        ("- id: acks-0\n", "an ignore file must consist of 'key: value'"),
        ("ignore:\n  - id: acks-0\n    why: ''\n", "'why' must be text"),
        ("ignore: [\n", ":2:1: "),
    ],
)
def test_what_is_wrong_in_the_file_is_said_with_its_place(run, capture, tmp_path, text, says):
    file = ignoring(tmp_path / "wrong.yaml", text)
    for command in ("audit", "findings"):
        done = run(command, capture, "--ignore", file)
        assert done.returncode == 2 and f"--ignore {file}" in done.stderr and says in done.stderr, done.stderr


def test_a_file_that_does_not_exist(run, capture):
    done = run("findings", capture, "--ignore", "nowhere.yaml")
    assert done.returncode == 2 and "--ignore nowhere.yaml" in done.stderr and "cannot be read" in done.stderr


ONE, OTHER = IgnoredClient("orders-1", OLD, "10.0.0.1"), IgnoredClient("billing", NEW, "10.0.0.2")


@pytest.mark.parametrize(
    ("entry", "clients", "covered"),
    [
        ("id: a\n    why: x", [ONE, OTHER], True),
        ("id: a\n    why: x", [], True),
        ("id: b\n    why: x", [ONE], False),
        ("id: a\n    why: x\n    client: orders-*", [ONE], True),
        ("id: a\n    why: x\n    client: orders-*", [ONE, OTHER], False),
        ("id: a\n    why: x\n    client: orders-*", [], False),
        ("id: a\n    why: x\n    client: librdkafka 2.6.*", [ONE, OTHER], True),
        ("id: a\n    why: x\n    client: 10.0.0.2", [OTHER], True),
        ("id: a\n    why: x\n    until: 2026-12-01", [ONE], True),
        ("id: a\n    why: x\n    until: 2026-11-30", [ONE], False),
    ],
)
def test_what_an_entry_covers(tmp_path, entry, clients, covered):
    file = IgnoreFile(ignoring(tmp_path / "file.yaml", f"ignore:\n  - {entry}\n"), TODAY)
    assert file.covers(["a"], clients) is covered


def test_two_entries_cover_two_clients(tmp_path):
    text = "ignore:\n  - {id: a, client: orders-1, why: x}\n  - {id: a, client: billing, why: y}\n"
    file = IgnoreFile(ignoring(tmp_path / "file.yaml", text), TODAY)
    assert file.covers(["a"], [ONE, OTHER]) and file.notes(1)[1:] == []


def test_failures_name_the_option(tmp_path):
    with pytest.raises(Failure, match=r"^--ignore .*wrong\.yaml:1:1: has no 'ignore:'"):
        IgnoreFile(ignoring(tmp_path / "wrong.yaml", "{}\n"), TODAY)


# -- a fleet -----------------------------------------------------------------------------------------------------


def test_the_report_of_a_fleet_says_the_same(run, capture):
    done = run("report", capture, "--only", "client-bugs", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)["client-bugs"]
    rows = {(row["software"], row["bug"]): row for row in report["rows"]}
    seen = rows[OLD, "librdkafka-4870"]
    assert (seen["verdict"], seen["fixed_in"], seen["example"], seen["client_ids"]) == ("seen", "2.6.1", "orders", 1)
    assert report["rows"][0] == seen and seen["findings"] >= 1
    (program,) = (each for each in audited(run, capture)["programs"] if each["software"] == OLD)
    told = {bug["id"] for bug in program["bugs"] if bug["verdict"] in ("seen", "present")}
    assert {bug for software, bug in rows if software == OLD} == told


# -- a running proxy ---------------------------------------------------------------------------------------------


def test_the_clients_of_a_running_proxy(monkeypatch):
    """What a proxy's control API says of open connections and findings."""
    about = {"api": "Fetch", "api_version": 12, "client_id": "orders", "software": OLD, "client": "10.0.0.5:1", "clients": "[...]"}
    finding = {"id": "api-versions-ignored", "severity": "high", "seen": "s", "why": "w", "remedy": "r", "count": 3, "rules": []}
    open_ = {"client": "10.0.0.5:1", "client_id": "orders", "software": OLD}

    class Api:
        def __init__(self, *_: object) -> None: ...

        def connections(self) -> list[dict[str, Any]]:
            return [open_, {**open_, "client": "10.0.0.5:2"}, {"client": "10.0.0.6:1", "client_id": None, "software": None}]

        def findings(self) -> list[dict[str, Any]]:
            return [{**finding, "injected": injected, "about": about} for injected in (False, True)]

    monkeypatch.setattr("barnabas.proxy.control.Control", Api)
    clients, findings, notes = attached("http://127.0.0.1:1")
    assert len(findings) == 1 and "open connections only" in notes[0]
    first, other = judged(clients, findings)
    assert (first.label, sum(client.connections for client in first.clients)) == (OLD, 2)
    assert [each.bug.id for each in first.of(Verdict.SEEN)] == ["librdkafka-4870"]
    assert other.label == "unknown software" and not other.covered


def test_a_capture_or_a_proxy(run, capture):
    done = run("audit", capture, "--attach", "newest")
    assert done.returncode == 2 and "which capture?" in done.stderr
