"""Names that clients generate in every run: ``orders-3f2a9c1e`` now is ``orders-b71d04aa`` of the recording.

A live name that the recording does not have stands for a recorded one of the same kind if both are equal but for parts that look
random or like times: UUIDs, six or more hexadecimal digits with a number in them, eight or more digits. Requests are read with
the recorded name, answers are given with the live one. All other names are unchanged.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

from ...decoder import Message
from ...decoder.schema.meaning import Meaning
from ..replay.rewrite import Scope, changed, tree_of, visit
from .recorded_exchanges import RecordedExchanges

_CHANCE = re.compile(
    r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    r"|(?<![0-9A-Za-z])(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{6,}(?![0-9A-Za-z])|\d{8,}"
)
_KINDS = {
    Meaning.TOPIC: frozenset({Meaning.TOPIC}),
    Meaning.GROUP: frozenset({Meaning.GROUP}),
    Meaning.TRANSACTIONAL_ID: frozenset({Meaning.TRANSACTIONAL_ID}),
    Meaning.COORDINATOR_KEY: frozenset({Meaning.GROUP, Meaning.TRANSACTIONAL_ID}),
    Meaning.RESOURCE_NAME: frozenset({Meaning.TOPIC, Meaning.GROUP}),
}


class GeneratedNames:
    """`taken` maps live names to recorded ones; `news` are those new with the last request."""

    def __init__(self, recorded: RecordedExchanges) -> None:
        self.taken: dict[str, str] = {}
        self.news: list[tuple[str, str]] = []
        self._given: dict[str, str] = {}
        self._recorded: dict[str, set[Meaning]] = defaultdict(set)
        self._shapes: dict[str, list[str]] = defaultdict(list)
        self._used: set[str] = set()
        for exchange in recorded.all:
            for role, name, _, _ in visit(tree_of(exchange.request), exchange.request.values):
                if role in _KINDS and name:
                    if name not in self._recorded and _CHANCE.search(name):
                        self._shapes[_shape(name)].append(name)
                    self._recorded[name] |= _KINDS[role] if role is not Meaning.RESOURCE_NAME else set()

    def recorded(self, message: Message) -> Message:
        """A live request with recorded names."""
        self.news = []
        return changed(message, self._to_recorded) if self._shapes else message

    def live(self, message: Message) -> Message:
        """An answer with live names."""
        return changed(message, self._to_live) if self._given else message

    def _to_recorded(self, role: Meaning, value: Any, scope: Scope, field: str) -> Any:
        kinds = _KINDS.get(role)
        if kinds is None or not value:
            return value
        if value in self._recorded and value not in self.taken:
            self._used.add(value)
            return value
        known = self.taken.get(value)
        if known is None and _CHANCE.search(value):
            alike = self._shapes.get(_shape(value), ())
            known = next((n for n in alike if n not in self._used and kinds & self._recorded[n]), None)
            if known is not None:
                self._used.add(known)
                self.taken[value], self._given[known] = known, value
                self.news.append((value, known))
        return value if known is None else known

    def _to_live(self, role: Meaning, value: Any, scope: Scope, field: str) -> Any:
        return self._given.get(value, value) if role in _KINDS else value


def _shape(name: str) -> str:
    return _CHANCE.sub("\0", name)
