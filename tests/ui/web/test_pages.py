"""The screen in a browser, as far as no browser is needed: who gets in, what is drawn, and that every process ends."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from barnabas.captures import Capture
from barnabas.errors import BarnabasError
from barnabas.proxy.control.auth import AccessRefused
from barnabas.ui.cli.command_line import make_app
from barnabas.ui.cli.common.failure import Failure
from barnabas.ui.cli.screen import web
from barnabas.ui.tui.app import BarnabasApp
from barnabas.ui.web.access import Access
from harness.browsing.pages import CONTROL, Browser, Page, Server, children, gone, serving
from harness.waiting import PATIENCE

STORM = Path(__file__).parents[2] / "decoder" / "findings" / "captures" / "groups-storm.pcapng"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("served")
    with serving(folder, STORM, "--pages", 2, XDG_STATE_HOME=str(folder), XDG_CONFIG_HOME=str(folder)) as found:
        yield found


# --- who gets in -------------------------------------------------------------------------------------------


def test_the_token_opens_and_nothing_else_does() -> None:
    access = Access("127.0.0.1", 8123)
    own = {"Host": "127.0.0.1:8123"}
    access.check(own, {"token": access.token}, {})
    access.check(own, {}, {access.cookie: access.ticket})
    access.check({"Host": "localhost:9000"}, {"token": access.token}, {})  # through a tunnel
    access.check({"Host": "[::1]:8123"}, {"token": access.token}, {})
    for headers, query, cookies in (
        (own, {}, {}),
        (own, {"token": ""}, {}),
        (own, {"token": access.token[:-1]}, {}),
        (own, {"token": access.token + "é\udcff"}, {}),
        (own, {"token": "wrong"}, {access.cookie: access.ticket}),
        (own, {}, {access.cookie: access.token}),
        (own, {}, {"barnabas-8124": access.ticket}),
        ({"Host": "barnabas.example:8123"}, {"token": access.token}, {}),
        ({"Host": "127.0.0.1.barnabas.example"}, {"token": access.token}, {}),
        ({}, {"token": access.token}, {}),
    ):
        with pytest.raises(AccessRefused) as refused:
            access.check(headers, query, cookies)
        assert refused.value.status == 403
    access.check_socket(own | {"Origin": "http://127.0.0.1:8123"})
    for origin in ({}, {"Origin": "null"}, {"Origin": "http://127.0.0.1:8124"}, {"Origin": "https://barnabas.example"}):
        with pytest.raises(AccessRefused):
            access.check_socket(own | origin)


def test_a_server_that_others_reach_takes_any_name_and_still_asks_for_the_token() -> None:
    access = Access("0.0.0.0", 8123)
    access.check({"Host": "lab.example:8123"}, {"token": access.token}, {})
    with pytest.raises(AccessRefused):
        access.check({"Host": "lab.example:8123"}, {}, {})


def test_requests(server: Server) -> None:
    async def go() -> None:
        async with Browser(server, enter=False) as browser:
            for path in ("/", "/?token=", "/?token=wrong", "/ws", "/page.js", "/static/js/textual.js", "/nothing"):
                async with browser.http.get(server.base + path) as answer:
                    assert answer.status == 403 and "barnabas printed" in await answer.text(), path
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                await browser.page()
            async with browser.http.get(server.address) as answer:
                text, folder = await answer.text(), answer.url.path
                cookie = answer.history[0].headers["Set-Cookie"]
            assert answer.status == 200 and "HttpOnly" in cookie and "SameSite=Strict" in cookie
            assert server.token not in text and server.token not in cookie
            assert answer.headers["Referrer-Policy"] == "no-referrer"
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            wanted = re.findall(r'(?:src|href)="([^"]+)"', text)
            assert wanted and all(each.startswith(("/", "data:,")) for each in wanted)
            for path in (each for each in wanted if each.startswith("/")):
                async with browser.http.get(server.base + path) as answer:  # by the cookie now
                    assert answer.status == 200, path
            for path in ("static/../access.py", "static/%2e%2e/server.py", "page.html", "server.py", "static/"):
                async with browser.http.get(server.base + folder + path) as answer:
                    assert answer.status in (403, 404), path
            # Whoever listens at another port of this host gets every cookie whose path begins like the page's.
            assert f"; Path={folder}" in cookie and len(folder) > 30
            async with browser.http.get(server.base + "/") as answer:
                assert answer.status == 403 and not answer.request_info.headers.get("Cookie")
            for origin in ("http://barnabas.example", "null"):
                with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                    await browser.page(Origin=origin)

    asyncio.run(go())


# --- what is drawn -----------------------------------------------------------------------------------------


def test_a_page_shows_the_list_takes_a_filter_and_ends_with_its_socket(server: Server) -> None:
    async def go() -> None:
        async with Browser(server) as browser:
            page = await browser.page()
            await page.until("97 exchanges")
            await page.until("MEMBER_ID_REQUIRED")
            (screen,) = server.screens()
            await page.type("/api == SyncGroup\r")
            await page.until(" of 97 exchanges")
            await page.type("\r")
            await page.until("group_id")
            for nonsense in (
                "{",
                "[]",
                "[1]",
                '["stdin"]',
                '["resize", {"width": "x"}]',
                '["resize", {}]',
                "null",
                "7",
            ):
                await page.socket.send_str(nonsense)
            await page.socket.send_bytes(b"\x00\xff")
            await page.socket.send_str('["resize", {"width": 90000000000, "height": -5}]')
            await page.type("\x1b\x1b1")
            await page.until("SyncGroup")
            await page.socket.close()
            assert gone(screen)
            page = await browser.page()
            await page.until("97 exchanges")
            (screen,) = server.screens()
            await page.type("Q")  # it ends by itself: the page hears of it
            async with asyncio.timeout(PATIENCE):
                while (await page.socket.receive()).type not in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED):
                    pass
            assert gone(screen)

    asyncio.run(go())


def test_no_more_pages_than_allowed(server: Server) -> None:
    async def go() -> None:
        async with Browser(server) as browser:
            first, second = await browser.page(), await browser.page()
            for page in (first, second):
                await page.until("97 exchanges")
            with pytest.raises(aiohttp.WSServerHandshakeError, match="503"):
                await browser.page()
            async with browser.http.get(server.address) as answer:
                assert answer.status == 503 and "close one" in await answer.text()
            await first.socket.close()
            third = await free(browser)
            await third.until("97 exchanges")
            await asyncio.gather(second.socket.close(), third.socket.close())

    asyncio.run(go())


async def free(browser: Browser) -> Page:
    """A page, as soon as there is room for one."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await browser.page()
            except aiohttp.WSServerHandshakeError:
                await asyncio.sleep(0.05)


