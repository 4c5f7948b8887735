"""The pages as far as no browser is needed: who gets in, what answers carry, files, and how the server ends."""

from __future__ import annotations

import asyncio
import csv
import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from barnabas.captures import open_capture
from barnabas.errors import BarnabasError
from barnabas.proxy.control.auth import AccessRefused
from barnabas.ui.cli.command_line import make_app
from barnabas.ui.cli.common.failure import Failure
from barnabas.ui.cli.screen import web
from barnabas.ui.web.access import Access
from harness.browsing.pages import Requests, Server, serving
from harness.waiting import PATIENCE

STORM = Path(__file__).parents[2] / "decoder" / "findings" / "captures" / "groups-storm.pcapng"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("served")
    with serving(folder, STORM, XDG_STATE_HOME=str(folder), XDG_CONFIG_HOME=str(folder)) as found:
        yield found
    assert list(folder.iterdir()) == []  # nothing is kept in the current folder


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
    access.check_origin(own | {"Origin": "http://127.0.0.1:8123"})
    for origin in ({}, {"Origin": "null"}, {"Origin": "http://127.0.0.1:8124"}, {"Origin": "https://barnabas.example"}):
        with pytest.raises(AccessRefused):
            access.check_origin(own | origin)


def test_a_server_that_others_reach_takes_any_name_and_still_asks_for_the_token() -> None:
    access = Access("0.0.0.0", 8123)
    access.check({"Host": "lab.example:8123"}, {"token": access.token}, {})
    with pytest.raises(AccessRefused):
        access.check({"Host": "lab.example:8123"}, {}, {})


def test_nobody_gets_in_without_the_token(server: Server) -> None:
    async def go() -> None:
        async with Requests(server) as requests:
            for path in ("/", "/?token=", "/?token=wrong", "/exchanges", "/data/rows", "/static/page.js", "/docs", "/openapi.json", "/nothing"):
                async with requests.http.get(server.base + path) as answer:
                    assert answer.status == 403 and "barnabas printed" in await answer.text(), path
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                await requests.websocket()
            async with requests.http.get(server.address, headers={"Host": "barnabas.example"}) as answer:
                assert answer.status == 403

    asyncio.run(go())


def test_a_page_keeps_the_token_to_itself_and_allows_only_its_own_scripts(server: Server) -> None:
    async def go() -> None:
        async with Requests(server) as requests:
            async with requests.http.get(server.address) as answer:
                text, folder, policy = await answer.text(), answer.url.path, answer.headers["Content-Security-Policy"]
                cookie = answer.history[0].headers["Set-Cookie"]
            assert answer.status == 200 and "HttpOnly" in cookie and "samesite=strict" in cookie.lower()
            assert server.token not in text and server.token not in cookie and server.token not in str(answer.url)
            assert answer.headers["Referrer-Policy"] == "no-referrer" and answer.headers["Cache-Control"] == "no-store"
            (nonce,) = re.findall(r"'nonce-([\w-]+)'", policy)
            assert "default-src 'none'" in policy and "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]
            scripts = re.findall(r"<script\b([^>]*)>", text)
            assert scripts and all(f'nonce="{nonce}"' in attributes for attributes in scripts)
            async with requests.http.get(server.base + folder) as again:
                assert nonce not in again.headers["Content-Security-Policy"]
            wanted = [each.replace("&#47;", "/") for each in re.findall(r'(?:src|href)="([^"]+)"', text)]
            assert wanted and all(each.startswith("/") for each in wanted), wanted
            for path in wanted:
                async with requests.http.get(server.base + path) as answer:  # by the cookie now
                    assert answer.status == 200, path
            # Whoever listens at another port of this host gets every cookie whose path begins like the page's.
            assert f"; Path={folder}" in cookie and len(folder) > 30
            async with requests.http.get(server.base + "/") as answer:
                assert answer.status == 403 and not answer.request_info.headers.get("Cookie")

    asyncio.run(go())


def test_addresses_below_the_secret_path(server: Server) -> None:
    async def go() -> None:
        async with Requests(server) as requests:
            await requests.enter()
            for path in ("exchanges", "exchanges/5", "ladder?filter=api+==+JoinGroup", "groups/jobs-3796", "protocol/", "protocol/Fetch"):
                assert await requests.status(path) == 200, path
            for path in (
                "static/../application.py", "static/%2e%2e/server.py", "docs", "redoc", "openapi.json", "protocol/Nothing", "protocol/..%2fx",
                "exchanges/500/files/0", "exchanges/5/files/99", "nothing",
            ):  # fmt: skip
                assert await requests.status(path) in (403, 404), path
            for origin in ("http://barnabas.example", "null"):
                with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                    await requests.websocket(Origin=origin)
                async with requests.http.post(f"{server.base}{requests.folder}_nicegui_ws/socket.io/", headers={"Origin": origin}) as answer:
                    assert answer.status == 403
            socket = await requests.websocket()
            assert (await socket.receive()).type is aiohttp.WSMsgType.TEXT
            await socket.close()
            # an address with the token opens the page that it names
            async with requests.http.get(server.at("exchanges?filter=err")) as answer:
                assert answer.status == 200 and answer.url.path == f"{requests.folder}exchanges" and answer.url.query == {"filter": "err"}

    asyncio.run(go())


