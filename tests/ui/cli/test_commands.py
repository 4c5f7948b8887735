"""The commands from outside: output, exit codes, one clear line for what is the user's to mend."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

from harness.waiting import PATIENCE

JARS = Path(__file__).parents[3] / ".cache"


def test_help_names_every_command(run):
    done = run("--help")
    assert done.returncode == 0
    for command in ("demo", "proxy", "decode", "ui", "schema", "pipeline"):
        assert command in done.stdout
        helped = run(command, "--help")
        assert helped.returncode == 0 and "Usage" in helped.stdout


def test_version(run):
    assert run("--version").stdout.startswith("barnabas 0.")


def test_coverage_is_722_of_722(run):
    found = json.loads(run("schema", "coverage", "--json").stdout)
    assert (found["total"], found["decoded"], len(found["apis"])) == (722, 722, 93)
    assert sum(api["decoded"] for api in found["apis"]) == 722
    assert found["newer"] == {"4.4": {"total": 14, "decoded": 14}}
    shown = run("schema", "coverage").stdout
    assert "722 of 722" in shown and "14 of 14 that Kafka 4.4 adds" in shown


def test_show_prints_one_version(run):
    shown = run("schema", "show", "Metadata", 12).stdout
    assert "MetadataRequest v12" in shown and "MetadataResponse v12" in shown
    assert "include_cluster_authorized_operations" not in shown  # only 8 to 10 have it
    assert "include_cluster_authorized_operations" in run("schema", "show", "3", "10").stdout
    assert "MetadataRequest v13" in run("schema", "show", "metadata").stdout


def test_a_rules_file_with_a_wrong_field(run, tmp_path):
    (tmp_path / "rules.yaml").write_text(
        "rules:\n  - name: x\n    match: api == Produce\n    do: {errer: NOT_LEADER_OR_FOLLOWER}\n"
    )
    done = run("proxy", "--broker", "127.0.0.1:1", "--rules", "rules.yaml")
    assert done.returncode == 2 and "rules.yaml:4:10" in done.stderr and "error" in done.stderr


def test_a_port_in_use(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("proxy", "--broker", "127.0.0.1:1", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert done.returncode == 2 and "cannot listen" in done.stderr and "--listen" in done.stderr


def test_an_unreachable_broker_is_reported_and_the_proxy_stays_up(start):
    command = start("proxy", "--broker", "127.0.0.1:1", "--listen", "127.0.0.1:0")
    warned = command.line("the warning", errors=True)
    assert "cannot reach broker 127.0.0.1:1" in warned and "--broker" in warned
    host, port = command.line("the address").split("=")[1].strip().rsplit(":", 1)
    socket.create_connection((host, int(port)), PATIENCE).close()
    assert command.process.poll() is None
    assert command.end(signal.SIGTERM).returncode == 0


def test_decode_prints_a_line_per_exchange(run, recording):
    done = run("decode", recording)
    assert done.returncode == 0, done.stderr
    lines = [
        line for line in done.stdout.splitlines() if "Produce" in line or "Heartbeat" in line or "Metadata" in line
    ]
    assert len(lines) == 4
    assert "REBALANCE_IN_PROGRESS" in next(line for line in lines if "Heartbeat" in line)


def test_decode_json_has_the_stable_keys_and_no_payload(run, recording):
    done = run("decode", recording, "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(r["api"], r["state"], r["error"]) for r in rows] == [
        ("Produce", "paired", None),
        ("Heartbeat", "paired", "REBALANCE_IN_PROGRESS"),
        ("Produce", "no_response", None),
        ("Metadata", "pending", None),
    ]
    assert all(r["undecoded"] is None and r["connection"] == 1 and r["client_id"] == "shop" for r in rows)
    batch = rows[0]["request"]["topic_data"][0]["partition_data"][0]["records"][0]
    assert batch["crc_ok"] is True and batch["records"][0]["value_size"] == len("the-secret-payload")
    assert "the-secret-payload" not in done.stdout and b"the-secret-payload".hex() not in done.stdout
    shown = run("decode", recording, "--json", "--show-values").stdout
    assert '"value":"the-secret-payload"' in shown and '"key":"the-key"' in shown
    assert all(
        json.loads(line)["request"] is None
        for line in run("decode", recording, "--json", "--no-bodies").stdout.splitlines()
    )


def test_a_reader_that_goes_away_is_no_error(recording):
    done = subprocess.run(
        f"{sys.executable} -m barnabas decode {recording} --json | head -c 1",
        shell=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stdout == "{" and done.stderr == ""


def test_ui_without_a_terminal_prints_lines(run, recording):
    done = run("ui", recording)
    assert done.returncode == 0 and "Heartbeat" in done.stdout and "\x1b" not in done.stdout


def test_ui_prints_the_lines_that_a_filter_selects(run, recording):
    lines = run("ui", recording, "--plain", "--filter", "err").stdout.splitlines()
    assert len(lines) == 2 and "REBALANCE_IN_PROGRESS" in lines[1]


def test_import_shows_what_a_release_changes(run, tmp_path):
    jars = {jar.name: jar for jar in JARS.rglob("kafka-clients-*.jar")}
    assert "kafka-clients-4.3.1.jar" in jars, "Kafka's jars are fetched by: make broker"
    same = run("schema", "import", jars["kafka-clients-4.3.1.jar"])
    assert same.returncode == 0 and "0 differences" in same.stdout and "0 schema files would change" in same.stdout
    kept = run("schema", "import", jars["kafka-clients-4.4.0.jar"], "--keep")
    assert "version 3 has different names: generation_id -> generation_id_or_member_epoch" in kept.stdout
    assert "0 schema files would change" in kept.stdout, kept.stdout
    older = run("schema", "import", jars["kafka-clients-3.9.1.jar"], "-o", tmp_path / "schema")
    assert "ALARM ReadShareGroupStateSummaryResponse" in older.stdout
    assert len(list((tmp_path / "schema").glob("*.kafka"))) == 97
