"""The real brokers behind a served recording, for requests that it cannot answer."""

from __future__ import annotations

import asyncio
import struct
import time

from ...captures import Recorder
from ...captures.serving.recorded_exchanges import addresses
from ...decoder import DecodeError, Direction, decode_response
from ...decoder.codec.message import Message
from ..events import Address

_SIZE = struct.Struct(">i")
_CONNECT_SECONDS = 10.0


class Brokers:
    """The addresses of the real brokers: `bootstrap`, and those in its responses."""

    def __init__(self, bootstrap: Address) -> None:
        self._bootstrap = bootstrap
        self._nodes: dict[int, Address] = {}

    def of(self, node: int | None) -> Address:
        """The address of a node, if it is known; else the bootstrap broker's."""
        return self._nodes.get(node, self._bootstrap) if node is not None else self._bootstrap

    def learn(self, message: Message) -> None:
        """Take the addresses from a real response."""
        for _, node, host, port in addresses(message.to_dict()):
            if node >= 0 and host:
                self._nodes[node] = host, port


class Upstream:
    """One live client's connection to one real broker, opened when it is first needed."""

    def __init__(self, number: int, client: Address, broker: Address, recorder: Recorder | None) -> None:
        self._number, self._client, self._broker, self._recorder = number, client, broker, recorder
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, frame: bytes, silent: bool) -> bytes | None:
        """The broker's answer to a request frame; None where none is due. Raises OSError."""
        if self._streams is None:
            opening = asyncio.open_connection(*self._broker)
            self._streams = await asyncio.wait_for(opening, _CONNECT_SECONDS)
            if self._recorder:
                self._recorder.opened(self._number, time.time_ns(), client=self._client, broker=self._broker)
        reader, writer = self._streams
        asked = time.time_ns()
        writer.write(_SIZE.pack(len(frame)) + frame)
        await writer.drain()
        self._record(Direction.REQUEST, asked, frame)
        if silent:
            return None
        try:
            size = _SIZE.unpack(await reader.readexactly(4))[0]
            return await reader.readexactly(size)
        except asyncio.IncompleteReadError:
            raise ConnectionResetError("the broker closed the connection") from None

    def record_response(self, frame: bytes) -> None:
        """Record a response as the client gets it, with the served addresses."""
        self._record(Direction.RESPONSE, time.time_ns(), frame)

    def _record(self, direction: Direction, time_ns: int, frame: bytes) -> None:
        if self._recorder:
            self._recorder.data(self._number, direction, time_ns, _SIZE.pack(len(frame)) + frame)

    def close(self) -> None:
        """End the connection."""
        if self._streams:
            self._streams[1].close()
            if self._recorder:
                self._recorder.closed(self._number, time.time_ns(), "fin", "client")


def read_answer(frame: bytes, api_key: int, api_version: int) -> Message | None:
    """A real response; None if it cannot be decoded."""
    try:
        return decode_response(frame, api_key=api_key, api_version=api_version)
    except DecodeError:
        return None
