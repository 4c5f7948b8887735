"""Actions that change fields: any path of a request or response, the leader in Metadata, the coordinator in
FindCoordinator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Self

from ...decoder import DecodeError, EncodeError, Exchange, decode_request
from ...decoder.codec.message import Message
from ...decoder.filter import Filter
from ...decoder.schema import facts
from ...decoder.schema.plan import API_VERSIONS, StructPlan, plan
from ..answers import responses, unanswerable
from ..answers.leaves import leaves, pattern
from ..conditions.input_value import InputValue, InvalidInput
from ..conditions.reach import versions
from .action import Action, ActionContext, Effect, response_of
from .fault_plan import FaultPlan, NothingToChange
from .field_values import value_of

METADATA = facts.api_key("Metadata")
FIND_COORDINATOR = facts.api_key("FindCoordinator")
LEADER_NOT_AVAILABLE = facts.error_code("LEADER_NOT_AVAILABLE")
COORDINATOR_NOT_AVAILABLE = facts.error_code("COORDINATOR_NOT_AVAILABLE")


def _paths(struct: StructPlan, prefix: str = "") -> set[str]:
    found: set[str] = set()
    for each in struct.fields:
        found.add(prefix + each.name)
        if each.struct is not None:
            found |= _paths(each.struct, f"{prefix}{each.name}.")
    return found


@dataclass(frozen=True)
class Edit(Action):
    """``edit: {path: value}``: sets fields of the response, or of the request with ``in: request``.

    Paths are those of filters: ``topics.partitions.leader_id`` is every partition's, ``topics[0].name`` the first
    topic's. Errors may be given by name. Where the rule's filter names topics or partitions, only those are changed. All
    else keeps its bytes.
    """

    KEYS: ClassVar[tuple[str, ...]] = ("edit", "in")

    fields: Mapping[str, Any] = field(default_factory=dict)
    side: str = "response"

    @classmethod
    def read(cls, fields: Mapping[str, InputValue], wanted: Filter) -> Edit:
        given = fields["edit"]
        if not isinstance(given.value, Mapping) or not given.value:
            given.invalid("'edit' must contain fields by their paths: 'topics.partitions.leader_id: 3'")
        side = fields["in"].word("in", ("response", "request")) if "in" in fields else "response"
        keys = wanted.apis()
        if keys is None:
            given.invalid("fields belong to an API: name it in the match (api == NAME and ...)")
        names = ", ".join(sorted(facts.api_name(key) for key in keys))
        known = set().union(*(_paths(plan(side, key, v).root) for key in keys for v in facts.api(key).versions.every()))
        there = set().union(*(_paths(plan(side, key, v).root) for key in keys for v in versions(wanted, key)))
        for path, item in given.items.items():
            if pattern(path) not in known:
                raise InvalidInput(item, f"no version of {names} has the {side} field {pattern(path)!r}", key=True)
            if pattern(path) not in there:
                text = f"the {side} field {pattern(path)!r} of {names} is in none of the versions that match"
                raise InvalidInput(item, text, key=True)
        places = [(side, key, version) for key in sorted(keys) for version in versions(wanted, key)]
        return cls({path: value_of(path, item, places) for path, item in given.items.items()}, side)

    @property
    def early(self) -> bool:
        return self.side == "request"

    @property
    def effect(self) -> Effect:
        return Effect.CHANGES_REQUEST if self.side == "request" else Effect.CHANGES_RESPONSE

    def to_dict(self) -> dict[str, Any]:
        return {"edit": dict(self.fields)} | ({} if self.side == "response" else {"in": self.side})

    def add_to(self, faults: FaultPlan, exchange: Exchange, context: ActionContext) -> None:
        names = ", ".join(self.fields)
        if self.side == "response":
            faults.change(f"response edited: {names}", partial(self.change, context))
            return
        try:
            request = decode_request(faults.request) if faults.request is not None else exchange.request_message
            if request is None:
                raise NothingToChange("request not edited: it cannot be read")
            edited = self.edited(request, exchange, context)
            faults.request = edited.encode()
            hangs = unanswerable.why(request, edited)
        except NothingToChange as why:
            faults.notes.append(str(why))
            return
        except (DecodeError, EncodeError, KeyError) as error:
            faults.notes.append(f"request not edited: {error}")
            return
        faults.notes.append(f"request edited: {names}" + (f" ({hangs})" if hangs else ""))

    def change(self, context: ActionContext, exchange: Exchange, frame: bytes) -> bytes:
        message = self.edited(response_of(exchange, frame), exchange, context)
        if message.plan.api_key == API_VERSIONS and message["error_code"] == responses.UNSUPPORTED_VERSION:
            # clients expect such an answer in version 0
            return responses.refused_versions(message.plan.version, message.to_dict(), message.header["correlation_id"])
        return message.encode()

    def edited(self, message: Message, exchange: Exchange, context: ActionContext) -> Message:
        """The message with its fields changed; paths that this version lacks are left out."""
        edits: dict[str, Any] = {}
        exact = {path: value for path, value in self.fields.items() if "[" in path and "[*]" not in path}
        loose = {pattern(path): value for path, value in self.fields.items() if path not in exact}
        for leaf in leaves(message, context.cluster_view.topics):
            if leaf.path in exact:
                edits[leaf.path] = exact[leaf.path]
            elif loose and (found := pattern(leaf.path)) in loose and (
                not leaf.depth or context.selects(exchange, leaf.part)
            ):
                edits[leaf.path] = loose[found]
        for path in (*exact, *loose):
            if path not in edits and "." not in path and any(f.name == path for f in message.plan.root.fields):
                edits[path] = exact.get(path, loose.get(path))  # a whole array or struct
        if not edits:
            raise NothingToChange(f"{self.side} not edited: its selected part has none of {', '.join(self.fields)}")
        return message.replace(edits)


@dataclass(frozen=True, slots=True)
class _Moved(Action):
    """The common part of `Leader` and `Coordinator`: one setting, "moved" or "none", and a match for one API."""

    API: ClassVar[int]

    to: str

    @classmethod
    def read(cls, fields: Mapping[str, InputValue], wanted: Filter) -> Self:
        what, api = cls.KEYS[0], facts.api_name(cls.API)
        word = fields[what].word(what, ("moved", "none"))
        if wanted.apis() != frozenset({cls.API}):
            fields[what].invalid(f"{what} applies to {api}: the match must begin with api == {api}")
        return cls(word)

    @property
    def effect(self) -> Effect:
        return Effect.CHANGES_RESPONSE

    def to_dict(self) -> dict[str, Any]:
        return {self.KEYS[0]: self.to}


@dataclass(frozen=True, slots=True)
class Leader(_Moved):
    """``leader: moved``: Metadata names another broker as the leader of the matching partitions, as with stale metadata.
    ``leader: none``: no leader, with LEADER_NOT_AVAILABLE."""

    KEYS: ClassVar[tuple[str, ...]] = ("leader",)
    API: ClassVar[int] = METADATA

    def add_to(self, faults: FaultPlan, exchange: Exchange, context: ActionContext) -> None:
        faults.change("no leader" if self.to == "none" else "leader moved", partial(self.change, context))

    def change(self, context: ActionContext, exchange: Exchange, frame: bytes) -> bytes:
        message = response_of(exchange, frame)
        found = list(leaves(message, context.cluster_view.topics))
        nodes = sorted({leaf.value for leaf in found if pattern(leaf.path) == "brokers.node_id"})
        edits: dict[str, Any] = {}
        for leaf in found:
            if leaf.field.name != "leader_id" or not context.selects(exchange, leaf.part):
                continue
            edits[leaf.path] = -1 if self.to == "none" else _next(nodes, leaf.value)
            if self.to == "none":
                edits[leaf.struct + "error_code"] = LEADER_NOT_AVAILABLE
        edits = {path: value for path, value in edits.items() if message[path] != value}
        if not edits:
            if self.to == "moved":
                raise NothingToChange("leader not moved: there is no other broker, or no partition is selected")
            raise NothingToChange("leader not taken away: no selected partition has one")
        return message.replace(edits).encode()


@dataclass(frozen=True, slots=True)
class Coordinator(_Moved):
    """``coordinator: moved``: FindCoordinator names another broker, which then answers NOT_COORDINATOR, also where the
    broker answered that there is none yet. ``coordinator: none``: COORDINATOR_NOT_AVAILABLE."""

    KEYS: ClassVar[tuple[str, ...]] = ("coordinator",)
    API: ClassVar[int] = FIND_COORDINATOR

    def add_to(self, faults: FaultPlan, exchange: Exchange, context: ActionContext) -> None:
        faults.change("no coordinator" if self.to == "none" else "coordinator moved", partial(self.change, context))

    def change(self, context: ActionContext, exchange: Exchange, frame: bytes) -> bytes:
        message = response_of(exchange, frame)
        brokers = context.cluster_view.brokers
        edits: dict[str, Any] = {}
        found = list(leaves(message))
        texts = {leaf.struct for leaf in found if leaf.field.name == "error_message"}
        for leaf in found:
            if leaf.field.name != "node_id" or not context.selects(exchange, leaf.part):
                continue
            if self.to == "none":
                edits |= {leaf.path: -1, leaf.struct + "host": "", leaf.struct + "port": -1}
                edits[leaf.struct + "error_code"] = COORDINATOR_NOT_AVAILABLE
            elif (other := _next(sorted(brokers), leaf.value)) in brokers and other != leaf.value:
                host, port = brokers[other]
                edits |= {leaf.path: other, leaf.struct + "host": host, leaf.struct + "port": port}
                edits[leaf.struct + "error_code"] = 0
                if leaf.struct in texts:
                    edits[leaf.struct + "error_message"] = None
        if not edits:
            raise NothingToChange("coordinator not moved: no other broker is known, or no key is selected")
        return message.replace(edits).encode()


def _next(nodes: list[int], node: int) -> int:
    """Another broker, always the same for the same brokers; this one if there is no other."""
    higher = [each for each in nodes if each > node]
    return higher[0] if higher else next((each for each in nodes if each != node), node)
