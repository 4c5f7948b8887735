"""The errors of a records area, each with its offset."""

from __future__ import annotations

from ..errors import DecoderError


class RecordsError(DecoderError):
    """Base of all errors that `decoder.records` raises for bytes that it cannot read.

    `text`: what is wrong. `offset`: the byte where it was noticed; None if the compression library does not report it.
    `decompressed`: whether the offset counts in the decompressed records of a batch, not in the area itself.
    """

    def __init__(self, text: str, offset: int | None = None, *, decompressed: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.offset = offset
        self.decompressed = decompressed

    def __str__(self) -> str:
        if self.offset is None:
            return self.text
        return f"{self.text} (at byte {self.offset}{' of the decompressed records' * self.decompressed})"

    def inside(self, where: str, shift: int, *, decompressed: bool = False) -> RecordsError:
        """The same error, seen from the layer above: `where` comes before its text, and its offset moves by `shift` bytes."""
        offset = None if self.offset is None else self.offset + shift
        return type(self)(f"{where}: {self.text}", offset, decompressed=self.decompressed or decompressed)


class Truncated(RecordsError):
    """The bytes end too early."""


class BadLength(RecordsError):
    """An impossible length, count or varint: negative, too long, or inconsistent with the bytes around it."""


class UnknownMagic(RecordsError):
    """A magic byte that no Kafka release has written. Known are 0, 1 and 2."""


class CodecError(RecordsError):
    """The compressed bytes are damaged, or Kafka does not have the codec."""


class LimitExceeded(RecordsError):
    """Decompression was stopped: there is more output than the limit, or the limit of output per input, allows."""
