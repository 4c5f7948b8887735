"""The server of the pages: an address with a token, and headers that hold pages to this server.

The pages are NiceGUI's, which brings its front end (Vue, Quasar, AG Grid, ECharts) in its wheel. It evaluates scripts that
the server sends, so the policy allows `eval`, but of inline scripts only those with this response's nonce.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import secrets
import signal
import socket
from collections.abc import Callable, Iterator
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlencode

# NiceGUI reads a file of this folder when it is imported, by default one below the current folder.
os.environ["NICEGUI_STORAGE_PATH"] = os.path.join(os.devnull, "nicegui")

import uvicorn
from fastapi import FastAPI
from nicegui import app as pages_app
from nicegui import ui
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...diagnostics import contained
from ...proxy.control.auth import AccessRefused
from ..safe import visible
from .access import TOKEN, Access

POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-eval' 'nonce-{}'; style-src 'self' 'unsafe-inline'; "
    "font-src 'self' data:; img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'"
)
_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Server": "barnabas"}
_SCRIPT = re.compile(rb"<script(?=[\s>])")
_END_SECONDS = 3
ProtocolPage = Callable[[str], str | None]
"""The page about an API of the protocol by its name, their list for "", None for a name that is none."""


class Gate:
    """Answers only requests with the token or its cookie (`Access`), and puts security headers on the answers of `app`."""

    def __init__(self, app: ASGIApp, access: Access, protocol_page: ProtocolPage) -> None:
        self.app, self._access, self._protocol_page = app, access, protocol_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        query = {name: values[0] for name, values in parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True).items()}
        try:
            self._access.check({"Host": headers.get("host", "")}, query, _cookies(headers))
            if scope["type"] == "websocket" or scope["method"] not in ("GET", "HEAD"):
                self._access.check_origin({"Host": headers.get("host", ""), "Origin": headers.get("origin", "")})
        except AccessRefused as refused:
            refusal = PlainTextResponse(f"barnabas: {refused}\n", refused.status)
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            else:
                await refusal(scope, receive, _Answer(send, secrets.token_urlsafe(16)))
            return
        if scope["type"] == "websocket":
            await self.app(scope, receive, send)
            return
        answer = _Answer(send, secrets.token_urlsafe(16))
        path = scope["path"]
        if TOKEN in query:
            await self._enter(path, query)(scope, receive, answer)
        elif path.startswith(protocol := f"{self._access.folder}protocol/"):
            await (await self._protocol(path.removeprefix(protocol)))(scope, receive, answer)
        else:
            await self.app(scope, receive, answer)

    def _enter(self, path: str, query: dict[str, str]) -> Response:
        """An address with the token: from here on the cookie counts, and histories keep no token."""
        folder = self._access.folder
        rest = urlencode({name: value for name, value in query.items() if name != TOKEN})
        inside = folder + path.removeprefix(folder).lstrip("/")
        response = RedirectResponse(inside + (f"?{rest}" if rest else ""), 303)
        response.set_cookie(self._access.cookie, self._access.ticket, httponly=True, samesite="strict", path=folder)
        return response

    async def _protocol(self, name: str) -> Response:
        # in a thread: an API with many versions takes a while
        page = await asyncio.to_thread(self._protocol_page, name) if re.fullmatch(r"\w*", name) else None
        return PlainTextResponse("barnabas: there is no such API\n", 404) if page is None else HTMLResponse(page)


class _Answer:
    """Sends an answer with the security headers; a page of NiceGUI with the nonce on its scripts."""

    def __init__(self, send: Send, nonce: str) -> None:
        self._send, self._nonce = send, nonce
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            headers["Content-Security-Policy"] = POLICY.format(self._nonce)
            # Components of the front end, which change with its version; their paths are below the secret one.
            headers["Cache-Control"] = "private, max-age=86400" if "public" in headers.get("Cache-Control", "") else "no-store"
            if headers.get("X-NiceGUI-Content") == "page":
                self._start = message
                return
        elif self._start is not None:
            self._body += message.get("body", b"")
            if message.get("more_body"):
                return
            # What comes from the traffic is in the page as escaped JSON, and so without this tag.
            body = _SCRIPT.sub(f'<script nonce="{self._nonce}"'.encode(), self._body)
            MutableHeaders(scope=self._start)["Content-Length"] = str(len(body))
            await self._send(self._start)
            message, self._start = {"type": "http.response.body", "body": body}, None
        await self._send(message)


def _cookies(headers: Headers) -> dict[str, str]:
    found: SimpleCookie = SimpleCookie()
    with contextlib.suppress(CookieError):
        found.load(headers.get("cookie", ""))
    return {name: morsel.value for name, morsel in found.items()}


class _Server(uvicorn.Server):
    """Leaves signals to its caller."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class PageServer:
    """Serves the pages that are registered with NiceGUI, at `host`, `port` (0: a free one). Raises `OSError`.

    `first`: the filter in the address with the token, "" for none."""

    def __init__(
        self, host: str, port: int, *, title: str, dark: bool | None, first: str, protocol_page: ProtocolPage
    ) -> None:
        self._socket = _listen(host, port)
        self._host, self._port, self._first = host, self._socket.getsockname()[1], first
        self.access = Access(host, self._port)
        outer = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
        for path in ("/docs", "/redoc", "/openapi.json", "/docs/oauth2-redirect"):
            pages_app.remove_route(path)
        ui.run_with(
            outer, title=title, dark=dark, mount_path=self.access.folder.rstrip("/"), binding_refresh_interval=None, tailwind=False,
            gzip_middleware_factory=None, show_welcome_message=False, reconnect_timeout=10.0, message_history_length=200,
        )  # fmt: skip
        for library in ("nicegui", "uvicorn"):  # errors of pages are shown and logged by `_failed`
            logging.getLogger(library).addHandler(logging.NullHandler())
        pages_app.on_exception(lambda error: contained("a page", error, reported=True))
        pages_app.on_page_exception(_failed)
        gate = Gate(outer, self.access, protocol_page)
        self._server = _Server(
            uvicorn.Config(
                gate, log_config=None, access_log=False, server_header=False, proxy_headers=False, lifespan="on", loop="asyncio",
                timeout_graceful_shutdown=_END_SECONDS,
            )
        )  # fmt: skip

    @property
    def address(self) -> str:
        """Where to look, with the token."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        filter = {"filter": self._first} if self._first else {}
        return f"http://{host}:{self._port}/?" + urlencode({TOKEN: self.access.token} | filter)

    async def serve(self, ready: Callable[[str], None], beside: Callable[[], Any]) -> None:
        """Serve until Ctrl-C, SIGTERM or SIGHUP, and run the coroutine function `beside` meanwhile."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop)
        serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        work = asyncio.create_task(beside())
        try:
            while not self._server.started and not serving.done():
                await asyncio.sleep(0.01)
            if not serving.done():
                ready(self.address)
            await asyncio.wait([serving, work], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._stop()
            work.cancel()
            await serving
            with contextlib.suppress(asyncio.CancelledError):
                await work

    def _stop(self) -> None:
        self._server.should_exit = True


def _failed(error: Exception) -> None:
    """The page in place of one that could not be made."""
    contained("a page", error, reported=True)
    ui.label(f"This page failed: {visible(f'{type(error).__name__}: {error}')}. barnabas -v logs the details.")


def _listen(host: str, port: int) -> socket.socket:
    family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listening = socket.socket(family, kind, number)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError:
        listening.close()
        raise
    return listening
