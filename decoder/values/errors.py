"""Errors of schemas, which are raised, and of values, which become the note of a view."""

from __future__ import annotations

from ...errors import install
from ..errors import DecoderError


class SchemaError(DecoderError):
    """A schema cannot be obtained or understood; the text says what to do."""


class MissingLibrary(SchemaError):
    """The library that reads this kind of schema is not installed."""

    def __init__(self, what: str, library: str):
        super().__init__(f"{what} needs the library {library}: {install('values')}")


class SchemaMismatch(Exception):
    """A value does not fit its schema. Raised and caught inside this package only. `path`: the field."""

    def __init__(self, text: str, path: tuple[str, ...] = ()):
        super().__init__(text)
        self.text, self.path = text, path

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}: {self.text}" if self.path else self.text

    def inside(self, field: str) -> SchemaMismatch:
        """The same mismatch, from the struct that holds it."""
        return SchemaMismatch(self.text, (field, *self.path))
