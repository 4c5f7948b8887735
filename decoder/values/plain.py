"""Values in JSON's types: read from JSON, or converted from what a library decoded. Nesting is bounded."""

from __future__ import annotations

import json
import math
from datetime import date, datetime, time
from typing import Any, NamedTuple

from .errors import SchemaMismatch

Json = Any
"""A value in JSON's types: None, bool, int, float, str, or a list or dict of these."""
MOST_NESTED = 100
"""Levels of lists and objects that a value may have."""


class DecodedValue(NamedTuple):
    """A value in JSON's types, and a note about it or ``""``."""

    value: Json
    note: str = ""


def plain(value: object) -> Json:
    """A value in JSON's types: bytes become ``{"hex": ...}``, times ISO 8601, NaN, infinities and everything else a string."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes | bytearray):
        return {"hex": value.hex()}
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return str(value)


def too_deep(value: Json) -> bool:
    """Whether dicts and lists are nested more than `MOST_NESTED` levels deep."""
    level = [value]
    for _ in range(MOST_NESTED + 1):
        level = [item for item in level if isinstance(item, dict | list)]
        if not level:
            return False
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return True


def read_json(data: bytes) -> Json:
    """The JSON value in `data`. Raises `SchemaMismatch` if it is no JSON, or nested too deep."""
    try:
        value = json.loads(data.decode(), parse_constant=_no_constant)
    except RecursionError:
        raise SchemaMismatch(f"JSON nested more than {MOST_NESTED} levels deep") from None
    except ValueError as error:  # JSONDecodeError, UnicodeDecodeError, numbers of too many digits
        raise SchemaMismatch(f"not JSON: {error}") from None
    if too_deep(value):
        raise SchemaMismatch(f"JSON nested more than {MOST_NESTED} levels deep")
    return value


def _no_constant(word: str) -> Json:
    raise ValueError(f"{word} is not JSON")
