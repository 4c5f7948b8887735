"""What a rule's hit leaves on an exchange: a line of text, in recordings a comment on the packet. Written and read here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

_NAMED = re.compile(r"rule ('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\") \(hit \d+\)")


FOR_TOPICS = "a rule or plugin asks for topics"
"""How notes begin of what the proxy did so that rules and plugins see the topics of fetches."""


def hit_note(rule: str, hit: int, what: str) -> str:
    """The line: which rule it was, its how many-th hit, and what was done."""
    return f"rule {rule!r} (hit {hit}): {what}"


def causes_in(notes: object) -> list[str]:
    """What the proxy did to an exchange by somebody's wish, as its notes tell: rules by name, and `FOR_TOPICS`."""
    found = list(dict.fromkeys(rules_in(notes)))
    if isinstance(notes, Iterable) and any(str(note).startswith(FOR_TOPICS) for note in notes):
        found.append(FOR_TOPICS)
    return found


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
