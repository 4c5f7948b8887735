"""``barnabas schema show --html``: one page that needs nothing else, and in which odd strings stay text."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder.schema import facts
from barnabas.ui.cli.protocol import api_page
from harness.browsing.chromium import CHROMIUM, browser
from harness.browsing.html_page import Page

EVIL = "</a><script>alert(1)</script>\"'&\x1b]52;c;AA\x07\u202e"


def test_the_page_needs_nothing_and_links_itself(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "metadata.html"
    assert run("schema", "show", "Metadata", 12, "--html", file).returncode == 0
    text = file.read_text("utf-8")
    assert run("schema", "show", "Metadata", 12, "--html", "-").stdout == text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    page = Page(text)
    assert not {"script", "link", "img", "iframe"} & set(page.tags) and page.every("src") == []
    ids, links = page.every("id"), page.every("href")
    assert len(ids) == len(set(ids)) and len(links) > 50
    assert {link.removeprefix("#") for link in links} <= set(ids)
    for words in ("Metadata v12", "offline_replicas", "compact", "LEADER_NOT_AVAILABLE", "librdkafka", "KIP-516", "4.0 to", "bootstrap"):
        assert words in page.text, words


def test_without_a_version_the_newest_is_shown(run: Any) -> None:
    assert "<h1>Metadata v13</h1>" in run("schema", "show", "3", "--html", "-").stdout


def test_a_file_that_cannot_be_written(run: Any, tmp_path: Path) -> None:
    assert run("schema", "show", "Metadata", "--html", tmp_path / "none" / "x.html").returncode == 2


def test_a_draft_has_no_page(run: Any) -> None:
    done = run("schema", "show", "kip-4.DescribeTopic", "--html", "-")
    assert done.returncode == 2 and "draft" in done.stderr and done.stdout == ""


def test_the_bytes_of_the_example_are_its_frame() -> None:
    message = api_page.example_frames.example("response", 3, 12)
    page = api_page.frame_map(message)
    spans = page[page.index('<p class="bytes">') : page.index("</p>")]
    assert bytes.fromhex(Page(spans).text) == len(message.frame).to_bytes(4, "big") + message.frame


def test_hostile_text_stays_text() -> None:
    frame = decoder.encode_request(3, 12, {"topics": [{"name": EVIL}]}, client_id=EVIL)
    text = api_page.frame_map(decoder.decode_request(frame))
    page = Page(text)
    assert not {"script", "img"} & set(page.tags) and "<script>alert(1)" in page.text
    assert not set("\x1b\x07\u202e") & set(text)


def test_pages_by_name() -> None:
    index = Page(api_page.page_named("") or "")
    assert index.every("href") == [facts.api_name(key) for key in facts.api_keys()]
    assert "Version 13" in (api_page.page_named("Metadata") or "")
    assert api_page.page_named("Nothing") is None


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: make chromium, or apt-get install chromium")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_in_a_browser(width: int, scheme: Any, tmp_path: Path) -> None:
    (tmp_path / "fetch.html").write_text(api_page.one_page(1, 17), "utf-8")
    with browser() as page:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 800})
        page.goto((tmp_path / "fetch.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "the page does not fit"
        page.click('.bytes a[title^="session_id"]')
        assert page.evaluate("document.querySelector(':target').textContent").split("session_id")[0].isdigit()
        outlined = page.evaluate("getComputedStyle(document.querySelector('tr:target')).outlineStyle")
        assert outlined == "solid"
        dark = page.evaluate("getComputedStyle(document.documentElement).colorScheme")
        assert dark == "light dark"
