"""Opening capture files: plain, gzip or zstd (known by their first bytes), or standard input.

Anything but a plain file is unpacked into an unnamed temporary file, since exchanges are read back by file offset. Nothing is
ever written beside the capture.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zlib
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ...decoder.records.bounds import zstd_bound
from ...decoder.records.errors import RecordsError
from .pcapng import NotACapture
from .regular_files import NotAFile, open_file

STDIN = Path("-")
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_CHUNK = 1 << 20
_FREE, _EXPANSION = 256 << 20, 250
"""Limits of unpacking, in bytes and as a multiple of the file: captures shrink to about a tenth, bombs to nothing."""
_BOMB = f"it unpacks to more than {_EXPANSION} times its size, which no capture does; if it is a capture, unpack it first"
_HEAD_SIZE = 1 << 16
Ends = frozenset[bytes]
"""Both ends of a connection, as `flows.Flow` has them."""
_standard_input: list[CaptureSource] = []  # the one that has read it, if one has: it can be read only once


class ReadProgress(NamedTuple):
    """How far a file is read, in bytes. total: of the whole file, 0 when not known."""

    read: int
    total: int


class CaptureSource:
    """An open capture: `file` holds what was unpacked so far, `fill` unpacks more.

    `note`: what was wrong with the compression, or None. `decrypted`: the connections in it that are TLS and were
    decrypted.
    """

    decrypted: frozenset[Ends] = frozenset()

    def __init__(self, path: Path) -> None:
        self.path = path
        self.note: str | None = None
        self.file: BinaryIO
        self._raw: BinaryIO | None = None
        self._unpack: zlib._Decompress | None = None
        self._read = 0
        self._ended = True
        if path == STDIN:
            if _standard_input:  # what came is there still
                _standard_input[0].fill_all()
                self.note = _standard_input[0].note
                self.file = open(f"/proc/self/fd/{_standard_input[0].file.fileno()}", "rb")  # noqa: SIM115
                return
            self._raw = sys.stdin.buffer
            head = _read(sys.stdin.buffer, 4)
        else:
            try:
                raw = open_file(path)  # kept open: a segment may be renamed while we read it
            except NotAFile as error:
                raise NotACapture(f"{path}: {error.strerror}; give - and pipe its output to standard input") from None
            head = raw.read(4)
            raw.seek(0)
            if not head.startswith((_GZIP, _ZSTD)):
                self.file = raw
                return
            self._raw = raw
        self.file = tempfile.TemporaryFile(prefix="barnabas-")  # noqa: SIM115 - mode 0600, and without a name
        if path == STDIN:
            _standard_input.append(self)
        self._ended = False
        rest = head if path == STDIN else b""
        if head.startswith(_GZIP):
            self._unpack = zlib.decompressobj(wbits=31)
            self._take(rest)
        elif head.startswith(_ZSTD):
            self._zstd(rest)
        else:
            self._take(rest)
        while not self._ended and self._size() < _HEAD_SIZE:
            self._step()
        if self.note and not self._size():
            raise NotACapture(f"{path}: {self.note}")

    @property
    def plain(self) -> bool:
        """The file is read where it stands, and may grow."""
        return self._raw is None and self._ended and self.path != STDIN

    @property
    def read(self) -> int:
        """Bytes of the source that were unpacked."""
        return self._read

    @property
    def known(self) -> int:
        """Bytes of the source; 0 when unknown."""
        return 0 if self._raw is None or self.path == STDIN else os.fstat(self._raw.fileno()).st_size

    def progress(self, offset: int) -> ReadProgress:
        """Of a reader that is at this offset of `file`; of a compressed file, bytes as they are in the file."""
        return ReadProgress(offset, self._size()) if self.plain else ReadProgress(self._read, self.known)

    def fill(self, size: int) -> None:
        """Unpack up to `size` bytes, or all there are. Waits for standard input. May raise OSError (disk full)."""
        while not self._ended and self._size() < size:
            self._step()

    def fill_all(self) -> None:
        while not self._ended:
            self._step()

    def close(self) -> None:
        """Close the file, and what it is unpacked from. What came from standard input stays."""
        if self not in _standard_input:
            self.file.close()
        if self._raw is not None and self.path != STDIN:
            self._raw.close()

    def _size(self) -> int:
        return os.fstat(self.file.fileno()).st_size

    def _step(self) -> None:
        assert self._raw is not None
        data = self._raw.read1(_CHUNK) if hasattr(self._raw, "read1") else self._raw.read(_CHUNK)
        if not data:
            self._ended = True
            if self._unpack is not None and not self._unpack.eof:
                self.note = "the gzip data ends early"
            return
        self._take(data)

    def _take(self, data: bytes) -> None:
        self._read += len(data)
        if self._unpack is None:
            self._write(data)
            return
        while data:
            if self._unpack.eof:
                if not data.startswith(_GZIP[:1]):
                    return  # padding behind the last member
                self._unpack = zlib.decompressobj(wbits=31)  # gzip files may be several, one behind the other
            try:
                while data and not self._unpack.eof:
                    if self._size() > max(_FREE, _EXPANSION * self._read):
                        self.note, self._ended = f"{_BOMB}: the rest was not read", True
                        return
                    self._write(self._unpack.decompress(data, _CHUNK))
                    data = self._unpack.unconsumed_tail
            except zlib.error as error:
                self.note, self._ended = f"damaged gzip data ({error}): the rest was not read", True
                return
            if self._unpack.eof:
                data = self._unpack.unused_data

    def _write(self, data: bytes) -> None:
        at = self._size()
        with memoryview(data) as view:
            done = 0
            while done < len(view):
                done += os.pwrite(self.file.fileno(), view[done:], at + done)

    def _zstd(self, head: bytes) -> None:
        import cramjam

        assert self._raw is not None
        packed = head + self._raw.read()
        self._read, self._ended = len(packed), True
        try:
            bound = zstd_bound(packed, cut=True)
        except RecordsError as error:
            raise NotACapture(f"{self.path}: damaged zstd data ({error})") from None
        if bound > max(_FREE, _EXPANSION * len(packed)):
            raise NotACapture(f"{self.path}: {_BOMB}")
        target = cramjam.File(f"/proc/self/fd/{self.file.fileno()}", read=True, write=True, truncate=False)
        try:
            cramjam.zstd.decompress_into(packed, target)
        except cramjam.DecompressionError as error:
            if not self._size():
                raise NotACapture(f"{self.path}: damaged zstd data ({error})") from None
            self.note = f"damaged zstd data ({error}): the rest was not read"


def _read(file: BinaryIO, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = file.read(size - len(data))
        if not more:
            break
        data += more
    return data
