"""The findings of a recording, segment by segment: what the detectors know after one is kept for the next.

The state is a pickle of the classes of this package (`_Unpickler` makes no others, and calls nothing), about 1 MB, written in
0.02 s. A recording is read again from its first segment where the state is missing, is another version's, or is of other files.
"""

from __future__ import annotations

import io
import json
import pickle
import sys
import zlib
from collections.abc import Iterator
from enum import Enum
from itertools import chain
from pathlib import Path
from typing import Any

from ....decoder.connection.events import ConnectionEvent
from ....decoder.findings import Inspector
from ...reading.events import CarriedEvents, EventReader
from ..segments import LAYOUT

_PACKAGE = __name__.split(".")[0]
# Not imported by name: where the current folder has a folder of the package's name, that hides it from Spark's Python workers.
_VERSION = getattr(sys.modules[_PACKAGE], "__version__", "")
_PLAIN = {
    ("builtins", "set"): set, ("builtins", "frozenset"): frozenset, ("builtins", "bytearray"): bytearray,
    ("builtins", "complex"): complex, ("builtins", "tuple"): tuple,
}  # fmt: skip
_DECODER = f"{_PACKAGE}.decoder."
_BOUNDED = f"{_PACKAGE}.bounded"
_OF_CAPTURES = {
    f"{_PACKAGE}.captures.{name}"
    for name in (
        "reading.indexing.packet_events.Stream", "reading.indexing.packet_events.BrokerLegFrame",
        "reading.events.CarriedEvents",
        "recording.segment.Identity", "pcap.flows.Data", "recording.index.LegFrame",
    )
}  # fmt: skip
"""Besides these, a state has classes of the decoder only, which opens no files and no connections."""
_COLLECTIONS = ("deque", "Counter", "OrderedDict", "defaultdict")


class StateError(Exception):
    """The state cannot be used: the recording is read from its beginning."""


class Inspection:
    """The detectors, and the files of a recording that they have seen, by `Segment.key` with what these were like then."""

    def __init__(self) -> None:
        self.inspector = Inspector()
        self.seen: dict[str, str] = {}
        self._carried: CarriedEvents | None = None

    def read(self, path: Path) -> Iterator[ConnectionEvent]:
        """The events of the next segment, which the detectors see. Raises NotACapture and OSError."""
        reader = EventReader(path, carried=self._carried)
        for event in chain(reader.read(), reader.end()):
            self.inspector.feed(event)
            yield event
        self._carried = reader.carry()

    def dump(self) -> bytes:
        """The state, from which `load` goes on."""
        head = json.dumps({"layout": LAYOUT, "version": _VERSION, "seen": self.seen}).encode()
        state = zlib.compress(pickle.dumps((self.inspector, self._carried), pickle.HIGHEST_PROTOCOL), 1)
        return len(head).to_bytes(4, "big") + head + state

    @classmethod
    def load(cls, data: bytes) -> Inspection:
        """The inverse of `dump`. Raises StateError."""
        made = cls()
        try:
            size = int.from_bytes(data[:4], "big")
            head = json.loads(data[4 : 4 + size])
            if head["layout"] != LAYOUT or head["version"] != _VERSION:
                raise StateError("another version's")
            made.seen = head["seen"]
            made.inspector, made._carried = _Unpickler(io.BytesIO(zlib.decompress(data[4 + size :]))).load()
        except StateError:
            raise
        except Exception as error:  # damaged, or not ours
            raise StateError(str(error)) from error
        return made


class _Unpickler(pickle.Unpickler):
    """Makes objects of the package's own classes and of plain containers; knows no functions, so that a state that somebody
    else wrote can do nothing."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):
            return _attribute
        if (module, name) in _PLAIN:
            return _PLAIN[module, name]
        ours = module.startswith(_DECODER) or module == _BOUNDED or f"{module}.{name}" in _OF_CAPTURES
        if ours or (module == "collections" and name in _COLLECTIONS):
            __import__(module)
            found = sys.modules[module]
            for part in name.split("."):
                found = getattr(found, part)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise StateError(f"{module}.{name} does not belong here")


def _attribute(owner: Any, name: str) -> Any:
    """What pickles look up by `getattr`: members of enums (Python 3.11), and methods of the detectors' own objects."""
    if isinstance(owner, type) and issubclass(owner, Enum):
        return owner[name]
    if type(owner).__module__.startswith(_DECODER) and not name.startswith("__") and callable(getattr(type(owner), name, None)):
        return getattr(owner, name)
    raise StateError(f"{name} of {type(owner).__name__} does not belong here")


