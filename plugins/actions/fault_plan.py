"""What a rule that fired does to one exchange. Pure data: the relay executes it.

Times are nanoseconds, sizes bytes. Frames are without their 4 size bytes unless noted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from ...decoder import Exchange
from ...decoder.connection.hit_notes import hit_note
from ..versions.emulated_release import EmulatedRelease

ResponseEdit = Callable[[Exchange, bytes], bytes]
"""(the exchange with what is known of it, a frame) -> the frame instead of it. May raise DecodeError, and
`NothingToChange`."""
FOREVER = -1


class NothingToChange(Exception):
    """A change that found nothing to change; the text names it and gives the reason."""


class Change(NamedTuple):
    """A change of the response. `note`: its place in the plan's notes."""

    make: ResponseEdit
    note: int


class CutPoint(StrEnum):
    """Where in an exchange its connection is cut."""

    BEFORE_REQUEST = "before-request"
    """the request never reaches the broker"""
    MID_REQUEST = "mid-request"
    """the broker gets the first half of the request's bytes"""
    BEFORE_RESPONSE = "before-response"
    """the broker has executed the request, and the client gets no response"""
    MID_RESPONSE = "mid-response"
    """the client gets the first half of the response's bytes"""
    AFTER_RESPONSE = "after-response"
    """the client has its response"""


@dataclass(frozen=True, slots=True)
class ConnectionCut:
    """The end of a connection. `reset`: as RST, otherwise FIN."""

    at: CutPoint
    reset: bool = False


class DamagedFrame(NamedTuple):
    """The bytes of a damaged frame. `size`: the value of its 4 size bytes."""

    size: int
    frame: bytes

    def __bytes__(self) -> bytes:
        return self.size.to_bytes(4, "big", signed=self.size < 0) + self.frame


DamageStep = Callable[[DamagedFrame], DamagedFrame]
"""Damages a frame, which may be damaged already."""


def damaged(frame: bytes, steps: list[DamageStep]) -> bytes:
    """A frame (with its size) after these steps."""
    found = DamagedFrame(len(frame) - 4, frame[4:])
    for step in steps:
        found = step(found)
    return bytes(found)


@dataclass(slots=True)
class FaultPlan:
    """What a rule does to an exchange, with notes for the recording. `hits`: how often the rule has fired, including this
    time."""

    rule: str
    hits: int
    notes: list[str] = field(default_factory=list)
    answer: bytes | None = None
    """The response, made here: the request does not reach the broker."""
    request: bytes | None = None
    """What the broker gets instead of the client's request."""
    request_damage: list[DamageStep] = field(default_factory=list)
    """What is done to the request's bytes after that, in this order."""
    drop_request: bool = False
    """The request goes nowhere and is never answered."""
    request_delay: int = 0
    corrected: bool = False
    """Whether notes were changed after the response came."""
    changes: list[Change] = field(default_factory=list)
    """What is done to the broker's response, in this order."""
    damage: list[DamageStep] = field(default_factory=list)
    """What is done to the response's bytes after that; the result may be no frame."""
    drop_response: bool = False
    response_delay: int = 0
    cut: ConnectionCut | None = None
    mute: int = 0
    """The connection's next requests are not read for so long after the response, as brokers do (KIP-219)."""
    silence: int = 0
    """Nothing passes on the connection for so long; FOREVER: until it ends."""
    silent: tuple[bool, bool] = (True, True)
    """Which directions that is about: requests, responses."""
    adapter: EmulatedRelease | None = None
    """The versions that the client is offered from this request on."""
    rates: tuple[int, int] = (0, 0)
    """Bytes a second that the connection may send from now on: requests, responses; 0: as many as it likes."""

    @property
    def note(self) -> str:
        """A line for the recording."""
        return hit_note(self.rule, self.hits, "; ".join(self.notes))

    @property
    def late(self) -> bool:
        """Whether something is left to do when the response arrives."""
        return bool(
            self.changes or self.damage or self.drop_response or self.response_delay or self.mute
            or (self.cut is not None and self.cut.at not in (CutPoint.BEFORE_REQUEST, CutPoint.MID_REQUEST))
        )  # fmt: skip

    def change(self, note: str, make: ResponseEdit, first: bool = False) -> None:
        """Add a change to the response, with its note. `first`: before all other changes."""
        self.changes.insert(0 if first else len(self.changes), Change(make, len(self.notes)))
        self.notes.append(note)

    def respond(self, exchange: Exchange, frame: bytes) -> bytes:
        """The broker's response with all changes made. Notes of changes that had no effect are corrected."""
        for change in self.changes:
            try:
                frame = change.make(exchange, frame)
            except NothingToChange as why:
                self.notes[change.note] = str(why)
                self.corrected = True
        return frame

    def apply_changes_to_answer(self, exchange: Exchange) -> None:
        """Make all changes to the rule's own answer."""
        if self.answer is not None:
            self.answer, self.changes = self.respond(exchange, self.answer), []
            self.corrected = False
