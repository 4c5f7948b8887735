"""A server of pages as a user starts it, and requests to it."""

from __future__ import annotations

import os
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
from harness.waiting import PATIENCE


class Server:
    """A running ``barnabas ui ... --web``."""

    def __init__(self, process: subprocess.Popen[str], address: str):
        self.process, self.address = process, address
        parts = urlsplit(address)
        self.host, self.base = parts.netloc, f"http://{parts.netloc}"
        self.token = parse_qs(parts.query)["token"][0]

    def at(self, path: str) -> str:
        """The address of a page, with the token."""
        return f"{self.base}/{path}{'&' if '?' in path else '?'}token={self.token}"

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


class Requests:
    """Requests to a server, with its cookie once `enter` was called; an async context manager."""

    def __init__(self, server: Server):
        self._server = server
        self.http = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))
        self.folder = ""

    async def __aenter__(self) -> Requests:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.http.close()

    async def enter(self) -> None:
        """Open the address with the token."""
        async with self.http.get(self._server.address) as answer:
            assert answer.status == 200, await answer.text()
            self.folder = answer.url.path

    async def status(self, path: str) -> int:
        """The status of a page below the server's secret path."""
        async with self.http.get(self._server.base + self.folder + path) as answer:
            return answer.status

    async def websocket(self, **headers: str) -> aiohttp.ClientWebSocketResponse:
        """Open the websocket of pages; a refusal is `aiohttp.WSServerHandshakeError`."""
        address = f"{self._server.base}{self.folder or '/'}_nicegui_ws/socket.io/?EIO=4&transport=websocket"
        return await self.http.ws_connect(address, headers={"Origin": self._server.base} | headers)
