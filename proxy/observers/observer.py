"""The observer process: reads the ring at its own pace, records or counts, and reports once a second.

    python -m barnabas.proxy.observers.observer FD     FD: the supervisor's control socket; settings come as its first packet

It runs beside the traffic: whatever happens here, the relay goes on.
"""

from __future__ import annotations

import os
import sys

from ...diagnostics import contained
from ..events import Counts, FlightWanted, RecordingFailed
from ..processes.child import receive_settings
from ..processes.control_messages import Answers, Commands
from ..processes.messages import Message
from ..ring.clock import now_ns
from .observer_loop import ObserverLoop, SupervisorLink
from .recordings import RecordingRefused, Recordings
from .ring_feed import RingFeed
from .settings import ObserverSettings


class RecordingTask:
    """Records what is read, and reports the counts (`observer_loop.Task`)."""

    def __init__(self, recordings: Recordings, link: SupervisorLink) -> None:
        self._recordings, self._link = recordings, link

    def report(self, loop: ObserverLoop) -> None:
        self._recordings.flush()
        counts, feed = self._recordings.counts, loop.feed
        loop.link.emit(
            Counts(
                now_ns(),
                feed.open,
                feed.opened,
                counts.get("exchanges", 0),
                counts.get("errors", 0),
                counts.get("undecoded", 0),
                feed.bytes[0],
                feed.bytes[1],
                loop.lost_bytes,
                loop.reader.lost_chunks,
            )
        )

    def command(self, number: int, command: Commands, loop: ObserverLoop) -> Answers | None:
        return self._recordings.command(command)

    def supervisor_sent(self, message: Message) -> None:
        if not isinstance(message, FlightWanted):
            return
        try:
            self._recordings.write_flight(message)
        except RecordingRefused:
            pass  # there is no flight recorder, as the one who asked can see
        except Exception as error:  # as for the control server: what is observed goes on
            contained("a requested flight recording", error, reported=True)
            self._link.emit(RecordingFailed(f"{type(error).__name__}: {error}"))

    def pause(self, loop: ObserverLoop) -> float | None:
        return None

    def close(self) -> None:
        self._recordings.close()


class RecorderTracks:
    """Takes plain chunks from the ring onto the recorder's tracks (`ring.reader.NativeConsumer`)."""

    def __init__(self, recordings: Recordings, feed: RingFeed) -> None:
        self.begin = recordings.begin
        self.failed = recordings.failed
        self._recordings = recordings
        self._feed = feed

    def end(self, requests: int, responses: int) -> None:
        """So many bytes of each direction went to native recorders, without the rest that comes as a record next."""
        self._feed.bytes[0] += requests
        self._feed.bytes[1] += responses
        self._recordings.end(requests + responses)


def main() -> None:
    control, settings = receive_settings(int(sys.argv[1]), ObserverSettings)
    if not settings.lossless:
        os.nice(10)  # where cores are scarce the relay comes first; what this reader misses is counted
    link = SupervisorLink(control)
    recordings = Recordings(settings.record, link.emit, settings.recording, settings.flight, settings.snaplen)
    feed = RingFeed(recordings)
    ObserverLoop(link, settings.access, settings.commands, feed, RecordingTask(recordings, link), RecorderTracks(recordings, feed)).run()


if __name__ == "__main__":
    main()
