"""The control server's ends of the channels to the other processes: commands and their answers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

from ..ring.wakeup import sound
from ..supervisor.channel import Unpacker, pack

Answer = dict[str, Any]
Notice = Callable[[dict[str, Any], bytes], None]
ASK_SECONDS = 25.0
"""How long a process may take for an answer; a client of the control API waits for 30 s (`client.Control`)."""


class CommandFailed(Exception):
    """A command was refused, or could not be sent. `kind`: "missing", "exists", "invalid", "busy" or "gone"."""

    def __init__(self, kind: str, text: str, **more: Any) -> None:
        super().__init__(text)
        self.kind = kind
        self.more = more


class AsyncChannel:
    """A channel in asyncio. `notice` gets messages that answer no command; `bell` is rung after every command."""

    def __init__(self, name: str, notice: Notice | None = None, bell: int | None = None) -> None:
        self.name = name
        self.up = False
        self._notice = notice
        self._bell = bell
        self._number = 0
        self._asked: dict[int, asyncio.Future[Answer]] = {}
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
                for message, blob in unpacker.feed(data):
                    waiting = self._asked.get(message.get("id", -1)) if "notice" not in message else None
                    if waiting is not None:
                        if not waiting.done():
                            waiting.set_result(message)
                    elif self._notice is not None and "notice" in message:
                        self._notice(message, blob)
        self.up = False
        for future in self._asked.values():
            if not future.done():
                future.set_exception(CommandFailed("gone", f"the {self.name} process has ended"))

    async def ask(self, do: str, data: bytes = b"", within: float = ASK_SECONDS, **fields: Any) -> Answer:
        """The answer to a command; CommandFailed if there is none."""
        if not self.up or self._writer is None:
            raise CommandFailed("gone", f"the {self.name} process does not run")
        self._number += 1
        number = self._number
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        try:
            self._send({"id": number, "do": do, **fields}, data)
            try:
                async with asyncio.timeout(within):
                    answer = await future
            except TimeoutError:
                raise CommandFailed("gone", f"the {self.name} process did not answer in {within:g} s") from None
        finally:
            del self._asked[number]
            if do == "wait" and not future.done():
                self._send({"do": "forget", "wait": number})
        if "error" in answer:
            more = {name: answer[name] for name in ("start", "end") if name in answer}
            raise CommandFailed(answer["error"], answer.get("text", ""), **more)
        answer.pop("id", None)
        return answer

    def _send(self, message: dict[str, Any], data: bytes = b"") -> None:
        if self._writer is not None and self.up:
            self._writer.write(pack(message, data))
            if self._bell is not None:
                sound(self._bell)
