"""``barnabas diff``: terminal, JSON, page and exit status."""

from __future__ import annotations

import json
import stat
from html.parser import HTMLParser
from pathlib import Path

import pytest
from barnabas import decoder
from barnabas.captures import Recorder
from harness.wire import with_size

EVIL = "<script>alert(1)</script>\x1b]52;c;AA\x07\u202e@you"


def say(directory: Path, topic: str, partitions: int, error: int = 0) -> Path:
    recorder = Recorder(directory)
    recorder.opened(1, 1_000, client=("10.1.2.3", 50001), broker=("10.1.2.9", 9092))
    topics = [{"name": topic, "num_partitions": partitions, "replication_factor": 1}]
    request = decoder.encode_request(19, 5, {"topics": topics, "timeout_ms": 1}, correlation_id=1, client_id=EVIL)
    answer = decoder.encode_response(19, 5, {"topics": [{"name": topic, "error_code": error}]}, correlation_id=1)
    recorder.data(1, 0, 1_700_000_000_000_000_000, with_size(request))
    recorder.data(1, 1, 1_700_000_000_100_000_000, with_size(answer))
    recorder.close()
    return directory


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    return say(tmp_path / "a", f"t{EVIL}", 3), say(tmp_path / "b", f"t{EVIL}", 4, error=44)


def test_the_worst_comes_first_and_is_harmless(run, two):
    done = run("diff", *two)
    assert done.returncode == 0, done.stderr
    error, field = done.stdout.index("POLICY_VIOLATION"), done.stdout.index("num_partitions: 3 → 4")
    assert error < field
    assert "\x1b]" not in done.stdout and "\u202e" not in done.stdout and "\x07" not in done.stdout


def test_exit_status_says_how_bad_it_is(run, two):
    a, b = two
    assert run("diff", a, b, "--fail-on", "high").returncode == 1
    assert run("diff", a, a, "--fail-on", "low").returncode == 0
    assert "no difference above what timing explains" in run("diff", a, a).stdout


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


@pytest.mark.parametrize("by", ["api", "client", "connection"])
def test_differences_go_together(run, two, by):
    done = run("diff", *two, "--by", by)
    assert done.returncode == 0 and "POLICY_VIOLATION" in done.stdout


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attributes)))


def test_the_page_needs_nothing_and_holds_nothing_active(run, two, tmp_path):
    page = tmp_path / "page.html"
    assert run("diff", *two, "--html", page, "--all").returncode == 0
    text = page.read_text("utf-8")
    tags = Tags()
    tags.feed(text)
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in tags.seen}
    assert not any({"src", "href"} & set(attributes) for _, attributes in tags.seen)
    assert "&lt;script&gt;" in text and "POLICY_VIOLATION" in text and "\x1b" not in text
    assert stat.S_IMODE(page.stat().st_mode) == 0o600


def test_what_is_no_capture_is_said_in_one_line(run, two, tmp_path):
    nothing = tmp_path / "nothing"
    nothing.write_bytes(b"hello")
    done = run("diff", two[0], nothing)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and str(nothing) in done.stderr
    assert run("diff", two[0], tmp_path / "gone").returncode == 2
