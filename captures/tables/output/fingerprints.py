"""The names of files that had to be read for them: captures of other tools are named by their bytes (`segments.name_file`).

    OUTPUT/.fingerprints        path, size, time -> name; JSON

So each is read for it once, also a copy of another, or one that was touched. Without this file, all are read for it again.
"""

from __future__ import annotations

import json
from pathlib import Path

from ...reading.storage import Place
from ..segments import Known, Name
from .parquet import put_bytes

_FILE = ".fingerprints"


class Fingerprints:
    """Those of a folder of tables."""

    def __init__(self, folder: Place) -> None:
        self._there = folder / _FILE

    def read(self) -> dict[tuple[str, int, int], Name]:
        """The names by path, size and `modified_ns`."""
        try:
            data = self._there.read_bytes() if isinstance(self._there, Path) else self._there.read()
            return {(path, size, modified_ns): Name(*name) for path, size, modified_ns, name in json.loads(data)}
        except (OSError, ValueError, TypeError):  # not there, or damaged
            return {}

    def save(self, known: Known, added: Known) -> None:
        """Keep those of files that are still `known`, and the `added` ones. Raises OSError."""
        before = self.read()
        names = {file: name for file, name in before.items() if file in known} | dict(added)
        if names != before:
            data = json.dumps([[*file, name] for file, name in sorted(names.items())])
            put_bytes(self._there.parent, self._there, data.encode("utf-8", "surrogateescape"))
