"""A served recording as a context manager: the server runs in a thread, its events are in a queue."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

from ...captures import NotACapture, open_capture
from ...captures.serving import Engine, ServingSummary, Unused
from ...decoder import Exchange
from ...errors import BarnabasError
from ..events import Address
from ..relay.addressing.address_map import reason
from .config import OnMiss, ServeConfig
from .events import Miss, ProducedOtherwise, ServeEvent
from .server import RecordingServer

_START_SECONDS = 30.0


class ServeError(BarnabasError):
    """The recording cannot be served; one line with the reason."""


class Served:
    """``with Served("recording/") as served:`` and clients connect to ``served.bootstrap``.

    More than the path is set with a `ServeConfig`. `misses` are the requests that had no answer so far,
    `differences` the records that were produced otherwise than recorded (`contents`), `unused()` what of the recording
    nobody asked for; `summary()` counts. Raises `ServeError` (or `NotACapture`, OSError for the capture) from `start`.
    """

    def __init__(self, config: str | Path | ServeConfig) -> None:
        self.config = config if isinstance(config, ServeConfig) else ServeConfig(Path(config))
        self.misses: list[Miss] = []
        self.differences: list[ProducedOtherwise] = []
        self._events: queue.SimpleQueue[ServeEvent] = queue.SimpleQueue()
        self._engine: Engine | None = None
        self._server: RecordingServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._failed: OSError | None = None
        self._listening = threading.Event()

    def start(self) -> Served:
        """Read the recording and listen."""
        config = self.config
        if config.on_miss is not OnMiss.FAIL and config.broker is None:
            raise ServeError(f"--on-miss {config.on_miss} needs a broker to ask: add --broker HOST:PORT")
        if config.on_miss is OnMiss.RECORD and config.capture.exists() and not config.capture.is_dir():
            raise ServeError(f"{config.capture} is one file; --on-miss record adds to a directory of recordings")
        self._engine = Engine(
            self._exchanges(), everything=config.everything, offer=config.offer, content=config.content
        )
        self._listening.clear()
        self._thread = threading.Thread(target=self._run, name="barnabas-serve", daemon=True)
        self._thread.start()
        if not self._listening.wait(_START_SECONDS) or self._failed is not None:
            self.stop()
            host, port = config.listen
            why = reason(self._failed) if self._failed is not None else "it does not start"
            raise ServeError(f"cannot listen on {host}:{port}: {why}; choose another address with --listen") from None
        return self

    def _exchanges(self) -> list[Exchange]:
        path = self.config.capture
        try:
            with open_capture(path) as capture:
                return list(capture.exchanges())
        except NotACapture:
            empty = not any(path.glob("*.pcap*")) if path.is_dir() else False
            if self.config.on_miss is OnMiss.RECORD and empty:
                return []
            raise
        except FileNotFoundError:
            if self.config.on_miss is OnMiss.RECORD:
                path.mkdir(mode=0o700, parents=True)
                return []
            raise

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        assert self._engine is not None
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._server = RecordingServer(self.config, self._engine, self._emit)
        try:
            await self._server.start()
        except OSError as error:
            self._failed = error
            await self._server.stop()
            return
        finally:
            self._listening.set()
        await self._ended.wait()
        await self._server.stop()

    def _emit(self, event: ServeEvent) -> None:
        if isinstance(event, Miss) and event.warning:
            self.misses.append(event)
        elif isinstance(event, ProducedOtherwise):
            self.differences.append(event)
        self._events.put(event)

    def stop(self) -> None:
        """Close everything; may be called twice."""
        if self._thread is not None and self._thread.is_alive() and self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._ended.set)
            except RuntimeError:
                pass  # the loop has ended by itself
            self._thread.join(timeout=10)
        self._thread = None

    @property
    def started(self) -> bool:
        """Whether the recording was read and clients were able to connect."""
        return self._listening.is_set() and self._failed is None

    @property
    def address(self) -> Address:
        """Where clients connect."""
        assert self._server is not None, "not started"
        return self._server.address

    @property
    def bootstrap(self) -> str:
        """The same as ``host:port``."""
        return f"{self.address[0]}:{self.address[1]}"

    def next_event(self, timeout: float) -> ServeEvent | None:
        """The next event; None if there is none within `timeout` seconds."""
        try:
            return self._events.get(timeout=timeout)
        except queue.Empty:
            return None

    def events(self) -> Iterator[ServeEvent]:
        """What has happened so far."""
        while True:
            try:
                yield self._events.get_nowait()
            except queue.Empty:
                return

    def unused(self) -> list[Unused]:
        """The recorded answers that nobody was given so far, and records that nobody produced or fetched again; [] when the
        clients have done all that the recorded ones did."""
        assert self._engine is not None, "not started"
        return self._engine.usage.unused()

    def summary(self) -> ServingSummary:
        """Counts: answers by kind, requests by API, misses, and unused parts of the recording."""
        assert self._engine is not None, "not started"
        return self._engine.summary()

    def __enter__(self) -> Served:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
