"""The errors of a records area, each with the byte where it was noticed."""

from __future__ import annotations

from ..errors import DecoderError


class RecordsError(DecoderError):
    """Base of everything `decoder.records` raises for bytes it cannot read.

    `text` is the plain sentence, `offset` the byte it speaks of (None when the compression library did not
    say), and `decompressed` is True when that offset counts in the decompressed records of a batch and not in
    the bytes of the area itself.
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
        """The same error from the layer above: named after `where`, its offset moved by `shift` bytes."""
        offset = None if self.offset is None else self.offset + shift
        return type(self)(f"{where}: {self.text}", offset, decompressed=self.decompressed or decompressed)


class Truncated(RecordsError):
    """The bytes end before the thing they began."""


class BadLength(RecordsError):
    """A length, count or varint that cannot be: negative, too long, or not what the bytes around it say."""


class UnknownMagic(RecordsError):
    """A magic byte that no Kafka release has written (known are 0, 1 and 2)."""


class CodecError(RecordsError):
    """The compressed bytes are damaged, or the codec is not one Kafka has."""


class LimitExceeded(RecordsError):
    """Decompression was stopped: more output than the limit or the ratio to its input allows."""
