"""The control server's process: the HTTP API that controls the proxy.

    python -m barnabas.proxy.control FD     FD: the supervisor's socket; settings come as its first packet

A separate process, so that clients of this API cost the relay and the supervisor nothing. When it ends, traffic goes on,
rules stay, and the relay releases the frames that waited for a decision.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from typing import Any

from aiohttp import web

from ... import diagnostics
from ..events import Address, Event, InternalError, ShutdownAsked, encode
from ..processes.child import PACKET, receive_settings
from ..processes.control_messages import Failure, Notices
from .api.api import Api, Handler, Metrics, ProcessState, answer, failure
from .api.bounds import BODY_BYTES
from .api.routes import OPEN, ROUTES
from .async_channel import AsyncChannel, CommandFailed
from .auth import AccessGuard, AccessRefused
from .held_frame_copies import HeldFrameCopies
from .history import EventHistory
from .logs import logger
from .relays import Relays
from .startup import ControlSettings

AT_ONCE = 128
"""Most requests that are answered at one time, streams included."""
NICE = 5
SCRAPE_SECONDS = 5.0
_OF_STATUS = {404: Failure.MISSING, 405: Failure.METHOD, 413: Failure.TOO_LARGE}


def metrics_source(address: Address | None) -> Metrics | None:
    """A function that asks the meter at `address`, which answers one request and closes; None without an address."""
    if address is None:
        return None
    host, port = address

    async def ask(accept: str) -> tuple[bytes, str]:
        async with asyncio.timeout(SCRAPE_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                accept = "".join(letter for letter in accept if letter.isprintable())
                writer.write(f"GET /metrics HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\n\r\n".encode())
                await writer.drain()
                data = await reader.read(-1)
            finally:
                writer.close()
        head, _, text = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        if first.split(" ")[1:2] != ["200"]:
            raise ValueError(first)
        fields = (line.partition(":") for line in lines)
        kinds = [value.strip() for name, _, value in fields if name.lower() == "content-type"]
        return text, kinds[0] if kinds else "text/plain"

    return ask


class ControlServer:
    """The HTTP application, and the packets from the supervisor."""

    def __init__(self, supervisor: socket.socket, settings: ControlSettings) -> None:
        self._supervisor = supervisor
        diagnostics.listen(lambda error: self._emit(InternalError(error.what, error.error, error.count)))
        self._settings = settings
        self._done = asyncio.Event()
        held = HeldFrameCopies()
        workers = settings.relays

        def notice(notice: Notices, data: bytes) -> None:
            relays.notice(notice, data)

        channels = {
            name: AsyncChannel(name, notice if name in workers else None, settings.bells.get(name)) for name in settings.channels
        }
        relays = Relays([channels[name] for name in workers], held.notice)
        info = settings.info
        self._api = Api(info, channels, self._shutdown, EventHistory(), held, relays, metrics_source(info.metrics))
        self._api.processes = {name: ProcessState(pid) for name, pid in (info.processes | {"control": os.getpid()}).items()}
        self._listener = socket.socket(fileno=settings.listener)
        port = 0 if settings.unix else self._listener.getsockname()[1]
        self._guard = AccessGuard(settings.token, port)
        self._busy = 0

    def _shutdown(self) -> None:
        self._emit(ShutdownAsked())

    def _emit(self, event: Event) -> None:
        with contextlib.suppress(OSError):
            self._supervisor.send(encode(event), socket.MSG_DONTWAIT)

    # -- the supervisor --------------------------------------------------------------------------------------

    def _readable(self) -> None:
        for _ in range(64):
            try:
                packet, fds, _, _ = socket.recv_fds(self._supervisor, PACKET, 1)
            except BlockingIOError:
                return
            except OSError:
                packet, fds = b"", []
            if fds:
                self._connect_successor(json.loads(packet)["channel"], fds[0])
                continue
            if not packet:
                asyncio.get_running_loop().remove_reader(self._supervisor)
                self._done.set()
                return
            try:
                event = self._api.history.add(packet)
            except (ValueError, KeyError, TypeError):
                continue  # an event of a kind that is not known here
            if event is not None:
                self._api.on_event(event)

    def _connect_successor(self, name: str, fd: int) -> None:
        """Take the channel of a process that replaces one that ended."""
        sock = socket.socket(fileno=fd)
        api = self._api
        if api.relays.channel(name) is not None:
            renewed = api.relays.renew(name, sock)
        else:
            fresh = api.channels[name] = AsyncChannel(name, None, self._settings.bells.get(name))
            renewed = fresh.connect(sock)
        api.start(renewed)

    # -- requests --------------------------------------------------------------------------------------------

    @web.middleware
    async def _checked(self, request: web.Request, handler: Any) -> web.StreamResponse:
        sock = request.transport.get_extra_info("socket") if request.transport is not None else None
        try:
            self._guard.check(request.headers, sock, with_token=request.path not in OPEN)
        except AccessRefused as error:
            kind = Failure.UNAUTHORIZED if error.status == 401 else Failure.FORBIDDEN
            refused = answer({"error": kind, "message": str(error)}, error.status)
            if error.status == 401:
                refused.headers["WWW-Authenticate"] = "Bearer"
            return refused
        if self._busy >= AT_ONCE:
            return failure(CommandFailed(Failure.BUSY, f"{AT_ONCE} requests are already being answered"))
        self._busy += 1
        try:
            response: web.StreamResponse = await handler(request)
            return response
        except CommandFailed as error:
            return failure(error)
        except web.HTTPException as error:
            kind = _OF_STATUS.get(error.status, Failure.MALFORMED)
            refused = answer({"error": kind, "message": error.text or error.reason}, error.status)
            if "Allow" in error.headers:
                refused.headers["Allow"] = error.headers["Allow"]
            return refused
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:  # one request must not end the server
            diagnostics.contained("a request of the control API", error)
            return failure(CommandFailed(Failure.FAILED, f"{type(error).__name__}: {error}"))
        finally:
            self._busy -= 1

    def _handler(self, handler: Handler) -> Any:
        async def call(request: web.Request) -> web.StreamResponse:
            response = await handler(self._api, request)
            response.headers.setdefault("Cache-Control", "no-store") if not response.prepared else None
            return response

        return call

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._checked], client_max_size=BODY_BYTES)
        for route in ROUTES:
            app.router.add_route(route.method, route.path, self._handler(route.handler))
        return app

    async def run(self) -> None:
        """Until the supervisor closes its end."""
        loop = asyncio.get_running_loop()
        for name, fd in self._settings.channels.items():
            await self._api.channels[name].connect(socket.socket(fileno=fd))
        self._supervisor.setblocking(False)
        runner = web.AppRunner(
            self.application(),
            access_log=None,
            logger=logger("barnabas.control"),
            handler_cancellation=True,
            shutdown_timeout=0.5,
            keepalive_timeout=60,
        )
        await runner.setup()
        self._listener.setblocking(False)
        site = web.SockSite(runner, self._listener, backlog=128)
        await site.start()
        loop.add_reader(self._supervisor, self._readable)
        await self._done.wait()
        await runner.cleanup()


async def _serve(supervisor: socket.socket, settings: ControlSettings) -> None:
    await ControlServer(supervisor, settings).run()


def main() -> None:
    supervisor, settings = receive_settings(int(sys.argv[1]), ControlSettings)
    os.nice(NICE)
    asyncio.run(_serve(supervisor, settings))


if __name__ == "__main__":
    main()
