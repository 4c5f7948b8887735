"""Recordings: writing pcapng segments with an index, and reading them and captures of other tools.

Times are integers, nanoseconds since the epoch. Frames are `bytes` without their 4 size bytes. docs/formats.md has the file formats.
"""

from .pcap.pcapng import NotACapture
from .reading.capture import Capture, Row, Rows, open_capture
from .reading.reindex import rebuild
from .recording.index import DTYPE
from .recording.recorder import Recorder

__all__ = ["DTYPE", "Capture", "NotACapture", "Recorder", "Row", "Rows", "open_capture", "rebuild"]
