"""Whether the target answered as the recorded broker did: differences by field, what always differs left out by rule."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from ...decoder import Exchange, facts
from ...decoder.message import Message, is_error_code, jsonable, shown_value
from ...decoder.plan import FieldPlan
from .fetched import FetchedRecords
from .mapping import IdMapping, question
from .partly import PRODUCE, passing, rest
from .preparing import Preparer
from .rewriting import Meant, Pair, pairs
from .roles import Role
from .versions import API_VERSIONS, answer_at, folds

FETCHES = frozenset(facts.api_key(name) for name in ("Fetch", "ShareFetch"))
ERROR = "error"
_HEARTBEATS = frozenset(
    facts.api_key(name) for name in ("ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat")
)
_FIND_COORDINATOR, _LIST_GROUPS = facts.api_key("FindCoordinator"), facts.api_key("ListGroups")
# A group's members meet at other moments than they did when recorded.
_TIMING = frozenset(
    facts.error_code(name) for name in ("REBALANCE_IN_PROGRESS", "MEMBER_ID_REQUIRED", "UNKNOWN_MEMBER_ID")
)
# Lists of brokers: other clusters have other ones, and in another order.
_OF_BROKERS = frozenset({"brokers", "node_endpoints", "endpoints", "log_dirs", "results"})


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that is otherwise. Values are as JSON has them; error codes are names."""

    path: str
    recorded: Any
    got: Any
    meaning: str = ""


class Comparer:
    """Compares answers. `ignored` counts, by reason, what differed and is no difference."""

    def __init__(self, mapping: IdMapping, preparer: Preparer) -> None:
        self.mapping = mapping
        self.fetched = FetchedRecords(mapping)
        self.ignored: dict[str, int] = {}
        self._preparer = preparer
        self._assignments: dict[tuple[str, str], list[Message | None]] = {}

    def differences(self, exchange: Exchange, got: Message, recorded: Message | None) -> list[Difference]:
        """What is otherwise in `got` than in the recorded answer. Empty if there is none to compare with."""
        asked = exchange.request_message
        if asked is None or recorded is None:
            return []
        if got.api_version != recorded.api_version and folds(got.api):
            got = answer_at(got, recorded.api_version, self.mapping.topics.get, self._preparer.topic_there)
        if recorded.api_key in FETCHES:
            self.fetched.answers(exchange, recorded, got)
        if recorded.api_key == API_VERSIONS and not got["error_code"]:
            if recorded.to_dict() != got.to_dict():
                self._leave("versions and features that brokers offer")
            return []
        found: list[Difference] = []
        excused: list[str] = []
        meant = self._meant(asked)
        if recorded.api_key in _HEARTBEATS:
            self._assigned(asked, recorded, got)
        for pair in pairs(recorded, got, meant, question(asked)):
            difference = self._one(recorded.api_key, pair, excused, meant)
            if difference is not None:
                found.append(difference)
        # Where an error is another one, the fields beside it say nothing of their own.
        errors = [d.path.rpartition(".")[0] for d in found if d.meaning == ERROR] + excused
        return [d for d in found if d.meaning == ERROR or not any(_below(d.path, at) for at in errors)]

    def _assigned(self, asked: Message, recorded: Message, got: Message) -> None:
        """Assignments come with one heartbeat or another: the last ones are compared, at the end."""
        fields = asked.to_dict()
        last = self._assignments.setdefault((fields["group_id"], fields["member_id"]), [None, None])
        for side, answer in enumerate((recorded, got)):
            if answer.to_dict().get("assignment") is not None:
                last[side] = answer

    def unlike_assignments(self) -> list[Difference]:
        """Members of groups that ended with another assignment than when recorded."""
        found = []
        for (group, member), (recorded, got) in self._assignments.items():
            path = f"last assignment of {member} in {group}"
            if recorded is None or got is None:
                if recorded is not got:
                    found.append(Difference(path, *("none" if side is None else "one" for side in (recorded, got))))
                continue
            for pair in pairs(recorded, got, self.mapping.meant):
                if pair.path.startswith("assignment") and (one := self._one(-1, pair, [], self.mapping.meant)):
                    found.append(Difference(f"{path}: {one.path}", one.recorded, one.got))
        return found

    def _meant(self, asked: Message) -> Meant:
        key_type = asked["key_type"] if asked.api_key == _FIND_COORDINATOR and asked.api_version >= 1 else 0

        def meant(role: Role, value: Any, scope: Any) -> Any:
            if role is Role.COORDINATOR_KEY and isinstance(value, str):
                return self.mapping.coordinator_key(value, key_type)
            return self.mapping.meant(role, value, scope)

        return meant

    def _one(self, api_key: int, pair: Pair, excused: list[str], meant: Meant) -> Difference | None:
        a, b, field, role = pair.recorded, pair.got, pair.field, pair.role
        if api_key in _HEARTBEATS and pair.path.startswith(("assignment", "active_tasks", "standby_tasks", "warmup_tasks")):
            return None if a == b else self._leave("assignments, with another heartbeat")
        if pair.missing:
            return self._row(api_key, pair)
        if is_error_code(field):
            return self._error(pair, excused)
        if a == b or (role is Role.COORDINATOR_KEY and not b):  # old answers do not repeat the key
            return None
        if pair.volatile or role in (Role.RECORDS, Role.SUBSCRIPTION):
            return self._leave("of no meaning for the answer")
        if role is not None and not field.array:
            a = meant(role, a, pair.scope) if a is not None else None
            if a == b:
                return None
        if role is Role.OFFSET and api_key in FETCHES:
            return self._leave("of no meaning for the answer")
        if field.array and role is not None:
            return self._list(pair)
        if not a and not b:
            return self._leave("nothing, said in two ways")
        if field.array and field.struct is None and a is not None and b is not None and sorted(a) == sorted(b):
            return None
        return Difference(pair.path, _plain(field, pair.recorded), _plain(field, b))

    def _list(self, pair: Pair) -> Difference | None:
        a = [self.mapping.meant(pair.role, item, pair.scope) for item in pair.recorded or ()]  # type: ignore[arg-type]
        b = list(pair.got or ())
        if sorted(map(repr, a)) == sorted(map(repr, b)):
            return None
        return Difference(pair.path, _plain(pair.field, pair.recorded), _plain(pair.field, b))

    def _row(self, api_key: int, pair: Pair) -> Difference | None:
        name = pair.field.name
        if api_key in FETCHES:
            return self._leave("partitions that an answer to a fetch is silent of")
        if name in _OF_BROKERS or pair.field.struct is None or _names_brokers(pair.field):
            return self._leave("brokers")
        if pair.missing == "recording" and (api_key == _LIST_GROUPS or not _asked_for(pair)):
            return self._leave("topics and groups that nobody asked for")
        return Difference(pair.path, _key(pair.recorded), _key(pair.got), "" if pair.missing == "count" else "only one has it")

    def _error(self, pair: Pair, excused: list[str]) -> Difference | None:
        a, b = pair.recorded, pair.got
        if a == b:
            return None
        inside = pair.path.rpartition(".")[0]
        if (passing(a) or a in _TIMING) and (not b or passing(b) or b in _TIMING):
            excused.append(inside)
            return self._leave("errors that pass, and have passed")
        if b in _TIMING and not a and Role.GROUP in pair.scope and b == facts.error_code("REBALANCE_IN_PROGRESS"):
            excused.append(inside)
            return self._leave("rebalances at another moment")
        return Difference(pair.path, facts.error_name(a), facts.error_name(b), ERROR)

    def _leave(self, why: str) -> Difference | None:
        self.ignored[why] = self.ignored.get(why, 0) + 1
        return None


