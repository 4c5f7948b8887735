"""The command that makes the README's picture."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path


def test_it_writes_an_svg_of_the_recording(story_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "shot.svg"
    command = [sys.executable, "-m", "barnabas.ui.tui.screenshot", str(out), str(story_path), "--size", "100x30"]
    subprocess.run([*command, "--keys", "j", "j", "enter"], check=True, capture_output=True)
    assert "url(http" not in out.read_text() and "@font-face" not in out.read_text()
    root = xml.etree.ElementTree.parse(out).getroot()
    text = "".join(root.itertext()).replace("\xa0", " ")
    assert "NOT_LEADER_OR_FOLLOWER (6)" in text and "Request v9" in text
