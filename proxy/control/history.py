"""The proxy's events, numbered and bounded, for readers that can wait for the next."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from typing import NamedTuple

from ..events import Event, decode
from ..processes.control_messages import Json

COUNT = 10_000


class _Received(NamedTuple):
    """An event as it came: decoded it would take three times the memory, and counts come every second."""

    time_ns: int
    kind: str
    packet: bytes


class EventHistory:
    """Numbers count from 1; a number is a cursor."""

    def __init__(self, count: int = COUNT) -> None:
        self._kept: deque[_Received] = deque(maxlen=count)
        self._came = asyncio.Event()
        self.newest = 0
        self.missed = 0
        """Events that the supervisor could not send, because they came too fast."""

    def add(self, packet: bytes) -> Event | None:
        """Keep a packet of the supervisor; the event in it, if there is one."""
        message: Json = json.loads(packet)
        if "missed" in message:
            self.missed += message["missed"]
            return None
        event = decode(packet)
        self.newest += 1
        self._kept.append(_Received(time.time_ns(), sys.intern(message["event"]), packet))
        self._came.set()
        self._came = asyncio.Event()
        return event

    def since(self, cursor: int, limit: int, kinds: frozenset[str]) -> tuple[list[Json], int, int]:
        """(events after the cursor, the next cursor, number of events that are gone)."""
        if cursor > self.newest:
            cursor = 0  # a cursor of another run
        oldest = self.newest + 1 - len(self._kept)
        lost = max(oldest - 1 - cursor, 0)
        found: list[Json] = []
        for index in range(max(cursor + 1 - oldest, 0), len(self._kept)):
            received = self._kept[index]
            if not kinds or received.kind in kinds:
                found.append(_as_dict(oldest + index, received))
                if len(found) >= limit:
                    return found, oldest + index, lost
        return found, self.newest, lost

    async def wait(self, seconds: float) -> None:
        """Wait for a new event, at most so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._came.wait()
        except TimeoutError:
            pass


def _as_dict(number: int, received: _Received) -> Json:
    event, fields = decode(received.packet), json.loads(received.packet)
    return {"id": number, "time_ns": received.time_ns, "text": event.text, "warning": event.warning, **fields}
