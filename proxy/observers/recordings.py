"""Recordings that begin, rotate and end while traffic runs: what the observer feeds.

A recording that begins while connections are open begins at frames: each direction of each connection is recorded from the first frame
start that comes. Responses to requests that were sent before have no request in it.

With a flight recorder something is always recorded: its ring, or the recording that was asked for instead. Retention is applied here,
too: whenever a segment is closed, and now and then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

from ...captures import Recorder
from ...captures.recording.flight_recorder import Failed, FlightReason, FlightRecorder, Full, Written
from ...errors import BarnabasError
from .. import events
from ..events import Event, Recording, RecordingFailed
from ..processes import control_messages as messages
from ..processes.control_messages import Failure
from ..ring.clock import now_ns
from ..ring.reader import NativeRecorders
from ..ring.ring import NONE
from .exchange_counter import ExchangeCounter
from .retainer import Retainer
from .ring_feed import ConnectionEnds
from .settings import RING, FlightConfig, RecordingConfig


class RecordingRefused(BarnabasError):
    """The command is not possible now."""

    def __init__(self, kind: Failure, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Recordings:
    """The observer's consumer: passes everything to a recorder while something is recorded, else to an `ExchangeCounter`."""

    def __init__(
        self,
        directory: str | None,
        emit: Callable[[Event], object],
        recording: RecordingConfig,
        flight: FlightConfig | None = None,
        snaplen: int | None = None,
    ) -> None:
        """snaplen: most bytes of a frame that are kept."""
        self._snaplen = snaplen
        self._config = recording
        self._flight_config = flight
        self._flight: FlightRecorder | None = None
        self._retainer = Retainer(emit)
        self._source: Path | None = None
        self._in_ring = False  # the flight recorder's ring is being recorded
        self._emit = emit
        self._before: Counter[str] = Counter()
        self._connections: dict[int, ConnectionEnds] = {}
        self._seen: set[tuple[int, int]] = set()  # (connection, direction) in which anything has come
        self._unsynced: set[tuple[int, int]] = set()  # those that wait for a frame start
        self._barred: set[int] = set()  # their connections
        self.directory: str | None = None
        self._recorder: Recorder | None = None
        self._consumer: Recorder | ExchangeCounter = ExchangeCounter()
        self._trouble = ""
        if self._flight_config is not None:
            self._start_flight(self._flight_config)
        if directory is not None:
            try:
                self._begin(directory, self._config)
            except RecordingRefused as error:
                self._emit(RecordingFailed(str(error)))
        if self._recorder is None:
            self._fall_back()

    # -- commands --------------------------------------------------------------------------------------------

    def command(self, command: messages.Commands) -> messages.Answers:
        """Carry out a command; the state afterwards, or what became of a flight recording."""
        try:
            match command:
                case messages.StartRecording():
                    self._start(command.directory, self._config_for(command))
                case messages.StopRecording():
                    self._stop()
                case messages.RotateRecording():
                    if self._recorder is None:
                        raise RecordingRefused(Failure.MISSING, "nothing is being recorded")
                    self._recorder.rotate()
                case messages.WriteFlight(label, reason):
                    return self.write_flight(events.FlightWanted("asked", reason or "requested", label or "flight", now_ns(), {}))
        except RecordingRefused as error:
            return messages.Refused(error.kind, str(error))
        return self.state()

    def _config_for(self, command: messages.StartRecording) -> RecordingConfig:
        """How a new recording is cut and kept: as the proxy was started with, except for what the command sets."""
        given = {each.name: value for each in fields(self._config) if (value := getattr(command, each.name)) is not None}
        try:
            return replace(self._config, **given)
        except ValueError as error:
            raise RecordingRefused(Failure.INVALID, str(error)) from None

    def state(self) -> messages.RecordingState:
        recorder = None if self._in_ring else self._recorder
        counts = recorder.counts if recorder is not None else {}
        path = recorder.path if recorder is not None else None
        flight = self._flight
        return messages.RecordingState(
            recording=recorder is not None,
            directory=self.directory,
            segment=str(path) if path is not None else None,
            paused=recorder is not None and path is None,
            trouble=self._trouble or None,
            counts=counts,
            flight=None if flight is None else messages.FlightState(
                str(flight.directory), *flight.window, flight.written, flight.counted, str(flight.writing) if flight.writing else None
            ),
        )  # fmt: skip

    def _begin(self, directory: str, config: RecordingConfig, ring: bool = False) -> None:
        try:
            recorder = Recorder(
                Path(directory),
                snaplen=self._snaplen,
                segment_bytes=config.segment_bytes,
                segment_seconds=config.segment_seconds,
                on_event=self._recorder_event,
            )
        except OSError as error:
            raise RecordingRefused(Failure.INVALID, f"{directory}: {(error.strerror or str(error)).lower()}") from None
        self._recorder = self._consumer = recorder
        self._trouble, self._in_ring, self._source = "", ring, Path(directory)
        if not ring:
            self.directory = directory
            self._emit(Recording(directory))
        self._retainer.watch(self._source, config, ring)

    def _fall_back(self) -> None:
        """No recording is asked for: record the flight recorder's ring if there is one, else only count."""
        self._recorder, self._source, self.directory, self._in_ring = None, None, None, False
        if self._flight is not None and self._flight_config is not None:
            try:
                self._begin(str(self._flight_config.directory / RING), self._flight_config.ring, ring=True)
                return
            except RecordingRefused as error:
                self._emit(events.FlightFailed(str(error)))
        self._consumer = ExchangeCounter()

    def _start(self, directory: str, config: RecordingConfig) -> None:
        if self._recorder is not None and not self._in_ring:
            raise RecordingRefused(Failure.EXISTS, f"already recording to {self.directory}: stop that recording first")
        self._close()
        try:
            self._begin(directory, config)
        except RecordingRefused:
            self._fall_back()
            self._take_over()
            raise
        self._take_over()

    def _stop(self) -> None:
        if self._recorder is None or self._in_ring:
            raise RecordingRefused(Failure.MISSING, "nothing is being recorded")
        self._close()
        self._retainer.close()
        self._fall_back()
        self._take_over()

    def _close(self) -> None:
        self._consumer.close()
        self._before.update({name: self._consumer.counts.get(name, 0) for name in ("exchanges", "errors", "undecoded")})

    def _take_over(self) -> None:
        """Introduce the open connections to the new consumer."""
        now = now_ns()
        for conn, ends in self._connections.items():
            self._consumer.opened(conn, now, *ends)
        self._unsynced = set(self._seen)
        self._barred = {conn for conn, _ in self._seen}

    def _recorder_event(self, kind: str, text: str) -> None:
        if kind in ("paused", "error"):
            self._trouble = text
            self._emit(RecordingFailed(text))
        elif kind == "resumed":
            self._trouble = ""
            self._emit(events.RecordingResumed(text))
        elif kind == "segment":
            if self._flight is not None:
                self._flight.segment(Path(text))  # before retention may remove it
            self._retainer.apply()

    # -- the flight recorder ---------------------------------------------------------------------------------

    def _start_flight(self, config: FlightConfig) -> None:
        try:
            self._flight = FlightRecorder(
                config.directory,
                config.window,
                lambda: self._source,
                self._rotate,
                self._flight_event,
                every=config.pause,
                most=config.most,
            )
        except OSError as error:
            self._emit(events.FlightFailed(f"{config.directory}: {error.strerror or error}"))
            return
        self._emit(events.FlightStands(str(config.directory), config.seconds, config.bytes))

    def _rotate(self) -> None:
        if self._recorder is not None:
            self._recorder.rotate()

    def write_flight(self, wanted: events.FlightWanted) -> messages.FlightBegun:
        """Write what the flight recorder holds, for a reason found in the traffic or because it was asked for."""
        if self._flight is None:
            raise RecordingRefused(Failure.MISSING, "there is no flight recorder: start the proxy with --flight DIR")
        reason = FlightReason(wanted.kind, wanted.reason or "requested", wanted.label or "flight", wanted.time_ns, dict(wanted.about))
        return messages.FlightBegun(*self._flight.trigger(reason, wanted.others))

    def _flight_event(self, event: Written | Failed | Full) -> None:
        if isinstance(event, Written):
            path, segments, size, reason, others = event
            self._emit(events.FlightWritten(path=path, segments=segments, bytes=size, reason=reason, others=others))
        else:
            self._emit(events.FlightFull(event.text) if isinstance(event, Full) else events.FlightFailed(event.text))

    # -- what the observer reads -----------------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, int]:
        """Counts since the start, over all recordings."""
        counts = Counter(self._before)
        counts.update(self._consumer.counts)
        return dict(counts)

    def opened(self, conn: int, time_ns: int, ends: ConnectionEnds) -> None:
        if not ends.failed:
            self._connections[conn] = ends
        self._consumer.opened(conn, time_ns, *ends)

    def data(self, conn: int, direction: int, time_ns: int, data: bytes | memoryview, first: int = 0) -> None:
        """`first`: where in `data` the first frame starts, or `ring.NONE`."""
        key = conn, direction
        if key in self._unsynced:
            if first == NONE:
                return
            self._synced(conn, direction)
            data = data[first:]
        if key not in self._seen:
            # Both directions: the other one may come on a track, past this method.
            self._seen |= {(conn, 0), (conn, 1)}
        self._consumer.data(conn, direction, time_ns, data)

    def _synced(self, conn: int, direction: int) -> None:
        self._unsynced.discard((conn, direction))
        if (conn, 1 - direction) not in self._unsynced:
            self._barred.discard(conn)

    def begin(self) -> NativeRecorders | None:
        """As in `ring.reader.NativeConsumer`."""
        begun = self._consumer.begin()
        return None if begun is None else NativeRecorders(begun[0], self._barred, *begun[1:])

    def end(self, nbytes: int) -> None:
        self._consumer.end(nbytes)

    def failed(self, conn: int, error: Exception) -> None:
        self._consumer.failed(conn, error)

    def skipped(self, conn: int, direction: int, time_ns: int, nbytes: int) -> None:
        if (conn, direction) not in self._unsynced:
            self._consumer.skipped(conn, direction, time_ns, nbytes)

    def broker_leg(self, conn: int, direction: int, time_ns: int, frame: bytes, note: str = "") -> None:
        self._consumer.broker_leg(conn, direction, time_ns, frame, note)

    def note(self, conn: int, correlation_id: int, text: str) -> None:
        self._consumer.note(conn, correlation_id, text)

    def lost(self, conn: int, direction: int, nbytes: int) -> None:
        if (conn, direction) in self._unsynced:
            self._synced(conn, direction)  # its next data starts at a frame
        else:
            self._consumer.lost(conn, direction, nbytes)

    def ended(self, conn: int, direction: int, time_ns: int) -> None:
        self._consumer.ended(conn, direction, time_ns)

    def closed(self, conn: int, time_ns: int, how: str = "fin", by: str = "") -> None:
        self._connections.pop(conn, None)
        for direction in (0, 1):
            self._seen.discard((conn, direction))
            self._synced(conn, direction)
        self._consumer.closed(conn, time_ns, how, by)

    def flush(self) -> None:
        self._consumer.flush()
        if self._flight is not None:
            self._flight.tick()
        self._retainer.tick()

    def close(self) -> None:
        self._consumer.close()
        if self._flight is not None:
            self._flight.close()
            if self._flight.counted:
                self._emit(events.FlightCounted(self._flight.counted))
        self._retainer.close()
