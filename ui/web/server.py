"""The server of the pages: an address with a token, a websocket per page, and a limit on pages.

The terminal in the page is the one that textual-serve brings. Nothing is loaded from anywhere else, and the page's
Content-Security-Policy holds it to that.
"""

from __future__ import annotations

import asyncio
import html
import json
import signal
from collections.abc import Callable, Sequence
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

from aiohttp import WSMsgType, web

from ...proxy.control.auth import AccessRefused
from ...proxy.control.logs import logger
from ..safe import visible
from .access import TOKEN, Access
from .screen import HEIGHTS, WIDTHS, ScreenProcess, between

HEARTBEAT_SECONDS = 15.0
"""A page that does not answer for so long has gone away."""
MOST_MESSAGE = 1 << 20
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_KINDS = {"page.css": "text/css", "page.js": "text/javascript"}
_FULL = "the limit of open pages is reached (--pages): close one, and reload this page"


class PageServer:
    """Serves `command`, a screen, at `host`, `port` (0: a free one), to at most `most` pages at a time.

    `protocol_page`: the page about an API of the protocol by its name, their list for "", None for a name that is none.
    """

    def __init__(
        self, command: Sequence[str], *, title: str, host: str, port: int, most: int, protocol_page: Callable[[str], str | None]
    ) -> None:
        self._protocol_page = protocol_page
        self._command, self._title, self._host, self._port, self._most = command, title, host, port, most
        self._screens: set[ScreenProcess] = set()
        self._sockets: set[web.WebSocketResponse] = set()
        self.access = Access(host, port)
        self._runner: web.AppRunner | None = None

    @property
    def address(self) -> str:
        """Where to look, with the token."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}/?{TOKEN}={self.access.token}"

    @property
    def screens(self) -> int:
        """How many pages are open."""
        return len(self._screens)

    async def start(self) -> None:
        """Listen. Raises `OSError`."""
        app, folder = web.Application(middlewares=[self._authorize]), self.access.folder
        app.on_response_prepare.append(_security_headers)
        app.on_shutdown.append(self._close_all)
        app.add_routes(
            [
                web.get("/", self._enter),
                web.get(folder, self._page),
                web.get(f"{folder}ws", self._socket),
                web.get(folder + r"protocol/{name:\w*}", self._protocol),
                web.get(folder + "{name:page\\.(?:css|js)}", self._asset),
                web.static(f"{folder}static", statics(), show_index=False),
            ]
        )
        self._runner = web.AppRunner(
            app, handle_signals=False, access_log=None, logger=logger("barnabas.web"), shutdown_timeout=5.0
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port)
        try:
            await site.start()
        except OSError:
            await self._runner.cleanup()
            raise
        self._port = self._runner.addresses[0][1]
        self.access.listens_at(self._port)

    async def stop(self) -> None:
        """End every screen, and listen no more."""
        if self._runner is not None:
            await self._runner.cleanup()
        # Of handlers that were cut short while a screen was ending.
        await asyncio.gather(*(screen.end() for screen in list(self._screens)), return_exceptions=True)

    # --- requests --------------------------------------------------------------------------------------------

    @web.middleware
    async def _authorize(self, request: web.Request, handler: Callable[..., Any]) -> web.StreamResponse:
        try:
            self.access.check(request.headers, request.query, request.cookies)
        except AccessRefused as refused:
            return web.Response(status=refused.status, text=f"barnabas: {refused}\n")
        return await handler(request)  # type: ignore[no-any-return]

    async def _enter(self, request: web.Request) -> web.Response:
        """The address with the token: from here on the cookie counts, and histories keep no token."""
        response = web.Response(status=303, headers={"Location": self.access.folder})
        response.set_cookie(
            self.access.cookie, self.access.ticket, httponly=True, samesite="Strict", path=self.access.folder
        )
        return response

    async def _page(self, request: web.Request) -> web.Response:
        if len(self._screens) >= self._most:
            return web.Response(status=503, text=f"barnabas: {_FULL}\n")
        page = Template(_read("page.html")).substitute(
            title=html.escape(visible(self._title)),
            folder=self.access.folder,
            socket=f"ws://{html.escape(request.host)}{self.access.folder}ws",
        )
        return web.Response(text=page, content_type="text/html")

    async def _protocol(self, request: web.Request) -> web.Response:
        # in a thread: an API with many versions takes a while
        page = await asyncio.to_thread(self._protocol_page, request.match_info["name"])
        if page is None:
            return web.Response(status=404, text="barnabas: there is no such API\n")
        return web.Response(text=page, content_type="text/html")

    async def _asset(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        return web.Response(text=_read(name), content_type=_KINDS[name])

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        try:
            self.access.check_socket(request.headers)
        except AccessRefused as refused:
            return web.Response(status=refused.status, text=f"barnabas: {refused}\n")
        if len(self._screens) >= self._most:
            return web.Response(status=503, text=f"barnabas: {_FULL}\n")
        socket = web.WebSocketResponse(heartbeat=HEARTBEAT_SECONDS, max_msg_size=MOST_MESSAGE, compress=False)
        screen = ScreenProcess(self._command)
        self._screens.add(screen)
        try:
            await socket.prepare(request)
            self._sockets.add(socket)
            width, height = request.query.get("width"), request.query.get("height")
            await screen.start(between(width, WIDTHS), between(height, HEIGHTS))
            both = [asyncio.create_task(screen.output(socket.send_bytes)), asyncio.create_task(_messages(socket, screen))]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in both:
                    task.cancel()
                await asyncio.gather(*both, return_exceptions=True)
        finally:
            self._sockets.discard(socket)
            errors = await screen.end()
            self._screens.discard(screen)
        if errors and not socket.closed:
            await socket.send_bytes(b"\x1b[2J\x1b[H" + errors.replace("\n", "\r\n").encode())
        await socket.close()
        return socket

    async def _close_all(self, app: web.Application) -> None:
        # The handlers end their screens when the sockets close.
        await asyncio.gather(*(socket.close(code=1001) for socket in list(self._sockets)), return_exceptions=True)


async def _messages(socket: web.WebSocketResponse, screen: ScreenProcess) -> None:
    """Take the messages of the page: lists of a kind and its data, as textual-serve's script writes them."""
    async for message in socket:
        if message.type is not WSMsgType.TEXT:
            continue
        try:
            kind, *data = json.loads(message.data)
        except (ValueError, TypeError):
            continue
        if kind == "stdin" and data and isinstance(data[0], str):
            await screen.typed(data[0])
        elif kind == "resize" and data and isinstance(data[0], dict):
            await screen.resized(data[0].get("width", 0), data[0].get("height", 0))
        elif kind in ("focus", "blur"):
            await screen.send(kind)
        elif kind == "ping":
            await socket.send_json(["pong", *data])


async def _security_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Content-Security-Policy"] = POLICY
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["Cache-Control"] = "no-store"
    response.headers["Server"] = "barnabas"


def available() -> bool:
    """Whether the libraries of the pages are installed."""
    return find_spec("textual_serve") is not None


def statics() -> Path:
    """The terminal in the page: its script, style and font."""
    found = find_spec("textual_serve")
    assert found is not None and found.submodule_search_locations, "textual-serve is not installed"
    return Path(found.submodule_search_locations[0]) / "static"


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


async def until_stopped(pages: PageServer, ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C, SIGTERM or SIGHUP. Raises `OSError` where it cannot listen."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, ended.set)
    await pages.start()
    try:
        ready(pages.address)
        await ended.wait()
    finally:
        await pages.stop()
