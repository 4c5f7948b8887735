"""The table `records`: one row per record that was produced or fetched; keys, values and headers only if asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...decoder import Exchange, records
from ...decoder.present import Presenter
from ...decoder.values import SchemaSource
from . import bodies
from .columns import KEY, Column, Table
from .record_batches import SIDE, areas

TABLE = Table(
    "records",
    "record that was produced or fetched; a record that was fetched twice is there twice",
    (
        *KEY,
        SIDE,
        *bodies.TOPIC,
        Column("offset", "int64", "as the bytes say: of a producer's batch counted from 0"),
        Column("timestamp_ms", "int64", "milliseconds since the epoch; null in magic 0", null=True),
        Column("codec", "string", "`none`, `gzip`, `snappy`, `lz4` or `zstd`"),
        Column("control", "string", "what a marker says: `commit`, `abort`, `leader_change` ...", null=True),
        Column("key_bytes", "int32", "size of the key; null without one", null=True),
        Column("value_bytes", "int32", "size of the value; null for a tombstone", null=True),
        Column("header_count", "int32", ""),
        Column("key", "json", "text, or what a schema made of it; `hex` for other bytes", True, True, True),
        Column("value", "json", "likewise", True, True, True),
        Column("headers", "json", "a list of `key` and `value`", True, True, True),
        Column("key_raw", "bytes", "the key's bytes", True, True, True),
        Column("value_raw", "bytes", "the value's bytes", True, True, True),
    ),
)
SHOWN = ("key", "value", "headers")
"""The columns that showing values adds."""


def rows(
    exchange: Exchange, columns: frozenset[str], values: bool = False, schemas: SchemaSource | None = None
) -> Iterator[dict[str, Any]]:
    """The columns behind those of `KEY`; of the payload only `columns`, and null unless `values` are asked for.

    What cannot be read of an area is left out: the table `batches` says why.
    """
    presenter = Presenter(values, None, schemas)
    raw, payload = columns & {"key_raw", "value_raw"}, columns & set(SHOWN)
    for area in areas(exchange):
        try:
            for entry in records.batches(area.data):
                if isinstance(entry, records.Partial):
                    continue
                codec = entry.codec_name
                for record in entry.records():
                    row = {
                        "direction": area.direction,
                        **area.about,
                        "offset": record.offset,
                        "timestamp_ms": record.timestamp,
                        "codec": codec,
                        "control": record.control.name if record.control is not None else None,
                        "key_bytes": None if record.key is None else len(record.key),
                        "value_bytes": None if record.value is None else len(record.value),
                        "header_count": len(record.headers),
                    }
                    if payload and values:
                        shown = presenter.record(record, area.about["topic"])
                        row |= {name: shown.get(name) for name in SHOWN}
                    elif payload:
                        row |= dict.fromkeys(SHOWN)
                    if raw:
                        row["key_raw"] = record.key if values else None
                        row["value_raw"] = record.value if values else None
                    yield row
        except records.RecordsError:
            continue
