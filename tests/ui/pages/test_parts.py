"""Parts of pages: long lists in a cell are folded, and stay text."""

from __future__ import annotations

import re

from barnabas.ui.pages.page import sections_page
from barnabas.ui.pages.parts import Cell, Section, Table


def test_the_rest_of_a_long_list_is_folded() -> None:
    names = ["6 A", "5 <b>", "4 C", "3 D", "2 </details>\x1b[2J"]
    page = sections_page("t", [Section(tables=[Table([Cell("errors")], [[Cell.listed(names)], [Cell.listed(names[:4])]])])])
    long, short = re.findall(r"<td.*?</td>", page, re.S)
    assert "<summary>and 2 more</summary><div>3 D</div><div>2 &lt;/details&gt;\\x1b[2J</div></details>" in long
    assert re.sub("<.*", "", long.partition(">")[2]) == "6 A, 5 &lt;b&gt;, 4 C"
    assert "details" not in short and "4 C, 3 D" in short
