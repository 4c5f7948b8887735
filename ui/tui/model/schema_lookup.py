"""Schemas of a registry for the screen: asked for in a thread, as an answer may take seconds and keys must be heard.

Until an answer is there a value says that it is waited for; then the screen is told, and shows the value again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from ....decoder.values import Schema, SchemaError, SchemaSource

AGAIN_SECONDS = 30.0
"""After which a schema that could not be had is asked for again."""


class BackgroundSchemas:
    """A `SchemaSource` that never waits for `source`, unless what is asked for is a topic's: those come from files.
    `came()` is called in the thread when nothing is waited for any more. `source` is used in that thread, too."""

    def __init__(self, source: SchemaSource, came: Callable[[], object]):
        self._source, self._came = source, came
        self._known: dict[int, Schema | None] = {}
        self._faults: dict[int, tuple[float, SchemaError]] = {}
        self._asked: SimpleQueue[int] = SimpleQueue()
        self._waiting: set[int] = set()
        self._thread: threading.Thread | None = None

    def for_topic(self, topic: str | None, is_key: bool) -> Schema | None:
        """What the source has for a topic."""
        return self._source.for_topic(topic, is_key)

    def schema(self, schema_id: int) -> Schema | None:
        """The schema; SchemaError while it is being asked for, and when it could not be had."""
        if schema_id in self._known:
            return self._known[schema_id]
        until, fault = self._faults.get(schema_id, (0.0, SchemaError("")))
        if time.monotonic() < until:
            raise SchemaError(str(fault))
        if schema_id not in self._waiting:
            self._waiting.add(schema_id)
            self._asked.put(schema_id)
            if self._thread is None:
                self._thread = threading.Thread(target=self._ask, name="schemas", daemon=True)
                self._thread.start()
        raise SchemaError(f"schema {schema_id}: asking the registry ...")

    def _ask(self) -> None:
        while True:
            wanted = self._asked.get()
            try:
                self._known[wanted] = self._source.schema(wanted)
            except Exception as error:  # whatever a source does: the thread goes on, and the screen says it
                fault = error if isinstance(error, SchemaError) else SchemaError(f"schema {wanted}: {error}")
                self._faults[wanted] = time.monotonic() + AGAIN_SECONDS, fault
            self._waiting.discard(wanted)
            if not self._waiting:
                self._came()
