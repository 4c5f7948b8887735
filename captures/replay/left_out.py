"""Differences that come of what was left out: a setting that was not made, a topic that was not deleted.

Requests that alter or delete are not sent unless the user asks for it. What they would have changed is then otherwise at the
target, and every later answer about it may differ: a share group, for one, begins at the end of its topics unless its
`share.auto.offset.reset` was set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from ...decoder import Exchange
from ...decoder.message import Message
from .rewriting import read
from .roles import Role

_NAMES = frozenset({Role.TOPIC, Role.GROUP, Role.TRANSACTIONAL_ID, Role.RESOURCE_NAME})
_SHOWN = 3
SHARE_GROUPS = " (a share group begins at the end of its topics unless its share.auto.offset.reset was set)"


class LeftOut:
    """Takes what was left out because it alters or deletes, then what differed. `topics`: names by the recorded ids."""

    def __init__(self, topics: Mapping[bytes, str]) -> None:
        self._topics = topics
        self._by_name: dict[str, Counter[str]] = {}
        self._differing: Counter[str] = Counter()
        self._count = 0
        self._share_groups: set[str] = set()

    def left_out(self, exchange: Exchange) -> None:
        """A request that is not sent."""
        for name in set(self._names(exchange.request_message)):
            self._by_name.setdefault(name, Counter())[exchange.api] += 1

    def concerned(self, exchange: Exchange) -> frozenset[str]:
        """The names in a request that something was left out about before."""
        if not self._by_name:
            return frozenset()
        message = exchange.request_message
        if exchange.api.startswith("Share"):
            self._share_groups.update(value for role, value, _, _ in read(message) if role is Role.GROUP and value)
        return frozenset(name for name in self._names(message) if name in self._by_name)

    def differs(self, names: Collection[str]) -> None:
        """An answer, or a batch that was fetched, is otherwise; `names` are those that it concerns."""
        self._differing.update(names)
        self._count += bool(names)

    def explanation(self) -> str | None:
        """Why answers differ, and what to do; None if nothing that was left out explains any."""
        if not self._count:
            return None
        apis: Counter[str] = Counter()
        for name in self._differing:
            apis |= self._by_name[name]
        names = [name for name, _ in self._differing.most_common()]
        shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        of_share_group = not self._share_groups.isdisjoint(self._differing)
        return (
            f"{self._count} difference{' concerns' if self._count == 1 else 's concern'} {shown}, which "
            f"{' and '.join(sorted(apis))} changed in the recording and not at the target, because what alters or deletes is left "
            f"out; --include-admin sends it{SHARE_GROUPS if of_share_group else ''}"
        )

    def _names(self, message: Message | None) -> Iterator[str]:
        for role, value, _, _ in read(message):
            name = self._topics.get(value) if role is Role.TOPIC_ID else value if role in _NAMES else None
            if name:
                yield name
