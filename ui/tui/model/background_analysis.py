"""The story of a large capture, read by a process of its own, so that keys are answered meanwhile.

The process sends what it has every now and then, so what is shown is a little behind its percentage. It waits when nobody
looks, and ends with whoever started it.
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
from typing import Any

from ....captures import Capture
from ....decoder.findings import Finding, Traffic
from ....decoder.findings.models.groups import Groups
from ....proxy.supervisor.interpreter import python
from .analysis import CaptureAnalysis

_SIZE = struct.Struct("<Q")
_GROWN = struct.Struct("<Q?")
"""What the process is told: how many rows there are, and whether more may come."""
_SHARE = 20
"""Times as long as it took to send what there is, it is read on."""


class BackgroundAnalysis(CaptureAnalysis):
    """As `CaptureAnalysis`; `step` takes in what the process has sent. Where it cannot be read so, it is read here."""

    def __init__(self, capture: Capture):
        super().__init__(capture)
        self._process: subprocess.Popen[bytes] | None = None
        self._received = bytearray()
        self._told: tuple[int, bool] = (-1, False)
        self._far_progress, self._far_unread, self._near = 0.0, True, False
        self._traffic, self._groups = self.inspector.traffic, Groups.of(self.inspector.traffic)

    @property
    def unread(self) -> bool:
        if self._near or self.fault:
            return super().unread
        return self._far_unread or self._told != self._grown()

    @property
    def progress(self) -> float:
        return super().progress if self._near else self._far_progress

    @property
    def traffic(self) -> Traffic:
        return super().traffic if self._near else self._traffic

    def findings(self) -> list[Finding]:
        return super().findings() if self._near else self._findings

    def groups(self) -> Groups:
        return super().groups() if self._near else self._groups

    def _grown(self) -> tuple[int, bool]:
        return len(self._capture.rows()), self._capture.live

    def step(self, seconds: float) -> None:
        if self._near:
            super().step(seconds)
            return
        try:
            self._ask()
            self._receive()
        except (OSError, EOFError, pickle.PickleError, AttributeError, ImportError):
            self.stop()
            self._near = True

    def _ask(self) -> None:
        if self._process is None:
            command = python("ui.tui.model.background_analysis", str(self._capture.path))
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        if self._told != (grown := self._grown()):
            self._process.stdin.write(_GROWN.pack(*grown))
            self._process.stdin.flush()
            self._told, self._far_unread = grown, True

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
            self._take_in(pickle.loads(newest))

    def _take_in(self, sent: dict[str, Any]) -> None:
        self._traffic, self._groups, self._findings = sent["traffic"], sent["groups"], sent["findings"]
        self.links = sent["links"]
        self.read, self.fault = sent["read"], sent["fault"]
        self._far_progress = sent["progress"]
        if sent["told"] == self._told:
            self._far_unread = sent["unread"]

    def stop(self) -> None:
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
            self._process.kill()
            self._process.wait()
            self._process = None


class _Grown:
    """As much of a capture as a `CaptureAnalysis` asks for, as it was told."""

    def __init__(self, path: Path):
        self.path, self.count, self.live = path, 0, True

    def rows(self) -> range:
        return range(self.count)


def tell(path: Path, asked: int, answers: int) -> None:
    """Read the story of the capture at `path` and send it to the file `answers`, until the file `asked` ends."""
    grown = _Grown(path)
    analysis = CaptureAnalysis(grown)  # type: ignore[arg-type]
    told: tuple[int, bool] | None = None
    due, owed = 0.0, False
    while True:
        reading = told is not None and analysis.unread
        patience = 0.0 if reading else max(due - monotonic(), 0.0) if owed else None
        while select.select([asked], [], [], patience)[0]:
            data = os.read(asked, _GROWN.size)
            if len(data) < _GROWN.size:
                return
            grown.count, grown.live = told = _GROWN.unpack(data)
            patience, owed = 0.0, True
        if told is not None and analysis.unread:
            analysis.step(0.1)
            owed = True
        began = monotonic()
        if owed and began >= due:
            sent = {
                "traffic": analysis.traffic, "groups": analysis.groups(), "findings": analysis.findings(), "links": analysis.links,
                "read": analysis.read, "fault": analysis.fault, "progress": analysis.progress, "unread": analysis.unread,
                "told": told,
            }  # fmt: skip
            data = pickle.dumps(sent, pickle.HIGHEST_PROTOCOL)
            cost = monotonic() - began
            _send(answers, _SIZE.pack(len(data)) + data)
            due, owed = monotonic() + max(0.5, _SHARE * cost), False


def _send(answers: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(answers, left) :]


if __name__ == "__main__":
    os.nice(5)
    with suppress(BrokenPipeError, KeyboardInterrupt):
        tell(Path(sys.argv[1]), sys.stdin.fileno(), sys.stdout.fileno())
