"""Recordings: pcapng segments with an index, writing them and reading them and others' captures."""

from .capture import Capture, Row, Rows, open_capture
from .index import DTYPE, RECORD, Record
from .indexing import rebuild
from .pcapng import NotACapture
from .recorder import Recorder

__all__ = ["DTYPE", "RECORD", "Capture", "NotACapture", "Record", "Recorder", "Row", "Rows", "open_capture", "rebuild"]
