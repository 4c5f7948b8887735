"""Format and parse times: in UTC, marked by a Z, or in the machine's zone after `--local`.

A time alone has its date, as ISO 8601 has it; of several in one text or table only the time of day is shown, unless they
are of different days. Times that are typed without an offset (in filters, `cut --from`) are in the same zone as those shown.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, tzinfo

from ..errors import BarnabasError

UNKNOWN = "an unknown time"
_zone: tzinfo | None = UTC


class NamelessZone(BarnabasError, ValueError):
    """This machine does not say what its zone is called."""


def zone() -> tzinfo | None:
    """The zone of times; None: the machine's."""
    return _zone


def zone_name() -> str:
    """The zone's name in the IANA database, for a proxy that reads times for us. Raises NamelessZone."""
    from ..decoder.filter import named_zone

    if _zone is UTC or time.tzname == ("UTC", "UTC"):
        return "UTC"
    name = os.environ.get("TZ", os.path.realpath("/etc/localtime")).removeprefix(":").rpartition("zoneinfo/")[2]
    try:
        named_zone(name)
    except ValueError:
        raise NamelessZone(
            "the local zone has no name on this machine: set TZ (such as TZ=Europe/Berlin), or leave out --local and write "
            "times with their offset"
        ) from None
    return name


def use_local(local: bool) -> bool:
    """Show and read times in the machine's zone from now on, or in UTC."""
    global _zone
    _zone = None if local else UTC
    return local


def _of(time_ns: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).astimezone(_zone)
    except (ValueError, OverflowError, OSError):
        return None


def mark() -> str:
    """What stands behind a time: Z for UTC, nothing for the local zone."""
    return "Z" if _zone is UTC else ""


def heading(title: str) -> str:
    """The title above a column of times, as the times below do not name their zone."""
    return f"{title} UTC" if _zone is UTC else title


def clock(time_ns: int, digits: int = 3) -> str:
    """The time of day, ``12:01:30.250``; without a fraction if `digits` is 0."""
    when = _of(time_ns)
    text = "--:--:--" if when is None else f"{when:%H:%M:%S}"
    return f"{text}.{time_ns % 1_000_000_000:09d}"[: 9 + digits] if digits else text


def day(time_ns: int) -> str:
    """``2026-11-21``."""
    when = _of(time_ns)
    return "----------" if when is None else f"{when:%Y-%m-%d}"


def moment(time_ns: int, digits: int = 0) -> str:
    """``2026-11-21 12:01:30Z``; `UNKNOWN` for a time out of range."""
    return UNKNOWN if _of(time_ns) is None else f"{day(time_ns)} {clock(time_ns, digits)}{mark()}"


def period(first_ns: int, last_ns: int | None) -> str:
    """From when to when, to the millisecond, with the day once, or with both if they differ."""
    if last_ns is None or last_ns == first_ns or _of(last_ns) is None:
        return moment(first_ns, 3)
    if _of(first_ns) is None:
        return f"{UNKNOWN} to {moment(last_ns, 3)}"
    last = clock(last_ns) if day(first_ns) == day(last_ns) else f"{day(last_ns)} {clock(last_ns)}"
    return f"{day(first_ns)} {clock(first_ns)} to {last}{mark()}"


def iso(time_ns: int) -> str:
    """A time as filters take it, to the microsecond, in the zone in which they are read."""
    return f"{day(time_ns)}T{clock(time_ns, 6)}"


def duration(nanoseconds: float) -> str:
    """``350 µs``, ``1.2 ms``, ``2.50 s``, ``3 min``."""
    for limit, factor, digits, unit in ((1e6, 1e3, 0, "µs"), (1e9, 1e6, 1, "ms"), (60e9, 1e9, 2, "s"), (3600e9, 60e9, 1, "min")):
        if nanoseconds < limit:
            return f"{nanoseconds / factor:.{digits}f} {unit}"
    return f"{nanoseconds / 3600e9:.1f} h"


def clock_ms(time_ns: int) -> float:
    """What the clock of the zone shows, for libraries that know UTC only: the milliseconds at which UTC's clock shows the same. Raises
    ValueError for a time out of range."""
    when = _of(time_ns)
    if when is None:
        raise ValueError(UNKNOWN)
    return when.replace(tzinfo=UTC).timestamp() * 1e3 + time_ns % 1_000_000_000 / 1e6
