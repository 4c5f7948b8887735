"""Actions that answer: an error, or a response with the user's fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from ...decoder import EncodeError, Exchange
from ...decoder.codec.message import Message
from ...decoder.filter import Filter
from ...decoder.reference import releases
from ...decoder.schema import error_places, facts
from ..answers import responses
from ..answers.leaders import with_leaders
from ..conditions.input_value import InputValue
from ..conditions.reach import versions
from .action import Action, ActionContext, Effect, response_of
from .fault_plan import FaultPlan, NothingToChange
from .field_values import value_of

BROKER = ("skipped", "executed")
PRODUCER_FORGOTTEN = frozenset(map(facts.error_code, ("UNKNOWN_PRODUCER_ID", "OUT_OF_ORDER_SEQUENCE_NUMBER")))
"""Errors by which a broker reports that it no longer has a producer's state."""


@dataclass(frozen=True, slots=True)
class Error(Action):
    """``error: NOT_LEADER_OR_FOLLOWER``: a complete response with this error, in the version of the request.

    ``broker: skipped`` (the default): the request does not reach the broker, and everything it asked for fails. A
    request is passed as a whole or not at all, so this is also true of partitions that the filter does not name.
    ``broker: executed``: the broker does what was asked, and the error replaces the result where the filter matches.
    """

    KEYS: ClassVar[tuple[str, ...]] = ("error", "broker")

    code: int
    forward: bool = False

    @classmethod
    def read(cls, fields: Mapping[str, InputValue], wanted: Filter) -> Error:
        code = fields["error"].error_code()
        forward = "broker" in fields and fields["broker"].word("broker", BROKER) == "executed"
        keys = wanted.apis()
        if keys is not None and code and not any(responses.has_error_code(key) for key in keys):
            names = ", ".join(sorted(facts.api_name(key) for key in keys))
            fields["error"].invalid(f"no response of {names or 'any API that matches'} has an error code at any version")
        asked = {key: versions(wanted, key) for key in keys or () if responses.has_error_code(key)}
        if code and asked and not any(responses.has_error_code(key, version) for key, some in asked.items() for version in some):
            key = min(asked)
            least = min(version for version in facts.api(key).versions.every() if responses.has_error_code(key, version))
            what = f"the response of {facts.api_name(key)} has no error code at the versions that match"
            fields["error"].invalid(f"{what}: it has one from version {least} on")
        return cls(code, forward)

    @property
    def early(self) -> bool:
        return not self.forward

    @property
    def repeats_batches(self) -> bool:
        """Whether an idempotent producer may send a batch again, as a new one, that the broker has appended (KIP-360)."""
        return self.forward and self.code in PRODUCER_FORGOTTEN

    @property
    def effect(self) -> Effect:
        return Effect.CHANGES_RESPONSE if self.forward else Effect.CHANGES_RESPONSE | Effect.KEEPS_REQUEST

    def needs_offers(self, api_keys: frozenset[int]) -> bool:
        return any(error_places.depends_on_broker(key, self.code) for key in api_keys)

    def to_dict(self) -> dict[str, Any]:
        return {"error": facts.error_name(self.code), "broker": BROKER[self.forward]}

    def add_to(self, faults: FaultPlan, exchange: Exchange, context: ActionContext) -> None:
        request = exchange.request_message
        name = facts.error_name(self.code)
        if request is None:
            faults.notes.append(f"{name} not returned: the request cannot be read")
            return
        if not responses.has_error_code(request.api_key, request.api_version):
            faults.notes.append(f"{name} not returned: {exchange.api} v{exchange.api_version} has no error code")
            return
        faults.mute += responses.throttle_ms(request.api_key, request.api_version, self.code) * 1_000_000
        if self.forward or exchange.response is not None:
            # before all else, as it may replace the whole response
            faults.change(f"{name}, executed by the broker", partial(self.apply, context), first=True)
        else:
            found = responses.error_response(
                request, self.code, exchange.correlation_id, context.cluster_view.cluster, broker=_broker(exchange)
            )
            faults.answer = self._with_leaders(found, request, context)
            faults.notes.append(f"{name}, not forwarded")

    def apply(self, context: ActionContext, exchange: Exchange, frame: bytes) -> bytes:
        """The broker's response with the error in the parts that the rule selects."""
        message, request = response_of(exchange, frame), exchange.request_message
        assert request is not None  # `add_to` has read it
        found = responses.with_errors(
            message, request, self.code, lambda part: context.selects(exchange, part), context.cluster_view.topics, _broker(exchange)
        )
        if found is None:
            raise NothingToChange(f"{facts.error_name(self.code)} not returned: the response has no selected part")
        return self._with_leaders(found, request, context)

    def _with_leaders(self, frame: bytes, request: Message, context: ActionContext) -> bytes:
        view = context.cluster_view
        brokers = {each["node_id"]: each for each in view.cluster.get("brokers", ())}
        return with_leaders(frame, request, self.code, view.leaders, brokers, view.topics)


def _broker(exchange: Exchange) -> error_places.BrokerKind | None:
    """The broker that the client has, or believes to have, by what it was offered; None if it was not."""
    offered = exchange.about.offered if exchange.about is not None else None
    return releases.kind_of(frozenset(offered.items())) if offered and responses.METADATA in offered else None


@dataclass(frozen=True)
class Respond(Action):
    """``respond: {field: value, ...}``: this response; the broker does not get the request. Other fields are taken from
    the request (its topics and partitions), or have the schema's default."""

    KEYS: ClassVar[tuple[str, ...]] = ("respond",)
    EARLY: ClassVar[bool] = True

    fields: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, fields: Mapping[str, InputValue], wanted: Filter) -> Respond:
        given = fields["respond"]
        if not isinstance(given.value, Mapping):
            given.invalid("'respond' must contain the response's fields: 'name: value'")
        keys = wanted.apis()
        if keys is None or len(keys) != 1:
            given.invalid("a response belongs to one API: name it in the match (api == NAME and ...)")
        (key,) = keys
        known = responses.response_fields(key)
        for name, item in given.items.items():
            if name not in known:
                item.invalid(f"no version of {facts.api_name(key)}'s response has a field {name!r}: {', '.join(sorted(known))}")
        places = [("response", key, version) for version in versions(wanted, key)]
        return cls({name: value_of(name, item, places) for name, item in given.items.items()})

    @property
    def effect(self) -> Effect:
        return Effect.CHANGES_RESPONSE | Effect.KEEPS_REQUEST

    def to_dict(self) -> dict[str, Any]:
        return {"respond": dict(self.fields)}

    def add_to(self, faults: FaultPlan, exchange: Exchange, context: ActionContext) -> None:
        request = exchange.request_message
        if request is None:
            faults.notes.append("no response made: the request cannot be read")
            return
        try:
            faults.answer = self.answer(request, exchange.correlation_id)
        except EncodeError as error:
            faults.notes.append(f"no response made: {error}")
            return
        faults.notes.append("answered with the rule's response")

    def answer(self, request: Message, correlation_id: int) -> bytes:
        fields = responses.mirror_request(request) | responses.fields_at_version(request.api_key, request.api_version, self.fields)
        return responses.encode_frame(request, fields, correlation_id)
