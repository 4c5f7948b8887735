"""Parse sizes and durations from the command line: 512MB, 1.5GiB, 90s, 5m, 24h, 7d."""

from __future__ import annotations

from .failure import Failure

_DAY = "d"


def size(text: str, option: str) -> int:
    """Parse a size, in bytes. Raises Failure."""
    from ....decoder.filter.language import literals

    found = literals.number(text.strip())
    if found is None or found.unit != "size" or not 0 < found.value < 1 << 62:
        raise Failure(f"{option} {text!r} is not a size: give one with its unit, such as 512MB or 10GB")
    return int(found.value)


def seconds(text: str, option: str) -> float:
    """Parse a duration, in seconds. Raises Failure."""
    found = _duration(text)
    if found is None:
        raise Failure(f"{option} {text!r} is not a duration: give one with its unit, such as 30s, 5m, 24h or 7d")
    return found


def window(text: str, option: str) -> tuple[float | None, int | None]:
    """(seconds, bytes) of `5m`, `512MB` or `5m,512MB`; None for the one that is missing. Raises Failure."""
    length: float | None = None
    room: int | None = None
    for part in text.split(","):
        duration = _duration(part)
        if duration is not None and length is None:
            length = duration
        elif duration is None and room is None and part.strip():
            room = size(part, option)
        else:
            raise Failure(f"{option} {text!r}: give a duration, a size, or both, such as 5m,512MB")
    return length, room


def _duration(text: str) -> float | None:
    from ....decoder.filter.language import literals

    text = text.strip()
    days = text.endswith(_DAY) and literals.number(text[:-1])
    if days and not days.unit:
        value = days.value * 86_400.0
    else:
        found = literals.number(text)
        if found is None or found.unit != "time":
            return None
        value = found.value / 1e9
    return value if 0 < value < 1e10 else None
