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
    places: dict[Place, list[Place]] = field(default_factory=dict)
    """The table's folder in each folder of tables, and the Parquet files in it."""

    @property
    def files(self) -> list[Place]:
        """All of its files."""
        return [file for files in self.places.values() for file in files]

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
                found.setdefault(table.name, TableSource(table)).places[path / table.name] = folder.paths(table.name)
    return found
