"""The errors of the decoder: one root, and those of bytes that are read and values that are written. Each says where."""

from __future__ import annotations

from typing import Any

from ..errors import BarnabasError


class DecoderError(BarnabasError, ValueError):
    """Root of all errors that the decoder raises for what it was given: bytes, values, schemas, filters, names."""


class DecodeError(DecoderError):
    """Bytes that do not fit the schema.

    ``api``/``version``: what was being read. ``path``: the field, in ``a.b[0].c`` form. ``offset``: bytes from the
    start of the data given. ``message``: the complete message where only bytes after it were wrong
    (`TrailingBytes`), else None.
    """

    def __init__(
        self,
        text: str,
        *,
        api: str = "",
        version: int | None = None,
        path: str = "",
        offset: int = 0,
        partial: dict[str, Any] | None = None,
        message: Any = None,
    ):
        what = "" if not api else f"{api}: " if version is None else f"{api} v{version}: "
        where = f" at {path or 'the start'} (offset {offset})"
        super().__init__(f"{what}{text}{where}")
        self.text, self.api, self.version, self.path, self.offset = text, api, version, path, offset
        self._partial = partial
        self.message = message

    @property
    def partial(self) -> dict[str, Any]:
        """What was read, as nested dicts; of a very large message the first items and the one at fault."""
        if self._partial is None:
            self._partial = {} if self.message is None else self.message.to_dict()
        return self._partial

    @partial.setter
    def partial(self, partial: dict[str, Any]) -> None:
        self._partial = partial


class Truncated(DecodeError):
    """The data ends inside a field."""


class BadLength(DecodeError):
    """A length or count that cannot be: negative where null is not allowed, or more than the bytes present."""


class BadUtf8(DecodeError):
    """A string that is not UTF-8."""


class TrailingBytes(DecodeError):
    """The message is complete and bytes are left over."""


class LimitExceeded(DecodeError):
    """More array items and tagged fields than a message of its size may have (see `decode.FREE_ITEMS`)."""


class UnknownApi(DecodeError):
    """An api key that no known release has."""


class UnknownVersion(DecodeError):
    """A version outside of what the schema holds for this API."""


class EncodeError(DecoderError):
    """A value that cannot be written: ``path`` names the field."""

    def __init__(self, text: str, path: str = ""):
        super().__init__(f"{path}: {text}" if path else text)
        self.path = path
