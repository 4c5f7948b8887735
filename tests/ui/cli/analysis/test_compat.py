"""``barnabas compat``: the report in all its forms, and the exit status."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from harness.browsing.html_page import Page
from harness.recordings import RecordingBuilder

EVIL = "<script>alert(1)</script>|`x`\x1b]52;c;AA\x07\u202e@you"


def record(directory: Path, client_id: str, version: int) -> Path:
    """A recording of one client that fetches with a version, and asks for nothing."""
    with RecordingBuilder(directory, client_id=client_id, start_ns=1_700_000_000_000_000_000) as recording:
        recording.open(client=("10.1.2.3", 50001), broker=("10.1.2.9", 9092), at=0)
        recording.exchange("Fetch", version, {}, {}, at=0)
    return directory


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return record(tmp_path / "old", "old-app", 2)


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return record(tmp_path / "new", "new-app", 12)


def test_captures_merge_and_the_worst_comes_first(run, old, new):
    done = run("compat", new, old, "--against", "4.0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "against brokers of Kafka 4.0: 1 breaks, 0 may break, 1 works"
    assert done.stdout.index("old-app") < done.stdout.index("new-app")
    assert "Kafka 4.0 dropped Fetch v2 (KIP-896)" in done.stdout and "10.1.2.3" in done.stdout
    assert "1 request, from 2023-11-14 22:13:20Z" in done.stdout
    assert "-> until then, keep brokers on 3.9 or older" in done.stdout and "\x1b" not in done.stdout


def test_as_json(run, old):
    found = json.loads(run("compat", old, "--against", "4.0", "--json").stdout)
    assert found["against"] == "4.0" and found["worst"] == "breaks"
    assert found["counts"] == {"works": 0, "may break": 0, "breaks": 1}
    (client,) = found["clients"]
    (reason,) = client["reasons"]
    assert {key: reason[key] for key in ("api", "version", "served", "dropped_in", "kip", "requests")} == {
        "api": "Fetch", "version": 2, "served": [4, 17], "dropped_in": "4.0", "kip": "KIP-896", "requests": 1,
    }  # fmt: skip
    assert client["negotiation"] == "never" and client["remedies"]


def test_against_an_older_release(run, new):
    found = json.loads(run("compat", new, "--against", "0.10.2.1", "--json").stdout)
    assert found["against"] == "0.10.2" and found["worst"] == "breaks"
    (reason,) = found["clients"][0]["reasons"]
    assert reason["came_with"] == "2.7" and reason["served"] == [0, 3]


@pytest.mark.parametrize(
    ("against", "fail_on", "status"),
    [("4.0", "breaks", 1), ("4.0", "may-break", 1), ("3.9", "breaks", 0), ("3.9", "may-break", 0), ("4.0", None, 0)],
)
def test_the_exit_status(run, old, against, fail_on, status):
    extra = ["--fail-on", fail_on] if fail_on else []
    assert run("compat", old, "--against", against, *extra).returncode == status


def test_pages_show_what_was_sent_and_nothing_else(run, tmp_path):
    evil = record(tmp_path / "evil", EVIL, 2)
    page, ticket = tmp_path / "report.html", tmp_path / "report.md"
    done = run("compat", evil, "--against", "4.0", "--html", page, "--md", ticket)
    assert done.returncode == 0, done.stderr
    found = Page(page.read_text())
    assert "<script>alert(1)</script>" in found.text and "script" not in found.tags
    assert not {"img", "link", "iframe", "a"} & set(found.tags)
    assert not [value for name, value in found.attributes if name in ("src", "href") or "http:" in (value or "")]
    assert "prefers-color-scheme" in page.read_text() and "KIP-896" in found.text
    for text in (page.read_text(), ticket.read_text(), done.stdout):
        assert "\x1b" not in text and "\x07" not in text and "\u202e" not in text
        assert "\\x1b]52" in text
    # in Markdown it stands in a code span, where nothing becomes a link or a mention
    row = next(line for line in ticket.read_text().splitlines() if line.startswith("| breaks"))
    assert "| `<script>alert(1)</script>\\|'x'\\x1b]52;c;AA\\x07\\u202e@you` |" in row
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in (page, ticket))


def test_markdown_to_the_pipe(run, old):
    done = run("compat", old, "--against", "4.0", "--md", "-")
    assert done.stdout.startswith("# Clients against Kafka 4.0\n\n1 breaks, 0 may break, 0 work.\n\n| verdict |")
    assert "## breaks: `old-app`" in done.stdout and done.stdout.count("\n|") == 3


def test_the_release_command(run):
    assert "  1  Fetch                                    4-17" in run("schema", "release", "4.0").stdout.splitlines()
    assert "0-12 (serves 3-12)" in run("schema", "release", "4.0").stdout
    found = json.loads(run("schema", "release", "0.10.2.1", "--json").stdout)
    assert found["release"] == "0.10.2" and found["apis"]["Fetch"]["served"] == [0, 3]
    assert "3.9-controller" in run("schema", "release").stdout.split()
    assert run("schema", "release", "9").returncode == 2
