"""One line per exchange."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from barnabas.captures import Capture, Recorder, open_capture
from barnabas.ui.tui.model.columns import duration, size
from barnabas.ui.tui.plain import line, plain_lines, titles
from harness.recordings import RecordingBuilder
from harness.waiting import PATIENCE, until


def printed(capture: Capture) -> list[str]:
    out = io.StringIO()
    plain_lines(capture, out=out)
    return out.getvalue().splitlines()


def test_every_exchange_has_one_line_under_the_titles(story: Capture) -> None:
    lines = printed(story)
    assert lines[0] == f"{titles()} (all of 2025-07-20)"
    assert lines[1:] == [line(row) for row in story.rows()]


def test_the_result_column_is_aligned_and_speaks_in_words(story: Capture, numbers: dict[str, int]) -> None:
    at = titles().index("Result")
    results = {name: line(story.rows()[i])[at:] for name, i in numbers.items()}
    assert results == {
        "versions": "ok",
        "metadata": "ok",
        "not_leader": "! NOT_LEADER_OR_FOLLOWER",
        "lz4": "ok",
        "acks0": "- no response",
        "sasl": "ok",
        "truncated": "? undecoded",
        "unknown": "? undecoded",
        "hostile": "! UNKNOWN_TOPIC_OR_PARTITION",
        "heartbeat": "! REBALANCE_IN_PROGRESS",
        "crc": "! CORRUPT_MESSAGE",
    }
    whole = line(story.rows()[numbers["not_leader"]])
    assert whole.split()[0] == "3" and "billing-7" in whole and "127.0.0.1:9094" in whole and "4.2ms" in whole


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_colours_unless_no_color_is_set(story: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, out = printed(story), Terminal()
    monkeypatch.delenv("NO_COLOR", raising=False)
    plain_lines(story, out=out)
    assert "\x1b[1;31m! NOT_LEADER_OR_FOLLOWER\x1b[0m" in out.getvalue()
    assert re.sub(r"\x1b\[[\d;]*m", "", out.getvalue()).splitlines() == plain
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    plain_lines(story, out=out)
    assert out.getvalue().splitlines() == plain


def test_hostile_names_are_escaped(story: Capture) -> None:
    text = "\n".join(printed(story))
    assert r"\x1b]52" in text
    assert all(c.isprintable() or c == "\n" for c in text)


def test_an_empty_capture_is_reported(tmp_path: Path) -> None:
    Recorder(tmp_path).close()
    with open_capture(tmp_path) as capture:
        assert printed(capture) == [f"{tmp_path}: no exchanges"]


def test_follow_prints_what_is_added_until_the_recording_ends(tmp_path: Path) -> None:
    recording = RecordingBuilder(tmp_path)
    recording.exchange("Heartbeat", 4, {"group_id": "g", "member_id": "m"}, {})
    recording.recorder.flush()
    out = io.StringIO()
    with open_capture(tmp_path) as capture:
        thread = threading.Thread(target=plain_lines, args=(capture,), kwargs={"follow": True, "out": out})
        thread.start()
        until(lambda: "Heartbeat" in out.getvalue())
        recording.exchange("LeaveGroup", 4, {"group_id": "g"}, {})
        recording.close()
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert [words.split()[5] for words in out.getvalue().splitlines()[1:]] == ["Heartbeat", "LeaveGroup"]


def test_follow_ends_after_its_seconds(tmp_path: Path) -> None:
    recording = RecordingBuilder(tmp_path)
    with open_capture(tmp_path) as capture:
        plain_lines(capture, follow=True, out=io.StringIO(), seconds=0.1)
        assert capture.live
    recording.close()


def test_durations_and_sizes_stay_short() -> None:
    assert [duration(n) for n in (850_000, 4_200_000, 183_100_000, 12_400_000_000)] == [
        "850us",
        "4.2ms",
        "183ms",
        "12.4s",
    ]
    assert [size(n) for n in (0, 64, 999, 4321, 15_000, 12_345_678, 5_000_000_000)] == [
        "0",
        "64",
        "999",
        "4.3k",
        "15k",
        "12M",
        "5.0G",
    ]


def test_the_application_prints_plain_lines_without_a_terminal(story_path: Path) -> None:
    code = (
        "import sys; from barnabas.captures import open_capture; from barnabas.ui.tui.app import run\n"
        "run(open_capture(sys.argv[1]), title='x', stop=lambda: print('stopped'))"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(story_path)], capture_output=True, text=True, check=True)
    lines = ran.stdout.splitlines()
    assert lines[0] == f"{titles()} (all of 2025-07-20)" and len(lines) == 13 and lines[-1] == "stopped" and not ran.stderr