# --- data and files ----------------------------------------------------------------------------------------


def test_rows_are_those_of_the_filter_in_the_order_asked_for(server: Server) -> None:
    with open_capture(STORM) as capture:
        rows = list(capture.rows())

    async def ask(requests: Requests, **parameters: object) -> tuple[int, list[int]]:
        address = f"{server.base}{requests.folder}data/rows"
        async with requests.http.get(address, params={name: str(value) for name, value in parameters.items()}) as answer:
            assert answer.status == 200, await answer.text()
            found = json.loads(await answer.text())
            return found["total"], [row["row"] for row in found["rows"]]

    async def go() -> None:
        async with Requests(server) as requests:
            await requests.enter()
            assert await ask(requests, start=10, stop=15) == (97, [11, 12, 13, 14, 15])
            failed = [row.number + 1 for row in rows if row.error]
            assert await ask(requests, filter="err", stop=1000) == (len(failed), failed)
            slowest = [row.number + 1 for row in sorted(rows, key=lambda row: -1 if row.latency_ns is None else row.latency_ns, reverse=True)]
            assert await ask(requests, order="-Latency", stop=7) == (97, slowest[:7])
            assert await ask(requests, start=-5, stop=-1) == (97, []) and await ask(requests, start=500, stop=600) == (97, [])
            async with requests.http.get(f"{server.base}{requests.folder}data/rows?filter=api+%3D%3D") as answer:
                assert answer.status == 400 and "at character" in await answer.text()

    asyncio.run(go())


def test_an_exchange_is_downloaded_without_the_values_of_its_records(story_path: Path, numbers: dict[str, int], tmp_path: Path) -> None:
    async def go(server: Server) -> None:
        async with Requests(server) as requests:
            await requests.enter()
            address = f"{server.base}{requests.folder}exchanges/{numbers['hostile'] + 1}/files/2"
            async with requests.http.get(address) as answer:
                assert answer.status == 200 and "attachment" in answer.headers["Content-Disposition"]
                hidden = json.loads(await answer.text())
            async with requests.http.get(address + "?values=1") as answer:
                shown = json.loads(await answer.text())
            assert hidden["correlation_id"] == shown["correlation_id"] and json.dumps(hidden) != json.dumps(shown)

    with serving(tmp_path, story_path) as server:
        asyncio.run(go(server))


def test_the_list_is_downloaded_as_it_is_filtered(server: Server, tmp_path: Path) -> None:
    with open_capture(STORM) as capture:
        expected = [row.correlation_id for row in capture.rows() if row.error]

    async def go() -> None:
        async with Requests(server) as requests:
            await requests.enter()

            async def get(format: int, filter: str) -> tuple[int, bytes]:
                address = f"{server.base}{requests.folder}exchanges/files/{format}"
                async with requests.http.get(address, params={"filter": filter}) as answer:
                    return answer.status, await answer.read()

            (tmp_path / "part.pcapng").write_bytes((await get(0, "err"))[1])
            with open_capture(tmp_path / "part.pcapng") as part:
                assert [row.correlation_id for row in part.rows() if row.error] == expected
            lines = (await get(1, "err"))[1].decode().splitlines()
            assert [json.loads(line)["correlation_id"] for line in lines] == expected
            table = list(csv.DictReader((await get(2, "err"))[1].decode().splitlines()))
            assert [int(row["correlation_id"]) for row in table] == expected
            assert len((await get(1, ""))[1].splitlines()) == 97
            assert (await get(3, ""))[0] == 404 and (await get(1, "err =="))[0] == 400

    asyncio.run(go())


def test_rows_say_what_they_are_about_when_asked(server: Server) -> None:
    async def go() -> None:
        async with Requests(server) as requests:
            await requests.enter()
            for info in ("", "1"):
                address = f"{server.base}{requests.folder}data/rows?stop=97&info={info}"
                joins, until = {""}, time.monotonic() + PATIENCE
                while "" in joins:  # the server reads them in the background
                    async with requests.http.get(address) as answer:
                        rows = json.loads(await answer.text())["rows"]
                    joins = {row["Info"] for row in rows if row["API"] == "JoinGroup"}
                    if not info or time.monotonic() > until:
                        break
                    await asyncio.sleep(0.05)
                assert joins == ({"group jobs-3796"} if info else {""})

    asyncio.run(go())


# --- how it ends -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_server_ends_with_open_pages(tmp_path: Path, how: signal.Signals) -> None:
    async def go(server: Server) -> None:
        async with Requests(server) as requests:
            await requests.enter()
            socket = await requests.websocket()
            server.process.send_signal(how)
            assert await asyncio.to_thread(server.process.wait, PATIENCE) == 0
            await socket.close()

    with serving(tmp_path, STORM) as server:
        asyncio.run(go(server))


# --- options -----------------------------------------------------------------------------------------------


def test_the_extra_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    web.need_web()
    monkeypatch.setattr(web, "find_spec", lambda name: None)
    with pytest.raises(Failure, match=r"pip install '\.\[web\]'"):
        web.need_web()


def test_an_unservable_capture_is_reported_before_serving(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
