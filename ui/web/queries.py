"""The rows that a filter and an order select, shared by the pages that show them, and each row as JSON."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from time import monotonic
from typing import NamedTuple

from ...captures import Row
from ..tui.model.columns import INFO, TITLES, layout
from ..tui.model.exchange_info import ExchangeInfos
from ..tui.model.filter_terms import resolve_filter
from ..tui.model.rows import SORTS, RowTints, RowView, SortOrder, row_finder, sort
from ..tui.model.session import Session
from ..tui.model.settings import ScreenSettings

MOST_QUERIES = 16
"""Queries that are kept; the one that was used the longest ago is forgotten."""
SEARCHED_SECONDS = 10.0
"""So long after it was used a query searches on."""
MOST_ROWS = 1000
"""Rows in one answer."""
_WIDE = 1000
COLUMNS = layout(_WIDE, wanted=TITLES)
Json = dict[str, object]


class Query(NamedTuple):
    """What a list shows. `filter`: as it was typed; `order`: None for the order of the capture."""

    filter: str = ""
    order: SortOrder | None = None

    @classmethod
    def of(cls, filter: str, order: str) -> Query:
        """From the parameters of an address: ``order=Latency`` or, descending, ``order=-Latency``."""
        title = order.removeprefix("-")
        return cls(filter.strip(), SortOrder(title, order.startswith("-")) if title in SORTS else None)


class _Result:
    def __init__(self, view: RowView) -> None:
        self.view = view
        self.used = monotonic()
        self.sorted_at = -1


class Queries:
    """Results of queries over the capture of a session."""

    def __init__(self, session: Session, settings: ScreenSettings) -> None:
        self._session, self.settings = session, settings
        self._known: OrderedDict[Query, _Result] = OrderedDict()
        self.infos = ExchangeInfos(session.capture)
        self._tints = RowTints(session.capture, settings.colours)

    def filter_of(self, text: str) -> str:
        """The filter that a text means, "" for all rows. Raises `FilterError`."""
        return resolve_filter(text, self.settings.filters) if text.strip() else ""

    def view(self, query: Query) -> RowView:
        """The rows found so far. Raises `FilterError`."""
        found = self._known.get(query)
        if found is None:
            view = RowView(self._session.capture.rows())
            if wanted := self.filter_of(query.filter):
                view.show(row_finder(self._session.capture, wanted))
                view.search()
            found = self._known[query] = _Result(view)
            while len(self._known) > MOST_QUERIES:
                self._known.popitem(last=False)
        self._known.move_to_end(query)
        found.used = monotonic()
        found.view.search_waiting()
        if query.order is not None:
            self._sort(found, query.order)
        return found.view

    def _sort(self, found: _Result, order: SortOrder) -> None:
        """Sort again when there are more rows: while they are few, and then when they are a tenth more."""
        rows = found.view.searched if found.view.find is not None else found.view.done
        if found.sorted_at < 0 or rows > found.sorted_at + (0 if rows < 10_000 else found.sorted_at // 10):
            sort(found.view, self._session.capture, order)
            found.sorted_at = rows

    def search(self, seconds: float) -> bool:
        """Search on for about so long. Returns whether there is more."""
        now = monotonic()
        for found in self._known.values():
            if found.view.searching and now < found.used + SEARCHED_SECONDS:
                found.view.search(seconds)
                return True
        return False

    def searching(self, query: Query) -> float | None:
        """The searched share of the capture, 0 to 1; None when the search is complete."""
        view = self.view(query)
        return view.searched / max(len(view.rows), 1) if view.searching else None

    def rows(self, query: Query, start: int, stop: int, info: bool = False) -> list[Json]:
        """Rows `start` to `stop` of the result as JSON; with `info`, what they are about: their messages are decoded."""
        view = self.view(query)
        return [self._json(view.number(at), view.row(at), info) for at in range(max(start, 0), min(stop, start + MOST_ROWS, len(view)))]

    def _json(self, number: int, row: Row, info: bool) -> Json:
        found: Json = {"row": number + 1}
        for column, _ in COLUMNS:
            text, role = column.cell(number + 1, row)
            found[column.title] = text.strip()
            if column.title == "Result":
                found["Result_role"] = role
        if info:
            found[INFO] = self.infos(row).text
        comment = self._session.marks.comment(row)
        if comment is not None:
            found["mark"] = comment
        if tint := self._tints(row):
            found["tint"] = tint
        return found


def chosen_columns(settings: ScreenSettings) -> Sequence[str]:
    """The titles of the columns that are shown at first."""
    return settings.columns or tuple(column.title for column, _ in COLUMNS if not column.optional or column.title == INFO)
