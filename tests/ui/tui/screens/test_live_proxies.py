"""The screen on a proxy that its own command runs: the demonstration, and `barnabas proxy --ui`, in a real terminal."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from harness.browsing.terminal import Terminal, terminal


def add_the_quota_recipe(screen: Terminal) -> None:
    """From the list of recipes, on the rules view."""
    screen.press("p")
    screen.until("Add the rules of a recipe")
    screen.press("quota\r")
    screen.until("throttled")


@pytest.mark.slow
def test_the_demonstration_is_live_and_its_summary_has_findings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "barnabas", "demo", "--record", "recorded"]
    with terminal(command, tmp_path, size=(160, 48)) as screen:
        screen.until("follow ON")
        screen.press("8g")
        screen.until("listening on")  # events before there was a screen
        screen.press("7")
        screen.until("leader moved")
        add_the_quota_recipe(screen)
        screen.press("9")
        screen.until("Nothing is intercepted")
        screen.press("Q")
        assert screen.ends() == 0
        written = screen.written.decode()
    summary = written[written.index("stopping the clients") :]
    assert "rule 'leader moved' fired 3 times" in summary and "open it again" in summary
    assert "malformed-api-versions-fallback" in summary  # librdkafka's mock brokers


def test_a_proxy_with_a_screen_takes_changes_where_they_are_allowed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "barnabas", "proxy", "--broker", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--record", "recorded"]
    with terminal([*command, "--ui", "--allow-edit"], tmp_path, size=(120, 40)) as screen:
        screen.until("EDIT")
        screen.press("7")
        screen.until("a ready-made recipe")
        add_the_quota_recipe(screen)
        screen.press("Q")
        screen.ends()
