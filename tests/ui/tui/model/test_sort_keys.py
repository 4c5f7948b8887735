"""Orders from columns of the index against Python's own `sorted` over rows."""

from __future__ import annotations

import pytest
from barnabas.captures import Capture
from barnabas.captures.reading import selection
from barnabas.ui.tui.model.rows import SORTS, RowView, SortOrder, sort


@pytest.mark.parametrize("title", SORTS)
@pytest.mark.parametrize("columns", [True, False], ids=["numpy", "rows"])
def test_every_column_orders_as_its_rows_compare(
    story: Capture, title: str, columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if columns:
        pytest.importorskip("numpy")
    monkeypatch.setattr(selection, "has_numpy", lambda: columns)
    rows = list(story.rows())
    for descending in (False, True):
        for wanted in (None, [row.number for row in rows if row.number % 3], []):
            view = RowView(story.rows(), wanted)
            sort(view, story, SortOrder(title, descending))
            shown = rows if wanted is None else [rows[n] for n in wanted]
            expected = [row.number for row in sorted(shown, key=SORTS[title], reverse=descending)]
            assert [view.number(i) for i in range(len(view))] == expected, (descending, wanted)
    view = RowView(story.rows())
    sort(view, story, SortOrder(title, True))
    sort(view, story, None)
    assert [view.number(i) for i in range(len(view))] == [row.number for row in rows]
