"""What goes over the control sockets between the supervisor and its processes, one packet each: these messages, and events.

To a relay: all but the last three. To the observer, the inspector and the meter: `Stop`, `NewControlServer` and events that they act on
or count. From a relay: the last three. From each: events.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from .. import events
from ..events import Address, Event
from .serialization import from_named, to_named
from .shared_counters import FileRule


@dataclass(frozen=True, slots=True)
class Stop:
    """End. `until`: how long a relay may wait for responses in flight, or a reader may read what is left in the rings
    (seconds of the monotonic clock, which all processes share)."""

    until: float


@dataclass(frozen=True, slots=True)
class ReaderGone:
    """A reader of the ring was dismissed; a lossless relay no longer waits for it."""


@dataclass(frozen=True, slots=True)
class NewControlServer:
    """Another control server replaces one that ended. With the descriptor of the channel to it."""


@dataclass(frozen=True, slots=True)
class AddListener:
    """Another worker has opened a listener for a broker. With its descriptor."""

    broker: Address


@dataclass(frozen=True, slots=True)
class ReplaceFileRules:
    """Replace the rules that came from the file."""

    rules: tuple[FileRule, ...]


@dataclass(frozen=True, slots=True)
class ReloadPlugins:
    """Load the plugins' files again."""


@dataclass(frozen=True, slots=True)
class Accepting:
    """This relay accepts clients from now on."""


@dataclass(frozen=True, slots=True)
class ListenerOpened:
    """This worker has opened a listener for a broker, which the others are to share. With its descriptor."""

    broker: Address


@dataclass(frozen=True, slots=True)
class ListenerClosed:
    """This worker has closed a broker's listener, as all do."""

    broker: Address
    port: int


Message = (
    Stop | ReaderGone | NewControlServer | AddListener | ReplaceFileRules | ReloadPlugins | Accepting | ListenerOpened | ListenerClosed | Event
)


def encode(message: Message) -> bytes:
    if isinstance(message, Event):
        return events.encode(message)
    return json.dumps(to_named(message)).encode()


def decode(packet: bytes) -> Message:
    fields = json.loads(packet)
    if "event" in fields:
        return events.decode(packet)
    message: Message = from_named(Message, fields)
    return message
