"""Recorded traffic of producers, told again as it was or a little differently: slower, more often, with other bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from barnabas.captures import open_capture
from barnabas.decoder import Exchange, ExchangeDone, RequestSeen
from barnabas.decoder.exchange import State
from barnabas.decoder.facts import error_code
from barnabas.decoder.findings import Finding, Inspector
from barnabas.decoder.findings.finding import Severity
from barnabas.decoder.happening import Closed, Happening, Opened

CAPTURES = Path(__file__).parents[1] / "decoder" / "findings" / "captures"
SECOND = 1_000_000_000
ERROR = "responses[0].partition_responses[0].error_code"
RECORDS = "topic_data[0].partition_data[0].records"
Edit = Callable[[Exchange], None]


def told(name: str) -> list[Happening]:
    """What happened in the recording of a scenario."""
    with open_capture(CAPTURES / f"producing-{name}.pcapng") as capture:
        return list(capture.happenings())


def findings(happenings: Iterable[Happening], *ids: str) -> list[Finding]:
    """What these detectors find; a detector that fails is among it."""
    inspector = Inspector(ids)
    for happening in happenings:
        inspector.feed(happening)
    return inspector.findings()


def one(happenings: Iterable[Happening], detector: str) -> Finding:
    """The only finding of a detector."""
    found = findings(happenings, detector)
    assert [f.id for f in found] == [detector]
    assert found[0].seen and found[0].why and found[0].remedy
    return found[0]


def again(
    happenings: Iterable[Happening], *, by_ns: int = 0, stretch: float = 1.0, edit: Edit | None = None
) -> list[Happening]:
    """The same later (`by_ns`) and slower (`stretch`); `edit` may change each exchange, which is a copy."""
    happenings = list(happenings)
    start = next(_time(h) for h in happenings if _time(h))
    copies: dict[int, Exchange] = {}

    def at(time_ns: int | None) -> int | None:
        return None if time_ns is None else int(start + (time_ns - start) * stretch + by_ns)

    def copy(old: Exchange) -> Exchange:
        if id(old) not in copies:
            new = copies[id(old)] = Exchange(
                **{
                    name: getattr(old, name)
                    for name in [
                        "connection",
                        "client",
                        "broker",
                        "api_key",
                        "api_version",
                        "correlation_id",
                        "client_id",
                        "request",
                        "response",
                        "state",
                        "topics",
                    ]
                },
                request_time_ns=at(old.request_time_ns),
                response_time_ns=at(old.response_time_ns),
            )
            if edit is not None:
                edit(new)
        return copies[id(old)]

    made: list[Happening] = []
    for happening in happenings:
        if isinstance(happening, RequestSeen | ExchangeDone):
            made.append(type(happening)(copy(happening.exchange)))
        elif isinstance(happening, Opened | Closed):
            made.append(replace(happening, time_ns=at(happening.time_ns)))
        else:
            made.append(happening)
    return made


def repeated(happenings: Iterable[Happening], times: int, seconds: float, edit: Edit | None = None) -> list[Happening]:
    """What was produced, so many times within so many seconds, evenly."""
    exchanges = [h.exchange for h in happenings if isinstance(h, RequestSeen) and h.exchange.api == "Produce"]
    step = seconds * SECOND / (len(exchanges) * times)
    made: list[Happening] = []
    start = exchanges[0].request_time_ns or 0
    for number in range(times * len(exchanges)):
        exchange = exchanges[number % len(exchanges)]
        pair = [RequestSeen(exchange), ExchangeDone(exchange)]
        made += again(pair, by_ns=int(start + number * step) - (exchange.request_time_ns or 0), edit=edit)
    return made


def only(happenings: Iterable[Happening], wanted: Callable[[Exchange], bool]) -> list[Happening]:
    """The exchanges that are wanted, and everything that is none."""
    return [h for h in happenings if not isinstance(h, RequestSeen | ExchangeDone) or wanted(h.exchange)]


def later(happenings: list[Happening], seconds: float) -> list[Happening]:
    """Time goes on: another client is heard so much later."""
    last = max(_time(h) or 0 for h in happenings)
    return [*happenings, Opened(99, "127.0.0.9:4000", "127.0.0.1:9092", last + int(seconds * SECOND))]


def answer(name: str, where: Callable[[Exchange], bool] = lambda e: True) -> Edit:
    """An edit: Produce is answered with this error in its first partition."""

    def edit(exchange: Exchange) -> None:
        if exchange.api == "Produce" and exchange.state is State.PAIRED and where(exchange):
            respond(exchange, {ERROR: error_code(name)})

    return edit


def respond(exchange: Exchange, edits: dict[str, Any]) -> None:
    """Change fields of the response. The exchange must not have been read yet."""
    message = _fresh(exchange).response_message
    assert message is not None
    exchange.response = message.replace(edits).encode()


def ask(exchange: Exchange, edits: dict[str, Any]) -> None:
    """Change fields of the request."""
    message = _fresh(exchange).request_message
    assert message is not None
    exchange.request = message.replace(edits).encode()


def records(exchange: Exchange) -> bytearray:
    """A copy of the first partition's records of a Produce request."""
    message = _fresh(exchange).request_message
    assert message is not None
    return bytearray(message[RECORDS])


def refused(exchange: Exchange) -> bool:
    """Whether it has an error, read from a copy."""
    return bool(_fresh(exchange).error)


def severities(found: Iterable[Finding]) -> list[tuple[str, Severity]]:
    """(id, severity) of each."""
    return [(f.id, f.severity) for f in found]


def _fresh(exchange: Exchange) -> Exchange:
    return Exchange(
        api_key=exchange.api_key,
        api_version=exchange.api_version,
        request=exchange.request,
        response=exchange.response,
        state=exchange.state,
    )


def _time(happening: Happening) -> int | None:
    if isinstance(happening, RequestSeen | ExchangeDone):
        return happening.exchange.request_time_ns
    return getattr(happening, "time_ns", None)