def lacking(recorded: Message | None, got: Message) -> str | None:
    """Why a request is to be sent again: an error that passes, where the recording has none, or a fetch that came
    back before the records which the recorded one brought. None if it is not."""
    if recorded is None:
        return None
    if recorded.api_key == PRODUCE and not rest(got):
        return None
    for _, code in got.errors():
        if passing(code) and not any(passing(c) for _, c in recorded.errors()):
            return facts.error_name(code)
    if recorded.api_key in FETCHES and _records(recorded) and not _records(got) and not any(got.errors()):
        return "no records yet"
    return None


def _records(message: Message) -> bool:
    fields = message.plan.root.fields
    at = next((i for i, f in enumerate(fields) if f.name == "responses"), None)
    struct = fields[at].struct if at is not None else None
    inner = next((i for i, f in enumerate(struct.fields) if f.name == "partitions"), None) if struct else None
    rows = struct.fields[inner].struct if struct is not None and inner is not None else None
    records = next((i for i, f in enumerate(rows.fields) if f.type == "records"), None) if rows else None
    if at is None or inner is None or records is None:
        return False
    return any(row[records] for topic in message.values[at] or () for row in topic[inner] or ())


@cache
def _names_brokers(field: FieldPlan) -> bool:
    struct = field.struct
    return struct is not None and bool(struct.fields) and struct.fields[0].entity == "brokerId"


def _asked_for(pair: Pair) -> bool:
    """Whether a row that only the target has is one of something asked for: lists of everything have no scope."""
    return pair.field.name not in ("topics", "groups", "resources", "entries")


def _below(path: str, at: str) -> bool:
    return not at or path.startswith((at + ".", at + "["))


def _plain(field: FieldPlan, value: Any) -> Any:
    if value is None or (field.array and not isinstance(value, tuple | list)):
        return value
    return jsonable(shown_value(field, value))


def _key(value: Any) -> Any:
    if isinstance(value, tuple):
        return ", ".join(item.hex() if isinstance(item, bytes) else str(item) for item in value)
    return value
