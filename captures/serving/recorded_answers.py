"""Recorded answers by request: the same request gets its answers in order, as far as live clients have progressed.

Requests that change something (CreateTopics, AlterConfigs) mark progress. A recorded answer belongs between the change before it
and the change after it that share a name with the request (or any change, if the request has no names). So a client that
polls more often than the recorded one gets the last answer of that interval again, and one that polls less often never gets
an answer from before a change it has made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

from ...decoder import Message
from ...decoder.schema import facts
from ..replay.version_conversion import NotExpressible, convert_item, convert_response
from .answers import LiveRequest, NotRecorded, Reply
from .recorded_exchanges import (
    Named,
    RecordedExchange,
    RecordedExchanges,
    entries,
    identity,
    items_of,
    only_reads,
    partitions_in,
    touches,
)

SIMULATED = frozenset(
    {
        "Produce", "Fetch", "ListOffsets", "OffsetCommit", "OffsetFetch", "JoinGroup", "SyncGroup", "Heartbeat",
        "LeaveGroup", "ConsumerGroupHeartbeat", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn",
        "TxnOffsetCommit", "EndTxn", "SaslHandshake", "SaslAuthenticate", "PushTelemetry", "ShareFetch",
        "ShareAcknowledge", "ShareGroupHeartbeat",
    }
)  # fmt: skip
"""These are frequent, and what they change is simulated elsewhere: they mark no progress."""


OF_SHARE_GROUPS = facts.api_key_set("ShareGroupHeartbeat", "ShareFetch", "ShareAcknowledge")
"""Their answers depend on what members have acquired, which is not simulated."""


class ServingProgress:
    """The position of live clients in the recording, by the changes they have made."""

    def __init__(self, recorded: RecordedExchanges) -> None:
        self._changes = [
            (exchange.position, recorded.words(exchange))
            for exchange in recorded.all
            if not only_reads(exchange.api_key) and exchange.api not in SIMULATED
        ]
        self._times = {exchange.position: (exchange.from_ns, exchange.until_ns) for exchange in recorded.all}
        self.given: set[int] = set()
        """The recorded answers that were chosen so far."""
        self._made: set[int] = set()
        self._last: dict[Hashable, int] = {}

    def made(self, position: int) -> None:
        """A recorded change was made again."""
        self._made.add(position)

    def place(self, key: Hashable, positions: list[int], words: frozenset[str]) -> int:
        """Which of the recorded `positions` (ascending) answers the question `key` now."""
        related = [at for at, names in self._changes if not words or words & names]
        after = max((at for at in related if at in self._made), default=-1)
        before = min((at for at in related if at > after and at not in self._made), default=None)
        fit = [at for at in positions if at > after and (before is None or at < before)]
        fit = [at for at in fit if self._between(after, at, before)] or fit
        if not fit:
            # No recorded request is between these changes: the next answer comes closest, else the last.
            fit = [at for at in positions if at > after][:1] or positions[-1:]
        last = self._last.get(key, -1)
        chosen = next((at for at in fit if at > last), fit[-1])
        self._last[key] = chosen
        self.given.add(chosen)
        return chosen

    def _between(self, after: int, at: int, before: int | None) -> bool:
        """Whether what was answered at `at` can show neither the state before a change nor that behind the next one: a
        request that waits behind a long poll is answered long after it was asked."""
        began, ended = self._times[at]
        if after >= 0 and began < self._times[after][1]:
            return False
        return before is None or ended <= self._times[before][0]

    def change(self, positions: list[int]) -> int:
        """Which of the recorded changes this one is: the next, and the last again when there are no more."""
        chosen = next((at for at in positions if at not in self._made), positions[-1])
        self._made.add(chosen)
        self.given.add(chosen)
        return chosen


class _RecordedItem(NamedTuple):
    """An item of an array of a recorded answer."""

    exchange: RecordedExchange
    field: str
    at: int


class _Names(NamedTuple):
    """What a request is about: names, and partitions with their topics."""

    words: frozenset[str]
    partitions: frozenset[tuple[str | None, int]]

    @classmethod
    def of(cls, message: Message, named: Named) -> _Names:
        return cls(touches(message, named), partitions_in(message, named))


class RecordedAnswers:
    """The answers of a recording to requests that need no state of their own."""

    def __init__(self, recorded: RecordedExchanges, progress: ServingProgress) -> None:
        self._recorded, self._progress = recorded, progress
        self._exact: dict[tuple[int, Any], list[RecordedExchange]] = defaultdict(list)
        self._named: dict[tuple[int, _Names], list[RecordedExchange]] = defaultdict(list)
        self._parts: dict[tuple[int, Any], list[_RecordedItem]] = defaultdict(list)
        self._at = {exchange.position: exchange for exchange in recorded.all}
        self._read: set[int] = set()

    def _learn(self, api_key: int) -> None:
        """Lay out an API's exchanges, once it is asked for."""
        if api_key in self._read:
            return
        self._read.add(api_key)
        named = self._recorded.named
        for exchange in self._recorded.by_api.get(api_key, ()):
            if exchange.answer is None:
                continue
            self._exact[api_key, identity(exchange.request, named)].append(exchange)
            self._named[api_key, _Names.of(exchange.request, named)].append(exchange)
            parts = entries(exchange.request, named)
            items = list(items_of(exchange.response, named)) if parts else []
            for part in parts:
                fitting = [item for item in items if part.names <= item.names or item.names & part.names]
                if len(fitting) == 1:
                    self._parts[api_key, part.identity].append(_RecordedItem(exchange, fitting[0].field, fitting[0].position))

    def answer(self, request: LiveRequest) -> Reply:
        """The recorded answer. Raises `NotRecorded`."""
        if request.api_key in OF_SHARE_GROUPS:
            words = touches(request.message, self._recorded.named)
            raise NotRecorded(f"{describe(request.message, words)}, but share groups are not supported", self.nearest(request.message))
        self._learn(request.api_key)
        named = self._recorded.named
        what, words = identity(request.message, named), touches(request.message, named)
        exact = self._exact.get((request.api_key, what))
        same_version = [exchange for exchange in exact or () if exchange.api_version == request.version]
        if exact:
            exchange = self._choose(request, what, same_version or exact, words)
            return self._stated(request, exchange)
        composed = self._compose(request)
        if composed is not None:
            return composed
        # The same names and partitions, asked with other options.
        names = _Names.of(request.message, named)
        alike = self._named.get((request.api_key, names)) if words else None
        if alike:
            return self._stated(request, self._choose(request, names, alike, words))
        raise NotRecorded(describe(request.message, words), self.nearest(request.message))

    def _choose(self, request: LiveRequest, key: Any, among: list[RecordedExchange], words: frozenset[str]) -> RecordedExchange:
        positions = [exchange.position for exchange in among]
        if only_reads(request.api_key):
            return self._at[self._progress.place((request.api_key, key), positions, words)]
        return self._at[self._progress.change(positions)]

    def _stated(self, request: LiveRequest, exchange: RecordedExchange) -> Reply:
        fields, given = exchange.response.to_dict(), exchange.response.api_version
        if given == request.version:
            return Reply(fields, "recorded", exchange)
        try:
            return Reply(convert_response(request.api_key, given, request.version, fields), "restated", exchange)
        except NotExpressible as lost:
            words = touches(request.message, self._recorded.named)
            raise NotRecorded(f"{describe(request.message, words)} (recorded at v{given}, and {lost})", exchange) from None

    def _compose(self, request: LiveRequest) -> Reply | None:
        """An answer out of parts of several; None if one of the parts was never asked for."""
        parts = entries(request.message, self._recorded.named)
        if not parts:
            return None
        items: dict[str, list[Any]] = {}
        head: RecordedExchange | None = None
        for what, names in parts:
            known = self._parts.get((request.api_key, what))
            if not known:
                return None
            by_position = {item.exchange.position: item for item in known}
            positions = sorted(by_position)
            if only_reads(request.api_key):
                chosen = self._progress.place((request.api_key, "part", what), positions, names)
            else:
                chosen = self._progress.change(positions)
            head, field, at = by_position[chosen]
            version = head.response.api_version
            try:
                item = convert_item(request.api_key, field, version, request.version, head.response.to_dict()[field][at])
            except NotExpressible:
                return None
            items.setdefault(field, []).append(item)
        if head is None or head.answer is None:
            return None
        fields = request.fitting(head.response.to_dict())
        return Reply(fields | items, "composed", head)

    def nearest(self, message: Message) -> RecordedExchange | None:
        """The recorded request of the same API that is most like this one."""
        words = touches(message, self._recorded.named)
        what = set(_leaves(identity(message, self._recorded.named)))

        def likeness(exchange: RecordedExchange) -> tuple[int, int, int]:
            theirs = self._recorded.words(exchange)
            leaves = set(_leaves(identity(exchange.request, self._recorded.named)))
            return (
                len(words & theirs),
                len(what & leaves) - len(what ^ leaves),
                -abs(exchange.api_version - message.api_version),
            )

        return max(self._recorded.by_api.get(message.api_key, ()), key=likeness, default=None)


def describe(message: Message, words: Iterable[str]) -> str:
    """A request in a few words."""
    names = sorted(words)
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return f"{facts.api_name(message.api_key)} v{message.api_version}" + (f" for {shown}" if shown else "")


def _leaves(value: Any) -> Iterable[str]:
    if isinstance(value, tuple):
        for item in value:
            yield from _leaves(item)
    else:
        yield repr(value)
