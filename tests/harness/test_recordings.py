"""The builder of recordings: captures read back what it was given."""

from __future__ import annotations

from pathlib import Path

from barnabas.captures import open_capture
from barnabas.decoder import Direction, encode_response

from .recordings import MS, START_NS, RecordingBuilder, heartbeats, produce, produced


def test_exchanges_are_read_back(tmp_path: Path) -> None:
    with RecordingBuilder(tmp_path, client_id="billing") as recording:
        recording.exchange("Heartbeat", 4, {}, {"error_code": 27}, took=5)
        recording.exchange("Produce", 9, produce("orders", b""), produced("orders", 6), connection=2, client_id=None, at=100)
        recording.exchange("Heartbeat", 4, {}, encode_response(12, 4, {}, correlation_id=2)[:-1])
        recording.request("Produce", 9, produce("orders", b"", acks=0), connection=2)
        recording.close_connection(1, "rst", by="broker")
        recording.data(Direction.REQUEST, b"GET / HTTP/1.1\r\n", connection=1)
    with open_capture(tmp_path) as capture:
        found = [
            (e.connection, e.correlation_id, e.api, e.client_id, e.error, (e.request_time_ns - START_NS) / MS, str(e.state))
            for e in capture.exchanges()
        ]
        rows = list(capture.rows())
    assert found == [
        (1, 1, "Heartbeat", "billing", 27, 1, "paired"),
        (2, 1, "Produce", None, 6, 100, "paired"),
        (1, 2, "Heartbeat", "billing", 0, 102, "paired"),
        (2, 2, "Produce", "billing", 0, 104, "no_response"),
    ]
    assert [row.latency_ns for row in rows] == [5 * MS, MS, MS, None]


def test_heartbeats(tmp_path: Path) -> None:
    with open_capture(heartbeats(tmp_path, 5, error=lambda number: number == 3, in_flight=2)) as capture:
        assert [(e.correlation_id, e.error, str(e.state)) for e in capture.exchanges()] == [
            *((number, 25 * (number == 3), "paired") for number in range(4)),
            (4, 0, "pending"),
        ]
