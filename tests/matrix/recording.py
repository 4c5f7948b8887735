"""What a recording of one program shows: versions, what was not understood, which addresses clients got, findings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from barnabas.captures import open_capture
from barnabas.decoder import DecodeError, Exchange, decode_response
from barnabas.decoder.findings import Inspector, Severity
from barnabas.proxy.events import BrokerFound, Event
from matrix.brokers import Address


def read(directory: Path, own: Address, events: Sequence[Event]) -> dict[str, Any]:
    """Plain values: `versions` by API, `exchanges`, `undecoded`, `lost`, `astray` (addresses that are not the proxy's),
    `findings` above information, `warnings` of the proxy."""
    versions: dict[str, set[int]] = defaultdict(set)
    undecoded: list[str] = []
    named: set[Address] = set()
    count = 0
    with open_capture(directory) as capture:
        for exchange in capture.exchanges():
            count += 1
            versions[exchange.api].add(exchange.api_version)
            if exchange.undecoded:
                undecoded.append(f"{exchange.api} v{exchange.api_version}: {exchange.undecoded}{of_another(exchange)}")
            named |= set(addresses(exchange))
        lost = capture.lost
    inspector = Inspector()
    with open_capture(directory) as capture:
        for event in capture.events():
            inspector.feed(event)
    listeners = {own} | {event.address for event in events if isinstance(event, BrokerFound)}
    return {
        "versions": {api: sorted(seen) for api, seen in sorted(versions.items())},
        "exchanges": count,
        "undecoded": undecoded,
        "lost": lost,
        "astray": sorted(f"{host}:{port}" for host, port in named - listeners),
        "findings": [
            {"id": found.id, "severity": found.severity.name.lower(), "seen": found.seen}
            for found in inspector.findings()
            if found.severity is not Severity.INFO
        ],
        "warnings": [event.text for event in events if event.warning],
    }


OF_VERSION_0 = "; its bytes are of version 0"


def of_another(exchange: Exchange) -> str:
    """`OF_VERSION_0` where that is what a broker answered with that does not know the version it was asked in."""
    if exchange.response is None or not exchange.api_key or not exchange.api_version:
        return ""
    try:
        decode_response(exchange.response, api_key=exchange.api_key, api_version=0)
    except DecodeError:
        return ""
    return OF_VERSION_0


def addresses(exchange: Exchange) -> Iterator[Address]:
    """Every (host, port) anywhere in a response, as the client got it."""
    if exchange.response_message is None:
        return

    def walk(value: Any) -> Iterator[Address]:
        if isinstance(value, dict):
            if value.get("host") and value.get("port", -1) >= 0:
                yield value["host"], value["port"]
            value = value.values()
        elif not isinstance(value, list | tuple):
            return
        for part in value:
            yield from walk(part)

    yield from walk(exchange.response_message.to_dict())
