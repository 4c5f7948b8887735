"""The events of a capture, each in a few words that tests compare."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from barnabas.captures import open_capture
from barnabas.decoder import ExchangeDone, RequestSeen
from barnabas.decoder.connection.events import Closed, ConnectionEvent, NonKafkaData, Opened


def all_of(path: Path, **options: Any) -> list[ConnectionEvent]:
    with open_capture(path, **options) as capture:
        return list(capture.events())


def short(found: list[ConnectionEvent]) -> list[str]:
    """Each event in few words."""
    words = []
    for one in found:
        if isinstance(one, (RequestSeen, ExchangeDone)):
            name = "asked" if isinstance(one, RequestSeen) else str(one.exchange.state)
            words.append(f"{one.exchange.connection} {name} {one.exchange.correlation_id}")
        elif isinstance(one, Opened):
            words.append(f"{one.connection} opened" + ("" if one.established else " in vain"))
        elif isinstance(one, Closed):
            words.append(f"{one.connection} closed {one.how} by {one.by or 'nobody'}")
        elif isinstance(one, NonKafkaData):
            words.append(f"{one.connection} stray {one.opaque.reason}")
        else:
            words.append(f"{one.connection} missing {one.size}" + (f", unread {one.unread}" if one.unread else ""))
    return words


def same_as_read_back(path: Path) -> int:
    """Every exchange that is done must be the one that the capture gives; returns their number."""
    done = {
        (h.exchange.connection, h.exchange.correlation_id, h.exchange.request_time_ns): h.exchange
        for h in all_of(path)
        if isinstance(h, ExchangeDone)
    }
    count = 0
    with open_capture(path) as capture:
        for exchange in capture.exchanges():
            if exchange.state == "pending":
                continue
            read_as_event = done[exchange.connection, exchange.correlation_id, exchange.request_time_ns]
            for name in ("request", "response", "state", "request_time_ns", "response_time_ns", "client", "broker"):
                assert getattr(read_as_event, name) == getattr(exchange, name), name
            marks = read_as_event.marks
            if marks.carried and exchange.marks.broker_response is None:
                # a segment does not repeat the broker leg's frames of an earlier one
                marks = replace(marks, broker_response=None)
            assert marks == exchange.marks
            count += 1
    assert count == len(done)
    return count
