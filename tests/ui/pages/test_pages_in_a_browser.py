"""The pages of commands in Chromium: nothing is loaded or run, nothing sticks out, and there is a dark one."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.browsing.chromium import CHROMIUM, browser
from harness.commands import run
from harness.recordings import RecordingBuilder

EVIL = "<img src=x onerror=alert(1)><script>alert(1)</script>\u202e"


def record(directory: Path, versions: list[int]) -> Path:
    """A client for each of these versions of Fetch; some with ids that are long or hostile."""
    with RecordingBuilder(directory) as recording:
        for number, version in enumerate(versions):
            client_id = (EVIL, "x" * 400, f"orders-{number}")[min(number, 2)]
            for _ in range(3 + number):
                recording.exchange("Fetch", version, {}, {}, connection=number, client_id=client_id, took=5 + number)
    return directory


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_each_page_fits_and_runs_nothing(tmp_path: Path) -> None:
    old, new = record(tmp_path / "old", [2, 2, 2, 4, 12]), record(tmp_path / "new", [12, 12, 11, 4, 2])
    commands = {
        "compat": ["compat", old, new, "--against", "4.0"],
        "diff": ["diff", old, new, "--all"],
        "findings": ["findings", old, new],
        "schema": ["schema", "show", "Metadata", "12"],
    }
    for name, command in commands.items():
        done = run(*command, "--html", tmp_path / f"{name}.html")
        assert done.returncode == 0, done.stderr
    with browser() as page:
        asked: list[str] = []
        said: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
        for name in commands:
            address = (tmp_path / f"{name}.html").as_uri()
            backgrounds, colors = [], []
            for width, scheme in ((1280, "light"), (390, "dark")):
                page.set_viewport_size({"width": width, "height": 900})
                page.emulate_media(color_scheme=scheme)
                page.goto(address)
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
                backgrounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
                colors.append(page.evaluate("getComputedStyle(document.body).color"))
            assert backgrounds[0] != backgrounds[1]
            page.emulate_media(media="print")
            assert page.evaluate("getComputedStyle(document.body).color") == colors[0] != colors[1]  # paper is white, also from a dark browser
            page.set_viewport_size({"width": 718, "height": 1000})
            hidden = "[...document.querySelectorAll('details dd, details td')].filter(each => !each.getClientRects().length).length"
            assert page.evaluate(hidden) == 0, name  # folded on screens only
            page.emulate_media(media="screen")
        assert said == [] and set(asked) == {(tmp_path / f"{name}.html").as_uri() for name in commands}
