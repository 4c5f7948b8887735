"""Recorded traffic told anew with something changed: for what a real broker cannot be made to do in seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from barnabas.captures import open_capture
from barnabas.decoder import Exchange
from barnabas.decoder.findings import Finding, Inspector

CAPTURES = Path(__file__).parents[1] / "decoder" / "findings" / "captures"
SECOND = 1_000_000_000


def recorded(name: str, api: str | None = None) -> list[Exchange]:
    """The exchanges of ``tests/decoder/findings/captures/<name>.pcapng``, or those of one API."""
    with open_capture(CAPTURES / f"{name}.pcapng") as capture:
        return [e for e in capture.exchanges() if api is None or e.api == api]


def again(
    exchange: Exchange,
    *,
    after: float = 0,
    answered_after: float = 0,
    request: Mapping[str, Any] | None = None,
    response: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Exchange:
    """The exchange once more: `after` s later, its answer another `answered_after` s later; `request` and `response`
    change fields of the messages, `fields` the exchange itself."""
    asked, answered = exchange.request_message, exchange.response_message
    shift, late = int(after * SECOND), int(answered_after * SECOND)
    told = {
        name: getattr(exchange, name) for name in Exchange.__slots__ if name not in ("_faults", "_messages", "_views", "marks")
    }
    told["request_time_ns"] = (exchange.request_time_ns or 0) + shift
    if exchange.response_time_ns is not None:
        told["response_time_ns"] = exchange.response_time_ns + shift + late
    if request:
        assert asked is not None
        told["request"] = asked.replace(request).encode()
    if response:
        assert answered is not None
        told["response"] = answered.replace(response).encode()
    return Exchange(**(told | fields))


def look(exchanges: Iterable[Exchange], *only: str) -> list[Finding]:
    """What the detectors named find in exchanges."""
    inspector = Inspector(only or None)
    for exchange in exchanges:
        inspector.look(exchange)
    return inspector.findings()
