"""docs/filter.md: every filter in it is one, and does what it says."""

from __future__ import annotations

import re
from pathlib import Path

from barnabas.decoder.filter import compile
from barnabas.decoder.filter.lexer import MAX_FILTER
from barnabas.decoder.filter.parser import MAX_DEPTH
from barnabas.decoder.filter.patterns import SEEN


def test_every_filter_of_the_page_is_one(repository: Path) -> None:
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


def test_the_limits_of_the_page_are_those(repository: Path) -> None:
    page = (repository / "docs" / "filter.md").read_text("utf-8")
    assert f"{MAX_FILTER:,} characters and {MAX_DEPTH} levels" in page
    assert f"{SEEN[0]:,} characters of a value, {SEEN[1]:,}" in page
    assert f"{SEEN[2]}, {SEEN[3]} and {SEEN[4]}" in page and f"more than {len(SEEN) - 1}\nopen repeats" in page
