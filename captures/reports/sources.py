"""The files of one or more folders of tables, as engines read them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..reading.storage import Place
from ..tables.columns import Table, schema_of
from ..tables.output.folder import Folder
from ..tables.rows import TABLES


@dataclass(slots=True)
class TableSource:
    """A table: where it is, and its columns in this version. Files of an older version lack some: they are null there."""

    table: Table
    files: list[Place] = field(default_factory=list)
    """All of its Parquet files."""
    places: list[list[Place]] = field(default_factory=list)
    """For each folder of tables, what to read: the table's folder, or the files that its log names."""

    @property
    def schema(self) -> Any:
        """The columns as a `pyarrow.Schema`."""
        return schema_of(self.table.chosen())


def table_sources(paths: Iterable[Place]) -> dict[str, TableSource]:
    """Every table that one of the folders has, by its name. Raises FolderError for a folder without tables, or with those of a version
    that cannot be read."""
    found: dict[str, TableSource] = {}
    for path in paths:
        folder = Folder(path)
        folder.check()
        held = folder.held()
        for table in TABLES:
            if table.name in held:
                source, files = found.setdefault(table.name, TableSource(table)), folder.paths(table.name)
                source.files += files
                source.places.append([path / table.name] if folder.delta is None else files)
    return found
