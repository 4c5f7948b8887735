"""The tables `topics` and `brokers`: what the responses of all recordings say, which the rows of every file need (`reading.context`).

    OUTPUT/topics/all.parquet, OUTPUT/brokers/all.parquet
    OUTPUT/.landed/context/CAPTURE-NUMBER.json                what one file says, until a run has added it to the tables

Files are read for it before any of their rows are written, so that a name is known in the segments before the one that brings it.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ....decoder import Topics
from ...reading.context import Broker, Context, merged
from ...reading.storage import Place, list_files, open_filesystem, stamp
from ..bodies import shown_id
from ..columns import TABLES, Table, pyarrow
from .parquet import LANDED, ParquetFile, put_bytes

TOPICS = TABLES["topics"]
BROKERS = TABLES["brokers"]
_ALL = "all.parquet"
_CONTEXT = "context"


class _TopicName(NamedTuple):
    topic: str
    cluster_id: str | None


class Known(NamedTuple):
    """All that is known: topics by id, and by recording its brokers."""

    topics: dict[bytes, _TopicName]
    brokers: dict[str, dict[str, Broker]]

    def cluster_id(self, capture_id: str) -> str:
        """The id of a recording's only cluster, or "" (see `Context.cluster_id`)."""
        brokers = self.brokers.get(capture_id, {})
        ids = {each.cluster_id for each in brokers.values() if each.cluster_id}
        override = brokers.get("")
        return (override and override.cluster_id) or (ids.pop() if len(ids) == 1 else "") or ""


_read: dict[str, tuple[Any, Known]] = {}
"""What was read in this process, by folder, and the stamps of the files."""


class ContextTables:
    """The two tables of a folder."""

    def __init__(self, folder: Place) -> None:
        self._folder = folder

    def read(self) -> Known:
        """What the tables hold."""
        stamps = [_stamp(self._folder / table.name / _ALL) for table in (TOPICS, BROKERS)]
        before = _read.get(str(self._folder))
        if before is None or before[0] != stamps:
            known = Known({}, {})
            for row in self._rows(TOPICS):
                known.topics[urlsafe_b64decode(row["topic_id"] + "==")] = _TopicName(row["topic"], row["cluster_id"])
            for row in self._rows(BROKERS):
                known.brokers.setdefault(row["capture_id"], {})[row["broker"]] = Broker(row["cluster_id"], row["broker_id"])
            before = _read[str(self._folder)] = stamps, known
        return before[1]

    def context(self, capture_id: str) -> Context:
        """What is known about a recording; the names of topics are those of all."""
        known = self.read()
        brokers = dict(known.brokers.get(capture_id, {}))
        override = brokers.pop("", Broker()).cluster_id or ""
        return Context(brokers, Topics({topic_id: each.topic for topic_id, each in known.topics.items()}), override)

    def put(self, key: str, capture_id: str, context: Context) -> None:
        """Keep what one file says, until `merge`."""
        said = {
            "capture_id": capture_id,
            "cluster_id": context.cluster_id,
            "topics": {topic_id.hex(): name for topic_id, name in context.topics.names.items()},
            "brokers": context.brokers,
        }
        there = self._folder / LANDED / _CONTEXT / f"{key}.json"
        data = json.dumps(said).encode("utf-8", "surrogatepass")
        put_bytes(self._folder, there, data)

    def merge(self, captures: Iterable[str] = (), cluster: str = "") -> set[bytes]:
        """Add to the tables what files say, and that `captures` are of `cluster`. Returns the ids of topics that are new."""
        known, new = self.read(), set()
        topics, brokers = dict(known.topics), {name: dict(each) for name, each in known.brokers.items()}
        said_files = [each.path for each in list_files(self._folder / LANDED / _CONTEXT, deep=False) if each.path.name.endswith(".json")]
        for path in sorted(said_files, key=str):
            said = json.loads(path.read_bytes() if isinstance(path, Path) else path.read())
            found = {address: Broker(*each) for address, each in said["brokers"].items()}
            brokers[said["capture_id"]] = merged(brokers.get(said["capture_id"], {}), found)
            for text, name in said["topics"].items():
                topic_id = bytes.fromhex(text)
                old = topics.get(topic_id)
                new |= set() if old is not None else {topic_id}
                topics[topic_id] = _TopicName(name, said["cluster_id"] or (old and old.cluster_id))
        if cluster:
            for capture_id in captures:
                brokers.setdefault(capture_id, {})[""] = Broker(cluster)
        if topics != known.topics or not (self._folder / TOPICS.name / _ALL).exists():
            self._write(TOPICS, (
                {"cluster_id": each.cluster_id, "topic_id": shown_id(topic_id), "topic": each.topic}
                for topic_id, each in sorted(topics.items())
            ))  # fmt: skip
        if brokers != known.brokers or not (self._folder / BROKERS.name / _ALL).exists():
            self._write(BROKERS, (
                {"capture_id": capture_id, "broker": address, **each._asdict()}
                for capture_id, some in sorted(brokers.items()) for address, each in sorted(some.items())
            ))  # fmt: skip
        for path in said_files:
            path.unlink(missing_ok=True)
        return new

    def _write(self, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
        file = ParquetFile(self._folder, table, "all")
        try:
            file.add(pyarrow().RecordBatch.from_pylist(list(rows), schema=file.schema))
            file.close()
            file.put(self._folder / table.name / _ALL)
        finally:
            file.drop()

    def _rows(self, table: Table) -> list[dict[str, Any]]:
        from pyarrow import parquet

        there = self._folder / table.name / _ALL
        if not there.exists():
            return []
        store, path = open_filesystem(there)
        with store.open_input_file(path) as file:
            rows: list[dict[str, Any]] = parquet.ParquetFile(file).read().to_pylist()
        return rows


def _stamp(path: Place) -> tuple[int, int] | None:
    try:
        return stamp(path)
    except FileNotFoundError:
        return None
