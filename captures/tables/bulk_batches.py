"""The tables `batches` and `throttles` of a sound segment or a foreign capture, many exchanges at a time: rows made by C.

`body_tables.batch_rows` and `throttle_rows` are the reference, and read what the accelerator finds odd, and messages whose
plan is not of the usual form (names before what they name, nothing of it in tags). Why there is a second way: of a recording
of 195 MB (40,000 exchanges, 20,000 batches with 700,000 records) `batches` takes 0.2 s of CPU this way and 4.8 s by the
reference; all default tables of the pipeline take 5.1 s and 12.4 s.
tests/captures/tables/test_bulk_batches.py holds both to the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import crc32c

from ...decoder import Topics
from ...decoder.native.accelerator import description
from ...decoder.native.accelerator import native as decoder_native
from ...decoder.records import codecs
from ...decoder.records.batch import CODEC_MASK, CONTROL, CRC_FROM, LOG_APPEND, TRANSACTIONAL
from ...decoder.schema import facts
from ...decoder.schema.plan import StructPlan, plan
from ..native.accelerator import native
from ..reading.context import Origin
from ..recording.bulk_frames import FrameReaders, PlacedFrames, Way
from ..recording.index import SURPLUS, UNDECODED, Index
from . import bodies
from .body_tables import BATCHES, RECORD_API_KEYS, THROTTLE_TIME, THROTTLES, has_throttle_time
from .columns import Column, numpy, pyarrow, schema_of
from .index_tables import HeaderBatch
from .rows import Options

TABLES = (BATCHES.name, THROTTLES.name)
ROW = (
    *(
        (name, "i8")
        for name in ("base_offset", "last_offset", "high_watermark", "base_timestamp", "max_timestamp", "producer_id", "start")
    ),
    *((name, "i4") for name in ("frame", "size", "topic", "topic_id", "transactional_id", "partition", "record_count", "base_sequence")),
    ("crc", "u4"),
    *((name, "i2") for name in ("producer_epoch", "acks")),
    *((name, "u1") for name in ("magic", "attributes", "cut")),
    ("unused", "V5"),
)
"""A row as captures/native/batches.c writes it."""
_TOPIC, _TOPIC_ID, _PARTITION, _ACKS, _THROTTLE, _HIGH_WATERMARK, _TRANSACTIONAL_ID, _ABORTED, _AREA = range(9)
_NAMES = {"topic": _TOPIC, "topic_id": _TOPIC_ID, "partition": _PARTITION, bodies.HIGH_WATERMARK: _HIGH_WATERMARK}
_PRODUCE = facts.api_key("Produce")
_OF_PRODUCE = {"acks": _ACKS, "transactional_id": _TRANSACTIONAL_ID}
"""Fields of a Produce request as a whole."""


FindFrames = Callable[[Any], PlacedFrames]


class BulkReader:
    """Makes batches of some of the `TABLES` of a file, the frames of whose records `find_frames` finds. `topics` names topic ids."""

    def __init__(
        self, find_frames: FindFrames, index: Index, origin: Origin, options: Sequence[Options], topics: Topics
    ) -> None:
        self._find_frames, self._index, self._origin, self._topics = find_frames, index, origin, topics
        self._columns = {each.table.name: each.columns for each in options}
        areas, throttled = (name in self._columns for name in TABLES)
        self._readers = FrameReaders(lambda request, key, version: _way(request, key, version, areas, throttled))

    def read(self, numbers: Any) -> tuple[dict[str, tuple[Any, Any]], Any]:
        """Of the exchanges `numbers`: by table, the `pyarrow.RecordBatch` of the rows and the exchange of each; and the
        exchanges that are left to the reference."""
        np = numpy()
        records = self._index.array()[numbers]
        placed = self._find_frames(records)
        found = self._readers.frames(records, placed, UNDECODED | SURPLUS)
        owner, request, left = found.owners, found.requests, found.left
        topics: dict[bytes, int] = {}
        topic_ids: dict[bytes, int] = {}
        transactional_ids: dict[bytes, int] = {}
        assert native is not None
        made_rows = native.batches(placed.data, found.frames, self._readers.ways, topics, topic_ids, transactional_ids)
        rows, throttled, odd = (
            np.frombuffer(data, kind) for data, kind in zip(made_rows, (list(ROW), "i4", "?"), strict=True)
        )
        left[owner[odd]] = True
        made = {}
        good = rows[~left[owner[rows["frame"]]]]
        waits = (throttled > 0) & ~left[owner]
        for name, columns in self._columns.items():
            at = owner[waits] if name == THROTTLES.name else owner[good["frame"]]
            mine = records[at], numbers[at], self._origin
            if name == THROTTLES.name:
                batch: HeaderBatch = _ThrottleColumns(self._index, *mine, throttled[waits])
            else:
                row_names = _Names(topics, topic_ids, self._topics, transactional_ids)
                batch = _BatchColumns(self._index, *mine, good, request[good["frame"]], placed.data, row_names)
            made[name] = _batch(batch, columns), numbers[at]
        return made, numbers[left]


@cache
def _way(request: bool, api_key: int, api_version: int, areas: bool, throttled: bool) -> Way | bool | None:
    """The reader of such messages; False: they need not be read; None: their plan is not of the usual form."""
    kind = "request" if request else "response"
    of, sinks = plan(kind, api_key, api_version), dict[str, int]()
    if areas and api_key in RECORD_API_KEYS:
        if not _sinks(bodies.record_shape(kind, api_key, api_version), of.root, "", sinks):
            return None
        if sinks and request and api_key == _PRODUCE:
            sinks |= {field.name: _OF_PRODUCE[field.name] for field in of.root.fields if field.name in _OF_PRODUCE}
    if throttled and not request and has_throttle_time(api_key, api_version):
        sinks[THROTTLE_TIME] = _THROTTLE
    if any(field.tag is not None and field.name in sinks for field in of.root.fields):
        return None
    if not sinks or native is None or decoder_native is None:
        return False
    return decoder_native.Reader(description(of.root, sinks), len(sinks)), request, of.header_version, api_key, api_version


def _sinks(shape: bodies.Shape, struct: StructPlan, prefix: str, sinks: dict[str, int]) -> bool:
    """Put the fields that are to be kept into `sinks`; whether what names an area stands before it, once, and in no tag."""
    behind = [(at, field) for at, field, _ in shape.inside] + [(at, struct.fields[at]) for at, _ in shape.leaves]
    if not behind:
        return True
    (where, last), names = behind[0], [each for each in shape.names if each[2] in _NAMES]
    before = {name: at for at, _, name in names}
    if len(behind) > 1 or len(before) != len(names) or any(at > where for at in before.values()):
        return False
    if last.tag is not None or any(field.tag is not None for _, field, _ in names):
        return False
    for _, field, name in names:
        sinks[prefix + field.name] = _NAMES[name]
    if shape.leaves:
        sinks[prefix + last.name] = _AREA
        if any(field.name == "aborted_transactions" for field in struct.fields):
            sinks[f"{prefix}aborted_transactions.producer_id"] = _ABORTED
        return True
    return last.struct is not None and _sinks(shape.inside[0][2], last.struct, f"{prefix}{last.name}.", sinks)


def _batch(made: HeaderBatch, columns: Sequence[Column]) -> Any:
    fields = schema_of(columns)
    arrays = [made.column(column.name).cast(fields.field(column.name).type) for column in columns]
    return pyarrow().RecordBatch.from_arrays(arrays, schema=fields)


class _ThrottleColumns(HeaderBatch):
    """Rows of throttle times as Arrow columns."""

    def __init__(self, index: Index, records: Any, numbers: Any, origin: Origin, times: Any) -> None:
        super().__init__(pyarrow(), numpy(), index, records, numbers, origin)
        self._times = times

    def _throttle_ms(self) -> Any:
        return self._pa.array(self._times)


class _Names(NamedTuple):
    """Topics and transactional ids of rows: by bytes, their numbers in the rows; and the names of topic ids."""

    topics: dict[bytes, int]
    ids: dict[bytes, int]
    known: Topics
    transactional_ids: dict[bytes, int]


class _BatchColumns(HeaderBatch):
    """Rows of batches as Arrow columns. `requests`: which are of requests; null where a batch is cut off before the value."""

    def __init__(
        self,
        index: Index,
        records: Any,
        numbers: Any,
        origin: Origin,
        rows: Any,
        requests: Any,
        data: Any,
        names: _Names,
    ) -> None:
        super().__init__(pyarrow(), numpy(), index, records, numbers, origin)
        self._rows, self._requests, self._data, self._row_names = rows, requests, data, names
        self._cut = rows["cut"] != 0

    def column(self, name: str) -> Any:
        if name in _AS_READ:
            field, whole = _AS_READ[name]
            values = self._np.ascontiguousarray(self._rows[field])
            return self._pa.array(values, mask=self._cut if whole else None)
        return super().column(name)

    def _one_of(self, texts: Sequence[str | None], places: Any, null: Any = None) -> Any:
        return self._pa.array(texts, self._pa.string()).take(self._pa.array(places, self._pa.int32(), mask=null))

    def _direction(self) -> Any:
        return self._one_of(("response", "request"), self._requests.astype(self._np.int32))

    def _topic(self) -> Any:
        texts = [
            *(each.decode() for each in self._row_names.topics),
            *(self._row_names.known.name(each) for each in self._row_names.ids),
        ]
        named, by_id = self._rows["topic"], self._rows["topic_id"]
        places = self._np.where(named >= 0, named, by_id + len(self._row_names.topics))
        return self._one_of(texts, places, (named < 0) & (by_id < 0))

    def _topic_id(self) -> Any:
        by_id = self._rows["topic_id"]
        return self._one_of([bodies.shown_id(each) for each in self._row_names.ids], by_id, by_id < 0)

    def _partition(self) -> Any:
        return self._pa.array(self._np.ascontiguousarray(self._rows["partition"]))

    def _acks(self) -> Any:
        return self._pa.array(self._np.ascontiguousarray(self._rows["acks"]), mask=~self._requests)

    def _transactional_id(self) -> Any:
        places = self._rows["transactional_id"]
        return self._one_of([each.decode() for each in self._row_names.transactional_ids], places, places < 0)

    def _high_watermark(self) -> Any:
        marks = self._np.ascontiguousarray(self._rows["high_watermark"])
        return self._pa.array(marks, mask=marks < 0)

    def _codec(self) -> Any:
        kinds = self._rows["attributes"] & CODEC_MASK
        return self._one_of([codecs.name(each) for each in range(CODEC_MASK + 1)], kinds.astype("i4"), self._cut)

    def _timestamp_type(self) -> Any:
        appended = self._rows["attributes"] & LOG_APPEND != 0
        return self._one_of(("create", "log_append"), appended.astype("i4"), self._cut)

    def _flag(self, bit: int) -> Any:
        return self._pa.array(self._rows["attributes"] & bit != 0, mask=self._cut)

    def _transactional(self) -> Any:
        return self._flag(TRANSACTIONAL)

    def _control(self) -> Any:
        return self._flag(CONTROL)

    def _aborted(self) -> Any:
        return self._pa.array(self._np.zeros(len(self._rows), bool), mask=self._cut)

    def _crc_ok(self) -> Any:
        rows, computed = self._rows, crc32c.crc32c
        starts, sizes = (rows["start"] + CRC_FROM).tolist(), (rows["size"] - CRC_FROM).tolist()
        with memoryview(self._data) as data:
            sums = [
                0 if cut else computed(data[start : start + size])
                for start, size, cut in zip(starts, sizes, self._cut.tolist(), strict=True)
            ]
        return self._pa.array(self._np.array(sums, "u4") == rows["crc"], mask=self._cut)

    def _problem(self) -> Any:
        return self._one_of(("cut off",), self._np.zeros(len(self._rows), "i4"), ~self._cut)


_AS_READ = {
    "base_offset": ("base_offset", False),
    "last_offset": ("last_offset", True),
    "magic": ("magic", False),
    "record_count": ("record_count", True),
    "size_bytes": ("size", False),
    "base_timestamp_ms": ("base_timestamp", True),
    "max_timestamp_ms": ("max_timestamp", True),
    "producer_id": ("producer_id", True),
    "producer_epoch": ("producer_epoch", True),
    "base_sequence": ("base_sequence", True),
}
"""The columns that are numbers of a row: which, and whether a batch has to be whole for it."""
