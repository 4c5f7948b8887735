"""The actions of rules. `read` makes them from a user's values; an action is named by the first of its keys."""

from __future__ import annotations

from ...decoder.filter import Filter
from ..conditions.input_value import InputValue
from ..conditions.reach import unanswered
from .action import Action, ActionContext, ClusterView, Effect
from .answering import Error, Respond
from .corrupting import RECORDS, Corrupt
from .editing import Coordinator, Edit, Leader
from .endings import Blackhole, Disconnect, Drop
from .fault_plan import FOREVER
from .timing import Bandwidth, Delay, Throttle
from .versions import Cap, Pretend

ACTIONS: dict[str, type[Action]] = {
    action.KEYS[0]: action
    for action in (
        Error, Respond, Delay, Throttle, Bandwidth, Drop, Blackhole, Disconnect, Corrupt, Edit, Leader, Coordinator,
        Pretend, Cap,
    )
}  # fmt: skip
"""By name."""
ANSWERING = (Error, Respond)


def read(given: InputValue, wanted: Filter) -> tuple[Action, ...]:
    """The actions of a rule: one, or a list; `InvalidInput` for actions that exclude each other."""
    found = tuple(_one(each, wanted) for each in (given.list("do") if isinstance(given.value, list) else [given]))
    if not found:
        given.invalid(f"'do' has no action; possible: {', '.join(ACTIONS)}")
    _contradictions(given, found)
    for action, each in zip(found, given.listed or [given], strict=True):
        if action.early and not wanted.request_only:
            name = action.KEYS[0]
            each.items[name].invalid(f"{name} takes effect before the response, but the match needs the response (barnabas filter fields)")
        if (not action.early or isinstance(action, ANSWERING)) and unanswered(wanted):
            name = action.KEYS[0]
            each.items[name].invalid(f"{name} applies to the response, but a Produce with acks=0 gets none")
    return found


def _one(given: InputValue, wanted: Filter) -> Action:
    if not isinstance(given.value, dict):
        given.invalid(f"'do' must consist of 'key: value' with an action: {', '.join(ACTIONS)}")
    given_actions = [key for key in given.items if key in ACTIONS]
    # `cap` is an action, and a setting of `pretend`, too
    named = sorted(given_actions, key=lambda name: -sum(other in ACTIONS[name].KEYS for other in given_actions))
    known = ACTIONS[named[0]].KEYS if named else tuple(ACTIONS)
    if len(named) > 1 and named[1] not in known:
        given.items[named[1]].invalid(f"an entry of 'do' must be one action: write a list of {named[0]} and {named[1]}")
    fields = given.mapping(known, "'do'" if not named else named[0])
    if not named:
        given.invalid(f"'do' has no action; possible: {', '.join(ACTIONS)}")
    return ACTIONS[named[0]].read(fields, wanted)


def _contradictions(given: InputValue, actions: tuple[Action, ...]) -> None:
    """Refuse pairs of actions that exclude each other, at the later one."""
    for number, later in enumerate(actions):
        for earlier in actions[:number]:
            if why := excluded(earlier, later):
                (given.listed or [given])[number].items[later.KEYS[0]].invalid(why)


def excluded(one: Action, other: Action) -> str:
    """Why two actions exclude each other, in any order; empty if they do not (see docs/rules.md)."""
    names = one.KEYS[0], other.KEYS[0]
    if names[0] == names[1] and names[0] not in ("edit", "delay", "corrupt"):
        return f"{names[0]} is given twice: give it only once"
    if set(names) == {"pretend", "cap"}:
        return "pretend and cap are one action here: {pretend: ..., cap: ...}"
    return _by_kind(one, other) or _by_kind(other, one) or _by_effect(one, other) or _by_effect(other, one)


def _by_kind(one: Action, other: Action) -> str:
    both = f"{one.KEYS[0]} and {other.KEYS[0]} cannot be combined"
    if isinstance(one, ANSWERING):
        if isinstance(other, ANSWERING) or (isinstance(other, Drop) and other.what == "request"):
            return "a request has one answer: error, respond and 'drop: request' cannot be combined"
        if isinstance(other, Leader | Coordinator):
            return f"{both}: {other.KEYS[0]} applies to the broker's response, and {one.KEYS[0]} replaces it"
    if isinstance(one, Error) and isinstance(other, Corrupt) and other.kind in RECORDS and not other.early:
        return f"{both}: a response with an error contains no records that could be damaged"
    if isinstance(one, Drop) and isinstance(other, Disconnect):
        return f"{both}: disconnect itself determines what is still sent"
    if isinstance(one, Blackhole) and one.time == FOREVER:
        if isinstance(other, Drop | Disconnect):
            return f"{both}: the connection stays open, but nothing ever passes"
        silent = ("both", one.of) if one.of != "both" else ("request", "response", "both")
        if (isinstance(other, Bandwidth) and other.of in silent) or (isinstance(other, Pretend) and one.of != "response"):
            return f"{both}: nothing passes on this connection after that"
    if isinstance(one, Disconnect) and Effect.ENDS in one.effect and isinstance(other, Pretend | Bandwidth | Blackhole):
        return f"{both}: the connection has already ended"
    return ""


def _by_effect(one: Action, other: Action) -> str:
    name, changes = one.KEYS[0], other.KEYS[0]
    if Effect.KEEPS_RESPONSE in one.effect and Effect.CHANGES_RESPONSE in other.effect:
        return f"{name} and {changes} cannot be combined: the client gets no response to which {changes} could apply"
    if Effect.NO_RESPONSE in one.effect and Effect.WAITS in other.effect:
        return f"{name} and {changes} cannot be combined: there is no response that could be delayed"
    on_response = Effect.CHANGES_RESPONSE | Effect.WAITS | Effect.KEEPS_RESPONSE
    ending = isinstance(other, Disconnect) and not other.early
    if Effect.HIDES_RESPONSE in one.effect and (on_response & other.effect or ending):
        return f"{name} and {changes} cannot be combined: a response with another correlation id cannot be matched to this request"
    if Effect.KEEPS_REQUEST in one.effect and Effect.CHANGES_REQUEST in other.effect:
        return f"a request that does not reach the broker cannot be changed ({name} and {changes} cannot be combined)"
    return ""


__all__ = ["ACTIONS", "Action", "ActionContext", "ClusterView", "excluded", "read"]
