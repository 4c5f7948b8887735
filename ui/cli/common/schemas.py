"""Schemas of record values from ``--schema`` and ``--registry``."""

from __future__ import annotations

from pathlib import Path

from ....decoder.values import FirstOf, SchemaFiles, SchemaSource, Target, read_schema
from .failure import Failure


def schemas_of(files: list[str], registry: str | None) -> SchemaSource | None:
    """The source for ``--schema FILE[=TOPIC[:key]][#MESSAGE]`` and ``--registry URL``; None if neither is given."""
    if not files and registry is None:
        return None
    known = SchemaFiles()
    try:
        for text in files:
            name, target = Target.parse(text)
            known.add(read_schema(name, Path(name).read_bytes(), target.message), target.topic, target.is_key)
        if registry is None:
            return known
        from ....captures.reading.schema_registry import Registry

        return FirstOf(known, Registry(registry))
    except OSError as error:
        raise Failure(f"--schema {error.filename}: {(error.strerror or str(error)).lower()}") from None
