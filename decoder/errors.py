"""The errors of the decoder: one root, one for bytes that cannot be read and one for values that cannot be written."""

from __future__ import annotations

from typing import Any

from ..errors import BarnabasError


class DecoderError(BarnabasError, ValueError):
    """Root of all errors that the decoder raises for its input: bytes, values, schemas, filters, names."""


class UnknownName(DecoderError, KeyError):
    """No API, error code or release has this name. The text has the nearest name."""

    __str__ = Exception.__str__  # that of KeyError is its repr


class DecodeError(DecoderError):
    """Bytes that do not match the schema.

    ``text``: what is wrong. ``api``, ``version``: of the message (``""`` and None while they are unknown). ``path``: the
    field, such as ``topics[0].name``. ``offset``: bytes from the start of the given data. ``message``: the complete
    `Message` if only the bytes after it are wrong (`TrailingBytes`), else None.
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
        super().__init__(text)
        self.text, self.api, self.version, self.path, self.offset = text, api, version, path, offset
        self._partial = partial
        self.message = message

    def __str__(self) -> str:
        """From the fields, as a pickle makes an error anew from its text alone and sets the fields then."""
        what = "" if not self.api else f"{self.api}: " if self.version is None else f"{self.api} v{self.version}: "
        return f"{what}{self.text} at {self.path or 'the start'} (offset {self.offset})"

    @property
    def partial(self) -> dict[str, Any]:
        """What was read before the fault, as nested dicts; of a very large message, the first items and the one at fault."""
        if self._partial is None:
            self._partial = {} if self.message is None else self.message.to_dict()
        return self._partial

    @partial.setter
    def partial(self, partial: dict[str, Any]) -> None:
        self._partial = partial


class Truncated(DecodeError):
    """The data ends inside a field."""


class BadLength(DecodeError):
    """An impossible length or count: negative, or more than the remaining bytes."""


class BadUtf8(DecodeError):
    """A string is not UTF-8."""


class TrailingBytes(DecodeError):
    """Bytes are left over after a complete message, which is in ``message``."""


class LimitExceeded(DecodeError):
    """More array items and tagged fields than a message of this size may have: 24,576 plus one per 8 bytes."""


class UnknownApi(DecodeError):
    """No known Kafka release has this API key, or no definition has this name."""


class UnknownVersion(DecodeError):
    """The schema does not have this version of the API."""


class EncodeError(DecoderError):
    """A value cannot be written. ``path`` is the field, such as ``topics[0].name``."""

    def __init__(self, text: str, path: str = ""):
        super().__init__(f"{path}: {text}" if path else text)
        self.path = path
