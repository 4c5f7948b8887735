"""Compiled filters, which the rest of Barnabas uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from functools import cached_property

from ..connection.exchange import Exchange
from ..errors import DecoderError
from . import analysis, evaluate
from .columns import Columns, ColumnTest
from .entities import MessagePart
from .fast_reject import FastReject, fast_reject
from .language.check import check, needs
from .language.errors import FilterError
from .language.fields import Known, Need
from .language.parser import parse
from .language.tree import Node, Test


@dataclass(frozen=True)
class Filter:
    """A compiled filter. Immutable, and a function: ``filter(exchange) -> bool``.

    `tree`: its meaning, for other back ends. `now`: a function that gives the time, in nanoseconds since the epoch, for
    ``pending > 10s``; without it, such a test is false.
    """

    text: str
    tree: Node
    zone: tzinfo | None = None
    now: Callable[[], int] | None = field(default=None, compare=False)

    def __call__(self, exchange: Exchange) -> bool:
        return self._decide(exchange)

    def __str__(self) -> str:
        return self.text

    @cached_property
    def _decide(self) -> evaluate.Decide:
        return evaluate.function(self.tree, self.zone, self.now)

    def part_test(self) -> Callable[[Exchange, MessagePart], bool]:
        """A function that tests whether the filter would be true if an exchange had only this part of a message."""
        return evaluate.part_test(self.tree, self.zone, self.now)

    @cached_property
    def needs(self) -> frozenset[Need]:
        """What must be read to decide it: the index, requests, responses, the peer info of the connection."""
        return needs(self.tree)

    @property
    def index_only(self) -> bool:
        """Whether the index of a recording decides it."""
        return self.needs == analysis.INDEX_ONLY

    @property
    def columns_only(self) -> bool:
        """Whether the index and the peer info of connections decide it: `columns` is then all of it."""
        return self.needs <= analysis.COLUMNS

    @cached_property
    def names_decide(self) -> bool:
        """Whether the columns decide it for exchanges whose names are known (see `names`)."""
        return analysis.columns_decide(self.tree, names=True)

    @cached_property
    def has_names(self) -> bool:
        """Whether it asks for names: topics, groups, transactional ids."""
        return analysis.has_names(self.tree)

    @cached_property
    def request_only(self) -> bool:
        """Whether the request decides it. Fields of both sides are then those of the request: ``topic == orders`` is about the
        topics that the request names."""
        return analysis.first_needing_response(self.tree) is None

    def require_request_only(self) -> None:
        """Raise a `FilterError` at the first test that needs the response, if there is one."""
        found = analysis.first_needing_response(self.tree)
        if found is not None:
            name = found.field.name if isinstance(found, Test) else "a search for a text"
            raise FilterError(f"{name} is not known before the response", self.text, found.start, found.end)

    @cached_property
    def known(self) -> Known:
        """How much of a message in transit decides it."""
        return analysis.known(self.tree)

    @cached_property
    def completed_only(self) -> str | None:
        """Its first field that messages in transit do not have (`pending`, `changed`, `rule` ...); None if there is none."""
        return analysis.first_completed_only(self.tree)

    @cached_property
    def _apis(self) -> analysis.Apis:
        return analysis.apis(self.tree)

    def apis(self) -> frozenset[int] | None:
        """The API keys of exchanges that can match; None: any, or all but some."""
        return None if self._apis.outside else self._apis.keys

    @cached_property
    def fast_reject(self) -> FastReject | None:
        """The condition under which it is false, whatever else is in request and response; None if there is no simple one."""
        return fast_reject(self.tree)

    @cached_property
    def names_topics(self) -> bool:
        """Whether it compares names of topics: exchanges with topic ids then need their `topics`."""
        return analysis.names_topics(self.tree)

    @cached_property
    def needs_now(self) -> bool:
        """Whether it needs `now`."""
        return analysis.needs_now(self.tree)

    @cached_property
    def index_part(self) -> Node | None:
        """The part that index columns decide, which is true of every match. None: no part. See `columns_only`."""
        return analysis.index_part(self.tree)

    @cached_property
    def _named_part(self) -> Node | None:
        return analysis.index_part(self.tree, names=True) if self.has_names else None

    def columns(self, columns: Columns) -> ColumnTest | None:
        """The test of an index's records for `index_part`, and of those with known names for more; None if all records pass."""
        part, named = self.index_part, None if columns.names is None else self._named_part
        return None if part is None and named is None else ColumnTest(part, columns, self.zone, self.now, named)

    def at(self, now: Callable[[], int] | int) -> Filter:
        """The same filter with another time, or clock."""
        return Filter(self.text, self.tree, self.zone, (lambda: now) if isinstance(now, int) else now)


def named_zone(name: str) -> tzinfo:
    """The time zone of a name in the IANA database, such as ``Europe/Berlin``; UTC even without a database. Raises
    `DecoderError` if there is no such zone."""
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo  # its import takes milliseconds

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise DecoderError(f"there is no time zone {name[:60]!r}: give its name in the IANA database, such as Europe/Berlin") from None


def compile(text: str, now: Callable[[], int] | int | None = None, zone: tzinfo | None = UTC) -> Filter:
    """Compile a filter. Raises `FilterError` with what is wrong and where.

    `now`: the time for ``pending``, in nanoseconds since the epoch, or a function that gives it. `zone`: of times without an
    offset in the filter; None is the local zone.
    """
    found = Filter(text, check(parse(text), text, zone), zone)
    return found if now is None else found.at(now)
