"""Traffic that wants to speak to a terminal: every text of every API holds sequences that would be obeyed there.

Each sequence carries `MARK` where a terminal would take it as a parameter, so that one that gets through can be told from
those that the screen writes itself.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import count
from pathlib import Path
from typing import Any

from barnabas import decoder
from barnabas.captures import Recorder
from barnabas.decoder import Direction
from barnabas.decoder.records import Record, encode_batch
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.plan import StructPlan, plan
from harness.wire import with_size

MARK = "7331"
SEQUENCES = (
    f"\x1b[{MARK}m", f"\x1b]52;c;{MARK}\x07", f"\x1b]0;{MARK}\x1b\\", f"\x1bP{MARK}\x1b\\", f"\x1b_{MARK}\x1b\\",
    f"\x1bc{MARK}", f"\x1b]8;;http://{MARK}\x07", f"\x9b{MARK}h", f"\x9d0;{MARK}\x9c", f"\x07\x08\x0e\x7f\0{MARK}",
    f"\r\n\t\x0b\x0c\x85\u2028\u2029{MARK}", f"\u202e{MARK}\u2066\u200f\u061c", f"\u200b\u200d\ufeff\u00ad{MARK}",
    f"[red]{MARK}[/red] [@click=app.quit]x[/]", f"[/{MARK}] [$] [link=", f"e\u0301{MARK}" + "\u0301" * 200,
    "\u6e29\u5ea6\U0001f600" * 20 + MARK, "\U000e0041\ufe0f" + MARK, f"{MARK}%s{{0}}\\x1b" + "w" * 600,
)  # fmt: skip
"""CSI, OSC, DCS, APC, the C1 forms of these, C0, separators, bidirectional and invisible letters, markup, marks, wide
letters, tags, and something long."""
OFTEN = {"ApiVersions": 3, "Metadata": 12, "Produce": 9, "Fetch": 12, "JoinGroup": 9, "Heartbeat": 4, "CreateTopics": 7}
"""What views are made of, at versions that have names."""
CODE = 1
"""Of an error that is answered everywhere."""
_SIMPLE = {"bool": True, "uuid": bytes(15) + b"\7", "float64": 0.5}


def filled(of: StructPlan, text: str) -> dict[str, Any]:
    """A value for every field: `text` wherever letters can be, one item in every array."""
    return {each.name: [_value(each, text)] if each.array else _value(each, text) for each in of.fields}


def _value(of: Any, text: str) -> Any:
    if of.struct is not None:
        return filled(of.struct, text)
    if of.type == "string":
        return text
    if of.type == "bytes":
        return text.encode("utf-8", "surrogatepass")
    if of.type == "records":
        data = text.encode("utf-8", "surrogatepass")
        return encode_batch([Record(0, 1, data, data, ((text, data),))])
    if of.type in _SIMPLE:
        return _SIMPLE[of.type]
    return {"error_code": CODE, "acks": -1}.get(of.name, 0)


class Hostile:
    """Writes such exchanges into a recording."""

    def __init__(self, directory: Path):
        self.recorder = Recorder(directory)
        self._numbers = count(1)
        self._at = 1_753_000_000_000_000_000
        for number in (1, 2):
            self.recorder.opened(number, self._at, ("127.0.0.1", 50000 + number), ("127.0.0.1", 9092))

    def say(self, connection: int, direction: Direction, frame: bytes) -> None:
        self._at += 1_000_000
        self.recorder.data(connection, direction, self._at, with_size(frame))

    def exchange(self, connection: int, key: int, text: str, version: int | None = None) -> None:
        """One exchange of an API, `text` everywhere in it."""
        number = next(self._numbers)
        version = facts.api(key).request.versions.high if version is None else version
        for direction, kind in ((Direction.REQUEST, "request"), (Direction.RESPONSE, "response")):
            values = filled(plan(kind, key, version).root, text)
            if direction is Direction.REQUEST:
                frame = decoder.encode_request(key, version, values, correlation_id=number, client_id=text)
            else:
                frame = decoder.encode_response(key, version, values, correlation_id=number)
            self.say(connection, direction, frame)


def record(directory: Path) -> None:
    """All sequences in the APIs that views are made of, then every API with one of them, then letters that are none."""
    hostile = Hostile(directory)
    for text in SEQUENCES:
        for api, version in OFTEN.items():
            hostile.exchange(1, facts.api_key(api), text, version)
    for at, key in enumerate(facts.api_keys()):
        hostile.exchange(2, key, SEQUENCES[at % len(SEQUENCES)])
    # A lone surrogate cannot be encoded, so it is put where other letters were.
    metadata = decoder.encode_request(3, 9, {"topics": [{"name": "abc"}]}, correlation_id=9, client_id="xyz")
    hostile.say(1, Direction.REQUEST, metadata.replace(b"abc", b"\xed\xa0\x80").replace(b"xyz", b"\xed\xb0\x80"))
    hostile.recorder.close()


# What Textual itself writes: CSI sequences, keypad and cursor modes, and the shape of the mouse pointer.
_OWN = re.compile(rb"\x1b(?:\[[0-9;:?<>=$ ]*[@-~]|[=>78]|P\+q[0-9a-fA-F;]*\x1b\\|\]22;[a-z]*\x07)")
_LETTERS = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def obeyed(out: bytes, allowed: str = "") -> list[str]:
    """What a terminal would have obeyed, or would not have shown, that is not the screen's own; `allowed`: letters."""
    bad = [repr(each) for each in _OWN.findall(out) if MARK.encode() in each]
    text = _OWN.sub(b"", out).decode("utf-8", "backslashreplace")
    bad += [repr(text[max(m - 20, 0) : m + 20]) for m, c in enumerate(text) if unicodedata.category(c) in _LETTERS and c not in allowed]
    return bad[:10]
