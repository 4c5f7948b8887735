"""Recorded traffic with changes: other times, other responses, fewer or more exchanges.

For traffic that no real broker produces within seconds. Functions return new exchanges and lists of events; arguments stay
unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from barnabas.decoder import Exchange, ExchangeDone, RequestSeen
from barnabas.decoder.connection.events import ConnectionEvent, Opened
from barnabas.decoder.schema import facts

SECOND = 1_000_000_000
PRODUCE_ERROR = "responses[0].partition_responses[0].error_code"
PRODUCE_RECORDS = "topic_data[0].partition_data[0].records"
Edit = Callable[[Exchange], Exchange]
Fields = Mapping[str, Any]
_COPIED = [each.name for each in fields(Exchange) if each.init and each.name != "marks"]


def copied(exchange: Exchange, *, after: float = 0, answered_after: float = 0, **changed: Any) -> Exchange:
    """The exchange once more, `after` s later, its response another `answered_after` s later.

    `changed` are its attributes; a mapping as `request` or `response` changes fields of that message by path.
    """
    values = {name: getattr(exchange, name) for name in _COPIED}
    shift, late = int(after * SECOND), int(answered_after * SECOND)
    values["request_time_ns"] = (exchange.request_time_ns or 0) + shift
    if exchange.response_time_ns is not None:
        values["response_time_ns"] = exchange.response_time_ns + shift + late
    for side in ("request", "response"):
        if isinstance(changed.get(side), Mapping):
            message = getattr(exchange, f"{side}_message")
            assert message is not None
            changed[side] = message.replace(changed[side]).encode()
    made = Exchange(**(values | changed))
    made.marks = replace(exchange.marks)
    return made


def slower(exchanges: Iterable[Exchange], factor: float) -> list[Exchange]:
    """The same exchanges, so many times as slow from the first request on."""
    given = list(exchanges)
    start = given[0].request_time_ns or 0

    def at(time_ns: int | None) -> int:
        return start + int(((time_ns or 0) - start) * factor)

    return [copied(e, request_time_ns=at(e.request_time_ns), response_time_ns=at(e.response_time_ns)) for e in given]


# --- edits: what becomes of one exchange ---------------------------------------------------------------------


def answered(
    fields: Fields | Callable[[dict[str, Any]], Fields], when: Callable[[Exchange], bool] | None = None
) -> Edit:
    """Fields of the response by path, or what a function makes of its body, in exchanges that have one."""

    def edit(exchange: Exchange) -> Exchange:
        message = exchange.response_message
        if message is None or (when is not None and not when(exchange)):
            return exchange
        return copied(exchange, response=fields(message.to_dict()) if callable(fields) else fields)

    return edit


def refused(error: str, place: str = "error_code", when: Callable[[Exchange], bool] | None = None) -> Edit:
    """The response has this error at that place."""
    return answered({place: facts.error_code(error)}, when)


def produce_refused(error: str, when: Callable[[Exchange], bool] | None = None) -> Edit:
    """A Produce response has this error for its first partition."""
    return refused(error, PRODUCE_ERROR, lambda e: e.api == "Produce" and (when is None or when(e)))


def failed(exchange: Exchange) -> bool:
    """Whether its response has an error."""
    return bool(exchange.error)


# --- events ----------------------------------------------------------------------------------------------


def exchange_of(event: ConnectionEvent) -> Exchange | None:
    return event.exchange if isinstance(event, RequestSeen | ExchangeDone) else None


def time_of(event: ConnectionEvent) -> int:
    """Its time in nanoseconds; that of its request for an exchange; 0 where there is none."""
    exchange = exchange_of(event)
    return (getattr(event, "time_ns", None) if exchange is None else exchange.request_time_ns) or 0


def edited(
    events: Iterable[ConnectionEvent],
    edit: Edit | None = None,
    api: str | None = None,
    *,
    after: float = 0,
    stretch: float = 1,
) -> list[ConnectionEvent]:
    """The same with every exchange (or those of one API) as `edit` makes it, `after` s later, `stretch` times as slow."""
    events = list(events)
    start = next((time for h in events if (time := time_of(h))), 0)
    new: dict[int, Exchange] = {}

    def at(time_ns: int | None) -> int | None:
        return None if time_ns is None else start + int((time_ns - start) * stretch) + int(after * SECOND)

    def once(old: Exchange) -> Exchange:
        if id(old) not in new:
            times = {"request_time_ns": at(old.request_time_ns), "response_time_ns": at(old.response_time_ns)}
            made = copied(old, **times)
            new[id(old)] = edit(made) if edit is not None and api in (None, old.api) else made
        return new[id(old)]

    made: list[ConnectionEvent] = []
    for event in events:
        if isinstance(event, RequestSeen | ExchangeDone):
            made.append(type(event)(once(event.exchange)))
        else:
            time_ns = getattr(event, "time_ns", None)
            made.append(event if time_ns is None else replace(event, time_ns=at(time_ns)))  # type: ignore[call-arg]
    return made


def changed(events: Iterable[ConnectionEvent], kind: type[Any], **fields: Any) -> list[ConnectionEvent]:
    """The same with other fields of the events of a kind."""
    return [replace(h, **fields) if isinstance(h, kind) else h for h in events]


def only(events: Iterable[ConnectionEvent], wanted: Callable[[Exchange], bool]) -> list[ConnectionEvent]:
    """The exchanges that are wanted, and everything that is none."""
    return [h for h in events if (e := exchange_of(h)) is None or wanted(e)]


def without(events: Iterable[ConnectionEvent], unwanted: Callable[[Exchange], bool]) -> list[ConnectionEvent]:
    """The same without some exchanges."""
    return only(events, lambda e: not unwanted(e))


def until(events: Iterable[ConnectionEvent], api: str, count: int) -> list[ConnectionEvent]:
    """The same up to the `count`-th exchange of an API."""
    seen: set[int] = set()
    made: list[ConnectionEvent] = []
    for event in events:
        if (e := exchange_of(event)) is not None and e.api == api:
            seen.add(id(e))
            if len(seen) > count:
                break
        made.append(event)
    return made


def later(events: list[ConnectionEvent], seconds: float) -> list[ConnectionEvent]:
    """Time goes on: another client connects so much later."""
    last = max(map(time_of, events))
    return [*events, Opened(99, "127.0.0.9:4000", "127.0.0.1:9092", last + int(seconds * SECOND))]


def repeated(events: Iterable[ConnectionEvent], times: int, seconds: float, edit: Edit | None = None) -> list[ConnectionEvent]:
    """What was produced, so many times within so many seconds, evenly."""
    produced = [h.exchange for h in events if isinstance(h, RequestSeen) and h.exchange.api == "Produce"]
    if edit is not None:
        produced = [edit(e) for e in produced]
    step = seconds / (len(produced) * times)
    start = produced[0].request_time_ns or 0
    made: list[ConnectionEvent] = []
    for number in range(times * len(produced)):
        exchange = produced[number % len(produced)]
        moved = copied(exchange, after=number * step + (start - (exchange.request_time_ns or 0)) / SECOND)
        made += [RequestSeen(moved), ExchangeDone(moved)]
    return made


def unfollowed(events: Iterable[ConnectionEvent]) -> list[ConnectionEvent]:
    """The same without what connections know of their ends: offered versions are known from these exchanges only."""
    return edited(events, lambda e: copied(e, about=None))


def offering(events: Iterable[ConnectionEvent], **ranges: tuple[int, int]) -> list[ConnectionEvent]:
    """The same with brokers that offer other versions: (lowest, highest) by API."""
    keys = {facts.api_key(name): ends for name, ends in ranges.items()}

    def offered(body: dict[str, Any]) -> Fields:
        for api in body["api_keys"]:
            if api["api_key"] in keys:
                api["min_version"], api["max_version"] = keys[api["api_key"]]
        return {"api_keys": body["api_keys"]}

    return edited(unfollowed(events), answered(offered), "ApiVersions")


def position(events: list[ConnectionEvent], kind: type[Any], api: str, client_id: str | None = None) -> int:
    """Where the first request (``RequestSeen``) of an API, or its end (``ExchangeDone``), is; of one client if given."""
    return next(
        number
        for number, event in enumerate(events)
        if isinstance(event, kind)
        and (e := exchange_of(event)) is not None
        and e.api == api
        and client_id in (None, e.client_id)
    )
