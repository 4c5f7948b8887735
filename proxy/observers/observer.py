"""The observer process: reads the ring at its own pace, records or counts, and reports once a second.

    python -m barnabas.proxy.observers.observer FD     FD: the supervisor's control socket; settings come as its first packet

It stands beside the traffic: whatever happens here, the relay goes on.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any, Protocol

from ..channel import Channel
from ..clock import now_ns
from ..events import Address, Counts, Event, RecordingFailed, encode
from ..processes.child import Parent, receive_settings
from ..ring.merged_rings import open_reader
from ..ring.reader import Lost, Record
from ..ring.ring import Kind
from .counting import Counting
from .recordings import Recordings

_DATA = Kind.DATA  # looked up once: this is done for every chunk
LAST_SECONDS = 25.0
"""After the relay has ended, what is left in the ring is read for so long at most."""


class Consumer(Protocol):
    """What an observer feeds: `captures.Recorder`, `Counting`, `Recordings`, or `inspector.Inspection`."""

    @property
    def counts(self) -> dict[str, int]: ...
    def opened(
        self,
        conn: int,
        time_ns: int,
        client: Address,
        broker: Address,
        upstream: Address | None = None,
        failed: str = "",
        tls: frozenset[str] = frozenset(),
    ) -> None: ...
    def data(self, conn: int, direction: int, time_ns: int, data: bytes | memoryview) -> None: ...
    def skipped(self, conn: int, direction: int, time_ns: int, nbytes: int) -> None: ...
    def broker_leg(self, conn: int, direction: int, time_ns: int, frame: bytes, note: str = "") -> None: ...
    def note(self, conn: int, correlation_id: int, text: str) -> None: ...
    def lost(self, conn: int, direction: int, nbytes: int) -> None: ...
    def closed(self, conn: int, time_ns: int, how: str = "fin", by: str = "") -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class Observer:
    """One reader of the ring and its consumer: the recorder, or what only counts."""

    def __init__(self, control: socket.socket, settings: dict[str, Any]) -> None:
        self._control = control
        self._parent = Parent()
        self._reader = open_reader(settings)
        commands = settings.get("commands")
        self._commands = Channel(socket.socket(fileno=commands)) if commands is not None else None
        """To the control server, which rings the reader's bell behind every command."""
        self._consumer = self._make_consumer(settings)
        self._open = 0
        self._opened = 0
        self._bytes = [0, 0]
        self._legs: dict[int, bytearray] = {}
        self._finished = False
        self._idle = False  # everything that was in the ring has been taken
        self._stop_at: float | None = None

    _recordings: Recordings | None = None

    def _make_consumer(self, settings: dict[str, Any]) -> Consumer:
        self._recordings = Recordings(
            settings["record"],
            Counting,
            self._emit,
            settings.get("recording"),
            settings.get("flight"),
            settings.get("snaplen"),
        )
        return self._recordings

    def _emit(self, event: Event) -> None:
        try:
            self._control.send(encode(event), socket.MSG_DONTWAIT)
        except OSError:
            pass  # full, or the supervisor is gone, which the loop notices

    def run(self) -> None:
        """Until the relay says that nothing follows, or the supervisor is gone."""
        next_report = time.monotonic() + 1.0
        straight = self if self._recordings is not None else None
        while not self._finished:
            worked = False
            for record in self._reader.read(straight=straight):
                self._take(record)
                worked = True
            now = time.monotonic()
            if now >= next_report:
                next_report = now + 1.0
                self._consumer.flush()
                self._report()
                if not self._supervised(now):
                    break
            self._idle = not worked
            if self._commands is not None:
                self._serve(self._commands)
            nap = self._nap(not worked)
            if not worked and nap:
                self._reader.wait(max(min(next_report - now, nap), 0.0))
        for conn in list(self._legs):
            del self._legs[conn]
        self._consumer.close()
        self._report()

    # -- commands --------------------------------------------------------------------------------------------

    def _serve(self, commands: Channel) -> None:
        """Answer the control server."""
        commands.flush()
        for message, _ in commands.receive():
            try:
                answer = self._command(message)
            except Exception as error:  # a command may fail; what is observed goes on
                answer = {"error": "failed", "text": f"{type(error).__name__}: {error}"}
            if answer is not None:
                commands.send({"id": message.get("id"), **answer})
        if commands.closed:
            self._commands = None

    def _command(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to a command, None if it comes later."""
        if self._recordings is None:
            return {"error": "invalid", "text": f"no such command: {message.get('do')!r}"}
        return self._recordings.command(message)

    def _nap(self, idle: bool) -> float:
        """Do what there is besides the ring; how long to wait for the ring's bell at most (seconds)."""
        if self._commands is not None and self._commands.pending:
            if idle:
                select.select([], [self._commands], [], 0.05)
            return 0.0
        return 1.0

    def _supervised(self, now: float) -> bool:
        """Whether to go on. The supervisor's end of the socket is closed when it is gone or stopping."""
        try:
            # Not `socket.recv_fds`: that forgets its flags, and would wait.
            packet, sent, _, _ = self._control.recvmsg(65536, socket.CMSG_LEN(4), socket.MSG_DONTWAIT)
        except BlockingIOError:
            packet, sent = None, []
        except OSError:
            packet, sent = b"", []
        if sent:  # another control server stands in the place of one that ended
            self._commands = Channel(socket.socket(fileno=int.from_bytes(sent[0][2][:4], sys.byteorder)))
        elif packet:
            self._told(packet, now)
        if self._stop_at is not None and now >= self._stop_at:
            return False
        return packet != b"" and not self._parent.gone

    def _told(self, packet: bytes, now: float) -> None:
        """The supervisor says something: to stop, or a command whose answer nobody waits for."""
        said = json.loads(packet)
        if said.get("do") == "stop" or self._recordings is None:
            self._stop_at = now + LAST_SECONDS
            return
        try:
            self._recordings.command(said)
        except Exception as error:  # as for the control server: what is observed goes on
            self._emit(RecordingFailed(f"{type(error).__name__}: {error}"))

    def _report(self) -> None:
        counts = self._consumer.counts
        self._emit(
            Counts(
                now_ns(),
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
        kind, conn, direction, time_ns, data, first = record
        if kind is _DATA:
            self._bytes[direction] += len(data)
            if self._recordings is not None:
                self._recordings.data(conn, direction, time_ns, data, first)
            else:
                consumer.data(conn, direction, time_ns, data)
        elif kind == Kind.OPENED:
            said = json.loads(bytes(data))
            failed = said.get("failed", "")
            self._open += 1
            self._opened += 0 if failed else 1
            client, broker, upstream = (tuple(said[name]) for name in ("client", "broker", "upstream"))
            tls = frozenset(said.get("tls", ()))
            consumer.opened(conn, record.time_ns, client, broker, None if failed else upstream, failed, tls)
        elif kind == Kind.CLOSED:
            self._open -= 1
            self._legs.pop(conn, None)
            said = json.loads(bytes(data))
            consumer.closed(conn, record.time_ns, said["how"], said.get("by", ""))
        elif kind == Kind.NOTE:
            number = record.first_frame
            consumer.note(conn, number - (1 << 32) if number >> 31 else number, bytes(data).decode())
        elif kind == Kind.BROKER_LEG:
            self._leg(record)
        elif kind == Kind.SKIPPED:
            self._bytes[direction] += first
            consumer.skipped(conn, direction, time_ns, first)
        elif kind == Kind.STOP:
            self._finished = True

    # -- as of reading.Straight ----------------------------------------------------------------------------------

    def begin(self) -> tuple[dict[int, Any], set[int], int, int] | None:
        return self._recordings.begin() if self._recordings is not None else None

    def end(self, requests: int, responses: int) -> None:
        self._bytes[0] += requests
        self._bytes[1] += responses
        if self._recordings is not None:
            self._recordings.end(requests + responses)

    def failed(self, connection: int, error: Exception) -> None:
        if self._recordings is not None:
            self._recordings.failed(connection, error)

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
