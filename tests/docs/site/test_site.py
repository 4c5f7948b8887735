"""The documentation site: built strictly, complete, and without anything from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs.pages import ROOT

_FETCHED = re.compile(r"""<(?:script|img|link|iframe|source)\b[^>]*?(?:src|href)=["'](?:https?:)?//[^"']*["'][^>]*>|url\((?:https?:)?//[^)]*\)""")

pytestmark = pytest.mark.xdist_group("site")


def test_every_page_is_there_and_in_the_navigation(site: Path) -> None:
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")}
    assert {page.stem for page in site.glob("*.html")} - {"404"} == pages
    start = (site / "index.html").read_text("utf-8")
    linked = set(re.findall(r'<a href="(?:\./)?([\w-]+)\.html" class="md-nav__link', start))
    assert pages - linked <= {"index"}


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    """Fonts, scripts and pictures are in the site. The canonical links to other sites are for readers to click."""
    for file in [*site.rglob("*.html"), *site.rglob("*.css")]:
        assert not [found[0] for found in _FETCHED.finditer(file.read_text("utf-8"))], file.name


def test_what_is_searched_for_is_found(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text("utf-8")
    assert "NOT_LEADER_OR_FOLLOWER" in index
    assert "--pretend" in index
