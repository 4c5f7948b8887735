"""The positions of a batch's records: a table from which single records are read on demand."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import overload

from ..native.accelerator import native
from .batch import CODEC_MASK, HEADER_SIZE, Batch
from .codecs import DEFAULT_LIMIT
from .errors import RecordsError
from .record import Record, spans


class RecordIndex(Sequence[Record]):
    """The records of one batch as a sequence. Finds their positions at once, and reads each record on access.

    Raises `RecordsError` for a batch whose records do not match its bytes. `limit`: the most decompressed bytes.
    """

    __slots__ = ("_count", "_data", "_starts", "_table", "batch")

    def __init__(self, batch: Batch, *, limit: int = DEFAULT_LIMIT):
        self.batch = batch
        batch.check_count()
        if batch.attributes & CODEC_MASK:
            data = batch.payload(limit=limit)
            start, end = 0, len(data)
        else:
            data, start, end = batch.data, batch.start + HEADER_SIZE, batch.end
        self._data = data
        count = self._count = batch.record_count
        if native is not None:
            table, behind = native.index(data, start, end, count)
            if behind == end and len(table) == count * 32:
                self._table: memoryview | None = memoryview(table).cast("i")
                return
        # In pure Python, and for a damaged batch: this raises what is wrong.
        self._table = None
        self._starts = array("i")
        try:
            for at, _ in spans(data, start, end, count):
                self._starts.append(at)
        except RecordsError as error:
            raise error.inside(f"record batch at byte {batch.start}", 0, decompressed=bool(batch.codec)) from None
        self._starts.append(end)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> Record: ...
    @overload
    def __getitem__(self, number: slice) -> list[Record]: ...
    def __getitem__(self, number: int | slice) -> Record | list[Record]:
        if isinstance(number, slice):
            return [self._record(i) for i in range(*number.indices(self._count))]
        place = number + self._count if number < 0 else number
        if not 0 <= place < self._count:
            raise IndexError(number)
        return self._record(place)

    def __iter__(self) -> Iterator[Record]:
        return self.batch.records()

    def _record(self, number: int) -> Record:
        start, end = self.span(number)
        return next(self.batch.scan(self._data, start, end, 1))

    def span(self, number: int) -> tuple[int, int]:
        """(start, end) of a record in the decompressed bytes of the batch."""
        if self._table is not None:
            return self._table[8 * number], self._table[8 * number + 1]
        return self._starts[number], self._starts[number + 1]
