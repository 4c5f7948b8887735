"""Actions that drop a frame, or silence or cut a connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...decoder import Exchange
from ...decoder.filter import Filter
from ..conditions.input_value import InputValue
from .action import NO_EFFECT, Action, ActionContext, Effect, span
from .fault_plan import FOREVER, ConnectionCut, CutPoint, FaultPlan


@dataclass(frozen=True, slots=True)
class Drop(Action):
    """``drop: response``: the broker executes the request, and the client gets no response. ``drop: request``: the broker
    does not get the request. Later frames of the connection pass: clients that miss a response give the connection up."""

    KEYS: ClassVar[tuple[str, ...]] = ("drop",)

    what: str

    @classmethod
    def read(cls, fields: Mapping[str, InputValue], wanted: Filter) -> Drop:
        return cls(fields["drop"].word("drop", ("response", "request")))

    @property
    def early(self) -> bool:
        return self.what == "request"

    @property
    def effect(self) -> Effect:
        if self.what == "response":
            return Effect.KEEPS_RESPONSE
        return Effect.KEEPS_REQUEST | Effect.KEEPS_RESPONSE | Effect.NO_RESPONSE

    def to_dict(self) -> dict[str, Any]:
        return {"drop": self.what}

    def add_to(self, faults: FaultPlan, exchange: Exchange, context: ActionContext) -> None:
        if self.what == "request":
            faults.drop_request = True
        else:
            faults.drop_response = True
        faults.notes.append(f"{self.what} dropped")


@dataclass(frozen=True, slots=True)
class Blackhole(Action):
    """``blackhole: 30s`` (or ``forever``): nothing more passes on the connection of the request, which stays open."""

    KEYS: ClassVar[tuple[str, ...]] = ("blackhole", "of")
    EARLY: ClassVar[bool] = True

    time: int
    of: str = "both"

    @classmethod
    def read(cls, fields: Mapping[str, InputValue], wanted: Filter) -> Blackhole:
        given = fields["blackhole"]
        time = FOREVER if given.raw == "forever" else given.duration("blackhole", 1)
        of = fields["of"].word("of", ("request", "response", "both")) if "of" in fields else "both"
        return cls(time, of)

    @property
    def effect(self) -> Effect:
        if self.time != FOREVER:
            return NO_EFFECT
        kept = Effect.KEEPS_RESPONSE | Effect.NO_RESPONSE
        return kept if self.of == "response" else kept | Effect.KEEPS_REQUEST

    def to_dict(self) -> dict[str, Any]:
        time = "forever" if self.time == FOREVER else span(self.time)
        return {"blackhole": time} | ({} if self.of == "both" else {"of": self.of})

    def add_to(self, faults: FaultPlan, exchange: Exchange, context: ActionContext) -> None:
        faults.silence = self.time
        faults.silent = (self.of != "response", self.of != "request")
        how_long = "from here on" if self.time == FOREVER else f"for {span(self.time)}"
        what = "nothing passes" if self.of == "both" else f"no {self.of}s pass"
        faults.notes.append(f"{what} on this connection {how_long}")


@dataclass(frozen=True, slots=True)
class Disconnect(Action):
    """``disconnect: before-response``: the connection is cut; see `CutPoint`. ``how: fin`` or ``rst``."""

    KEYS: ClassVar[tuple[str, ...]] = ("disconnect", "how")

    at: CutPoint
    reset: bool = False

    @classmethod
    def read(cls, fields: Mapping[str, InputValue], wanted: Filter) -> Disconnect:
        at = CutPoint(fields["disconnect"].word("disconnect", [str(at) for at in CutPoint]))
        return cls(at, "how" in fields and fields["how"].word("how", ("fin", "rst")) == "rst")

    @property
    def early(self) -> bool:
        return self.at in (CutPoint.BEFORE_REQUEST, CutPoint.MID_REQUEST)

    @property
    def effect(self) -> Effect:
        if self.early:
            return Effect.KEEPS_REQUEST | Effect.KEEPS_RESPONSE | Effect.NO_RESPONSE | Effect.ENDS
        return Effect.KEEPS_RESPONSE if self.at is CutPoint.BEFORE_RESPONSE else NO_EFFECT

    def to_dict(self) -> dict[str, Any]:
        return {"disconnect": str(self.at)} | ({"how": "rst"} if self.reset else {})

    def add_to(self, faults: FaultPlan, exchange: Exchange, context: ActionContext) -> None:
        faults.cut = ConnectionCut(self.at, self.reset)
        faults.notes.append(f"connection {'reset' if self.reset else 'closed'} {str(self.at).replace('-', ' the ')}")
