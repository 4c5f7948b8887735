"""The table `versions`: who speaks which version of which API, how often, and what the brokers offer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...decoder import Exchange, ExchangeDone, State, facts
from ...decoder.about import About
from ...decoder.happening import Closed, Happening
from .columns import Column, Table
from .settling import settled

TABLE = Table(
    "versions",
    "client (client id and software), API and version",
    (
        Column("capture_id", "string", "the recording; of a folder that holds several, or of a foreign one, its name"),
        Column("client_id", "string", "null where requests have none", null=True),
        Column(
            "software_name", "string", "as the client names itself (ApiVersions v3); null if it does not", null=True
        ),
        Column("software_version", "string", "likewise", null=True),
        Column("api", "string", "the API's name"),
        Column("api_key", "int16", "its number"),
        Column("api_version", "int16", "the version of the requests"),
        Column("exchanges", "int64", "how many requests"),
        Column("errors", "int64", "those answered with an error code that is not 0"),
        Column("first_ns", "int64", "when the first one was sent, nanoseconds since the epoch"),
        Column("last_ns", "int64", "when the last one was sent"),
        Column(
            "offered_min",
            "int16",
            "lowest version that the broker offers; null if it does not, or did not say",
            null=True,
        ),
        Column("offered_max", "int16", "highest version, likewise; of several brokers the least", null=True),
    ),
)

_Use = list[int]  # exchanges, errors, first, last
_Key = tuple[str | None, str | None, str | None, int, int]


def rows(
    happenings: Iterable[Happening], capture_id: str, wanted: Callable[[Exchange], bool] | None = None
) -> Iterator[dict[str, Any]]:
    """The rows, sorted; with `wanted`, counted over the exchanges that pass."""
    links: dict[int, tuple[About, dict[tuple[str | None, int, int], _Use]]] = {}
    total: dict[_Key, _Use] = {}
    offers: dict[_Key, tuple[int, int]] = {}

    def end(number: int) -> None:
        about, uses = links.pop(number)
        software = about.software_name or None, about.software_version or None
        for (client_id, key, version), use in uses.items():
            name = client_id, *software, key, version
            known = total.setdefault(name, [0, 0, use[2], use[3]])
            known[:] = known[0] + use[0], known[1] + use[1], min(known[2], use[2]), max(known[3], use[3])
            offered = about.range(key)
            if offered is not None:
                before = offers.get(name, offered)
                offers[name] = max(before[0], offered[0]), min(before[1], offered[1])

    for happening in settled(happenings):
        if isinstance(happening, ExchangeDone):
            exchange = happening.exchange
            if exchange.state is State.ORPHAN or (wanted is not None and not wanted(exchange)):
                continue
            about = exchange.about or About()
            link = links.get(exchange.connection)
            if link is not None and exchange.about is not None and link[0] is not exchange.about:
                end(exchange.connection)  # another connection of the same number: of another recording
                link = None
            if link is None:
                link = links[exchange.connection] = about, {}
            time_ns = exchange.request_time_ns or 0
            use = link[1].setdefault(
                (exchange.client_id, exchange.api_key, exchange.api_version), [0, 0, time_ns, time_ns]
            )
            use[:] = use[0] + 1, use[1] + bool(exchange.error), min(use[2], time_ns), max(use[3], time_ns)
        elif isinstance(happening, Closed) and happening.connection in links:
            end(happening.connection)
    for number in list(links):
        end(number)
    for name in sorted(total, key=lambda name: tuple((part is not None, part) for part in name)):
        client_id, software, version, key, api_version = name
        offered = offers.get(name)
        exchanges, errors, first, last = total[name]
        yield {
            "capture_id": capture_id,
            "client_id": client_id,
            "software_name": software,
            "software_version": version,
            "api": facts.api_name(key),
            "api_key": key,
            "api_version": api_version,
            "exchanges": exchanges,
            "errors": errors,
            "first_ns": first,
            "last_ns": last,
            "offered_min": None if offered is None else offered[0],
            "offered_max": None if offered is None else offered[1],
        }