def test_nothing_from_the_traffic_reaches_the_page_as_a_control_sequence(
    story_path: Path, numbers: dict[str, int], tmp_path: Path
) -> None:
    named = tmp_path / "run <script>alert(1)<!-- \x1b]52;c;x\x07"
    named.symlink_to(story_path)

    async def go(server: Server) -> bytes:
        async with Browser(server) as browser:
            async with browser.http.get(server.address) as answer:
                text = await answer.text()
            assert "<script>alert" not in text and "&lt;script&gt;alert" in text and "\x1b" not in text
            page = await browser.page()
            await page.until("CORRUPT_MESSAGE")
            for keys, wanted in (
                ("j" * numbers["hostile"], "#9"), ("\r", "topic_data"), ("v", "VALUES SHOWN"), ("b", "Bytes of the"),
                ("w", "What to do"), ("\x1b", "Request"), ("\x1b", "11 exchanges"), ("2", "Sent"), ("4", "Produce"), ("5", "seen "),
            ):  # fmt: skip
                await page.type(keys)
                await page.until(wanted)
            await page.socket.close()
            return page.drawn

    with serving(tmp_path, named) as server:
        drawn = asyncio.run(go(server))
    left = CONTROL.sub(b"", drawn).decode()
    assert {c for c in left if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in "\r\n"} == set()
    assert r"\x1b]52;c" in left  # there to be read, as text


