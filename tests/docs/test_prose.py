"""The README and every written page in plain words: the rules of `.vale/styles`, which Vale (`vale README.md docs`) applies too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from docs.pages import PAGES, ROOT

STYLES = sorted((ROOT / ".vale" / "styles").glob("*/*.yml"))
CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`|\]\([^)]*\)", re.S | re.M)
GENERATED = ("detectors.md", "reference.md")
WRITTEN = [page for page in (*PAGES, ROOT / "CONTRIBUTING.md") if page.name not in GENERATED]


class Rule(NamedTuple):
    """A pattern, and the message about what it finds."""

    pattern: re.Pattern[str]
    message: str


def rules() -> list[Rule]:
    """Of the kinds `existence` (tokens) and `substitution` (swap)."""
    found = []
    for path in STYLES:
        style = yaml.safe_load(path.read_text("utf-8"))
        swap = style["swap"] if style["extends"] == "substitution" else dict.fromkeys(style["tokens"], "")
        for token, better in swap.items():
            flags = re.IGNORECASE if style["ignorecase"] else re.NOFLAG
            found.append(Rule(re.compile(rf"\b(?:{token})\b", flags), style["message"].replace("%s", better, bool(better))))
    return found


RULES = rules()


def complaints(text: str) -> list[str]:
    """By line; code, and the targets of links, are no prose."""
    prose = CODE.sub(lambda code: re.sub(r"[^\n]", "_", code[0]), text)
    found = []
    for rule in RULES:
        for match in rule.pattern.finditer(re.sub(r"(?<!\n)\n(?![\n|#-])", " ", prose)):
            found.append(f"{prose.count(chr(10), 0, match.start()) + 1}: {rule.message.replace('%s', match[0])}")
    return found


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_the_page_is_in_plain_words(page: Path) -> None:
    assert complaints(page.read_text("utf-8")) == []


@pytest.mark.parametrize(
    "sentence",
    [
        "What no rule says, a plugin does.",
        "Findings are\ntold while the traffic runs.",
        "All in all",
        "Sizes that cannot be are told.",
        "Keep no more of a frame than so many bytes.",
        "Trying again gives the same.",
        "Say whether a filter is one.",
        "A connection with a socket's manners.",
        "Nor does it wait.",
    ],
)
def test_riddles_are_found(sentence: str) -> None:
    assert complaints(sentence)
    assert not complaints(f"Plain words.\n\n```\n{sentence}\n```\n")
