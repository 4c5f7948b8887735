"""A server of pages as a user starts it, and a page as a browser's script speaks to it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
from harness.run.lines import line
from harness.waiting import PATIENCE, attempts

# What Textual itself writes: CSI sequences, and the shape of the mouse pointer.
CONTROL = re.compile(rb"\x1b\[[0-9;:?<>=$ ]*[@-~]|\x1b\]22;[a-z]*\x07")


class Server:
    """A running ``barnabas ui ... --web``."""

    def __init__(self, process: subprocess.Popen[str], address: str):
        self.process, self.address = process, address
        parts = urlsplit(address)
        self.host, self.base = parts.netloc, f"http://{parts.netloc}"
        self.token = parse_qs(parts.query)["token"][0]

    def screens(self) -> set[int]:
        """Processes that show a page."""
        return children(self.process.pid)

    def stop(self) -> int:
        """End it as Ctrl-C does; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE)


@contextmanager
def serving(folder: Path, *arguments: object, **environment: str) -> Iterator[Server]:
    """``with serving(tmp_path, capture) as server``."""
    process = subprocess.Popen(
        [sys.executable, "-m", "barnabas", "ui", *map(str, arguments), "--web"],
        cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=os.environ | environment,
    )  # fmt: skip
    try:
        yield Server(process, line(process, "the address of the pages").strip())
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def children(pid: int) -> set[int]:
    """The processes whose parent is `pid`."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if int(parent) == pid:
            found.add(int(folder.name))
    return found


def gone(pid: int) -> bool:
    """Whether a process has ended, soon."""
    for _ in attempts():
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
    return False


class Page:
    """What textual-serve's script does, without a browser. `drawn`: all bytes for the terminal."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse):
        self.socket, self.drawn = socket, b""
        self._from = 0

    async def type(self, text: str) -> None:
        """Press keys; what was drawn before counts no more for `until`."""
        self._from = len(self.drawn)
        await self.socket.send_str(json.dumps(["stdin", text]))

    async def until(self, wanted: str) -> str:
        """Wait for words on the screen."""
        try:
            async with asyncio.timeout(PATIENCE):
                while wanted not in self.words():
                    message = await self.socket.receive()
                    assert message.type is aiohttp.WSMsgType.BINARY, (message, wanted, self.words()[-2000:])
                    self.drawn += message.data
        except TimeoutError:
            raise AssertionError(f"{wanted!r} did not come: {self.words()[-2000:]}") from None
        return self.words()

    def words(self) -> str:
        """What was drawn since the last keys, without control sequences."""
        return CONTROL.sub(b"", self.drawn[self._from :]).decode("utf-8", "replace")


class Browser:
    """A session with the server's cookie; an async context manager."""

    def __init__(self, server: Server, *, enter: bool = True):
        self._server, self._enter = server, enter
        self._socket = f"://{server.host}/ws"
        self.http = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))

    async def __aenter__(self) -> Browser:
        if self._enter:
            async with self.http.get(self._server.address) as answer:
                text = await answer.text()
                assert answer.status == 200, text
                self._socket = re.search(r'websocket-url="ws(://[^"]+)"', text)[1]  # type: ignore[index]
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.http.close()

    async def page(self, **headers: str) -> Page:
        """Open a page; a refusal is `aiohttp.WSServerHandshakeError`."""
        said = {"Origin": self._server.base} | headers
        address = f"http{self._socket}?width=120&height=40"
        return Page(await self.http.ws_connect(address, headers=said, max_msg_size=0))
