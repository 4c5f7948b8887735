"""What an observer feeds when nothing is recorded: it counts exchanges and keeps nothing.

With the accelerator the frames of a connection are counted without objects, by a `native.ConnectionRecorder` that writes nothing; as in
`captures.recording.native_recorder`, a connection changes over between that and its decoder at any chunk.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ... import decoder
from ...captures.native.accelerator import native
from ...captures.recording.native_recorder import Backoff, give_to_decoder, give_to_recorder, shape
from ...decoder import Direction, ExchangeDone
from ..events import Address

_NEVER = 1 << 62


class _Followed:
    """One connection: its decoder, and the native recorder that has taken over, if one has."""

    __slots__ = ("backoff", "decoder", "number", "recorder")

    def __init__(self, number: int) -> None:
        self.number = number
        self.decoder = decoder.Connection(number)
        self.recorder: Any = None
        self.backoff = Backoff()


class Counting:
    """Decodes and counts, keeps nothing."""

    def __init__(self) -> None:
        self._counts = {"exchanges": 0, "errors": 0, "undecoded": 0}
        self._connections: dict[int, _Followed] = {}
        self._recorders: dict[int, Any] = {}
        self._context: Any = None
        if native is not None:
            self._context = native.RecorderContext(partial(shape, False))
            self._context.counting = 1

    @property
    def counts(self) -> dict[str, int]:
        counts = dict(self._counts)
        if self._context is not None:
            counts["exchanges"] += self._context.exchanges
            counts["errors"] += self._context.errors
        return counts

    def opened(
        self,
        conn: int,
        time_ns: int,
        client: Address,
        broker: Address,
        upstream: Address | None = None,
        failed: str = "",
        tls: frozenset[str] = frozenset(),
    ) -> None:
        self._recorders.pop(conn, None)
        self._connections[conn] = _Followed(conn)

    def data(self, conn: int, direction: int, time_ns: int, data: bytes | memoryview) -> None:
        followed = self._connections.get(conn)
        if followed is None:
            return
        if self._context is not None and (followed.recorder is not None or self._begin(followed)):
            followed.backoff.taken += 1
            at = followed.recorder.feed(direction, data, 0, time_ns, 0, _NEVER)
            if at == len(data):
                return
            self._leave(followed)
            followed.backoff.again()
            data = data[at:]
        receive = followed.decoder.receive_from_broker if direction else followed.decoder.receive_from_client
        self._count(receive(data, time_ns))

    def begin(self) -> tuple[dict[int, Any], int, int] | None:
        """As of `captures.Recorder`."""
        return (self._recorders, 0, _NEVER) if self._recorders else None

    def end(self, nbytes: int) -> None: ...

    def failed(self, conn: int, error: Exception) -> None:
        raise error

    def _begin(self, followed: _Followed) -> bool:
        """Go on with a native recorder, if all that waits is plain."""
        waiting = followed.decoder.pending()
        if not followed.backoff.over() or len(waiting) != followed.decoder.in_flight:
            return False
        recorder = native.ConnectionRecorder(self._context, followed.number & 0xFFFFFFFF)  # type: ignore[union-attr]
        for each in waiting:
            frame, cut = each.request or b"", each.request_cut
            whole = (len(frame) + cut).to_bytes(4, "big") + frame
            known = self._context.knows(each.api_key, each.api_version)
            if not known or not recorder.push(whole, each.request_time_ns or 0, 0, 0, cut):
                followed.backoff.again()
                return False
        if not give_to_recorder(followed.decoder, recorder):
            return False
        followed.recorder = self._recorders[followed.number] = recorder
        return True

    def _leave(self, followed: _Followed) -> None:
        """The decoder goes on."""
        recorder, followed.recorder = followed.recorder, None
        self._recorders.pop(followed.number, None)
        if recorder is None:
            return
        followed.backoff.taken += recorder.chunks
        requests, *rests = recorder.release()
        connection = followed.decoder
        for frame, time_ns, _, _, cut in requests:
            connection.receive_from_client(frame, time_ns)
            if cut:
                connection.skip(Direction.REQUEST, cut, time_ns)
        give_to_decoder(connection, rests)

    def skipped(self, conn: int, direction: int, time_ns: int, nbytes: int) -> None:
        followed = self._connections.get(conn)
        if followed is not None:
            if followed.recorder is not None and followed.recorder.skip(direction, nbytes, time_ns, 0, _NEVER):
                return
            self._leave(followed)
            self._count(followed.decoder.skip(Direction(direction), nbytes, time_ns))

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
        followed = self._connections.get(conn)
        if followed is None:
            return
        if followed.recorder is not None and hasattr(followed.recorder, "lost"):
            followed.recorder.lost(direction)
        else:
            self._leave(followed)
            followed.decoder.lost(Direction(direction))

    def closed(self, conn: int, time_ns: int, how: str = "fin", by: str = "") -> None:
        followed = self._connections.pop(conn, None)
        if followed is not None:
            self._leave(followed)
            self._count(followed.decoder.close(time_ns))

    def flush(self) -> None: ...

    def close(self) -> None: ...
