"""Requests that are kept until their responses arrive, because rules depend on both.

Such a request passes like any other, and its bytes stay in the queue of requests in flight. Most responses are seen
to be of no concern by the accelerator, or `is_quiet` (`decoder.filter.fast_reject`), and pass. Any other is held and judged, with its request.

Why this exists: confluent-kafka, one record at a time, under a rule about an error that does not come (real broker, medians of 7
interleaved rounds against no rule): 1.14 times as long with it, 1.84 times without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .....decoder.codec.decode import FAULTS
from .....decoder.codec.project import error_paths, reader
from .....decoder.errors import DecodeError
from .....decoder.filter.entities import paths_of
from .....decoder.filter.fast_reject import FastReject as QuietFilter
from .....decoder.schema import facts
from .....decoder.schema.plan import plan
from .....plugins.rules.rule_engine import RuleEngine
from .api_version_bitmap import api_version_bitmap
from .header_prefix import PrefixReaders, asked_paths, may_have_records

NOTHING = api_version_bitmap(())
FastReject = tuple[tuple[tuple[Callable[[bytes, int], Any] | None, int, int, int] | None, ...] | None, ...]
"""By api key and version: (reader, header version, latency, size). A response to a request that was kept is of no concern if
it comes within this latency (nanoseconds), is not larger than this size, and if all that the reader (see `skim`) finds is 0;
without reader, nothing needs to be read."""


class ResponseInterest:
    """What is kept for the rules of an engine. `others`: api keys whose messages others want to see: nothing is kept there."""

    def __init__(self, engine: RuleEngine, others: frozenset[int], highest: int) -> None:
        self.apis = engine.kept() - others
        """Api keys of requests that are kept."""
        self.free = frozenset(key for key in self.apis if not engine.early(key))
        """Those of which no rule asks for the request alone."""
        self.selection = (
            api_version_bitmap(key << 16 | version for key in self.apis for version in range(highest + 1))
            if self.apis
            else NOTHING
        )
        rows = {key: _row(key, found) for key in self.apis if (found := engine.fast_reject(key)) is not None}
        self.quiet = tuple(rows.get(key) for key in range(max(rows, default=-1) + 1))
        """See `FastReject`."""
        thin = frozenset(key for key in self.apis if engine.by_header_prefix(key))
        self.prefix_readers = _prefix_readers("request", thin), _prefix_readers("response", thin)
        """Of which requests and responses a prefix does (see `header_prefix.PrefixReaders`)."""


def _row(key: int, wanted: QuietFilter) -> tuple[Any, ...]:
    """For every version: how its responses are seen to be quiet, or None."""
    return tuple(quiet_test(key, version, wanted) for version in range((facts.api(key).versions.high or 0) + 1))


def _prefix_readers(kind: str, keys: frozenset[int]) -> PrefixReaders:
    def at(key: int, version: int) -> Any:
        if not may_have_records(kind, key, version):
            return None
        of = plan(kind, key, version)
        return reader(of, asked_paths(of)), of.header_version

    rows = {key: tuple(at(key, version) for version in range((facts.api(key).versions.high or 0) + 1)) for key in keys}
    rows = {key: row for key, row in rows.items() if any(row)}
    return tuple(rows.get(key) for key in range(max(rows, default=-1) + 1))


def quiet_test(key: int, version: int, wanted: QuietFilter) -> Any:
    """One item of `FastReject`; None for a version that is not known."""
    try:
        of = plan("response", key, version)
    except DecodeError:
        return None
    paths = error_paths(of) if wanted.errors else ()
    paths += paths_of(of, "throttle") if wanted.throttle else ()
    # Read in any case: bytes that cannot be read have to be reported, elsewhere.
    return reader(of, paths), of.header_version, wanted.latency, wanted.size


def is_quiet(quiet: FastReject, keyver: int, frame: bytes, latency: int, size: int | None = None) -> bool:
    """Whether a response (size first) is of no concern: see `FastReject`. False: unknown. `size`: if it is not the frame's,
    as that of a header prefix."""
    key, version = keyver >> 16, keyver & 0xFFFF
    row = quiet[key] if key < len(quiet) else None
    quiet_test = row[version] if row and version < len(row) else None
    if quiet_test is None:
        return False
    reader, header, patience, largest = quiet_test
    if latency > patience or (len(frame) - 4 if size is None else size) > largest:
        return False
    if reader is None:
        return True
    if len(frame) < 8 + header or (header and frame[8]):
        return False
    try:
        found, _ = reader(frame, 8 + header)
    except FAULTS:
        return False
    return not any(any(values) for values in found)
