"""Dicts of a bounded size: a key that a peer makes up costs no memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(OrderedDict[K, V], Generic[K, V]):
    """A dict of at most `limit` entries: drops the one inserted first. Copies and unions have its limit.

    An `OrderedDict`: the first key of a dict that has dropped others is behind all their places, which makes an insert
    at the bound 12 to 50 times as dear.
    """

    __slots__ = ("_limit",)

    def __init__(self, limit: int = 4096) -> None:
        self._limit = limit

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        if len(self) > self._limit:
            self.popitem(last=False)

    def __reduce__(self) -> tuple[Any, ...]:
        # The limit first: unpickling puts the entries in by `__setitem__` (the TUI reads in a process of its own).
        return type(self), (self._limit,), None, None, iter(self.items())

    def copy(self) -> Self:
        return self._joined(self)

    def __or__(self, other: Any) -> Any:
        return self._joined(self, other) if isinstance(other, dict) else NotImplemented

    def __ror__(self, other: Any) -> Any:
        return self._joined(other, self) if isinstance(other, dict) else NotImplemented

    def _joined(self, *parts: dict[K, V]) -> Self:
        # `OrderedDict` makes copies and unions by calls that mean a limit here.
        made = type(self)(self._limit)
        for part in parts:
            made.update(part)
        return made

    def of(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, made if it is missing."""
        found = self.get(key)
        if found is None:
            found = self[key] = make()
        return found


class LruDict(BoundedDict[K, V]):
    """A dict of at most `limit` entries: drops the one least recently used by `of`."""

    __slots__ = ()

    def of(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, made if it is missing."""
        found = self.get(key)
        if found is None:
            found = self[key] = make()
        else:
            self.move_to_end(key)
        return found
