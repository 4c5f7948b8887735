"""The code blocks of README.md and docs/*.md, and the commands in them."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.S | re.M)
_OPERATORS = ("|", ">", "&", "<")


class Block(NamedTuple):
    """`line`: of its first line in the page."""

    page: str
    line: int
    language: str
    text: str


class Command(NamedTuple):
    """A call of ``barnabas``. `words` come behind it; `into` is the file that its output is sent to, or "".

    `pattern`: it shows what may be written, not what to write (``[--keys]``, ``FILE...``).
    """

    where: str
    text: str
    words: list[str]
    into: str
    pattern: bool


def blocks() -> list[Block]:
    """Every fenced block."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in _BLOCK.finditer(text):
            line = text.count("\n", 0, match.start(3)) + 1
            found.append(Block(page.name, line, match[2], textwrap.dedent(match[3])))
    return found


def commands() -> list[Command]:
    """Every call of ``barnabas`` in a block that is for a shell, once for each page."""
    found: dict[tuple[str, str], Command] = {}
    for block in blocks():
        if block.language in ("", "sh"):
            # A line goes on behind a backslash, and a pattern where the next one begins with a blank.
            text = re.sub(r"\\\n\s*", " ", block.text)
            text = re.sub(r"\n +(?=\[)", " ", text)
            for offset, line in enumerate(text.splitlines()):
                command = _command(f"{block.page}:{block.line + offset}", line)
                if command:
                    found.setdefault((block.page, command.text), command)
    return list(found.values())


def _command(where: str, line: str) -> Command | None:
    match = re.match(r"(?:\S+=\S+ |sudo |ssh .*\| )*(barnabas [a-z].*)", line)
    if not match:
        return None
    text = re.split(r"\s+#\s", match[1])[0].rstrip()
    if "   " in text:  # what it does stands beside it
        text = re.split(r"\s{3,}", text)[0]
    words = shlex.split(text)[1:]
    into = ""
    for at, word in enumerate(words):
        if word in _OPERATORS:
            into = words[at + 1] if word == ">" else ""
            words = words[:at]
            break
    pattern = any(word.startswith("[") or word.endswith("...") or word in ("NO", "FILE") for word in words)
    return Command(where, text, words, into, pattern)
