"""What a rule's hit leaves on an exchange: a line of text, in recordings a comment on the packet. Written and read here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

_NAMED = re.compile(r"rule ('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\") \(hit \d+\)")


def hit_note(rule: str, hit: int, what: str) -> str:
    """The line: which rule it was, its how many-th hit, and what was done."""
    return f"rule {rule!r} (hit {hit}): {what}"


def rules_in(notes: object) -> Iterator[str]:
    """The names of the rules that left such lines among the notes of an exchange."""
    if not isinstance(notes, Iterable):
        return
    for note in notes:
        # A plugin's note may stand in front of a rule's.
        for found in _NAMED.finditer(str(note)):
            try:
                yield str(ast.literal_eval(found[1]))
            except (ValueError, SyntaxError):
                continue
