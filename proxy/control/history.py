"""The proxy's events as the control server remembers them: numbered, bounded, and awaited."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from typing import Any

from ..events import Event, decode

COUNT = 10_000


class History:
    """Numbers count from 1; a number is a cursor."""

    def __init__(self, count: int = COUNT) -> None:
        self._kept: deque[dict[str, Any]] = deque(maxlen=count)
        self._came = asyncio.Event()
        self.newest = 0
        self.missed = 0
        """Events that never came here, because they came too fast."""

    def hear(self, packet: bytes) -> Event | None:
        """Take a packet of the supervisor."""
        said: dict[str, Any] = json.loads(packet)
        if "missed" in said:
            self.missed += said["missed"]
            return None
        event = decode(packet)
        self.newest += 1
        self._kept.append(
            {"id": self.newest, "time_ns": time.time_ns(), "text": event.text, "warning": event.warning, **said}
        )
        self._came.set()
        self._came = asyncio.Event()
        return event

    def since(self, cursor: int, limit: int, kinds: frozenset[str]) -> tuple[list[dict[str, Any]], int, int]:
        """(events behind the cursor, the cursor to go on with, how many are gone)."""
        if cursor > self.newest:
            cursor = 0  # a cursor of another run
        oldest = self._kept[0]["id"] if self._kept else self.newest + 1
        lost = max(oldest - 1 - cursor, 0)
        found: list[dict[str, Any]] = []
        for index in range(max(cursor + 1 - oldest, 0), len(self._kept)):
            event = self._kept[index]
            if not kinds or event["event"] in kinds:
                found.append(event)
                if len(found) >= limit:
                    return found, event["id"], lost
        return found, self.newest, lost

    async def wait(self, seconds: float) -> None:
        """Until something new comes, at most so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._came.wait()
        except TimeoutError:
            pass
