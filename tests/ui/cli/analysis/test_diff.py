"""``barnabas diff``: terminal, JSON, page and exit status."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from harness.browsing.html_page import Page
from harness.recordings import RecordingBuilder

EVIL = "<script>alert(1)</script>\x1b]52;c;AA\x07\u202e@you"


def record(directory: Path, topic: str, partitions: int, error: int = 0) -> Path:
    topics = [{"name": topic, "num_partitions": partitions, "replication_factor": 1}]
    with RecordingBuilder(directory, client_id=EVIL) as recording:
        answer = {"topics": [{"name": topic, "error_code": error}]}
        recording.exchange("CreateTopics", 5, {"topics": topics, "timeout_ms": 1}, answer, took=100)
    return directory


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    return record(tmp_path / "a", f"t{EVIL}", 3), record(tmp_path / "b", f"t{EVIL}", 4, error=44)


def test_the_worst_comes_first_and_is_harmless(run, two):
    done = run("diff", *two)
    assert done.returncode == 0, done.stderr
    error, field = done.stdout.index("POLICY_VIOLATION"), done.stdout.index("num_partitions: 3 → 4")
    assert error < field
    assert "\x1b]" not in done.stdout and "\u202e" not in done.stdout and "\x07" not in done.stdout


def test_the_exit_status_depends_on_the_differences(run, two):
    a, b = two
    assert run("diff", a, b, "--fail-on", "high").returncode == 1
    assert run("diff", a, a, "--fail-on", "low").returncode == 0
    assert "no differences other than those caused by timing" in run("diff", a, a).stdout


def test_json_is_one_object(run, two):
    found = json.loads(run("diff", *two, "--json").stdout)
    assert found["worst"] == "high" and found["counts"]["high"] == 1
    assert {d["kind"] for d in found["differences"]} == {"error", "field"}
    assert found["a"]["apis"]["CreateTopics"] == {
        "requests": 1,
        "versions": [5],
        "p50_ns": 100_000_000,
        "p99_ns": 100_000_000,
    }


@pytest.mark.parametrize("by", ["api", "client", "scope"])
def test_differences_go_together(run, two, by):
    done = run("diff", *two, "--by", by)
    assert done.returncode == 0 and "POLICY_VIOLATION" in done.stdout


def test_the_page_needs_nothing_and_holds_nothing_active(run, two, tmp_path):
    page = tmp_path / "page.html"
    assert run("diff", *two, "--html", page, "--all").returncode == 0
    text = page.read_text("utf-8")
    found = Page(text)
    assert not {"script", "link", "img", "iframe"} & set(found.tags)
    assert not {"src", "href"} & {name for name, _ in found.attributes}
    assert "&lt;script&gt;" in text and "POLICY_VIOLATION" in text and "\x1b" not in text
    assert stat.S_IMODE(page.stat().st_mode) == 0o600


FINDINGS = Path(__file__).parents[3] / "decoder" / "findings" / "captures"


def test_a_filter_selects_on_both_sides(run):
    """And numbers are those that ``decode`` prints."""
    a, b = FINDINGS / "groups-stopped.pcapng", FINDINGS / "groups-poll-java.pcapng"
    found = json.loads(run("diff", a, b, "--filter", "api == JoinGroup", "--json").stdout)
    for side, path in (("a", a), ("b", b)):
        joins = run("decode", path, "--filter", "api == JoinGroup").stdout.splitlines()[1:]
        assert found[side]["apis"]["JoinGroup"]["requests"] == len(joins) and len(found[side]["apis"]) == 1
        shown = {number for difference in found["differences"] for number in difference[f"in_{side}"]}
        assert shown and shown <= {int(line.split()[0]) for line in joins}
    refused = run("diff", a, b, "--filter", "api == ")
    assert refused.returncode == 2 and "^" in refused.stderr
