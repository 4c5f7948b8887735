"""Nothing from the traffic reaches the terminal as a control sequence."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import select
import subprocess
import sys
import time
import unicodedata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from barnabas.captures import Capture
from barnabas.ui.tui.app import BarnabasApp

# What Textual itself writes: CSI sequences, the modes it sets, and the shape of the mouse pointer.
_CSI = re.compile(rb"\x1b\[[0-9;:?<>=$ ]*[@-~]")
_OTHER = re.compile(rb"\x1b(?:[=>78]|P[^\x1b]*\x1b\\|\]22;[a-z]*\x07)")


def strips(app: BarnabasApp) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips(app.size))


@pytest.mark.parametrize("size", [(160, 48)])
def test_no_screen_shows_a_control_character(
    story: Capture, numbers: dict[str, int], frames: SimpleNamespace, size: tuple[int, int]
) -> None:
    async def go() -> None:
        app = BarnabasApp(story, title=frames.hostile, status=lambda: frames.hostile)
        async with app.run_test(size=size, notifications=True) as pilot:
            seen: list[str] = []
            for keys in (
                (),
                ("slash", *"52;c", "enter"),
                ("escape", *["j"] * numbers["hostile"], "enter"),
                ("v",),
                ("h",),
                ("shift+tab", "h"),
                ("w",),
                ("escape", "r"),
                ("escape", "escape", "1", "escape", "colon", *"52;c"),
                ("escape", "2"),
                ("c",),
                *((key,) for key in "345678"),
            ):
                await pilot.press(*keys)
                await pilot.pause()
                seen.append(strips(app) + app.export_screenshot())
            text = "".join(seen)
            bad = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in "\n\t"}
            assert not bad
            assert text.count(r"\x1b]52") >= 3  # it is there to be read, as text

    asyncio.run(go())


def read_for(master: int, seconds: float, until: bytes | None = None) -> bytes:
    out, end = b"", time.monotonic() + seconds
    while time.monotonic() < end:
        ready, _, _ = select.select([master], [], [], 0.1)
        if ready:
            try:
                data = os.read(master, 65536)
            except OSError:
                break
            if not data:
                break
            out += data
            if until is not None and until in out:
                break
    return out


def test_a_real_terminal_gets_only_what_the_interface_writes(
    story_path: Path, numbers: dict[str, int], tmp_path: Path
) -> None:
    code = (
        "import sys; from barnabas.captures import open_capture; from barnabas.ui.tui.app import run\n"
        "with open_capture(sys.argv[1]) as capture: run(capture, title='story')\n"
        "print('given back')"
    )
    master, slave = pty.openpty()
    environment: dict[str, Any] = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(story_path)], stdin=slave, stdout=slave, stderr=slave, env=environment
    )
    os.close(slave)
    try:
        out = read_for(master, 20, b"CORRUPT_MESSAGE")
        assert b"CORRUPT_MESSAGE" in out, out[-500:]
        for keys, wanted in (
            (b"j" * numbers["hostile"], b"#9"),
            (b"\r", b"topic_data"),
            (b"v", b"VALUES SHOWN"),
            (b"h", b"Bytes of the"),
            (b"Q", b"given back"),
        ):
            os.write(master, keys)
            part = read_for(master, 10, wanted)
            assert wanted in part, (wanted, part[-500:])
            out += part
        assert process.wait(10) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(master)
    assert b"\x07\x1b[2J" not in out and b"\x1b]52" not in out
    left = _OTHER.sub(b"", _CSI.sub(b"", out))
    text = left.decode()
    bad = {hex(ord(c)) for c in text if unicodedata.category(c) in ("Cc", "Cf") and c not in "\r\n"}
    assert not bad, (bad, left[:300])
    assert r"\x1b]52;c" in text
