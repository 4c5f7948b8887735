"""Actions on time: delays with jitter, throttling as a quota does, and a limit of bytes a second."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...decoder import Exchange
from ...decoder.filter import Filter
from ..fate import Fate
from ..given import Given
from .action import Action, Scene, response_of, span

SIDES = ("request", "response")
SHAPES = ("fixed", "uniform", "normal", "exponential")


@dataclass(frozen=True, slots=True)
class Delay(Action):
    """``delay: 200ms``: a frame and all behind it on its connection wait. `shape`: fixed; uniform in ``delay ± jitter``;
    normal with the standard deviation `jitter`; exponential with the mean `delay`. Never less than 0."""

    KEYS: ClassVar[tuple[str, ...]] = ("delay", "jitter", "distribution", "of")

    delay: int
    jitter: int = 0
    shape_: str = "fixed"
    of: str = "response"

    @classmethod
    def read(cls, fields: Mapping[str, Given], wanted: Filter) -> Delay:
        delay = fields["delay"].duration("delay")
        jitter = fields["jitter"].duration("jitter") if "jitter" in fields else 0
        shape = "uniform" if jitter else "fixed"
        if "distribution" in fields:
            shape = fields["distribution"].word("distribution", SHAPES)
            if shape in ("uniform", "normal") and not jitter:
                fields["distribution"].wrong(f"a {shape} distribution needs a 'jitter'")
            if shape in ("fixed", "exponential") and jitter:
                fields["jitter"].wrong(f"a {shape} distribution has no jitter")
        of = fields["of"].word("of", SIDES) if "of" in fields else "response"
        return cls(delay, jitter, shape, of)

    @property
    def early(self) -> bool:
        return self.of == "request"

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"delay": span(self.delay)}
        if self.jitter:
            found["jitter"] = span(self.jitter)
        if self.shape_ not in ("fixed", "uniform"):
            found["distribution"] = self.shape_
        if self.of != "response":
            found["of"] = self.of
        return found

    def draw(self, chance: random.Random) -> int:
        """One delay, in ns."""
        if self.shape_ == "uniform":
            drawn = self.delay + chance.uniform(-self.jitter, self.jitter)
        elif self.shape_ == "normal":
            drawn = chance.gauss(self.delay, self.jitter)
        elif self.shape_ == "exponential":
            drawn = chance.expovariate(1 / self.delay) if self.delay else 0.0
        else:
            return self.delay
        return max(int(drawn), 0)

    def shape(self, fate: Fate, exchange: Exchange, scene: Scene) -> None:
        drawn = self.draw(scene.random)
        if self.of == "request":
            fate.request_delay += drawn
        else:
            fate.response_delay += drawn
        fate.notes.append(f"{self.of} delayed by {drawn / 1e6:.4g} ms")


@dataclass(frozen=True, slots=True)
class Throttle(Action):
    """``throttle: 500ms``: the response says so in throttle_time_ms, and the connection's next requests are not read for
    that long, as a broker does whose quota is exceeded (KIP-219). ``mute: false`` leaves that out."""

    KEYS: ClassVar[tuple[str, ...]] = ("throttle", "mute")

    time: int
    mute: bool = True

    @classmethod
    def read(cls, fields: Mapping[str, Given], wanted: Filter) -> Throttle:
        return cls(
            fields["throttle"].duration("throttle", 1_000_000),
            fields["mute"].flag("mute") if "mute" in fields else True,
        )

    def to_dict(self) -> dict[str, Any]:
        return {"throttle": span(self.time)} | ({} if self.mute else {"mute": False})

    def shape(self, fate: Fate, exchange: Exchange, scene: Scene) -> None:
        fate.changes.append(self.tell)
        if self.mute:
            fate.mute += self.time
        fate.notes.append(f"throttled for {span(self.time)}")

    def tell(self, exchange: Exchange, frame: bytes) -> bytes:
        """The response with its throttle_time_ms; as it is at versions that have none."""
        message = response_of(exchange, frame)
        if not any(field.name == "throttle_time_ms" for field in message.plan.root.fields):
            return frame
        return message.replace({"throttle_time_ms": self.time // 1_000_000}).encode()


@dataclass(frozen=True, slots=True)
class Bandwidth(Action):
    """``bandwidth: 100kB``: bytes a second that the connection may send from here on, in the direction `of`."""

    KEYS: ClassVar[tuple[str, ...]] = ("bandwidth", "of")

    rate: int
    of: str = "response"

    @classmethod
    def read(cls, fields: Mapping[str, Given], wanted: Filter) -> Bandwidth:
        of = fields["of"].word("of", (*SIDES, "both")) if "of" in fields else "response"
        return cls(fields["bandwidth"].size("bandwidth"), of)

    def to_dict(self) -> dict[str, Any]:
        return {"bandwidth": self.rate} | ({} if self.of == "response" else {"of": self.of})

    def shape(self, fate: Fate, exchange: Exchange, scene: Scene) -> None:
        before = fate.rates
        fate.rates = (
            self.rate if self.of != "response" else before[0],
            self.rate if self.of != "request" else before[1],
        )
        fate.notes.append(f"{self.of}s of this connection limited to {self.rate} bytes a second")
