"""What rules can do. `read` makes actions of what the user gave; each is named by the first of its keys."""

from __future__ import annotations

from ...decoder.filter import Filter
from ..fate import At
from ..given import Given
from ..reach import unanswered
from .action import Action, Scene, Seen
from .answering import Error, Respond
from .corrupting import Corrupt
from .editing import Coordinator, Edit, Leader
from .endings import Blackhole, Disconnect, Drop
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


def read(given: Given, wanted: Filter) -> tuple[Action, ...]:
    """The actions of a rule: one, or a list of them; `Wrong` for those that contradict each other."""
    found = tuple(_one(each, wanted) for each in (given.list("do") if isinstance(given.value, list) else [given]))
    if not found:
        given.wrong(f"'do' has no action; possible: {', '.join(ACTIONS)}")
    _contradictions(given, found)
    for action, each in zip(found, given.listed or [given], strict=True):
        if action.early and not wanted.request_only:
            name = action.KEYS[0]
            place = each.items[name]
            place.wrong(
                f"{name} comes before the response, and the match asks for the response (barnabas filter fields)"
            )
        if (not action.early or isinstance(action, ANSWERING)) and unanswered(wanted):
            name = action.KEYS[0]
            each.items[name].wrong(f"{name} is about the response, and a Produce with acks=0 gets none")
    return found


def _one(given: Given, wanted: Filter) -> Action:
    if not isinstance(given.value, dict):
        given.wrong(f"'do' consists of 'key: value' with an action: {', '.join(ACTIONS)}")
    given_actions = [key for key in given.items if key in ACTIONS]
    # `cap` is an action, and a setting of `pretend`, too
    named = sorted(given_actions, key=lambda name: -sum(other in ACTIONS[name].KEYS for other in given_actions))
    known = ACTIONS[named[0]].KEYS if named else tuple(ACTIONS)
    if len(named) > 1 and named[1] not in known:
        given.items[named[1]].wrong(f"one entry of 'do' is one action: write a list of {named[0]} and {named[1]}")
    fields = given.mapping(known, "'do'" if not named else named[0])
    if not named:
        given.wrong(f"'do' has no action; possible: {', '.join(ACTIONS)}")
    return ACTIONS[named[0]].read(fields, wanted)


def _contradictions(given: Given, actions: tuple[Action, ...]) -> None:
    answering = [a for a in actions if isinstance(a, ANSWERING) and a.early]
    dropping = [a for a in actions if isinstance(a, Drop) and a.what == "request"]
    names = [a.KEYS[0] for a in actions]
    if len(answering) + len(dropping) > 1:
        given.wrong("a request has one answer: error, respond and 'drop: request' exclude each other")
    for name in {name for name in names if names.count(name) > 1 and name not in ("edit", "delay", "corrupt")}:
        given.wrong(f"{name} stands here twice")
    if "pretend" in names and "cap" in names:
        given.wrong("pretend and cap are one action here: {pretend: ..., cap: ...}")
    if unheard := next((a for a in actions if _keeps_the_response(a)), None):
        for action in actions:
            if isinstance(action, (*ANSWERING, Leader, Coordinator)) or (
                isinstance(action, Edit | Corrupt) and not action.early
            ):
                name, other = unheard.KEYS[0], action.KEYS[0]
                given.wrong(
                    f"{name} and {other} exclude each other: the client gets no response that {other} could be in"
                )
    if answering or dropping:
        for action in actions:
            if isinstance(action, Edit | Corrupt) and action.early:
                given.wrong(f"a request that does not reach the broker cannot be changed ({action.KEYS[0]})")


def _keeps_the_response(action: Action) -> bool:
    """Whether nothing of a response reaches the client."""
    return isinstance(action, Drop) or (
        isinstance(action, Disconnect) and action.at in (At.BEFORE_REQUEST, At.MID_REQUEST, At.BEFORE_RESPONSE)
    )


__all__ = ["ACTIONS", "Action", "Scene", "Seen", "read"]
