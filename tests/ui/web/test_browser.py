"""The pages of a recording in Debian's Chromium: what a person sees and does there, and that nothing is fetched from anywhere else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from barnabas.captures import Recorder
from barnabas.decoder import Direction
from barnabas.decoder.schema import facts
from harness.browsing.chromium import CHROMIUM, Watch, browser
from harness.browsing.hostile import OFTEN, Hostile
from harness.browsing.pages import Server, serving

STORM = Path(__file__).parents[2] / "decoder" / "findings" / "captures" / "groups-storm.pcapng"
PAGES = {
    "exchanges": ".ag-row", "exchanges/15": ".tree", "exchanges/15?field=request.group_id": ".chosen", "exchanges/20/compare": ".page", "connections": ".ag-row", "connections?by=client": ".ag-row",
    "ladder": "canvas", "ladder?scale=time": "canvas", "groups": ".ag-row", "groups/jobs-3796": ".assignments canvas", "versions?against=4.0": ".versions td",
    "problems": ".finding", "latency": ".heat canvas", "latency?api=waits": ".ag-row", "throughput": ".throughput canvas", "throughput?what=produced": ".throughput canvas",
    "partitions": ".ag-row", "rules": ".note",
    "log": ".note", "held": ".note",
}  # fmt: skip
"""Every page of the recording, and what is there when it is complete."""
MARKUP = "<img src=x onerror=\"window.owned=1\"><script>window.owned=1</script>{{constructor.constructor('window.owned=1')()}}${1}`\u202e\x1b[2J"

LONG = "y" * 10_000

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: make chromium, or apt-get install chromium")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("served"), STORM) as found:
        yield found


def words(page: Any) -> str:
    return str(page.inner_text("body"))


def settled(page: Any) -> str:
    """The text of a page once it has stopped changing."""
    before, now = "", words(page)
    while now != before:
        page.wait_for_timeout(1000)
        before, now = now, words(page)
    return now


def cells(page: Any, column: str) -> list[str]:
    """The texts of a column of the table, as far as it is in the page."""
    return [each.strip() for each in page.locator(f'.ag-row [col-id="{column}"]').all_inner_texts()]


def loaded(page: Any) -> None:
    """Wait until the rows in sight have come."""
    page.wait_for_function("(() => { const n = [...document.querySelectorAll('.ag-row [col-id=API]')]; return n.length && n.every(e => e.innerText.trim()) })()")


@pytest.mark.timeout(400)
def test_a_person_filters_opens_an_exchange_and_goes_back(server: Server) -> None:
    with browser() as page:
        watch = Watch(page)
        page.goto(server.address)
        page.wait_for_selector(".ag-row")
        assert re.fullmatch(f"{re.escape(server.base)}/[\\w-]+/", page.url)  # the token is no longer in the address
        page.wait_for_selector("text=97 exchanges")

        # a wrong filter has a caret below its fault; a right one applies as it is typed, and Enter keeps it in the address
        page.keyboard.press("/")
        page.keyboard.type("api == Nothing")
        page.wait_for_selector(".caret >> text=/^ {7}\\^+ /")
        for _ in "Nothing":
            page.keyboard.press("Backspace")
        page.keyboard.type("SyncG")
        page.wait_for_selector(".candidates >> text=SyncGroup")
        page.keyboard.press("Tab")
        page.wait_for_selector("text=/^13 of 97 exchanges/")
        page.keyboard.press("Enter")
        page.wait_for_url("**filter=api+%3D%3D+SyncGroup*")
        page.wait_for_function(
            "(() => { const n = [...document.querySelectorAll('.ag-row [col-id=API]')]; "
            "return n.length == 13 && n.every(e => e.innerText.trim() == 'SyncGroup') })()"
        )

        # an exchange has an address of its own; Back and reload work
        first = cells(page, "No")[0]
        page.click(".ag-row >> nth=0")
        page.wait_for_selector(".tree")
        assert f"/exchanges/{first}?filter=" in page.url and "SyncGroup v" in words(page)
        page.reload()
        page.wait_for_selector(".tree")
        page.go_back()
        page.wait_for_function("document.querySelectorAll('.ag-row').length == 13")
        assert page.input_value("#filter") == "api == SyncGroup"
        page.go_back()
        page.wait_for_selector("text=/^97 exchanges/")

        # the keys of the terminal
        page.wait_for_selector(".ag-row")
        page.keyboard.press("5")
        page.wait_for_selector(".finding")
        page.keyboard.press("?")
        page.wait_for_selector("dialog[open] >> text=Connections")
        page.keyboard.press("Escape")
        page.keyboard.press("1")
        page.wait_for_selector(".ag-row")
        loaded(page)
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/exchanges/2")
        page.wait_for_selector(".tree")
        page.keyboard.press("]")
        page.wait_for_url("**/exchanges/3*")
        assert watch.elsewhere(server.base) == [] and watch.faults == []


@pytest.mark.timeout(400)
def test_fields_and_bytes_are_linked_both_ways(server: Server) -> None:
    with browser() as page:
        watch = Watch(page)
        page.goto(server.at("exchanges/15"))  # JoinGroup with an error: its field is chosen
        page.wait_for_selector(".chosen >> text=COORDINATOR_LOAD_IN_PROGRESS")
        page.wait_for_selector("b.in")
        assert page.locator("b.in").all_inner_texts() == ["00", "0e"]
        assert "clients may retry" in words(page) and "What it means" in words(page)
        page.click('[data-side=request] >> text=group_id')
        page.wait_for_function("document.querySelector('.hex').textContent.includes('jobs-')")
        marked = bytes.fromhex("".join(page.locator("b.in").all_inner_texts()))
        assert marked[-9:] == b"jobs-3796"
        page.wait_for_url("**/exchanges/15?field=request.group_id")
        page.reload()
        page.wait_for_selector("[data-side=request] .chosen >> text=group_id")
        page.click("[data-byte='2']")  # of the request's header: its API version
        page.wait_for_selector(".chosen >> text=request_api_version")
        page.dblclick('[data-side=request] >> text=group_id')
        assert page.evaluate("getSelection().toString()").strip()  # text can be marked
        assert watch.faults == []


def mark(page: Any, first: Any, last: Any) -> str:
    """Drag the mouse from one element to another, or over a part of one. Returns what is marked."""
    begin, end = first.bounding_box(), last.bounding_box()
    page.mouse.move(begin["x"] + min(10, begin["width"] / 10), begin["y"] + begin["height"] / 2)
    page.mouse.down()
    page.mouse.move(end["x"] + min(80, end["width"] * 0.9), end["y"] + end["height"] / 2, steps=5)
    page.mouse.up()
    marked = str(page.evaluate("getSelection().toString()")).strip()
    assert marked
    return marked


def visit(server: Server, page: Any, path: str, shown: str) -> None:
    page.goto(server.at(path))
    page.wait_for_selector(shown)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("width", "height", "dark"), [(1280, 800, False), pytest.param(390, 844, True, marks=pytest.mark.slow)])
def test_every_page(width: int, height: int, dark: bool, server: Server, tmp_path: Path) -> None:
    with browser(width, height, dark) as page:
        watch = Watch(page)
        for number, (path, shown) in enumerate(PAGES.items()):
            visit(server, page, path, shown)
            page.screenshot(path=str(tmp_path / f"{number}.png"))
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            assert page.evaluate("document.body.classList.contains('body--dark')") is dark
            assert "This page failed" not in words(page), path
        assert watch.elsewhere(server.base) == [] and watch.faults == []


@pytest.mark.timeout(400)
def test_charts_lead_to_exchanges(server: Server) -> None:
    with browser() as page:
        watch = Watch(page)
        visit(server, page, "ladder", "canvas")
        box = page.locator(".ladder").bounding_box()
        at = page.evaluate("""() => {
          const chart = getElement(Number(document.querySelector(".ladder").id.slice(1))).chart;
          return chart.convertToPixel({ xAxisIndex: 0, yAxisIndex: 0 }, [1.5, 1]);
        }""")  # half way from `setup` to the broker: the first request
        page.mouse.click(box["x"] + at[0], box["y"] + at[1])
        page.wait_for_url("**/exchanges/1")
        visit(server, page, "problems", ".finding")
        page.click(".finding >> nth=0 >> text=Exchanges")
        loaded(page)
        assert "conn+%3D%3D" in page.url and cells(page, "API")
        visit(server, page, "versions", ".versions td a")
        page.click(".versions tr:has-text('JoinGroup') td a")
        loaded(page)
        assert set(cells(page, "API")) == {"JoinGroup"}
        assert watch.faults == []


@pytest.mark.timeout(400)
def test_a_copied_address_shows_the_same_in_another_browser(server: Server) -> None:
    with browser() as page:
        page.goto(server.address)
        page.wait_for_selector(".ag-row")
        visit(server, page, "connections", ".ag-row")
        page.wait_for_selector("text=/^[0-9]+ connections$/")
        page.click(".ag-header-cell[col-id=requests]")
        page.wait_for_url("**/connections?order=requests")
        page.click(".ag-header-cell[col-id=requests]")
        page.wait_for_url("**/connections?order=-requests")
        sorted_rows = cells(page, "requests")
        assert [int(each) for each in sorted_rows] == sorted((int(each) for each in sorted_rows), reverse=True)
        copied = [page.url]
        visit(server, page, "exchanges?filter=err&order=-Latency", ".ag-row")
        loaded(page)
        numbers = cells(page, "No")
        copied.append(page.url)
        other = page.context.browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
        assert other.goto(copied[0]).status == 403 and "barnabas printed" in words(other)  # until it has opened the printed address
        other.goto(server.address)
        other.wait_for_selector(".ag-row")
        other.goto(copied[0])
        other.wait_for_function(
            "wanted => { const n = [...document.querySelectorAll('.ag-row [col-id=requests]')].map(e => e.innerText.trim());"
            " return JSON.stringify(n) == JSON.stringify(wanted) }", arg=sorted_rows,
        )  # fmt: skip
        other.goto(copied[1])
        loaded(other)
        assert cells(other, "No") == numbers and other.input_value("#filter") == "err"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_address_shows_the_same_in_another_browser_and_when_it_is_loaded_again(server: Server) -> None:
    with browser() as page:
        other = page.context.browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
        for each in (page, other):
            each.goto(server.address)
            each.wait_for_selector(".ag-row")
        for path, shown in PAGES.items():
            visit(server, page, path, shown)
            visit(server, other, path, shown)
            same, wanted = "wanted => document.body.innerText == wanted", settled(page)
            other.wait_for_function(same, arg=wanted)
            other.reload()
            other.wait_for_function(same, arg=wanted)
            page.go_back()
            page.go_forward()
            page.wait_for_function(same, arg=wanted)


@pytest.mark.timeout(400)
def test_keys_move_in_every_table_and_its_text_can_be_marked(server: Server) -> None:
    with browser() as page:
        watch = Watch(page)
        page.goto(server.address)
        visit(server, page, "connections", ".ag-row >> nth=2")
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.wait_for_selector('.ag-row[row-index="1"] .ag-cell-focus')
        wanted = page.inner_text('.ag-row[row-index="1"] [col-id=number]')
        cell = page.locator('.ag-row[row-index="2"] [col-id=broker]')
        assert mark(page, cell, cell) in cell.inner_text() and page.url.endswith("/connections")  # marked, not opened
        page.evaluate("getSelection().removeAllRanges()")
        page.click('.ag-row[row-index="1"] [col-id=number]')
        page.wait_for_url(f"**/exchanges?filter=conn+%3D%3D+{wanted}")
        visit(server, page, "groups", ".ag-row")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/groups/jobs-3796")
        page.wait_for_selector(".assignments canvas")
        page.keyboard.press("q")
        page.wait_for_url("**/groups")
        visit(server, page, "exchanges/15", ".hex b")
        octets = bytes.fromhex(mark(page, page.locator(".hex b >> nth=2"), page.locator(".hex b >> nth=7")))
        assert octets in bytes.fromhex("".join(page.locator(".hex b").all_inner_texts()))
        assert watch.faults == []


@pytest.mark.timeout(400)
def test_captures_with_nothing_to_show_say_why(tmp_path: Path) -> None:
    Recorder(tmp_path / "empty").close()
    stray = Recorder(tmp_path / "stray")
    stray.opened(1, 10**18, ("127.0.0.1", 50001), ("127.0.0.1", 9092))
    stray.data(1, Direction.REQUEST, 10**18, b"GET / HTTP/1.1\r\n\r\n")
    stray.close()
    for name, why in (("empty", "No exchanges in this capture."), ("stray", "1 connection without a Kafka request")):
        with serving(tmp_path, tmp_path / name) as served, browser() as page:
            watch = Watch(page)
            for path in ("exchanges", "connections", "ladder", "groups", "versions", "latency", "throughput", "partitions"):
                visit(served, page, path, f".nothing >> text={why}")
                assert page.locator(".page canvas:visible, .page .ag-root:visible").count() == 0, path
            visit(served, page, "problems", "text=Nothing found" if name == "empty" else ".finding >> text=HTTP")
            visit(served, page, "exchanges/1", "text=There is no exchange #1")
            assert watch.faults == []


@pytest.mark.timeout(400)
def test_a_filter_without_a_match_and_an_exchange_without_records_say_so(server: Server) -> None:
    with browser() as page:
        visit(server, page, "exchanges?filter=api == Produce", "text=No exchange matches the filter")
        page.fill("#filter", "")
        page.press("#filter", "Enter")
        loaded(page)
        assert page.locator("text=No exchange matches the filter").count() == 0
        visit(server, page, "exchanges/15?values=1", "text=This exchange has no records")
        visit(server, page, "problems?id=rebalance-loop", "text=All problems")


@pytest.mark.timeout(600)
def test_texts_of_the_traffic_stay_text(tmp_path: Path) -> None:
    hostile = Hostile(tmp_path / "run")
    for name, version in OFTEN.items():
        hostile.exchange(1, facts.api_key(name), MARKUP, version)
    for name, version in OFTEN.items():
        hostile.exchange(2, facts.api_key(name), LONG, version)
    hostile.recorder.close()
    with serving(tmp_path, tmp_path / "run") as server, browser() as page:
        watch = Watch(page)
        group = quote(MARKUP.replace("\u202e", "\\u202e").replace("\x1b", "\\x1b"), safe="")
        pages = [*(f"exchanges/{number + 1}?values=1" for number in range(2 * len(OFTEN))), *PAGES, f"groups/{group}", f"groups/{LONG}"]
        seen = ""
        for path in pages:
            visit(server, page, path.replace("jobs-3796", "none"), ".page")
            page.wait_for_timeout(300)
            assert page.evaluate("(() => { const p = document.querySelector('.page'); return p.scrollWidth <= p.clientWidth })()"), path[:80]
            seen += words(page)
            assert page.evaluate("window.owned === undefined && document.images.length == 0"), path
            assert "This page failed" not in words(page), path
        assert "<img src=x" in seen and r"\x1b[2J" in seen and r"\u202e" in seen  # there to be read, as text
        assert not {"\x1b", "\u202e"} & set(seen)
        assert watch.elsewhere(server.base) == [] and watch.faults == []


def test_the_theme_is_remembered(tmp_path: Path) -> None:
    with serving(tmp_path, STORM, "--theme", "dark") as server, browser() as page:
        visit(server, page, "problems", ".finding")
        page.wait_for_selector("body.body--dark")
        page.click("[data-script=theme]")
        page.wait_for_selector("body.body--light")
        visit(server, page, "log", ".note")
        page.wait_for_selector("body.body--light")
