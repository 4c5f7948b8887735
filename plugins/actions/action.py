"""The interface of actions: they are read from a user's values, checked against the rule's filter, and added to fault
plans."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Any, ClassVar, Self

from ...decoder import Exchange, Topics, read_response
from ...decoder.codec.message import Message
from ...decoder.filter import Filter
from ...decoder.filter.entities import MessagePart
from ..answers.leaders import Leaders
from ..conditions.input_value import InputValue
from .fault_plan import FaultPlan


@dataclass(slots=True)
class ClusterView:
    """What the rules know of a cluster: topic names by id, the brokers with the addresses that clients have, and the leaders."""

    topics: Topics = field(default_factory=Topics)
    cluster: Mapping[str, Any] = field(default_factory=dict)
    """As `responses.cluster_of` gives it, of the newest Metadata response."""
    leaders: Leaders = field(default_factory=Leaders)

    @property
    def brokers(self) -> dict[int, tuple[str, int]]:
        """Host and port by node id."""
        return {each["node_id"]: (each["host"], each["port"]) for each in self.cluster.get("brokers", ())}


@dataclass(slots=True)
class ActionContext:
    """What an action gets when its rule fires. `selects`: whether the rule selects this part of a message."""

    cluster_view: ClusterView
    random: random.Random
    selects: Callable[[Exchange, MessagePart], bool]
    count: int
    """How often the rule has fired, this time included."""


class Effect(Flag):
    """The effects of an action that decide which others it excludes."""

    CHANGES_REQUEST = auto()
    """the broker gets another request"""
    CHANGES_RESPONSE = auto()
    """the client gets another response"""
    WAITS = auto()
    """the response comes later"""
    KEEPS_REQUEST = auto()
    """the broker gets no request that it could read"""
    KEEPS_RESPONSE = auto()
    """the client gets no response"""
    NO_RESPONSE = auto()
    """there is none, from the broker or made here"""
    HIDES_RESPONSE = auto()
    """the broker's response cannot be known for the one to this request"""
    ENDS = auto()
    """the connection ends before anything of this exchange has passed"""


NO_EFFECT = Effect(0)


class Action(ABC):
    """One thing to do. Frozen dataclasses; `to_dict` gives what `read` takes."""

    KEYS: ClassVar[tuple[str, ...]]
    """The action's name and the names of its settings."""
    EARLY: ClassVar[bool] = False
    """Whether it takes place before the broker answers, so that the rule's filter must not ask for the response."""

    @classmethod
    @abstractmethod
    def read(cls, fields: Mapping[str, InputValue], wanted: Filter) -> Self:
        """From a user's values; InvalidInput for impossible ones. `wanted`: the rule's filter."""

    @abstractmethod
    def add_to(self, faults: FaultPlan, exchange: Exchange, context: ActionContext) -> None:
        """Add the action to `faults`, with a note."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """As a rules file writes it."""

    @property
    def early(self) -> bool:
        return self.EARLY

    @property
    def effect(self) -> Effect:
        return NO_EFFECT

    def needs_offers(self, api_keys: frozenset[int]) -> bool:
        """Whether what is done to requests of these APIs depends on what the broker offers in ApiVersions."""
        return False


def span(ns: int) -> str:
    """A duration as rules write it."""
    for unit, size in (("h", 3600 * 10**9), ("m", 60 * 10**9), ("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if ns and ns % size == 0:
            return f"{ns // size}{unit}"
    return f"{ns}ns" if ns else "0"


def response_of(exchange: Exchange, frame: bytes) -> Message:
    """A response to be changed; it keeps extra bytes that some brokers append. Raises DecodeError."""
    return read_response(frame, api_key=exchange.api_key, api_version=exchange.api_version)
