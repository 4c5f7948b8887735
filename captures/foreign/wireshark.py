"""Wireshark's dissectors, through pyshark and tshark.

They decrypt TLS, and give a second opinion on our decoder (`crosscheck`). tshark runs only for commands that ask for it.
"""

from __future__ import annotations

import queue
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import BarnabasError, install

_AHEAD = 64
"""Packets that are read ahead."""
_LOOK_SECONDS = 0.2
_PROGRAM = "tshark"


class WiresharkError(BarnabasError, ValueError):
    """tshark or pyshark is missing, or could not read the capture; the message has the remedy."""


class Wireshark:
    """The tshark of this machine. `version`: such as ``"4.0.17"``.

    Raises WiresharkError where tshark or pyshark is missing.
    """

    def __init__(self) -> None:
        program = shutil.which(_PROGRAM)
        if program is None:
            raise WiresharkError("tshark is not installed: apt-get install tshark (it comes with Wireshark)")
        self._program = program
        self._capture = _capture_class()
        self.version = _version(program)

    def packets(
        self,
        path: Path,
        wanted: str,
        *,
        decode_as: Mapping[str, str] | None = None,
        preferences: Mapping[str, str] | None = None,
        protocols: str = "",
    ) -> Iterator[Any]:
        """The packets that the display filter `wanted` lets through, as `pyshark.packet.packet.Packet`.

        `decode_as`: dissectors by criterion (``{"tcp.port==9093": "kafka"}``); `preferences`: as for ``tshark -o``;
        `protocols`: only the fields of these, separated by blanks; all by default. Raises WiresharkError when tshark fails.
        """
        found: queue.Queue[Any] = queue.Queue(_AHEAD)
        stop = threading.Event()
        custom = ["-j", protocols] if protocols else []

        def put(item: object) -> bool:
            while not stop.is_set():
                try:
                    found.put(item, timeout=_LOOK_SECONDS)
                except queue.Full:
                    continue
                return True
            return False

        def read() -> None:
            # On the main thread pyshark replaces the child watcher of the whole process, and it cannot be used where an event
            # loop runs. On a thread of its own it has a loop of its own.
            capture = None
            try:
                capture = self._capture(
                    path, display_filter=wanted, decode_as=dict(decode_as or {}), override_prefs=dict(preferences or {}),
                    keep_packets=False, tshark_path=self._program, custom_parameters=custom,
                )  # fmt: skip
                for packet in capture:
                    if not put(packet):
                        break
                capture.close()
            except Exception as error:  # pyshark raises many kinds; the reader of the packets gets it
                output = getattr(capture, "_last_error_line", None)
                put(WiresharkError(f"tshark could not read {path.name}: {output or error or type(error).__name__}"))
            finally:
                put(None)
                if capture is not None:
                    capture.eventloop.close()

        reader = threading.Thread(target=read, name="tshark", daemon=True)
        reader.start()
        try:
            while (item := found.get()) is not None:
                if isinstance(item, WiresharkError):
                    raise item
                yield item
        finally:
            stop.set()
            reader.join()


@cache
def _capture_class() -> Any:
    try:
        import pyshark
    except ImportError:
        raise WiresharkError(
            f"reading tshark's output needs pyshark: {install('tshark')}"
        ) from None

    class Capture(pyshark.FileCapture):  # type: ignore[misc]
        """pyshark's, but for what it does when it looks for tshark and when tshark fails."""

        def _get_tshark_path(self) -> str:
            return str(self.tshark_path)  # pyshark would run what a config.ini of the current folder names

        def _get_tshark_version(self) -> Any:
            from packaging.version import Version

            return Version(_version(str(self.tshark_path)))

        async def _cleanup_subprocess(self, process: Any) -> None:
            if not self._eof_reached:
                await super()._cleanup_subprocess(process)
                return
            # pyshark would kill a tshark that has written everything but not ended, and miss its failure.
            self._running_processes.discard(process)
            if code := await process.wait():
                raise WiresharkError(f"it exited with status {code}")

    return Capture


@cache
def _version(program: str) -> str:
    try:
        output = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise WiresharkError(f"{program} does not run: {error}") from None
    found = re.search(r"\d+\.\d+(\.\d+)*", output)
    if found is None:
        raise WiresharkError(f"{program} does not print its version: {output[:100]!r}")
    return found[0]


def fields(layer: Any) -> Iterator[Any]:
    """All fields of a packet's layer, nested ones too, as `pyshark.packet.fields.LayerField`: those of one name in their order."""
    for name in layer.field_names:
        yield from layer.get_field(name).all_fields
