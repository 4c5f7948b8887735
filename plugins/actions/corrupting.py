"""Actions that damage bytes: of a frame, or of the record batches inside one that stays a valid frame."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from ...decoder import DecodeError, Exchange, decode_request
from ...decoder.codec.message import Message
from ...decoder.filter import Filter
from ...decoder.filter.entities import apis
from ..answers.leaves import leaves
from ..conditions.input_value import InputValue
from . import damaged_records
from .action import NO_EFFECT, Action, ActionContext, Effect, response_of
from .fault_plan import DamagedFrame, FaultPlan, NothingToChange

FRAME = ("bits", "length", "correlation", "truncate")
"""Damage to the frame: flipped bits after its header; a wrong size; another correlation id; half of its bytes with the
size of the whole."""
RECORDS = tuple(damaged_records.KINDS)


@dataclass(frozen=True, slots=True)
class Corrupt(Action):
    """``corrupt: crc``: damage a frame (`FRAME`) or the record batches in it (`RECORDS`; the frame stays valid).

    ``in``: the response (default) or the request. ``crc: fixed``: batches get the CRC of their damaged bytes, so that the
    damage is found where records are read; ``crc: kept`` leaves it wrong. ``count``: bits to flip (1).
    """

    KEYS: ClassVar[tuple[str, ...]] = ("corrupt", "in", "crc", "count")

    kind: str
    side: str = "response"
    fixed: bool = True
    count: int = 1

    @classmethod
    def read(cls, fields: Mapping[str, InputValue], wanted: Filter) -> Corrupt:
        kind = fields["corrupt"].word("corrupt", (*FRAME, *RECORDS))
        side = fields["in"].word("in", ("response", "request")) if "in" in fields else "response"
        fixed = kind != "payload"
        if "crc" in fields:
            fixed = fields["crc"].word("crc", ("fixed", "kept")) == "fixed"
            if kind in (*FRAME, "crc"):
                fields["crc"].invalid(f"'crc' applies to damaged records, not to {kind!r}")
        if "count" in fields and kind not in ("bits", "payload"):
            fields["count"].invalid("'count' applies to bits and payload")
        keys = wanted.apis()
        if kind in RECORDS and keys is not None and not keys & apis(side, "records"):
            fields["corrupt"].invalid(f"{kind!r} applies to records, and no {side} that matches contains any")
        return cls(kind, side, fixed, fields["count"].number("count", 1, 10_000) if "count" in fields else 1)

    @property
    def early(self) -> bool:
        return self.side == "request"

    @property
    def effect(self) -> Effect:
        if self.side == "response":
            return Effect.CHANGES_RESPONSE
        return Effect.CHANGES_REQUEST | (Effect.HIDES_RESPONSE if self.kind == "correlation" else NO_EFFECT)

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"corrupt": self.kind}
        if self.side != "response":
            found["in"] = self.side
        if self.fixed != (self.kind != "payload"):
            found["crc"] = "fixed" if self.fixed else "kept"
        if self.count != 1:
            found["count"] = self.count
        return found

    def add_to(self, faults: FaultPlan, exchange: Exchange, context: ActionContext) -> None:
        note = f"{self.side} corrupted: {self.kind}"
        chance = random.Random(context.random.random())
        if self.side == "response":
            if self.kind in FRAME:
                faults.damage.append(partial(self.damaged, 4, chance))
                faults.notes.append(note)
            else:
                faults.change(note, partial(self._response, context, chance))
            return
        if self.kind in FRAME:
            faults.request_damage.append(partial(self.damaged, 8, chance))
            faults.notes.append(note)
            return
        try:
            message = decode_request(faults.request or exchange.request or b"")
            faults.request = self.records(message, exchange, context, chance).encode()
            faults.notes.append(note)
        except (DecodeError, NothingToChange) as error:
            faults.notes.append(str(error) if isinstance(error, NothingToChange) else f"request not corrupted: {error}")

    def _response(self, context: ActionContext, chance: random.Random, exchange: Exchange, frame: bytes) -> bytes:
        message = response_of(exchange, frame)
        return self.records(message, exchange, context, chance).encode()

    def records(self, message: Message, exchange: Exchange, context: ActionContext, chance: random.Random) -> Message:
        """The message with the selected record batches damaged."""
        damage: Callable[..., bytes] = damaged_records.KINDS[self.kind]
        areas = {
            leaf.path: bytes(leaf.value)
            for leaf in leaves(message, context.cluster_view.topics)
            if leaf.field.type == "records" and leaf.value and context.selects(exchange, leaf.part)
        }
        edits = {
            path: found
            for path, area in areas.items()
            if (found := damage(area, chance, self.fixed, self.count)) != area
        }
        if not edits:
            why = "the selected part has no records"
            if areas:
                why = damaged_records.NEEDS.get(self.kind, "its records have nothing of this kind")
            raise NothingToChange(f"{self.side} not corrupted: {self.kind}: {why}")
        return message.replace(edits)

    def damaged(self, head: int, chance: random.Random, frame: DamagedFrame) -> DamagedFrame:
        """The damaged bytes of a frame. `head`: bytes at its start that stay, as they identify it."""
        size = len(frame.frame)
        if self.kind == "length":
            return frame._replace(size=frame.size + chance.choice((-1, 1)) * chance.randint(1, 8))
        if self.kind == "truncate":
            return frame._replace(frame=frame.frame[: max(size // 2, head)])
        data = bytearray(frame.frame)
        if self.kind == "correlation":
            place = 0 if self.side == "response" else 4
            data[place : place + 4] = (int.from_bytes(data[place : place + 4], "big") + 0x40000000 & 0xFFFFFFFF).to_bytes(4, "big")
        elif size > head:
            for _ in range(self.count):
                place = chance.randrange(head, size)
                data[place] ^= 1 << chance.randrange(8)
        return frame._replace(frame=bytes(data))
