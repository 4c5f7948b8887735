"""Actions on time: delays with jitter, throttling as by a quota, and limits of bandwidth."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from ...decoder import Exchange
from ...decoder.filter import Filter
from ...decoder.reference import releases
from ...decoder.schema import facts
from ..conditions.input_value import InputValue
from .action import NO_EFFECT, Action, ActionContext, Effect, response_of, span
from .fault_plan import FaultPlan, NothingToChange

SIDES = ("request", "response")
THROTTLE = "throttle_time_ms"
PRODUCE = facts.api_key("Produce")
THROTTLED_AFTERWARDS = "2.0"
"""The release since which brokers answer before they throttle (KIP-219)."""
DISTRIBUTIONS = ("fixed", "uniform", "normal", "exponential")


@dataclass(frozen=True, slots=True)
class Delay(Action):
    """``delay: 200ms``: a frame and all after it on its connection wait. `distribution`: fixed; uniform in ``delay ±
    jitter``; normal with the standard deviation `jitter`; exponential with the mean `delay`. Never less than 0."""

    KEYS: ClassVar[tuple[str, ...]] = ("delay", "jitter", "distribution", "of")

    delay: int
    jitter: int = 0
    distribution: str = "fixed"
    of: str = "response"

    @classmethod
    def read(cls, fields: Mapping[str, InputValue], wanted: Filter) -> Delay:
        delay = fields["delay"].duration("delay")
        jitter = fields["jitter"].duration("jitter") if "jitter" in fields else 0
        distribution = "uniform" if jitter else "fixed"
        if "distribution" in fields:
            distribution = fields["distribution"].word("distribution", DISTRIBUTIONS)
            if distribution in ("uniform", "normal") and not jitter:
                fields["distribution"].invalid(f"a {distribution} distribution needs a 'jitter'")
            if distribution in ("fixed", "exponential") and jitter:
                fields["jitter"].invalid(f"a {distribution} distribution has no jitter")
        of = fields["of"].word("of", SIDES) if "of" in fields else "response"
        return cls(delay, jitter, distribution, of)

    @property
    def early(self) -> bool:
        return self.of == "request"

    @property
    def effect(self) -> Effect:
        return Effect.WAITS if self.of == "response" else NO_EFFECT

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"delay": span(self.delay)}
        if self.jitter:
            found["jitter"] = span(self.jitter)
        if self.distribution not in ("fixed", "uniform"):
            found["distribution"] = self.distribution
        if self.of != "response":
            found["of"] = self.of
        return found

    def draw(self, chance: random.Random) -> int:
        """One delay, in ns."""
        if self.distribution == "uniform":
            drawn = self.delay + chance.uniform(-self.jitter, self.jitter)
        elif self.distribution == "normal":
            drawn = chance.gauss(self.delay, self.jitter)
        elif self.distribution == "exponential":
            drawn = chance.expovariate(1 / self.delay) if self.delay else 0.0
        else:
            return self.delay
        return max(int(drawn), 0)

    def add_to(self, faults: FaultPlan, exchange: Exchange, context: ActionContext) -> None:
        drawn = self.draw(context.random)
        if self.of == "request":
            faults.request_delay += drawn
        else:
            faults.response_delay += drawn
        faults.notes.append(f"{self.of} delayed by {drawn / 1e6:.4g} ms")


def _older(api_key: int, version: int) -> bool:
    """Whether brokers before KIP-219 serve a version."""
    since = releases.since(api_key, version)
    return since is not None and releases.release_order(since) < releases.release_order(THROTTLED_AFTERWARDS)


def expects_delayed_response(exchange: Exchange) -> bool:
    """Whether the client expects throttling as before KIP-219: by the versions it was offered, or, if it has not asked
    for them, by the version of its request."""
    offered = exchange.about.range(PRODUCE) if exchange.about is not None else None
    if offered is not None:
        return _older(PRODUCE, offered[1])
    return _older(exchange.api_key, exchange.api_version)


@dataclass(frozen=True, slots=True)
class Throttle(Action):
    """``throttle: 500ms``: as a broker does when a quota is exceeded. The response has the time in throttle_time_ms,
    where its version has the field, and the connection's next requests are not read for so long (KIP-219). Brokers before
    Kafka 2.0 delay the response instead. ``mute: false`` leaves the waiting out."""

    KEYS: ClassVar[tuple[str, ...]] = ("throttle", "mute")

    time: int
    mute: bool = True

    @classmethod
    def read(cls, fields: Mapping[str, InputValue], wanted: Filter) -> Throttle:
        mute = fields["mute"].flag("mute") if "mute" in fields else True
        return cls(fields["throttle"].duration("throttle", 1_000_000), mute)

    @property
    def effect(self) -> Effect:
        return Effect.CHANGES_RESPONSE

    def needs_offers(self, api_keys: frozenset[int]) -> bool:
        return True

    def to_dict(self) -> dict[str, Any]:
        return {"throttle": span(self.time)} | ({} if self.mute else {"mute": False})

    def add_to(self, faults: FaultPlan, exchange: Exchange, context: ActionContext) -> None:
        done = f"throttled for {span(self.time)}"
        if not self.mute:
            done = f"throttled for {span(self.time)} by its own choice"
        elif expects_delayed_response(exchange):
            faults.response_delay += self.time
            done += ", with the response delayed (as before Kafka 2.0)"
        else:
            faults.mute += self.time
        faults.change(done, partial(self.with_throttle_time, done))

    def with_throttle_time(self, done: str, exchange: Exchange, frame: bytes) -> bytes:
        """The response with its throttle_time_ms."""
        message = response_of(exchange, frame)
        if not any(field.name == THROTTLE for field in message.plan.root.fields):
            what = f"{exchange.api} v{message.plan.version} has no {THROTTLE}"
            raise NothingToChange(f"{done}; {what}" if self.mute else f"not throttled: {what}")
        return message.replace({THROTTLE: self.time // 1_000_000}).encode()


@dataclass(frozen=True, slots=True)
class Bandwidth(Action):
    """``bandwidth: 100kB``: limits the bytes a second of the connection from this exchange on, in the direction `of`."""

    KEYS: ClassVar[tuple[str, ...]] = ("bandwidth", "of")

    rate: int
    of: str = "response"

    @classmethod
    def read(cls, fields: Mapping[str, InputValue], wanted: Filter) -> Bandwidth:
        of = fields["of"].word("of", (*SIDES, "both")) if "of" in fields else "response"
        return cls(fields["bandwidth"].size("bandwidth"), of)

    def to_dict(self) -> dict[str, Any]:
        return {"bandwidth": self.rate} | ({} if self.of == "response" else {"of": self.of})

    def add_to(self, faults: FaultPlan, exchange: Exchange, context: ActionContext) -> None:
        requests, responses = faults.rates
        faults.rates = (self.rate if self.of != "response" else requests, self.rate if self.of != "request" else responses)
        faults.notes.append(f"{self.of}s of this connection limited to {self.rate} bytes a second")
