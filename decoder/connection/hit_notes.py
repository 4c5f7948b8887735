"""What rules and plugins leave on an exchange that they did something to: a line of text, in recordings a comment on the packet.
Written and read here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

_NAME = r"(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
_NAMED = re.compile(rf"rule ({_NAME}) \(hit \d+\)")
CHANGED, DELAYED, ANSWERED, DROPPED, CLOSED = "changed", "delayed", "answered", "dropped", "closed"
"""What plugins do to a message."""
_PLUGINS = re.compile(
    rf"(?:^|; )plugin ({_NAME}(?:, {_NAME})*): (?:{'|'.join((CHANGED, DELAYED, ANSWERED, DROPPED, CLOSED))})(?:[;,]|$)"
)

FOR_TOPICS = "a rule or plugin asks for topics"
"""How notes begin of what the proxy did so that rules and plugins see the topics of fetches."""
EDITED_BY_HAND, ANSWERED_BY_HAND, DROPPED_BY_HAND = "edited by hand", "answered by hand", "dropped by hand"
"""What somebody did to a message that was held."""
BY_HAND = "somebody by hand"
"""The name of those who did."""
_BY_HAND = re.compile(rf"(?:^|, |; )(?:{EDITED_BY_HAND}|{ANSWERED_BY_HAND}|{DROPPED_BY_HAND})(?:,|;|$)")


def hit_note(rule: str, hit: int, what: str) -> str:
    """The line: which rule it was, its how many-th hit, and what was done."""
    return f"rule {rule!r} (hit {hit}): {what}"


def plugin_note(plugins: Iterable[str], did: str) -> str:
    """The line: which plugins, and what they did."""
    return f"plugin {', '.join(map(repr, plugins))}: {did}"


def causes_in(notes: object) -> list[str]:
    """What the proxy did to an exchange by somebody's wish, as its notes tell: rules by name, plugins as ``plugin NAME``,
    `BY_HAND`, and `FOR_TOPICS`."""
    found = list(dict.fromkeys((*rules_in(notes), *(f"plugin {name}" for name in plugins_in(notes)))))
    texts = [str(note) for note in notes] if isinstance(notes, Iterable) else []
    if any(_BY_HAND.search(text) for text in texts):
        found.append(BY_HAND)
    if any(text.startswith(FOR_TOPICS) for text in texts):
        found.append(FOR_TOPICS)
    return found


def rules_in(notes: object) -> Iterator[str]:
    """The names of the rules that left such lines among the notes of an exchange."""
    return _names_in(_NAMED, notes)


def plugins_in(notes: object) -> Iterator[str]:
    """The names of the plugins that did something, by such lines. A plugin that only noted something did nothing."""
    return _names_in(_PLUGINS, notes)


def _names_in(line: re.Pattern[str], notes: object) -> Iterator[str]:
    if not isinstance(notes, Iterable):
        return
    for note in notes:
        # Several lines may stand in one note.
        for found in line.finditer(str(note)):
            for name in re.findall(_NAME, found[1]):
                try:
                    yield str(ast.literal_eval(name))
                except (ValueError, SyntaxError):
                    continue
