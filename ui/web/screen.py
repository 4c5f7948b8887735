"""A screen in a process of its own, and the packets between Textual's web driver and its server.

A packet is one byte of kind (``D`` data, ``M`` meta, JSON), the size in four bytes (big-endian), and the payload. What
comes from the process is for the terminal in the page; before the first packet stands the line ``__GANGLION__``.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ..safe import visible

READY = b"__GANGLION__\n"
MOST_PACKET = 16 << 20
GRACE_SECONDS = 3.0
"""How long a screen may take to end before it is killed."""
_END_SECONDS = 10.0
WIDTHS, HEIGHTS = (20, 500), (6, 200)
_MOST_ERRORS = 4096


class ScreenProcess:
    """Runs `command` for one page."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: Process | None = None
        self._errors = b""
        self._errors_task: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[str] | None = None

    @property
    def pid(self) -> int | None:
        """Its process, once it has been started."""
        return self._process.pid if self._process else None

    async def start(self, width: int, height: int) -> None:
        """Begin, with so many columns and lines."""
        environment = os.environ | {
            "TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver",
            "TEXTUAL_COLOR_SYSTEM": "truecolor",
            "TEXTUAL_FPS": "30",
            "COLUMNS": str(between(width, WIDTHS)),
            "ROWS": str(between(height, HEIGHTS)),
        }
        # A session of its own: Ctrl-C in the server's terminal is the server's, and whatever it starts ends with it.
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment, start_new_session=True
        )
        self._errors_task = asyncio.create_task(self._read_errors())

    async def output(self, show: Callable[[bytes], Awaitable[None]]) -> None:
        """Hand on what it draws until it ends."""
        out = self._running().stdout
        assert out is not None
        try:
            while (line := await out.readline()) != READY:
                if not line:
                    return
            while True:
                kind, size = (await out.readexactly(1)), int.from_bytes(await out.readexactly(4), "big")
                if size > MOST_PACKET:
                    return
                payload = await out.readexactly(size)
                if kind == b"D":
                    await show(payload)
                elif kind == b"M" and json.loads(payload).get("type") == "exit":
                    return
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            return

    async def typed(self, text: str) -> None:
        """Keys and mouse of the page."""
        await self._send(b"D", text.encode("utf-8", "replace"))

    async def resized(self, width: int, height: int) -> None:
        """The page has another size."""
        await self.send("resize", width=between(width, WIDTHS), height=between(height, HEIGHTS))

    async def send(self, kind: str, **fields: Any) -> None:
        """Something else: focus, blur, quit."""
        await self._send(b"M", json.dumps({"type": kind, **fields}).encode())

    async def end(self) -> str:
        """End it, by force if it does not otherwise; its output when it did not end well, harmless for a terminal.

        May be called more than once. `output` must not run any more."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        return await asyncio.shield(self._ending)

    async def _end(self) -> str:
        process = self._process
        if process is None:
            return ""
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                await self.send("quit")
                await self._wait(process)
        except TimeoutError:
            pass
        finally:
            # Also what it has started, and also when we are ended ourselves while we wait.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._wait(process)
                if self._errors_task is not None:
                    await self._errors_task
        except TimeoutError:
            pass  # somebody else holds its pipes; it has ended all the same
        if process.returncode == 0:
            return ""
        return "\n".join(map(visible, self._errors.decode("utf-8", "replace").splitlines()))

    @staticmethod
    async def _wait(process: Process) -> None:
        """Wait for its end. What it still writes is read and thrown away: a full pipe would keep it from ending, and asyncio
        from noticing that it has ended."""
        while process.stdout is not None and await process.stdout.read(1 << 16):
            pass
        await process.wait()

    def _running(self) -> Process:
        assert self._process is not None, "not started"
        return self._process

    async def _read_errors(self) -> None:
        errors = self._running().stderr
        while errors is not None and (data := await errors.read(4096)):
            self._errors = (self._errors + data)[-_MOST_ERRORS:]

    async def _send(self, kind: bytes, payload: bytes) -> None:
        keys = self._running().stdin
        assert keys is not None
        try:
            keys.write(kind + len(payload).to_bytes(4, "big") + payload)
            await keys.drain()
        except (ConnectionError, RuntimeError):
            pass  # it has ended, as `output` reports


def between(number: Any, ends: tuple[int, int]) -> int:
    """A number from a page, within its bounds."""
    try:
        return max(ends[0], min(int(number), ends[1]))
    except (TypeError, ValueError, OverflowError):
        return ends[0]
