"""Nothing from the traffic reaches the terminal as a control sequence."""

from __future__ import annotations

import asyncio
import sys
import unicodedata
from pathlib import Path

import pytest
from barnabas.captures import Capture
from barnabas.ui.safe import visible
from barnabas.ui.tui.app import BarnabasApp
from barnabas.ui.tui.exchange.body_editor import from_yaml, to_yaml
from harness.browsing.hostile import MARK, OFTEN, SEQUENCES, obeyed, record
from harness.browsing.terminal import terminal
from traffic.every_kind import HOSTILE

from ..support.awaiting import until


def strips(app: BarnabasApp) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips(app.size))


@pytest.mark.parametrize("size", [(160, 48)])
def test_no_screen_shows_a_control_character(
    story: Capture, numbers: dict[str, int], size: tuple[int, int]
) -> None:
    async def go() -> None:
        app = BarnabasApp(story, title=HOSTILE, status=lambda: HOSTILE)
        async with app.run_test(size=size, notifications=True) as pilot:
            seen: list[str] = []
            for keys in (
                (),
                ("slash", *"52;c", "enter"),
                ("escape", *["j"] * numbers["hostile"], "enter"),
                ("v",),
                ("b",),
                ("shift+tab", "b"),
                ("w",),
                ("escape", "r"),
                ("escape", "escape", "1", "escape", "colon", *"52;c"),
                ("escape", "2"),
                ("v",),
                *((key,) for key in "345678"),
            ):
                await pilot.press(*keys)
                seen.append(strips(app) + app.export_screenshot())
            text = "".join(seen)
            bad = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in "\n\t"}
            assert not bad
            assert text.count(r"\x1b]52") >= 3  # it is there to be read, as text

    asyncio.run(go())


WALK = (
    ("j", "#2 "), ("lll=", " of "), ("\x1b", "http:"), ("x", "Export"), ("q", "^p palette"), ("Y", "Copy"), ("q", "^p palette"),
    ("d", "selected"), ("jjd", "v all"), ("q", "^p palette"),
    ("S", "-->"), ("q", "^p palette"), ("2", "Broker"), ("v", "Software"), ("3", "joins"), ("\r", MARK),
    ("4", "offered"), ("5", MARK), ("\r", "Request"), ("q", "^p palette"), ("6", "p99"), ("7", "Rules"), ("8", "Nothing to report"),
    ("1", "^p palette"), ("g", "#1 "), ("\r", "Request"), ("v", "VALUES SHOWN"), ("b", "Bytes of"), ("w", "Why"),
    ("q", "Bytes of"), ("r", "Related"), ("q", "Bytes of"), ("Y", "Copy"), ("q", "Bytes of"),
)  # fmt: skip
"""Keys, and what the screen shows then."""


def walked(folder: Path, most: int) -> bytes:
    """All bytes that a terminal gets on a walk through every view and the first exchanges."""
    record(folder / "run")
    with terminal([sys.executable, "-m", "barnabas", "ui", "run"], folder, size=(160, 48)) as screen:
        screen.until("exchanges")
        for keys, wanted in WALK:
            screen.press(keys)
            screen.until(wanted)
        for number in range(2, most + 1):
            screen.press("]")
            screen.until(f" #{number} ")
        screen.press("Q")
        assert screen.ends() == 0
        return screen.written


def test_a_real_terminal_gets_only_what_the_interface_writes(tmp_path: Path) -> None:
    out = walked(tmp_path, 9)
    assert obeyed(out.replace(b"\r\n", b"")) == []
    text = out.decode()
    for text_of in SEQUENCES[:3]:
        assert visible(text_of)[:12] in text  # to be read


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nor_does_it_for_any_api(tmp_path: Path) -> None:
    assert obeyed(walked(tmp_path, len(SEQUENCES) * len(OFTEN) + 90).replace(b"\r\n", b"")) == []


def test_what_would_be_obeyed_is_found() -> None:
    assert not obeyed(b"\x1b[?25l\x1b[1;1H\x1b[38;5;7m" + MARK.encode() + "größe 温度".encode() + b"\x1b]22;text\x07")
    for text in SEQUENCES[:13]:
        assert obeyed(b"\x1b[1;1H" + text.encode())


@pytest.mark.parametrize("text", SEQUENCES)
def test_what_goes_to_an_editor_is_harmless_and_still_the_same(text: str) -> None:
    body = {"group_id": text, "generation_id": 5, "member_id": "größe", "group_instance_id": text}
    written = to_yaml("request", 12, 4, body, {})
    assert not obeyed(written.encode(), "\n")
    assert from_yaml("request", 12, 4, body, written) == {}
    changed = from_yaml("request", 12, 4, body, written.replace("generation_id: 5", "generation_id: 6"))
    assert changed == {"generation_id": 6}


def test_words_of_the_traffic_in_a_message_are_no_markup(story: Capture) -> None:
    async def go() -> str:
        app = BarnabasApp(story, title="story")
        async with app.run_test(size=(120, 30), notifications=True) as pilot:
            app.notify("[/nope] [red]x[/red]\x1b[7331m\u202e\nsecond")
            return await until(pilot, "second")

    text = asyncio.run(go())
    assert r"[/nope] [red]x[/red]\x1b[7331m\u202e" in text and "second" in text
