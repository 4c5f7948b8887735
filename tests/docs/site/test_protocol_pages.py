"""The pages about the protocol: complete, true to the reference, and without a link that leads nowhere."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pytest
from barnabas.decoder.reference import explain
from barnabas.decoder.schema import facts
from docs.pages import ROOT
from docs.site import protocol_pages
from harness.browsing.html_page import Page

pytestmark = pytest.mark.xdist_group("site")
NAMES = [facts.api_name(key) for key in facts.api_keys()]


class Anchors(NamedTuple):
    """The anchors of a page, and where its links lead."""

    ids: Counter[str]
    links: set[str]


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Anchors]:
    found = {path.resolve(): Page(path.read_text("utf-8")) for path in site.rglob("*.html")}
    return {path: Anchors(Counter(page.every("id")), set(page.every("href"))) for path, page in found.items()}


def test_every_api_has_a_page_that_the_index_links(site: Path, pages: dict[Path, Anchors]) -> None:
    folder = site / protocol_pages.FOLDER
    assert {path.stem for path in folder.glob("*.html")} - {"apis"} == set(NAMES)
    assert {f"{name}.html" for name in NAMES} <= pages[(folder / "apis.html").resolve()].links
    assert f"{protocol_pages.FOLDER}/apis.html" in pages[(site / "index.html").resolve()].links


@pytest.mark.parametrize("key", facts.api_keys())
def test_every_version_is_on_the_page(key: int, site: Path, pages: dict[Path, Anchors]) -> None:
    path = site / protocol_pages.FOLDER / f"{facts.api_name(key)}.html"
    versions = {f"v{version}" for version in facts.api(key).versions.every()}
    anchors = pages[path.resolve()].ids
    assert {anchor for anchor in anchors if re.fullmatch(r"v\d+", anchor)} == versions
    text = path.read_text("utf-8")
    assert text.count("<summary>Example: ") == 2 * len(versions)


@pytest.mark.parametrize("key", facts.api_keys())
def test_errors_are_those_of_the_reference(key: int, site: Path) -> None:
    text = (site / protocol_pages.FOLDER / f"{facts.api_name(key)}.html").read_text("utf-8")
    section = text[text.index('<h2 id="errors"') :]
    section = section[: section.index("<h2 ", 1)]
    shown = re.findall(r"<td><code>([A-Z_]+)</code>", section)
    every = {fact.name for code, fact in facts.errors().items() if explain.error(code).every}
    assert len(shown) == len(set(shown)) and set(shown) == {*explain.api(key).errors, *every}


def test_links_lead_somewhere_and_anchors_are_unique(site: Path, pages: dict[Path, Anchors]) -> None:
    own = {path: found for path, found in pages.items() if path.parent.name == protocol_pages.FOLDER}
    assert [path.name for path, found in own.items() if found.ids.total() != len(found.ids)] == []
    broken = set()
    for path, found in own.items():
        for link in found.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path not in ("", ".") else path
            target = target / "index.html" if target.is_dir() else target
            known = pages[target].ids if target in pages else Counter[str]()
            if not target.exists() or (parts.fragment and unquote(parts.fragment) not in known):
                broken.add(f"{path.name}: {link}")
    assert broken == set()


def test_a_search_finds_fields_and_errors(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    places = {each["location"]: each["text"] for each in index["docs"]}
    folder = protocol_pages.FOLDER
    assert "offline_replicas" in places[f"{folder}/Metadata.html#fields"]
    assert "FENCED_LEADER_EPOCH" in places[f"{folder}/Fetch.html#errors"]
    assert not [place for place in places if re.search(r"#v\d", place) and place.startswith(folder)]


def test_what_clients_used_is_that_of_the_compatibility_page() -> None:
    text = (ROOT / "docs" / "compatibility.md").read_text("utf-8")
    seen = protocol_pages.versions_used(text)
    assert set(seen) <= set(NAMES) and len(seen) > 20
    for versions in seen.values():
        assert all(re.fullmatch(r"\d+(–\d+)?(, \d+(–\d+)?)*", each) for _, each in versions)
    (produce,) = (each for client, each in seen["Produce"] if client == "kafkajs")
    assert f"**kafkajs**: Produce {produce};" in text
