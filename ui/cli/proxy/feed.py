"""``barnabas feed``: print the live feed of a running proxy."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ... import times
from ..common.address import parse
from ..common.failure import Failure
from ..common.options import FilterText, Local, Seconds
from ..protocol.filter import compiled
from .options import TOKEN_VARIABLE, read_token

if TYPE_CHECKING:
    from ....captures import Row
    from ....decoder.filter import Filter
    from ....proxy.events import Address
    from ....proxy.metrics.feed.client import Batch, FeedEvent, Missed, Totals, Waiting

DEFAULT = "127.0.0.1:19095"
TOKEN_SECONDS = 0.2
"""Between two looks for a token."""


def feed(
    address: Annotated[str, typer.Argument(help="The address given to the proxy with --feed.", metavar="HOST:PORT")] = (
        DEFAULT
    ),
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help=f"A file with the feed's token (or set {TOKEN_VARIABLE}).", metavar="FILE"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    totals: Annotated[bool, typer.Option("--totals", help="Print only the totals, every second.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the proxy has started: for its token, and for its answer.")] = False,
    filter_: FilterText = None,
    seconds: Seconds = None,
    local: Local = False,
) -> None:
    """Print the exchanges of a running proxy as they happen, and requests that have waited for a response for a second.

    The feed is sent over UDP: a slow reader loses part of it, and the output shows how much. A recording loses nothing.
    """
    from ....proxy.metrics.feed.client import subscribe

    wanted = None if filter_ is None else compiled(filter_).at(time.time_ns)
    if wanted is not None and not wanted.index_only:
        raise Failure("--filter needs messages, but a feed contains only summaries; see: barnabas filter check")
    lines = json_lines if as_json else plain_lines
    try:
        where, token = joined_token(address, token_file, wait, seconds)
        events = _for(subscribe(where, token, patient=wait), seconds)
        for line in lines(events, totals, wanted):
            print(line, flush=True)
    except KeyboardInterrupt:
        sys.exit(0)


def joined_token(address: str, token_file: Path | None = None, wait: bool = False, seconds: float | None = None) -> tuple[Address, str]:
    """Where a feed is, and the token that it wants. `wait`: until there is one, but no longer than `seconds`."""
    from ....proxy.metrics.settings import stored_token

    where = parse(address, "HOST:PORT", port=parse(DEFAULT, "")[1])
    until = None if seconds is None else time.monotonic() + seconds
    while True:
        awaited = wait and token_file is not None and not (token_file.exists() and token_file.stat().st_size)
        token = None if awaited else read_token(token_file) or stored_token(where[1])
        if token is not None:
            return where, token
        if not wait or (until is not None and time.monotonic() > until):
            raise Failure(
                f"no token for the feed at {address}: give --token-file FILE or set {TOKEN_VARIABLE}; "
                "the proxy prints the token's file when it starts"
            )
        time.sleep(TOKEN_SECONDS)


def _for(events: Iterator[FeedEvent], seconds: float | None) -> Iterator[FeedEvent]:
    """Events until the time is up. Totals come every second, so it is noticed soon."""
    until = None if seconds is None else time.monotonic() + seconds
    for event in events:
        yield event
        if until is not None and time.monotonic() > until:
            return


def plain_lines(
    events: Iterator[FeedEvent], only_totals: bool = False, wanted: Filter | None = None
) -> Iterator[str]:
    """A line for each exchange, gap and new start; or for the totals."""
    from ....proxy.metrics.feed.client import Batch, Joined, Missed, Totals, Waiting
    from ...tui.plain import line, titles

    lost, titled = 0, only_totals
    new = _NewlyWaiting(wanted)
    for event in events:
        if isinstance(event, Batch):
            if not only_totals:
                yield from map(line, _rows(event, wanted))
        elif isinstance(event, Waiting):
            if not only_totals:
                yield from map(line, new.take(event))
        elif isinstance(event, Missed):
            yield _missed(event)
        elif isinstance(event, Joined):
            lost = 0
            if not titled:  # not before: an error may come instead
                yield titles()
            titled = True
        elif isinstance(event, Totals):
            new.end()
            if event.lost_bytes > lost:
                yield f"-- the proxy's meter fell behind: {event.lost_bytes - lost} B were not summarised"
                lost = event.lost_bytes
            if only_totals:
                yield _totals(event)


def _missed(event: Missed) -> str:
    what = "1 exchange was" if event.records == 1 else f"{event.records} exchanges were"
    datagrams = "1 datagram" if event.datagrams == 1 else f"{event.datagrams} datagrams"
    return f"-- {what} not seen ({datagrams} lost)"


def _totals(event: Totals) -> str:
    requests = sum(rate.requests for rate in event.rates)
    failed = sum(rate.errors for rate in event.rates)
    busiest = ", ".join(f"{_api(rate.api_key)} {rate.requests}" for rate in event.rates[:4])
    return (
        f"{times.moment(time.time_ns())}  {requests}/s, {failed} errors/s, {event.connections} connections, "
        f"{event.exchanges} exchanges in total" + (f"  ({busiest})" if busiest else "")
    )


def _api(key: int) -> str:
    from ....decoder.schema import facts

    return facts.api_name(key) if key >= 0 else "other"


def json_lines(
    events: Iterator[FeedEvent], only_totals: bool = False, wanted: Filter | None = None
) -> Iterator[str]:
    """An object for each exchange (the keys of ``barnabas decode --json``, without bodies), gap, start and totals."""
    from ....proxy.metrics.feed.client import Batch, Joined, Missed, Totals, Waiting

    new = _NewlyWaiting(wanted)
    for event in events:
        if isinstance(event, Batch):
            if not only_totals:
                for row in _rows(event, wanted):
                    yield json.dumps(_exchange(row))
        elif isinstance(event, Waiting):
            if not only_totals:
                for row in new.take(event):
                    yield json.dumps(_exchange(row) | {"kind": "waiting", "number": None, "pending_ns": row.waiting_ns})
        elif isinstance(event, Totals):
            new.end()
            rates = [{"api": _api(rate.api_key), **rate._asdict()} for rate in event.rates]
            yield json.dumps({"kind": "totals", **asdict(event), "rates": rates})
        elif isinstance(event, (Missed, Joined)):
            yield json.dumps({"kind": type(event).__name__.lower(), **asdict(event)})


class _NewlyWaiting:
    """Requests in flight, which the feed sends every second, each once."""

    def __init__(self, wanted: Filter | None) -> None:
        self._wanted = wanted
        self._shown: set[tuple[int, int, int]] = set()
        self._still: set[tuple[int, int, int]] = set()

    def take(self, waiting: Waiting) -> Iterator[Row]:
        """The requests that are new among these."""
        for row in _rows(waiting, self._wanted):
            request = row.connection, row.correlation_id, row.time_ns
            self._still.add(request)
            if request not in self._shown:
                yield row

    def end(self) -> None:
        """All that wait were given."""
        self._shown, self._still = self._still, set()


def _rows(batch: Batch | Waiting, wanted: Filter | None) -> Iterator[Row]:
    """The exchanges of a batch that match a filter that an index decides."""
    from ....captures.reading.selection import IndexColumns

    test = None if wanted is None else wanted.columns(IndexColumns(batch.index))
    if test is None:
        return batch.rows()
    passing = set(test.rows(0, len(batch)))
    return (row for number, row in enumerate(batch.rows()) if number in passing)


def _exchange(row: Row) -> dict[str, Any]:
    from ....decoder.schema import facts

    return {
        "kind": "exchange",
        "number": row.number + 1,
        "time_ns": row.time_ns,
        "connection": row.connection,
        "client": row.client,
        "broker": row.broker,
        "api": row.api,
        "api_key": row.api_key,
        "api_version": row.api_version,
        "correlation_id": row.correlation_id,
        "client_id": row.client_id,
        "request_size": row.request_size,
        "response_size": row.response_size,
        "latency_ns": row.latency_ns,
        "state": str(row.state),
        "error": facts.error_name(row.error) if row.error else None,
        "undecoded": row.undecoded,
        "changed": row.changed,
        "noted": row.noted,
    }
