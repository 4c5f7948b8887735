"""What an exchange is about, in one line: topics, group, transaction, records, the broker's error message, and who changed it.

The index does not have it, so messages are decoded for rows that are drawn, and results are cached. Names of topic ids are
collected in slices.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from time import perf_counter
from typing import NamedTuple

from ....captures import Capture, Row
from ....captures.reading.selection import IndexColumns
from ....decoder import Direction, Exchange, Topics
from ....decoder.connection.hit_notes import causes_in
from ....decoder.connection.topics import NAMING_APIS
from ....decoder.filter.values import MANY, ONE, pairs
from ....decoder.schema import facts
from ....decoder.schema.null_and_empty import meanings
from ....decoder.schema.plan import Fields
from ....errors import BarnabasError
from ...safe import visible
from .filter_terms import quoted
from .rows import RowSlice, notes_on

LARGEST = 1 << 18
"""Bytes of the largest exchange that is decoded for its line."""
_MOST_PAIRS, _MOST_NAMES = 200, 3
_KEPT = 4096
_UNREADABLE = OSError, ValueError, BarnabasError
"""The file is damaged or has changed: opening the row shows why."""
_SAID = {facts.api_key("ApiVersions"): ("client_software_name", "client_software_version"), facts.api_key("SaslHandshake"): ("mechanism",)}
"""Fields of requests that say best what they are about."""


class ExchangeInfo(NamedTuple):
    """`text`: safe for the terminal; `term`: the filter for the first topic, or else for the group; "" without either."""

    text: str = ""
    term: str = ""


class ExchangeInfos:
    """The `ExchangeInfo` of each row of a capture."""

    def __init__(self, capture: Capture):
        self._capture = capture
        self._known: dict[int, tuple[Row, ExchangeInfo]] = {}
        self._topics = Topics()
        self._learned = 0

    def learn(self, seconds: float) -> bool:
        """Read on for about so long for names of topic ids. Returns whether new ones were found: rows may look different now."""
        until, known = perf_counter() + seconds, len(self._topics)
        while self.unlearned and perf_counter() < until:
            segment, start, stop = RowSlice.at(self._capture, self._learned)
            keys = IndexColumns(self._capture.segments[segment].index).tuples(("api_key",), start, stop)
            for number, (key,) in enumerate(keys, self._learned):
                if key in NAMING_APIS:
                    with suppress(*_UNREADABLE):
                        self._topics.learn(self._capture.exchange(number))
            self._learned += stop - start
        if len(self._topics) == known:
            return False
        self._known.clear()
        return True

    @property
    def unlearned(self) -> bool:
        """Whether there are rows that `learn` has not read."""
        return self._capture.has_frames and self._learned < self._capture.done

    def __call__(self, row: Row) -> ExchangeInfo:
        known = self._known.get(row.number)
        if known is not None and known[0] == row:
            return known[1]
        found = ExchangeInfo()
        if self._capture.has_frames and (row.request_size or 0) + (row.response_size or 0) <= LARGEST:
            with suppress(*_UNREADABLE):
                exchange = self._capture.exchange(row)
                exchange.topics = self._topics
                found = exchange_info(exchange)
        if len(self._known) > _KEPT:
            self._known.clear()
        self._known[row.number] = row, found
        return found


def exchange_info(exchange: Exchange) -> ExchangeInfo:
    """What an exchange is about."""
    topics = _topics(exchange)
    groups, transactions = (list(dict.fromkeys(map(str, islice(MANY[name](exchange), 20)))) for name in ("group", "txn"))
    request = exchange.request_message
    words = causes_in(notes_on(exchange))
    if request is not None:
        meant = meanings(request.plan).get(request.plan.root, ())
        words += [text for each in meant if each.field == "topics" and (text := each.of(request[each.field]))]
    words += [_few([_partitions(name, found) for name, found in topics.items()])] if topics else []
    words += [f"group {_few(groups)}"] if any(groups) else []
    words += [f"transaction {_few(transactions)}"] if any(transactions) else []
    count = ONE["records"](exchange)
    words += [f"{count} record{'' if count == 1 else 's'}"] if count is not None else []
    if exchange.api_key in _SAID and (masked := exchange.masked_message(Direction.REQUEST)) is not None:
        said = [text for name in _SAID[exchange.api_key] for text in islice(_texts(masked.to_dict(), name), 1)]
        words += [" ".join(said)] if said else []
    if exchange.error and (response := exchange.masked_message(Direction.RESPONSE)) is not None:
        words += islice(_texts(response.to_dict(), "error_message"), 1)  # brokers may quote secrets: masked
    term = f"topic == {quoted(next(iter(topics)))}" if topics else f"group == {quoted(groups[0])}" if any(groups) else ""
    return ExchangeInfo(visible("  ".join(words)), term)


def _topics(exchange: Exchange) -> dict[str, list[int]]:
    """The partitions that are named, by topic. Topics whose id has no name are left out."""
    found: dict[str, dict[int, None]] = {}
    for pair in islice(pairs(exchange), _MOST_PAIRS):
        if pair.topic:
            partitions = found.setdefault(pair.topic, {})
            if pair.partition is not None:
                partitions[pair.partition] = None
    return {topic: list(partitions) for topic, partitions in found.items()}


def _partitions(topic: str, partitions: list[int]) -> str:
    if len(partitions) > 1:
        return f"{topic} ({len(partitions)} partitions)"
    return f"{topic}-{partitions[0]}" if partitions else topic


def _few(words: list[str]) -> str:
    more = len(words) - _MOST_NAMES
    return ", ".join(words[:_MOST_NAMES]) + (f", {more} more" if more > 0 else "")


def _texts(fields: Fields, name: str) -> Iterator[str]:
    """The texts of every field `name`, that are not empty."""
    for key, value in fields.items():
        if key == name and value and isinstance(value, str):
            yield value
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, dict):
                yield from _texts(item, name)
