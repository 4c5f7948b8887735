"""The control server's ends of the channels to the other processes: commands and their answers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ..processes.channel import Unpacker, pack
from ..processes.control_messages import (
    AwaitHits,
    Command,
    Failure,
    ForgetWait,
    Json,
    Notices,
    Refused,
    answer,
    notice,
    packed,
)
from ..ring.wakeup import sound

A = TypeVar("A")
Notice = Callable[[Notices, bytes], None]
ASK_SECONDS = 25.0
"""How long a process may take for an answer; a client of the control API waits for 30 s (`client.Control`)."""


class CommandFailed(Exception):
    """A command was refused, or could not be sent. more: where in a text, such as `line` and `column`."""

    def __init__(self, kind: Failure, text: str, **more: int) -> None:
        super().__init__(text)
        self.kind = kind
        self.more = more


class AsyncChannel:
    """A channel in asyncio. `notice` gets what answers no command; `bell` is rung after every command."""

    def __init__(self, name: str, notice: Notice | None = None, bell: int | None = None) -> None:
        self.name = name
        self.up = False
        self._notice = notice
        self._bell = bell
        self._number = 0
        self._asked: dict[int, asyncio.Future[Json]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None

    async def connect(self, sock: socket.socket) -> None:
        reader, self._writer = await asyncio.open_connection(sock=sock)
        self.up = True
        self._task = asyncio.create_task(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        unpacker = Unpacker()
        with contextlib.suppress(OSError, ValueError):
            while data := await reader.read(1 << 20):
                for packet, blob in unpacker.feed(data):
                    if "id" not in packet:
                        if self._notice is not None:
                            self._notice(notice(packet), blob)
                    elif (waiting := self._asked.get(packet.pop("id"))) is not None and not waiting.done():
                        waiting.set_result(packet)
        self.up = False
        for future in self._asked.values():
            if not future.done():
                future.set_exception(CommandFailed(Failure.GONE, f"the {self.name} process has ended"))

    async def ask(self, command: Command[A], data: bytes = b"", within: float = ASK_SECONDS) -> A:
        """The answer to a command; CommandFailed if there is none."""
        if not self.up or self._writer is None:
            raise CommandFailed(Failure.GONE, f"the {self.name} process is not running")
        self._number += 1
        number = self._number
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        try:
            self._send(command, number, data)
            try:
                async with asyncio.timeout(within):
                    found = answer(await future)
            except TimeoutError:
                raise CommandFailed(Failure.GONE, f"the {self.name} process did not answer in {within:g} s") from None
        finally:
            del self._asked[number]
            if isinstance(command, AwaitHits) and not future.done():
                self._number += 1
                self._send(ForgetWait(number), self._number)
        if isinstance(found, Refused):
            place = {} if found.start is None or found.end is None else {"start": found.start, "end": found.end}
            raise CommandFailed(found.error, found.text, **place)
        return cast("A", found)

    def _send(self, command: Command[Any], number: int, data: bytes = b"") -> None:
        if self._writer is not None and self.up:
            self._writer.write(pack(packed(command, number), data))
            if self._bell is not None:
                sound(self._bell)
