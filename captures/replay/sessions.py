"""Fetch sessions (KIP-227): requests that name only what changed, made right for the target's own sessions.

The recording's sessions are followed, so that a request can always be said in full: the target may give no session,
or forget one.
"""

from __future__ import annotations

from typing import Any

from ...decoder import facts
from ...decoder.message import Message
from ...decoder.splice import Splicer

FETCH = facts.api_key("Fetch")
FORGOTTEN = frozenset(facts.error_code(name) for name in ("FETCH_SESSION_ID_NOT_FOUND", "INVALID_FETCH_SESSION_EPOCH"))
_FINAL = -1


class _Session:
    __slots__ = ("epoch", "target", "topics")

    def __init__(self) -> None:
        self.target = 0
        self.epoch = 0
        # Topic (its other values) -> partition -> values, as recorded.
        self.topics: dict[Any, dict[int, Any]] = {}


class FetchSessions:
    """All sessions of a recording, by the id they had in it."""

    def __init__(self) -> None:
        self._sessions: dict[int, _Session] = {}
        self._opening: dict[int, _Session] = {}

    def prepared(self, request: Message, number: int) -> Message:
        """The request (of version 7 or newer, as recorded) as it is to be sent; `number` names it until `answered`.
        To be called once more for each time that it is sent again."""
        names = {f.name: i for i, f in enumerate(request.plan.root.fields)}
        values = list(request.values)
        recorded, epoch = values[names["session_id"]], values[names["session_epoch"]]
        if recorded == 0 and epoch != 0:
            return request
        topics, forgotten = values[names["topics"]], values[names["forgotten_topics_data"]]
        if epoch == 0:
            session = self._opening[number] = _Session()
            _take(session, request, topics)
            if recorded == 0:
                return request
            values[names["session_id"]] = 0  # the old one is given up with it
        else:
            session = self._sessions.setdefault(recorded, _Session())
            if number not in self._opening:
                _forget(session, request, forgotten)
                _take(session, request, topics)
            self._opening[number] = session
            if session.target:
                session.epoch += 1
                values[names["session_id"]] = session.target
                values[names["session_epoch"]] = epoch if epoch == _FINAL else session.epoch
            else:
                values[names["session_id"]], values[names["session_epoch"]] = 0, _FINAL
                values[names["topics"]] = _full(session, request)
                values[names["forgotten_topics_data"]] = ()
        return _with(request, tuple(values))

    def answered(self, request: Message, number: int, recorded: Message | None, got: Message) -> None:
        """The target has answered; `recorded` is None where the recording holds no answer."""
        session = self._opening.get(number)
        if session is None:
            return
        if got["error_code"] in FORGOTTEN:
            session.target = 0
            return
        del self._opening[number]
        if request["session_epoch"] == 0:
            session.target = got["session_id"]
            if recorded is not None and recorded["session_id"]:
                self._sessions[recorded["session_id"]] = session
        elif request["session_epoch"] == _FINAL:
            self._sessions.pop(request["session_id"], None)


def _with(request: Message, values: tuple[Any, ...]) -> Message:
    frame = Splicer(request.frame, request.body_start).root(request.plan.root, request.values, values)
    return Message(request.plan, values, frame, request.body_start, request.header, request.trailing)


def _layout(request: Message, array: str) -> tuple[int, int]:
    """In the rows of an array of topics: the position of the partitions, and of the partition's number in those."""
    field = next(f for f in request.plan.root.fields if f.name == array)
    assert field.struct is not None
    at = next(i for i, f in enumerate(field.struct.fields) if f.name == "partitions")
    inner = field.struct.fields[at].struct
    return at, next(i for i, f in enumerate(inner.fields) if f.name == "partition") if inner is not None else -1


def _take(session: _Session, request: Message, topics: Any) -> None:
    at, number = _layout(request, "topics")
    for topic in topics:
        partitions = session.topics.setdefault(topic[:at] + topic[at + 1 :], {})
        partitions.update((partition[number], partition) for partition in topic[at])


def _forget(session: _Session, request: Message, forgotten: Any) -> None:
    at, _ = _layout(request, "forgotten_topics_data")
    for topic in forgotten:
        partitions = session.topics.get(topic[:at] + topic[at + 1 :], {})
        for number in topic[at]:
            partitions.pop(number, None)


def _full(session: _Session, request: Message) -> Any:
    at, _ = _layout(request, "topics")
    return tuple(
        (*key[:at], tuple(partitions.values()), *key[at:]) for key, partitions in session.topics.items() if partitions
    )
