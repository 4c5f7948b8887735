"""The messages between a relay, its plugin host and the forkserver: the JSON of a `Channel` packet; frames are its bytes.

To the host, by `do`: ``opened``, ``closed``, ``request``, ``response``, ``exchanged``, ``learn``, ``answer``, ``forget``, ``without``,
``save``, ``restore``. To the relay, by `say`: ``ready`` or ``failed``, ``verdict``, ``hits``, ``fault``, ``warn``, ``log``, ``ask``,
``close``, ``state``. Times are nanoseconds since the epoch, frames without their size.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple


@dataclass(slots=True)
class HookCall:
    """A message for the plugins' hooks: the request's frame, then the response's.

    `do`: "request", "response" or "exchanged"; `question`: its number, 0 if nobody waits for a verdict; `request_size`: bytes
    of the request's frame; `response_time_ns`: 0 if there is no response.
    """

    do: str
    connection: int
    request_time_ns: int
    request_size: int
    response_time_ns: int = 0
    question: int = 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> HookCall:
        return cls(**fields)


class Verdict(NamedTuple):
    """What the hooks want. `kind`: "forward", "respond", "drop" or "close"; `frame`: the message instead, None: as it is;
    `note`: for the recording, "" if they did nothing."""

    kind: str = "forward"
    frame: bytes | None = None
    delay_ns: int = 0
    reset: bool = False
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """All but the frame, which is the packet's bytes."""
        return {**self._asdict(), "frame": self.frame is not None}

    @classmethod
    def from_dict(cls, fields: dict[str, Any], data: bytes) -> Verdict:
        return cls(**{**fields, "frame": data if fields["frame"] else None})


@dataclass(slots=True)
class AskRequest:
    """A request of a plugin's own. `id`: the host's number; `question`: the message whose hook waits for the answer, 0: none."""

    id: int
    question: int
    connection: int
    seconds: float
    plugin: str


class ForkServerEvent(NamedTuple):
    """What the forkserver reports. `kind`: "changed" (a plugin's file), "failed" (to read one for the host `number`), "ended"
    (that host); `text`: why, or how."""

    kind: str
    number: int = 0
    text: str = ""
