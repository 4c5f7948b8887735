"""The texts for records that cannot be converted."""

from __future__ import annotations

from ....decoder.records import LimitExceeded, RecordsError


class ConversionError(RecordsError):
    """Records that cannot be converted: what is wrong, at which byte of the records given (`offset`, see
    `RecordsError`), and `error`, the name of the error that Kafka answers with in such a case."""

    def __init__(
        self, text: str, offset: int | None = None, *, decompressed: bool = False, error: str = "CORRUPT_MESSAGE"
    ) -> None:
        super().__init__(text, offset, decompressed=decompressed)
        self.error = error


def converted(error: RecordsError) -> ConversionError:
    """`error`, which reading or writing has raised, as a ConversionError."""
    if isinstance(error, ConversionError):
        return error
    name = "MESSAGE_TOO_LARGE" if isinstance(error, LimitExceeded) else "CORRUPT_MESSAGE"
    return ConversionError(error.text, error.offset, decompressed=error.decompressed, error=name)
