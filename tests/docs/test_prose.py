"""The README, every written page and every help text in plain words: the rules of `.vale/styles`, which Vale
(`vale README.md docs`) applies to the pages, too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
import yaml
from barnabas.ui.cli.command_line import make_app
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


def help_texts(command: Any, name: str) -> Iterator[tuple[str, str]]:
    """The name of each command, and all texts of its help."""
    yield name, "\n\n".join(each.help for each in (command, *command.params) if getattr(each, "help", None))
    for word, each in getattr(command, "commands", {}).items():
        yield from help_texts(each, f"{name} {word}")


HELP = dict(help_texts(typer.main.get_command(make_app()), "barnabas"))


@pytest.mark.parametrize("name", HELP)
def test_the_help_is_in_plain_words(name: str) -> None:
    assert complaints(HELP[name]) == []


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
