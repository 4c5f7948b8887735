"""Values as JSON can hold them: read from JSON, or made of what a library decoded. Nesting is bounded."""

from __future__ import annotations

import json
import math
from datetime import date, datetime, time
from typing import Any

from .errors import SchemaMismatch

MOST_NESTED = 100
"""Levels of lists and objects that a value may have; deeper ones are not taken apart."""


def plain(value: Any) -> Any:
    """Bytes become ``{"hex": ...}``, times ISO 8601, numbers that JSON lacks and everything else a string."""
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


def too_deep(value: Any) -> bool:
    """Whether dicts and lists stand in one another more than `MOST_NESTED` times."""
    level = [value]
    for _ in range(MOST_NESTED + 1):
        level = [item for item in level if isinstance(item, dict | list)]
        if not level:
            return False
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return True


def read_json(data: bytes) -> Any:
    """The JSON value in `data`. Raises `SchemaMismatch` for what is none, or is nested too deep to be taken apart."""
    try:
        value = json.loads(data.decode(), parse_constant=_no_constant)
    except RecursionError:
        raise SchemaMismatch(f"JSON nested more than {MOST_NESTED} levels deep") from None
    except ValueError as error:  # JSONDecodeError, UnicodeDecodeError, numbers of too many digits
        raise SchemaMismatch(f"not JSON: {error}") from None
    if too_deep(value):
        raise SchemaMismatch(f"JSON nested more than {MOST_NESTED} levels deep")
    return value


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")
