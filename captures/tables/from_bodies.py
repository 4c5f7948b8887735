"""The tables of what bodies say, of one file: which exchanges are read for them, and in which of three ways.

Where the sums of a segment fit, record batches and throttle times are taken from its bytes many at a time (`packed`), other
exchanges straight from its bytes (`straight`); all else is read packet by packet. The rows are the same ones.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from ...decoder import Exchange
from ..accelerator import native
from ..capture import Capture
from ..damage import Span, spans
from ..index import CLOSED
from ..selection import Selection, naming_apis
from . import bodies, files, memberships, packed, record_batches, throttles
from .arrow import BATCH_ROWS, Batches, numpy, pyarrow
from .reading import Options
from .straight import Straight

_MANY = 500
"""So many exchanges to read make it worth while to look whether all of a segment is sound."""
_NAMELESS = ("groups", "throttles")
"""Tables that name no topics."""


class FromBodies:
    """Iterate over it for `(table, pyarrow.RecordBatch)`; rows that are no batch yet are left in `gathered`, by table.

    `tables`: those that need bodies. `names`: capture_id and segment. `sound`: whether it is asked for anyway which spans
    of the file are what was recorded; `spans` has them afterwards, where they were looked at, and `unread` how many
    exchanges cannot be read back.
    """

    def __init__(
        self,
        path: Path,
        capture: Capture,
        selection: Selection,
        names: tuple[str, str],
        tables: Sequence[Options],
        gathered: Mapping[str, Batches],
        sound: bool,
    ) -> None:
        self._path, self._capture, self._selection, self._names = path, capture, selection, names
        self._tables, self._gathered, self._sound = tables, gathered, sound
        self._own = capture.segments[0].own is not None
        self._straight: Straight | None = None
        self.spans: list[Span] | None = None
        self.unread = 0

    def rows(self, numbers: Any, naming: bool) -> Iterator[tuple[str, Any]]:
        """The tables of the exchanges `numbers`. `naming`: topics' names have yet to be learned."""
        np = numpy()
        quick = [table for table in self._tables if table.table.name in packed.TABLES]
        slow = [table for table in self._tables if table not in quick]
        at_once, singly = self._needed(quick, numbers), self._needed(slow, numbers)
        tells = self._naming(numbers) if naming else ()
        needed = np.union1d(at_once, singly).astype(np.int64)
        self._straight = self._shorter(np.union1d(needed, tells) if len(tells) else needed)
        self._learn(tells)
        if self._straight is not None and native is not None:
            yield from self._packed(quick, at_once)
        else:
            slow, singly = list(self._tables), needed
        for number in singly:
            yield from self._of(int(number), slow, self._gathered)

    def _packed(self, tables: Sequence[Options], needed: Any) -> Iterator[tuple[str, Any]]:
        """These tables many exchanges at a time; those that are left over, in between."""
        if not len(needed):
            return
        np, pa, straight = numpy(), pyarrow(), self._straight
        file = self._capture.segments[0]
        assert straight is not None
        reader = packed.Packed(straight, file.index, self._names, tables, self._selection.topics)
        records = file.index.array()[needed]
        for some in packed.chunks(needed, records["request_size"].astype(np.int64) + records["response_size"]):
            made, left = reader.read(some)
            parts = {name: ([batch], [owners]) for name, (batch, owners) in made.items()}
            for number in left:
                own = {table.table.name: Batches(table.columns) for table in tables}
                for name, batch in (
                    *self._of(int(number), tables, own),
                    *((n, each.take()) for n, each in own.items()),
                ):
                    if batch.num_rows:
                        parts[name][0].append(batch)
                        parts[name][1].append(np.full(batch.num_rows, number))
            for name, (batches, owners) in parts.items():
                whole = batches[0]
                if len(batches) > 1:
                    order = np.argsort(np.concatenate(owners), kind="stable")
                    whole = pa.Table.from_batches(batches).combine_chunks().take(order).to_batches()[0]
                for start in range(0, whole.num_rows, BATCH_ROWS):
                    yield name, whole.slice(start, BATCH_ROWS)

    def _of(self, number: int, tables: Sequence[Options], gathered: Mapping[str, Batches]) -> Iterator[tuple[str, Any]]:
        """The rows of one exchange."""
        row = self._capture.rows()[number]
        read: list[Exchange] = []
        for table in tables:
            if not table.may_have(row):
                continue
            into = gathered[table.table.name]
            try:
                for each in table.rows(row, (*self._names, number), partial(self._once, number, read)):
                    if into.add(each):
                        yield table.table.name, into.take()
            except Exception:  # the bytes are not what the index says, or a fault of the decoder
                self.unread += 1

    def _once(self, number: int, read: list[Exchange]) -> Exchange:
        if not read:
            found = self._straight.exchange(number) if self._straight is not None else None
            selection = self._selection
            read.append(selection.exchange(number) if found is None else selection.complete(found, number))
        return read[0]

    def _shorter(self, needed: Any) -> Straight | None:
        """A shorter way to these exchanges, where there is one, and it is worth looking whether the segment is sound."""
        file = self._capture.segments[0]
        if not self._own or file.rebuilt or not file.index.head.flags & CLOSED or not len(needed):
            return None
        if not self._sound and len(needed) < _MANY:
            return None
        try:
            self.spans = spans(self._data)
            return Straight(file, needed, self._data) if all(span.sound for span in self.spans) else None
        except (OSError, ValueError, IndexError):  # an index of another file
            return None

    @cached_property
    def _data(self) -> mmap.mmap:
        """The file's bytes: mapped once, because it is the first look at each page that takes time."""
        return files.bytes_of(self._path)

    def _needed(self, tables: Sequence[Options], numbers: Any) -> Any:
        """The exchanges that some of these tables may have rows of."""
        np = numpy()
        if not len(numbers) or not tables:
            return ()
        records = self._capture.segments[0].index.array()[numbers]
        mask = np.zeros(len(numbers), dtype=bool)
        for table in tables:
            name = table.table.name
            if name == "errors":
                mask |= records["error"] != 0
            elif name == "groups":
                mask |= np.isin(records["api_key"], list(memberships.APIS))
            elif name in ("batches", "records"):
                mask |= np.isin(records["api_key"], list(record_batches.API_KEYS))
            elif name == "throttles":
                answered = records["response_offset"] >= 0
                mask |= answered & ~throttles.unlikely(self._data, records) if self._own else answered
            else:
                mask[:] = True
        return numbers[mask]

    def _naming(self, numbers: Any) -> Any:
        """The exchanges that tell the names of topics, if some are needed whose messages have ids of topics only."""
        needed = self._needed([table for table in self._tables if table.table.name not in _NAMELESS], numbers)
        if not len(needed):
            return ()
        np, records = numpy(), self._capture.segments[0].index.array()
        if not bodies.have_ids(records[needed]):
            return ()
        return np.flatnonzero(np.isin(records["api_key"], list(naming_apis())))

    def _learn(self, naming: Any) -> None:
        """Take the names of topics out of these exchanges."""
        said = set()
        for number in naming:
            found = self._straight.exchange(int(number)) if self._straight is not None else None
            found = self._capture.exchange(int(number)) if found is None else found
            what = found.api_key, found.api_version, (found.response or b"")[4:]
            if what not in said:  # nearly all say the same again
                said.add(what)
                self._selection.topics.learn(found)
