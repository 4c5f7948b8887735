"""The proxy's events as the control server remembers them: numbered, bounded, and awaited."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from typing import Any

from ..events import Event, decode

COUNT = 10_000


class History:
    """Numbers count from 1; a number is a cursor."""

    def __init__(self, count: int = COUNT) -> None:
        self._kept: deque[tuple[int, str, bytes]] = deque(maxlen=count)
        """(ns since the epoch, the event's name, its packet). As they came: counts come every second for as long as a
        proxy runs, and taken apart an event takes three times the memory."""
        self._came = asyncio.Event()
        self.newest = 0
        self.missed = 0
        """Events that never came here, because they came too fast."""

    def add(self, packet: bytes) -> Event | None:
        """Take a packet of the supervisor."""
        message: dict[str, Any] = json.loads(packet)
        if "missed" in message:
            self.missed += message["missed"]
            return None
        event = decode(packet)
        self.newest += 1
        self._kept.append((time.time_ns(), sys.intern(message["event"]), packet))
        self._came.set()
        self._came = asyncio.Event()
        return event

    def since(self, cursor: int, limit: int, kinds: frozenset[str]) -> tuple[list[dict[str, Any]], int, int]:
        """(events behind the cursor, the cursor to go on with, how many are gone)."""
        if cursor > self.newest:
            cursor = 0  # a cursor of another run
        oldest = self.newest + 1 - len(self._kept)
        lost = max(oldest - 1 - cursor, 0)
        found: list[dict[str, Any]] = []
        for index in range(max(cursor + 1 - oldest, 0), len(self._kept)):
            time_ns, kind, packet = self._kept[index]
            if not kinds or kind in kinds:
                found.append(_as_dict(oldest + index, time_ns, packet))
                if len(found) >= limit:
                    return found, oldest + index, lost
        return found, self.newest, lost

    async def wait(self, seconds: float) -> None:
        """Until something new comes, at most so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._came.wait()
        except TimeoutError:
            pass


def _as_dict(number: int, time_ns: int, packet: bytes) -> dict[str, Any]:
    event = decode(packet)
    return {"id": number, "time_ns": time_ns, "text": event.text, "warning": event.warning, **json.loads(packet)}
