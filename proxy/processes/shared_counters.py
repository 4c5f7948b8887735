"""Counts of rules that several workers share, so that `after`, `times` and `every` are exact over all of them.

A table in the workers' shared memory (`worker_shared_state`): SLOTS entries of five 64-bit words: the rule's serial number (0: free),
a bit for each worker that has the rule, how often it matched, how often it fired, and when it began. A match is counted under the
lock. A serial number stands for one rule until that is changed or removed; it is given by whoever changes the rules of all workers.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from ...plugins.conditions.when import LocalCounter, RuleCounter
from ...plugins.rules.rules import Rule

SLOTS = 1024
WORDS = 5
SIZE = SLOTS * WORDS * 8
_SERIAL, _USERS, _MATCHED, _HITS, _BEGUN = range(WORDS)

Lock = Callable[[], AbstractContextManager[bool]]


class SharedCount:
    """One entry of the table. `matched` and `hits` count for all workers."""

    __slots__ = ("_at", "_lock", "_words")

    def __init__(self, words: memoryview, at: int, lock: Lock) -> None:
        self._words, self._at, self._lock = words, at, lock

    @property
    def matched(self) -> int:
        return self._words[self._at + _MATCHED]

    @matched.setter
    def matched(self, count: int) -> None:
        self._words[self._at + _MATCHED] = count

    @property
    def hits(self) -> int:
        return self._words[self._at + _HITS]

    @hits.setter
    def hits(self, count: int) -> None:
        self._words[self._at + _HITS] = count

    @property
    def begun_ns(self) -> int:
        return self._words[self._at + _BEGUN]

    @begun_ns.setter
    def begun_ns(self, when: int) -> None:
        self._words[self._at + _BEGUN] = when

    def locked(self) -> AbstractContextManager[object]:
        """Hold the lock while counting. Where it cannot be had in time, traffic goes on and a match may be lost."""
        return self._lock()


class SharedCounters:
    """The table as one worker sees it."""

    def __init__(self, memory: memoryview, worker: int, lock: Lock) -> None:
        self._words = memory.cast("Q")
        self._bit = 1 << worker
        self._lock = lock
        self.keep(())  # drop what an earlier worker in this place had

    def count(self, serial: int, begun_ns: int) -> RuleCounter:
        """The count of a rule; a count of this worker locked if the table is full."""
        words = self._words
        with self._lock():
            free = -1
            for at in range(0, SLOTS * WORDS, WORDS):
                if words[at + _SERIAL] == serial:
                    words[at + _USERS] |= self._bit
                    return SharedCount(words, at, self._lock)
                if free < 0 and not words[at + _USERS]:
                    free = at
            if free < 0:
                return LocalCounter(begun_ns)
            for word, value in enumerate((serial, self._bit, 0, 0, begun_ns)):
                words[free + word] = value
            return SharedCount(words, free, self._lock)

    def keep(self, serials: Iterable[int]) -> None:
        """Keep the counts of these rules for this worker, and no others."""
        kept = set(serials)
        words = self._words
        with self._lock():
            for at in range(0, SLOTS * WORDS, WORDS):
                if words[at + _USERS] & self._bit and words[at + _SERIAL] not in kept:
                    words[at + _USERS] &= ~self._bit
                    if not words[at + _USERS]:
                        words[at + _SERIAL] = 0


def new_serial() -> int:
    """A serial number that no other rule has."""
    return secrets.randbits(62) + 1


def first_serial(rule: Rule) -> int:
    """The serial number of a rule that the proxy starts with; every worker computes the same."""
    return zlib.crc32(repr((rule.name, rule.to_dict())).encode()) + 1


@dataclass(frozen=True, slots=True)
class FileRule:
    """A rule that the proxy was started with or that replaces one of those; `serial` identifies it among all workers, 0: not given."""

    rule: Rule
    serial: int = 0


class Serials:
    """The serial numbers of the rules of a file. A rule that does not change keeps its number."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._known = {rule.name: (rule, first_serial(rule)) for rule in rules}

    def renew(self, rules: Iterable[Rule]) -> None:
        """Replace the rules."""
        before = self._known
        self._known = {
            rule.name: before[rule.name]
            if rule.name in before and before[rule.name][0] == rule
            else (rule, new_serial())
            for rule in rules
        }

    def of(self, rule: Rule) -> int:
        return self._known[rule.name][1]