# --- how it ends -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_every_process_ends_with_the_server(tmp_path: Path, how: signal.Signals) -> None:
    async def go(server: Server) -> None:
        async with Browser(server) as browser:
            page = await browser.page()
            await page.until("97 exchanges")
            screens = server.screens()
            assert len(screens) == 1
            server.process.send_signal(how)
            status = await asyncio.to_thread(server.process.wait, PATIENCE)
            assert status == (-signal.SIGKILL if how == signal.SIGKILL else 0)
            assert all(gone(pid) for pid in screens)

    with serving(tmp_path, STORM) as server:
        asyncio.run(go(server))


def test_a_screen_that_does_not_end_is_killed_with_all_it_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    from barnabas.ui.web import screen

    monkeypatch.setattr(screen, "GRACE_SECONDS", 0.2)
    code = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "sys.stdout.buffer.write(b'__GANGLION__\\nD' + (5).to_bytes(4, 'big') + b'hello'); sys.stdout.flush()\n"
        "while True: sys.stdout.buffer.write(b'D' + (9999).to_bytes(4, 'big') + bytes(9999))"
    )

    async def go() -> set[int]:
        shown = screen.ScreenProcess([sys.executable, "-c", code])
        await shown.start(80, 24)
        drawn = bytearray()
        enough = asyncio.Event()

        async def show(data: bytes) -> None:
            drawn.extend(data)
            if len(drawn) > 5:
                enough.set()
                await asyncio.sleep(600)  # a page that takes nothing more

        output = asyncio.create_task(shown.output(show))
        await asyncio.wait_for(enough.wait(), PATIENCE)
        assert shown.pid is not None and bytes(drawn[:5]) == b"hello"
        pids = {shown.pid} | children(shown.pid)
        output.cancel()
        await shown.end()
        return pids

    pids = asyncio.run(go())
    assert len(pids) == 2 and all(gone(pid) for pid in pids)


def test_the_output_of_a_failed_screen_is_shown_harmlessly(tmp_path: Path) -> None:
    capture = tmp_path / "gone.pcapng"
    capture.write_bytes(STORM.read_bytes())

    async def go(server: Server) -> None:
        async with Browser(server) as browser:
            capture.unlink()
            page = await browser.page()
            assert "does not exist" in await page.until("does not exist")

    with serving(tmp_path, capture) as server:
        asyncio.run(go(server))


# --- options -----------------------------------------------------------------------------------------------


def test_the_extra_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    web.need_web()
    monkeypatch.setattr(web, "available", lambda: False)
    with pytest.raises(Failure, match=r"pip install '\.\[web\]'"):
        web.need_web()


def test_an_unservable_screen_is_reported_before_serving(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command, taken = make_app(), server.host.rpartition(":")[2]
    for arguments, message in (
        ([str(STORM), "--web-listen", f"127.0.0.1:{taken}"], f"port {taken}.*--web-listen 127.0.0.1:0"),
        (["nowhere"], "nowhere does not exist"),
        ([str(STORM), "--plain"], "cannot be combined"),
        (["--attach", "http://127.0.0.1:9"], "127.0.0.1"),
        ([], "nothing to show"),
    ):
        with pytest.raises(BarnabasError, match=message):
            command(["ui", *arguments, "--web"], standalone_mode=False)


def test_a_page_cannot_allow_itself_changes(story: Capture) -> None:
    async def go() -> None:
        app = BarnabasApp(story, title="story", control=object(), locked=True)  # type: ignore[arg-type]
        async with app.run_test(notifications=True) as pilot:
            await pilot.press("colon", *"edit", "space", *"on", "enter")
            await pilot.pause()
            assert not app.session.allow_edit
            assert "without --allow-edit" in " ".join(each.message for each in app._notifications)

    asyncio.run(go())
