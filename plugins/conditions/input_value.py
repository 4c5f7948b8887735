"""The values of a rule with their places, from YAML, TOML, JSON and Python.

An `InputValue` is a value with its path (``rules[1].do.error``) and, if it came from a text, its line and column. Its
methods return values of a type, or raise `InvalidInput` with the place, what is possible, and the nearest word.
Nothing in it is ever executed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ...decoder.filter import Filter, FilterError, compile
from ...decoder.filter.language.errors import nearest
from ...decoder.filter.language.literals import number as literal
from ...decoder.schema import facts
from ...errors import BarnabasError


class InvalidInput(BarnabasError, ValueError):
    """A value in a rule that is not valid. `given`: the value; `offset`: characters into its text; `key`: its key is
    wrong."""

    def __init__(self, given: InputValue, text: str, offset: int = 0, key: bool = False) -> None:
        super().__init__(text)
        self.given, self.text, self.offset, self.key = given, text, offset, key

    def __str__(self) -> str:
        return f"{self.given.path}: {self.text}" if self.given.path else self.text


Place = tuple[int, int]
"""Line and column, from 1."""


@dataclass(slots=True)
class InputValue:
    """`value`: plain data; `raw`: a scalar as it was written; `items`, `listed`: the content of a mapping, or a list."""

    value: Any
    path: str = ""
    raw: str | None = None
    place: Place | None = None
    key_place: Place | None = None
    quoted: bool = False
    items: dict[str, InputValue] = field(default_factory=dict)
    listed: list[InputValue] = field(default_factory=list)
    duplicate_key: str = ""
    """A key that the mapping has twice."""

    # -- structure ---------------------------------------------------------------------------------------------

    def invalid(self, text: str, offset: int = 0) -> NoReturn:
        raise InvalidInput(self, text, offset)

    def mapping(self, known: Sequence[str], what: str) -> dict[str, InputValue]:
        """The entries of a mapping whose keys are all known."""
        if not isinstance(self.value, Mapping):
            self.invalid(f"{what} must consist of 'key: value' with the keys {', '.join(known)}")
        for key, item in self.items.items():
            if key not in known:
                raise InvalidInput(
                    item, f"{what} has no key {key!r}{nearest(key, known)} (possible: {', '.join(known)})", key=True
                )
        if self.duplicate_key:
            raise InvalidInput(self.items[self.duplicate_key], f"{self.duplicate_key!r} is given twice", key=True)
        return self.items

    def list(self, what: str) -> list[InputValue]:
        if not isinstance(self.value, list):
            self.invalid(f"{what!r} must be a list: each entry starts with '- '")
        return self.listed

    # -- scalars -----------------------------------------------------------------------------------------------

    def text(self, what: str) -> str:
        if self.raw is None or self.value is None or not self.raw:
            self.invalid(f"{what!r} must be text")
        if not encodable(self.raw):
            self.invalid(f"{what!r} has half of a surrogate pair, which no text may have")
        return self.raw

    def number(self, what: str, least: int, most: int = 1 << 62) -> int:
        """A whole number."""
        raw = self.raw or ""
        if raw.isascii() and raw.removeprefix("-").isdigit() and not isinstance(self.value, bool):
            value = int(raw)
            if least <= value <= most:
                return value
        bounds = f"from {least}" if most >= 1 << 62 else f"from {least} to {most}"
        raise InvalidInput(self, f"{what!r} must be a whole number {bounds}")

    def probability(self, what: str) -> float:
        """A probability: ``0.25`` or ``25%``."""
        raw = self.raw or ""
        try:
            value = float(raw.removesuffix("%")) / (100 if raw.endswith("%") else 1)
        except ValueError:
            value = -1.0
        if not 0 < value <= 1:
            self.invalid(f"{what!r} must be more than 0 and at most 1, or a percentage such as 25%")
        return value

    def duration(self, what: str, least_ns: int = 0) -> int:
        """Nanoseconds: ``200ms``, ``1.5s``, ``2m``."""
        found = literal(self.raw or "")
        if found is None or (found.unit != "time" and found.value != 0) or found.value < least_ns:
            self.invalid(f"{what!r} must be a duration with a unit (us, ms, s, m, h), such as 200ms")
        return int(found.value)

    def size(self, what: str) -> int:
        """Bytes: ``100``, ``1.5MB``, ``16KiB``."""
        found = literal((self.raw or "").removesuffix("/s"))
        if found is None or found.unit not in ("", "size") or found.value < 1:
            self.invalid(f"{what!r} must be a size of at least one byte, such as 64kB")
        return int(found.value)

    def word(self, what: str, known: Sequence[str]) -> str:
        """One of some words."""
        raw = self.text(what)
        if raw not in known:
            listed = f"{', '.join(known[:-1])} or {known[-1]}" if len(known) > 1 else known[0]
            self.invalid(f"{what} must be {listed}, not {raw!r}{nearest(raw, known)}")
        return raw

    def flag(self, what: str) -> bool:
        if isinstance(self.value, bool):
            return self.value
        return self.word(what, ("true", "false")) == "true"

    # -- errors and filters -------------------------------------------------------------------------------------

    def error_code(self) -> int:
        name = self.text("error")
        try:
            return facts.error_code(name)
        except KeyError as error:
            if (code := next((each for each in facts.errors().values() if str(each.code) == name), None)) is not None:
                self.invalid(f"give an error by its name: {name} is {code.name}")
            self.invalid(str(error.args[0]))

    def filter(self, what: str) -> Filter:
        text = self.text(what)
        try:
            return compile(text)
        except FilterError as error:
            self.invalid(error.message, error.start)


def encodable(text: str) -> bool:
    """Whether a text has a form in UTF-8: JSON can escape half of a surrogate pair, which has none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def from_plain(value: Any, path: str = "") -> InputValue:
    """Plain data (from JSON or Python), without lines and columns."""
    given = InputValue(value, path)
    if isinstance(value, Mapping):
        for key, item in value.items():
            given.items[str(key)] = from_plain(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        given.value = list(value)
        given.listed = [from_plain(item, f"{path}[{number}]") for number, item in enumerate(value)]
    elif isinstance(value, bool):
        given.raw = str(value).lower()
    elif value is not None:
        given.raw = str(value)
    return given
