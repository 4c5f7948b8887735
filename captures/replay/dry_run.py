"""A dry run of a replay: each request with the fields that would change, or why it would be skipped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...decoder.codec.message import Message
from ...decoder.schema.meaning import Meaning
from .mapping import IdMapping, UnknownId
from .preparer import FIND_COORDINATOR, Preparer
from .rewrite import read
from .script import RecordedCall, Script, StepKind, has_producer

# Who is who at the target is known only when it has answered.
_ANSWERED = {
    Meaning.TOPIC_ID,
    Meaning.MEMBER_ID,
    Meaning.GENERATION,
    Meaning.PRODUCER_ID,
    Meaning.PRODUCER_EPOCH,
    Meaning.SESSION_ID,
    Meaning.LEADER_EPOCH,
    Meaning.OFFSET,
    Meaning.TELEMETRY_ID,
}


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request. `version`: what it would be sent at, None where it is skipped; `why` gives the reason. `renamed`:
    replaced values by field; `mapped`: fields that answers of the target decide."""

    call: RecordedCall
    version: int | None
    why: str
    renamed: tuple[str, ...]
    mapped: tuple[str, ...]


@dataclass(slots=True)
class PlanSummary:
    """What would be sent in all: `last_ns` is when the last request is due at the recorded speed."""

    requests: int = 0
    left_out: int = 0
    last_ns: int = 0
    clients: set[str | None] = field(default_factory=set)
    connections: set[int] = field(default_factory=set)

    def take(self, planned: PlannedRequest) -> None:
        """Count a request."""
        if planned.version is None:
            self.left_out += 1
            return
        self.requests += 1
        self.last_ns = max(self.last_ns, planned.call.due_ns)
        self.clients.add(planned.call.exchange.client_id)
        self.connections.add(planned.call.connection)


def planned_requests(script: Script, mapping: IdMapping, preparer: Preparer) -> Iterator[PlannedRequest]:
    """Every request of a script; it is read once, requests whose answers come late wait for them."""
    waiting: dict[int, RecordedCall] = {}
    for step in script.steps():
        if step.call is None:
            continue
        if step.kind is StepKind.SEND:
            waiting[step.call.number] = step.call
        while waiting:
            first = next(iter(waiting))
            if not waiting[first].ready and len(waiting) < 10_000:
                break
            yield _planned_request(waiting.pop(first), script, mapping, preparer)
    for call in waiting.values():
        yield _planned_request(call, script, mapping, preparer)


def _planned_request(call: RecordedCall, script: Script, mapping: IdMapping, preparer: Preparer) -> PlannedRequest:
    script.make_ready(call)
    message = call.exchange.request_message
    if call.skip is not None or message is None:
        return PlannedRequest(call, None, call.skip or "it cannot be decoded", (), ())
    version = preparer.version(message.api_key, message.api_version)
    if version is None:
        return PlannedRequest(call, None, "the target does not offer this API in a known version", (), ())
    return PlannedRequest(call, version, "", tuple(_renamed(message, mapping)), tuple(_mapped(message)))


def _renamed(message: Message, mapping: IdMapping) -> Iterator[str]:
    seen = set()
    client_id = message.header.get("client_id")
    if mapping.names.client_id(client_id) != client_id:
        yield f"client id {client_id} = {mapping.names.client_id(client_id)}"
    for role, value, scope, _ in read(message):
        if role in (Meaning.TOPIC, Meaning.GROUP, Meaning.TRANSACTIONAL_ID, Meaning.RESOURCE_NAME):
            try:
                new = mapping.change(role, value, scope, "")
            except UnknownId:
                continue
        elif role is Meaning.COORDINATOR_KEY:
            kind = message["key_type"] if message.api_key == FIND_COORDINATOR and message.api_version >= 1 else 0
            new = mapping.coordinator_key(value, kind)
        else:
            continue
        if new != value and (role, value) not in seen:
            seen.add((role, value))
            yield f"{role} {value} = {new}"


def _mapped(message: Message) -> Iterator[str]:
    found: dict[str, None] = {}
    for role, value, _, _ in read(message):
        if role is Meaning.RECORDS and has_producer(value):
            found["producer id in records"] = None
        elif role in _ANSWERED and value not in ("", -1, 0, bytes(16)):
            found[str(role)] = None
    yield from found
