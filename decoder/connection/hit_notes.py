"""The note that a rule, plugin or person leaves on an exchange it changed: a line of text, in recordings a packet comment. Written
and read here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

_NAME = r"(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
_NAMED = re.compile(rf"rule ({_NAME}) \(hit \d+\)")
CHANGED, DELAYED, ANSWERED, DROPPED, CLOSED = "changed", "delayed", "answered", "dropped", "closed"
"""What plugins do to a message."""
_PLUGINS = re.compile(
    rf"(?:^|; )plugin ({_NAME}(?:, {_NAME})*): (?:{'|'.join((CHANGED, DELAYED, ANSWERED, DROPPED, CLOSED))})(?:[;,]|$)"
)

OFFERED = "the client is offered "
"""What begins, in the notes of a client that is offered other versions than the broker's, the description of these."""
_OFFERED = re.compile(rf"(?:^|\W){OFFERED}([^(;]*[^(; ])")
FOR_TOPICS = "a rule or plugin asks for topics"
"""The beginning of notes on what the proxy did so that rules and plugins see the topics of fetches."""
EDITED_BY_HAND, ANSWERED_BY_HAND, DROPPED_BY_HAND = "edited by hand", "answered by hand", "dropped by hand"
"""What a person did to a held message."""
BY_HAND = "manual intervention"
"""The cause of these."""
_BY_HAND = re.compile(rf"(?:^|, |; )(?:{EDITED_BY_HAND}|{ANSWERED_BY_HAND}|{DROPPED_BY_HAND})(?:,|;|$)")


def hit_note(rule: str, hit: int, what: str) -> str:
    """The note of a rule: its name, the number of the hit, and what was done."""
    return f"rule {rule!r} (hit {hit}): {what}"


def plugin_note(plugins: Iterable[str], did: str) -> str:
    """The note of plugins: their names and what they did."""
    return f"plugin {', '.join(map(repr, plugins))}: {did}"


def causes_in(notes: Sequence[str]) -> list[str]:
    """Who made the proxy change an exchange, by its notes: rules by name, plugins as ``plugin NAME``, `BY_HAND`, `FOR_TOPICS`,
    and versions offered to clients as in ``versions offered: Metadata up to v9``."""
    found = list(dict.fromkeys((*rules_in(notes), *(f"plugin {name}" for name in plugins_in(notes)))))
    found += [f"versions offered: {each[1]}" for note in notes for each in _OFFERED.finditer(note)]
    if any(_BY_HAND.search(note) for note in notes):
        found.append(BY_HAND)
    if any(note.startswith(FOR_TOPICS) for note in notes):
        found.append(FOR_TOPICS)
    return found


def rules_in(notes: Iterable[str]) -> Iterator[str]:
    """The names of the rules in the notes of an exchange."""
    return _names_in(_NAMED, notes)


def plugins_in(notes: Iterable[str]) -> Iterator[str]:
    """The names of the plugins that changed something, in the notes of an exchange; not of those that only left a note."""
    return _names_in(_PLUGINS, notes)


def _names_in(line: re.Pattern[str], notes: Iterable[str]) -> Iterator[str]:
    for note in notes:
        # One note may hold several lines.
        for found in line.finditer(note):
            for name in re.findall(_NAME, found[1]):
                try:
                    yield str(ast.literal_eval(name))
                except (ValueError, SyntaxError):
                    continue
