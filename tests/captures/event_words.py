"""What tests read from captures: events (each in a few words), findings, imports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from barnabas.captures import open_capture
from barnabas.captures.foreign.importer import Importer
from barnabas.captures.pcap.sources import CaptureSource
from barnabas.decoder import ExchangeDone, RequestSeen
from barnabas.decoder.connection.events import Closed, ConnectionEvent, NonKafkaData, Opened
from barnabas.decoder.findings import Finding, Inspector


def findings_of(path: Path, *detectors: str) -> list[Finding]:
    """The findings over a capture, of these detectors only if any are given."""
    inspector = Inspector(detectors) if detectors else Inspector()
    for event in read_events(path):
        inspector.feed(event)
    return inspector.findings()


def import_captures(directory: Path, *paths: Path, **options: Any) -> Importer:
    """Import captures into a recording; ``options`` are those of `Importer`."""
    importer = Importer(directory, **options)
    for path in paths:
        importer.begin(CaptureSource(path))
        while importer.advance():
            pass
    importer.close()
    return importer


def read_events(path: Path, **options: Any) -> list[ConnectionEvent]:
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
        for h in read_events(path)
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
