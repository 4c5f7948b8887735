"""Recordings: writing pcapng segments with an index, and reading them and captures of other tools.

Times are integers, nanoseconds since the epoch. Frames are `bytes` without their 4 size bytes. docs/formats.md has the file formats.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .pcap.pcapng import NotACapture
    from .reading.capture import Capture, Row, Rows, open_capture
    from .reading.indexing.reindex import rebuild
    from .recording.index import DTYPE
    from .recording.recorder import Recorder

__all__ = ["DTYPE", "Capture", "NotACapture", "Recorder", "Row", "Rows", "open_capture", "rebuild"]

_MODULES = {
    "DTYPE": "recording.index",
    "Capture": "reading.capture",
    "NotACapture": "pcap.pcapng",
    "Recorder": "recording.recorder",
    "Row": "reading.capture",
    "Rows": "reading.capture",
    "open_capture": "reading.capture",
    "rebuild": "reading.indexing.reindex",
}


def __getattr__(name: str) -> Any:
    """A public name when it is asked for: the relay, which loads one extension of this package, starts sooner without all the others."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
