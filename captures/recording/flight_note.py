"""The note beside a flight recording: why it was written, by what, and what it covers (docs/formats.md)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..pcap.regular_files import open_file

NOTE = "flight.json"
VERSION = 1
_LARGEST = 256 << 10
_TEXT = 2000
AUTOMATIC = ("filter", "finding")
_KINDS = {
    "filter": "a filter was true",
    "finding": "something was found wrong",
    "asked": "it was asked for",
    "signal": "it was asked for by a signal",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a flight recording is written. `kind`: "filter", "finding", "asked" or "signal"; `text`: in a line; `label`: what
    its name begins with; `about`: facts, such as the exchange."""

    kind: str
    text: str
    label: str = "flight"
    time_ns: int = field(default_factory=time.time_ns)
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def automatic(self) -> bool:
        """Nobody asked for it."""
        return self.kind in AUTOMATIC


def write_note(
    path: Path,
    reason: Reason,
    *,
    complete: bool,
    others: int,
    more: Sequence[str],
    left_out: int,
    seconds: float | None,
    bytes: int | None,
    after: float,
    segments: Sequence[str],
) -> None:
    """Write the note, by way of a temporary name. May raise OSError."""
    said = {
        "flight": VERSION,
        "kind": reason.kind,
        "text": reason.text[:_TEXT],
        "label": reason.label,
        "time_ns": reason.time_ns,
        "about": dict(reason.about),
        "others": others,
        "more": [text[:_TEXT] for text in more],
        "left_out": left_out,
        "seconds": seconds,
        "bytes": bytes,
        "after": after,
        "segments": list(segments),
        "complete": complete,
    }
    temporary = path.with_name("." + path.name)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
        json.dump(said, file, indent=1)
        file.write("\n")
    temporary.rename(path)


def read_note(directory: Path) -> dict[str, Any] | None:
    """The note of a recording; None when there is none, or it is none."""
    try:
        with open_file(directory / NOTE) as file:
            found = json.loads(file.read(_LARGEST))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("flight"), int) else None


def automatic(directory: Path) -> bool:
    """Whether a directory is a flight recording that nobody asked for."""
    found = read_note(directory)
    return found is not None and found.get("kind") in AUTOMATIC


def told(directory: Path) -> str | None:
    """Why a recording was written, in one line; None for one that is no flight recording.

    The text may hold what was in the traffic: a terminal gets it through `visible`.
    """
    found = read_note(directory)
    if found is None:
        return None
    why = _KINDS.get(str(found.get("kind")), "")
    words = [f"flight recording{f': {why}' if why else ''}: {found.get('text', '')}"]
    stamp = found.get("time_ns")
    if isinstance(stamp, int) and 0 <= stamp < 1 << 62:
        words.append(time.strftime("at %Y-%m-%d %H:%M:%SZ", time.gmtime(stamp / 1e9)))
    for name, text in (("others", "{} more like it while it was written"), ("left_out", "{} before it only counted")):
        count = found.get(name)
        if isinstance(count, int) and count > 0:
            words.append(text.format(count))
    if found.get("complete") is False:
        words.append("its writer was killed before it was complete")
    return "; ".join(words)
