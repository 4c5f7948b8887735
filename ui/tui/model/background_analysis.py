"""The analysis of a large capture by a process of its own, so that keys are answered meanwhile.

The process sends its result every now and then, so what is shown is a little older than its percentage. It waits when
nobody looks, and ends with the process that started it.
"""

from __future__ import annotations

import os
import pickle
import select
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic

from ....captures import Capture
from ....diagnostics import contained
from ....proxy.processes.interpreter import python
from .analysis import AnalysisResult, CaptureAnalysis, Growth

_SIZE = struct.Struct("<Q")
_GROWTH = struct.Struct("<Q?")
"""What the process is sent: `Growth`. It answers with a size and a pickled `AnalysisResult`."""
_SHARE = 20
"""A result is sent again after so many times as long as it took to make it."""


class BackgroundAnalysis:
    """An `Analysis` whose `step` receives what the process has sent. If the process fails, the capture is read here."""

    def __init__(self, capture: Capture):
        self._capture, self._local = capture, CaptureAnalysis.of(capture)
        self._latest = self._local.result._replace(progress=0.0, unread=True, growth=Growth(0, True))
        self._process: subprocess.Popen[bytes] | None = None
        self._process_failed = False
        self._received = bytearray()
        self._sent: Growth | None = None

    @property
    def result(self) -> AnalysisResult:
        return self._local.result if self._process_failed else self._latest

    @property
    def unread(self) -> bool:
        if self._process_failed:
            return self._local.unread
        return not self._latest.fault and (self._latest.unread or self._latest.growth != Growth.of(self._capture))

    def step(self, seconds: float) -> None:
        if self._process_failed:
            self._local.step(seconds)
            return
        try:
            self._send_growth()
            self._receive()
        except (OSError, EOFError, pickle.PickleError, AttributeError, ImportError) as error:
            contained("the process that analyses a capture", error, reported=True)  # it is done here from now on
            self.stop()
            self._process_failed = True

    def _send_growth(self) -> None:
        if self._process is None:
            self._process = subprocess.Popen(
                python("ui.tui.model.background_analysis", str(self._capture.path)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        if self._sent != (growth := Growth.of(self._capture)):
            self._process.stdin.write(_GROWTH.pack(*growth))
            self._process.stdin.flush()
            self._sent = growth

    def _receive(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while select.select([pipe], [], [], 0)[0]:
            data = os.read(pipe, 1 << 20)
            if not data:
                raise EOFError
            self._received += data
        newest = None
        while len(self._received) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._received)
            if len(self._received) < _SIZE.size + size:
                break
            newest = bytes(self._received[_SIZE.size : _SIZE.size + size])
            del self._received[: _SIZE.size + size]
        if newest is not None:
            self._latest = pickle.loads(newest)

    def stop(self) -> None:
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
            self._process.kill()
            self._process.wait()
            self._process = None


def serve(path: Path, requests: int, results: int) -> None:
    """Analyse the capture at `path` and send results to the file `results`, until the file `requests` ends."""
    growth: Growth | None = None
    analysis = CaptureAnalysis(path, lambda: growth or Growth(0, True))
    due, owed = 0.0, False
    while True:
        reading = growth is not None and analysis.unread
        patience = 0.0 if reading else max(due - monotonic(), 0.0) if owed else None
        while select.select([requests], [], [], patience)[0]:
            data = os.read(requests, _GROWTH.size)
            if len(data) < _GROWTH.size:
                return
            growth = Growth(*_GROWTH.unpack(data))
            patience, owed = 0.0, True
        if growth is not None and analysis.unread:
            analysis.step(0.1)
            owed = True
        began = monotonic()
        if owed and began >= due:
            data = pickle.dumps(analysis.result, pickle.HIGHEST_PROTOCOL)
            cost = monotonic() - began
            _send(results, _SIZE.pack(len(data)) + data)
            due, owed = monotonic() + max(0.5, _SHARE * cost), False


def _send(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


if __name__ == "__main__":
    os.nice(5)
    with suppress(BrokenPipeError, KeyboardInterrupt):
        serve(Path(sys.argv[1]), sys.stdin.fileno(), sys.stdout.fileno())
