"""Schemas of a registry for the screen, fetched in a thread, as an answer may take seconds.

Until it is there, values that need the schema show that it is being asked for; then they are drawn again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from ....decoder.values import Schema, SchemaError, SchemaSource
from ....diagnostics import contained

AGAIN_SECONDS = 30.0
"""Seconds after which a schema that could not be loaded is asked for again."""


class BackgroundSchemas:
    """A `SchemaSource` that does not wait for schemas by id of `source`. Those by topic come from files, so they are read at
    once. `source` is used in the thread, which calls `loaded()` when no schema is waited for any more."""

    def __init__(self, source: SchemaSource, loaded: Callable[[], object]):
        self._source, self._loaded = source, loaded
        self._known: dict[int, Schema | None] = {}
        self._faults: dict[int, tuple[float, SchemaError]] = {}
        self._asked: SimpleQueue[int] = SimpleQueue()
        self._waiting: set[int] = set()
        self._thread: threading.Thread | None = None

    def for_topic(self, topic: str | None, is_key: bool) -> Schema | None:
        """The schema of a topic's keys or values."""
        return self._source.for_topic(topic, is_key)

    def schema(self, schema_id: int) -> Schema | None:
        """The schema. Raises SchemaError while it is being asked for, and if it cannot be loaded."""
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
            except SchemaError as error:
                self._faults[wanted] = time.monotonic() + AGAIN_SECONDS, error
            except Exception as error:  # sources are not ours: the screen shows the fault, and the thread goes on
                contained("a source of schemas", error, reported=True)
                self._faults[wanted] = time.monotonic() + AGAIN_SECONDS, SchemaError(f"schema {wanted}: {error}")
            self._waiting.discard(wanted)
            if not self._waiting:
                self._loaded()
