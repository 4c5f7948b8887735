"""From captures to the rows of a table: of one segment as Arrow batches, of a whole capture one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..index import CONTINUED
from ..pcapng import NotACapture
from ..reader import CaptureFile
from . import headers
from .arrow import numpy
from .columns import Column, Table
from .segments import successor


def of_segment(table: Table, path: Path, columns: Sequence[Column], batch_rows: int) -> Iterator[Any]:
    """The Arrow batches of one segment."""
    np = numpy()
    try:
        file = CaptureFile(path)
    except (NotACapture, OSError):
        return
    try:
        after = successor(path, file.own)
        if file.rebuilt and after is not None:
            file.hide(after)
        if not file.index.count:
            return
        records = file.index.array()
        numbers = np.arange(len(records), dtype=np.int64)
        if after is not None:
            numbers = numbers[records["flags"] & CONTINUED == 0]
        names = (file.own.recording if file.own else path.name, path.name.removesuffix(".part"))
        yield from headers.batches(file.index, names, numbers, columns, batch_rows)
    finally:
        file.close()
