"""The observer process: reads the ring at its own pace, records or counts, and reports once a second.

    python -m barnabas.proxy.observer FD     FD: the supervisor's control socket; settings come as its first packet

It stands beside the traffic: whatever happens here, the relay goes on.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from .. import decoder
from ..captures import Recorder
from ..decoder import Direction, ExchangeDone
from .events import Address, Counts, Event, Recording, RecordingFailed, encode
from .reading import Lost, Record, RingReader
from .relay import receive_settings
from .ring import Kind, Ring

LAST_SECONDS = 25.0
"""After the relay has ended, what is left in the ring is read for so long at most."""


class Consumer(Protocol):
    """What an observer feeds: `captures.Recorder` or `Tally`."""

    @property
    def counts(self) -> dict[str, int]: ...
    def opened(
        self, conn: int, time_ns: int, client: Address, broker: Address, upstream: Address | None = None
    ) -> None: ...
    def data(self, conn: int, direction: int, time_ns: int, data: bytes) -> None: ...
    def broker_leg(self, conn: int, direction: int, time_ns: int, frame: bytes, note: str = "") -> None: ...
    def note(self, conn: int, correlation_id: int, text: str) -> None: ...
    def lost(self, conn: int, direction: int, nbytes: int) -> None: ...
    def closed(self, conn: int, time_ns: int, how: str = "fin") -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class Tally:
    """Decodes and counts, keeps nothing: the consumer when nothing is recorded."""

    def __init__(self) -> None:
        self._counts = {"exchanges": 0, "errors": 0, "undecoded": 0}
        self._connections: dict[int, decoder.Connection] = {}

    @property
    def counts(self) -> dict[str, int]:
        return self._counts

    def opened(
        self, conn: int, time_ns: int, client: Address, broker: Address, upstream: Address | None = None
    ) -> None:
        self._connections[conn] = decoder.Connection(conn)

    def data(self, conn: int, direction: int, time_ns: int, data: bytes) -> None:
        connection = self._connections.get(conn)
        if connection is None:
            return
        feed = connection.receive_from_broker if direction else connection.receive_from_client
        self._count(feed(data, time_ns))

    def _count(self, events: list[Any]) -> None:
        counts = self._counts
        for event in events:
            if isinstance(event, ExchangeDone):
                counts["exchanges"] += 1
                if event.exchange.undecoded:
                    counts["undecoded"] += 1
                elif event.exchange.error:
                    counts["errors"] += 1

    def broker_leg(self, conn: int, direction: int, time_ns: int, frame: bytes, note: str = "") -> None: ...

    def note(self, conn: int, correlation_id: int, text: str) -> None: ...

    def lost(self, conn: int, direction: int, nbytes: int) -> None:
        if conn in self._connections:
            self._connections[conn].lost(Direction(direction))

    def closed(self, conn: int, time_ns: int, how: str = "fin") -> None:
        connection = self._connections.pop(conn, None)
        if connection is not None:
            self._count(connection.close(time_ns))

    def flush(self) -> None: ...

    def close(self) -> None: ...


class Observer:
    """One reader of the ring and its consumer."""

    def __init__(self, control: socket.socket, settings: dict[str, Any]) -> None:
        self._control = control
        self._parent = os.getppid()
        ring = Ring.attach(settings["ring"])
        self._reader = RingReader(ring, settings["reader"], settings["bell"], settings["room_bell"])
        self._consumer: Consumer = Tally()
        directory = settings["record"]
        if directory is not None:
            try:
                self._consumer = Recorder(Path(directory), on_event=self._recorder_says)
                self._emit(Recording(directory))
            except OSError as error:
                self._emit(RecordingFailed(f"{directory}: {(error.strerror or str(error)).lower()}"))
        self._open = 0
        self._opened = 0
        self._bytes = [0, 0]
        self._legs: dict[int, bytearray] = {}
        self._finished = False
        self._stop_at: float | None = None

    def _recorder_says(self, kind: str, text: str) -> None:
        if kind in ("paused", "error"):
            self._emit(RecordingFailed(text))

    def _emit(self, event: Event) -> None:
        try:
            self._control.send(encode(event), socket.MSG_DONTWAIT)
        except OSError:
            pass  # full, or the supervisor is gone, which the loop notices

    def run(self) -> None:
        """Until the relay says that nothing follows, or the supervisor is gone."""
        next_report = time.monotonic() + 1.0
        while not self._finished:
            worked = False
            for record in self._reader.read():
                self._take(record)
                worked = True
            now = time.monotonic()
            if now >= next_report:
                next_report = now + 1.0
                self._consumer.flush()
                self._report()
                if not self._supervised(now):
                    break
            if not worked:
                self._reader.wait(max(next_report - now, 0.0))
        for conn in list(self._legs):
            del self._legs[conn]
        self._consumer.close()
        self._report()

    def _supervised(self, now: float) -> bool:
        """Whether to go on. The supervisor's end of the socket is closed when it is gone or stopping."""
        try:
            packet = self._control.recv(65536, socket.MSG_DONTWAIT)
        except BlockingIOError:
            packet = None
        except OSError:
            packet = b""
        if packet:
            self._stop_at = now + LAST_SECONDS
        if self._stop_at is not None and now >= self._stop_at:
            return False
        return packet != b"" and os.getppid() == self._parent

    def _report(self) -> None:
        counts = self._consumer.counts
        self._emit(
            Counts(
                time.time_ns(),
                self._open,
                self._opened,
                counts.get("exchanges", 0),
                counts.get("errors", 0),
                counts.get("undecoded", 0),
                self._bytes[0],
                self._bytes[1],
                self._reader.lost_bytes,
                self._reader.lost_chunks,
            )
        )

    def _take(self, record: Record | Lost) -> None:
        consumer = self._consumer
        if isinstance(record, Lost):
            consumer.lost(record.connection, record.direction, record.nbytes)
            return
        conn, kind = record.connection, record.kind
        if kind == Kind.DATA:
            self._bytes[record.direction] += len(record.data)
            consumer.data(conn, record.direction, record.time_ns, record.data)
        elif kind == Kind.OPENED:
            self._open += 1
            self._opened += 1
            said = json.loads(record.data)
            client, broker, upstream = (tuple(said[name]) for name in ("client", "broker", "upstream"))
            consumer.opened(conn, record.time_ns, client, broker, upstream)
        elif kind == Kind.CLOSED:
            self._open -= 1
            self._legs.pop(conn, None)
            consumer.closed(conn, record.time_ns, "rst" if json.loads(record.data)["how"] == "rst" else "fin")
        elif kind == Kind.NOTE:
            number = record.first_frame
            consumer.note(conn, number - (1 << 32) if number >> 31 else number, record.data.decode())
        elif kind == Kind.BROKER_LEG:
            self._leg(record)
        elif kind == Kind.STOP:
            self._finished = True

    def _leg(self, record: Record) -> None:
        """Collect the pieces of a changed frame; `first_frame` counts the bytes still to come."""
        collected = self._legs.setdefault(record.connection, bytearray())
        collected += record.data
        if record.first_frame:
            return
        whole = bytes(self._legs.pop(record.connection))
        note = 2 + int.from_bytes(whole[:2], "big")
        frame = whole[note:]
        # a piece may have been lost with the ring; half a frame would be taken for a whole one
        if len(frame) >= 8 and int.from_bytes(frame[:4], "big") + 4 == len(frame):
            self._consumer.broker_leg(
                record.connection, record.direction, record.time_ns, frame, whole[2:note].decode()
            )


def main() -> None:
    control, settings = receive_settings(int(sys.argv[1]))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not settings["lossless"]:
        os.nice(10)  # where cores are scarce the relay comes first; what this reader misses is counted
    Observer(control, settings).run()


if __name__ == "__main__":
    main()
