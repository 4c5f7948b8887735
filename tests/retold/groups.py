"""The recorded groups, and the same traffic told a little otherwise: other answers, other times, less of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from barnabas.captures import open_capture
from barnabas.decoder import Exchange, ExchangeDone, RequestSeen
from barnabas.decoder.findings import Finding, Inspector
from barnabas.decoder.findings.commits import DETECTORS as COMMITS
from barnabas.decoder.findings.groups import Groups
from barnabas.decoder.findings.membership import DETECTORS as MEMBERSHIP
from barnabas.decoder.findings.rebalances import DETECTORS as REBALANCES
from barnabas.decoder.happening import Closed, Happening, Opened

AREA = [d.id for d in (*REBALANCES, *MEMBERSHIP, *COMMITS)]
SECOND = 1_000_000_000
CAPTURES = Path(__file__).parents[1] / "decoder" / "findings" / "captures"


def told(name: str) -> Iterator[Happening]:
    """What happens in a recording."""
    with open_capture(CAPTURES / f"groups-{name}.pcapng") as capture:
        yield from capture.happenings()


def findings(happenings: Iterable[Happening], *only: str) -> list[Finding]:
    """What the detectors of groups find."""
    inspector = Inspector(only or AREA)
    for happening in happenings:
        inspector.feed(happening)
    return inspector.findings()


def summary(found: list[Finding]) -> set[tuple[str, str]]:
    """(id, severity) of each."""
    return {(f.id, str(f.severity)) for f in found}


def groups_of(happenings: Iterable[Happening]) -> Groups:
    """The model after these happenings."""
    inspector = Inspector(AREA)
    for happening in happenings:
        inspector.feed(happening)
    return Groups.of(inspector.scene)


def answered(exchange: Exchange, edits: dict[str, Any]) -> Exchange:
    """The exchange with fields of its response changed."""
    message = exchange.response_message
    assert message is not None
    return copied(exchange, response=message.replace(edits).encode())


def copied(exchange: Exchange, **changed: Any) -> Exchange:
    """A new exchange that differs in these attributes."""
    names = [
        "connection",
        "client",
        "broker",
        "api_key",
        "api_version",
        "correlation_id",
        "client_id",
        "request",
        "request_time_ns",
        "response",
        "response_time_ns",
        "state",
        "topics",
        "about",
    ]
    return Exchange(**{**{name: getattr(exchange, name) for name in names}, **changed})


def edited(happenings: Iterable[Happening], edit: Callable[[Exchange], Exchange]) -> Iterator[Happening]:
    """Every exchange as `edit` makes it; each is whole from its request on, as those of a capture are in the end."""
    now: dict[int, Exchange] = {}
    for happening in list(happenings):
        if isinstance(happening, RequestSeen):
            now[id(happening.exchange)] = changed = edit(happening.exchange)
            yield RequestSeen(changed)
        elif isinstance(happening, ExchangeDone):
            yield ExchangeDone(now.pop(id(happening.exchange), None) or edit(happening.exchange))
        else:
            yield happening


def stretched(happenings: Iterable[Happening], factor: float) -> Iterator[Happening]:
    """The same, slower."""
    first = 0

    def later(time_ns: int | None) -> int | None:
        return None if time_ns is None else first + int((time_ns - first) * factor)

    def slower(exchange: Exchange) -> Exchange:
        return copied(
            exchange,
            request_time_ns=later(exchange.request_time_ns),
            response_time_ns=later(exchange.response_time_ns),
        )

    def every() -> Iterator[Happening]:
        nonlocal first
        for happening in happenings:
            if isinstance(happening, Opened | Closed):
                first = first or happening.time_ns
                happening = replace(happening, time_ns=later(happening.time_ns) or 0)
            yield happening

    return edited(every(), slower)
