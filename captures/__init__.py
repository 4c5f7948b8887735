"""Recordings: writing pcapng segments with an index, and reading them and captures of other tools."""

from .pcap.pcapng import NotACapture
from .reading.capture import Capture, Row, Rows, open_capture
from .reading.reindex import rebuild
from .recording.index import DTYPE, RECORD, Record
from .recording.recorder import Recorder

__all__ = ["DTYPE", "RECORD", "Capture", "NotACapture", "Record", "Recorder", "Row", "Rows", "open_capture", "rebuild"]
