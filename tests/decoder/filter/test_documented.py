"""docs/filter.md: every filter in it compiles, and its limits are the real ones."""

from __future__ import annotations

import re
from pathlib import Path

from barnabas.decoder.filter import compile
from barnabas.decoder.filter.language.lexer import MAX_FILTER
from barnabas.decoder.filter.language.parser import MAX_DEPTH
from barnabas.decoder.filter.language.patterns import MOST_REPEATS, MOST_SEEN, pattern


def test_every_filter_in_the_docs_compiles(repository: Path) -> None:
    page = (repository / "docs" / "filter.md").read_text("utf-8")
    blocks = re.findall(r"```\n(.*?)```", page, re.S)
    examples = [line for block in blocks for line in block.splitlines() if not line.startswith(("barnabas", " "))]
    examples = [re.split(r" {3,}", line)[0] for line in examples if "Prodce" not in line]
    assert len(examples) >= 17
    for text in examples:
        compile(text)
    inline = re.findall(
        r"`((?:any|all|not|topic|errors?|err|client|ver|size|time|acks|api)\b[^`]*(?:==|!=|~|>)[^`]*)`", page
    )
    assert len(inline) >= 12
    for text in inline:
        compile(text.replace("\n", " "))


def test_the_limits_in_the_docs_are_right(repository: Path) -> None:
    page = " ".join((repository / "docs" / "filter.md").read_text("utf-8").split())
    assert f"{MAX_FILTER:,} characters and {MAX_DEPTH} levels" in page
    assert f"at most {MOST_SEEN:,} characters" in page and f"more than {MOST_REPEATS} open repeats" in page
    for text, seen in (("^a.*b", "65,536"), ("a.*b", "4096"), ("a.*b.*c", "256"), ("a.*b.*c.*d", "64"), ("a.*b.*c.*d.*e", "27")):
        assert pattern(text).seen == int(seen.replace(",", "")) and re.search(rf"`{re.escape(text)}` (sees )?{seen}\b", page)
