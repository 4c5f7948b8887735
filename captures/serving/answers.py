"""Requests of live clients and their answers: the types between the server's sockets and the serving logic."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ...decoder import Message
from ...decoder.schema.plan import StructPlan, plan
from .recorded_exchanges import RecordedExchange

Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True)
class LiveSession:
    """One live connection. `local_host` is the host by which the client found the server. `fetch_session`: the id of the
    session of the Fetch being answered, 0 for none; `incremental`: that Fetch continues the session."""

    number: int
    local_host: str
    fetch_session: int = 0
    incremental: bool = False


@dataclass(slots=True)
class LiveRequest:
    """One live request. `now` is in seconds, of any clock that does not go back; `time_ms` is since the epoch."""

    session: LiveSession
    message: Message
    fields: dict[str, Any]
    now: float
    time_ms: int

    @property
    def api_key(self) -> int:
        return self.message.api_key

    @property
    def api(self) -> str:
        return self.message.api

    @property
    def version(self) -> int:
        """The version of the request, and of its answer."""
        return self.message.api_version

    @property
    def client_id(self) -> str:
        """The client's own name for itself; "" if it has none."""
        return str(self.message.header.get("client_id") or "")

    def fitting(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """`fields` of an answer without those that the version lacks."""
        return _fitting(plan("response", self.api_key, self.version).root, fields)

    def reply(self, fields: Mapping[str, Any], how: str = "kept up", source: RecordedExchange | None = None) -> Reply:
        """An answer with these fields, without those that the version lacks."""
        return Reply(self.fitting(fields), how, source)


@dataclass(slots=True)
class Reply:
    """An answer. `how`: "recorded" (the same request, its answer), "restated" (of another version), "composed" (of
    parts of several answers), or "kept up" (made from the state that the recording and the live clients give).
    `fields` is None where no answer is due (acks=0); `version` differs from what was asked only for ApiVersions."""

    fields: dict[str, Any] | None
    how: str = "kept up"
    source: RecordedExchange | None = None
    version: int | None = None


@dataclass(slots=True)
class DelayedReply:
    """An answer that has to wait: `poll(now, last)` gives it when it is there; `last` is true when `deadline` (in
    seconds, of the same clock) has passed, and then it must."""

    deadline: float
    poll: Callable[[float, bool], Reply | None]


class NotRecorded(Exception):
    """The recording has no answer. `what` was asked, `nearest` is the recorded request that is most like it.

    `rest` is an answer with the recorded parts, and errors for the others; `whole`: no part is recorded.
    `bearable`: `rest` is as good an answer as a recorded one, where nobody else can be asked.
    """

    def __init__(
        self,
        what: str,
        nearest: RecordedExchange | None = None,
        rest: Reply | None = None,
        whole: bool = True,
        bearable: bool = False,
    ) -> None:
        super().__init__(what)
        self.what, self.nearest, self.rest, self.whole, self.bearable = what, nearest, rest, whole, bearable


class Outcomes(Generic[Key]):
    """Recorded answers in order, by key, so that errors come in the same places."""

    def __init__(self, natural: frozenset[int] = frozenset()) -> None:
        self._natural = natural
        self._by_key: dict[Key, list[tuple[int, RecordedExchange]]] = {}
        self._next: dict[Key, int] = {}

    def add(self, key: Key, code: int, exchange: RecordedExchange) -> None:
        """The next recorded outcome of `key`."""
        self._by_key.setdefault(key, []).append((code, exchange))

    def keys(self) -> list[Key]:
        return list(self._by_key)

    def errors_to_come(self) -> list[RecordedExchange]:
        """The exchanges whose recorded errors have not come yet; without those that follow from the state."""
        return [
            exchange
            for key, known in self._by_key.items()
            for code, exchange in known[self._next.get(key, 0) :]
            if code and code not in self._natural
        ]

    def next_error(self, key: Key) -> tuple[int, RecordedExchange] | None:
        """The error that came at this place in the recording; None for success, for errors that follow from the state
        (those come by themselves), and when there were no more."""
        known = self._by_key.get(key)
        at = self._next.get(key, 0)
        if known is None or at >= len(known):
            return None
        self._next[key] = at + 1
        code, exchange = known[at]
        return None if code == 0 or code in self._natural else (code, exchange)


def _fitting(of: StructPlan, fields: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for field in of.fields:
        if field.name in fields:
            value = fields[field.name]
            if field.struct is not None and value is not None:
                inside = field.struct
                value = [_fitting(inside, item) for item in value] if field.array else _fitting(inside, value)
            if value is None and not field.nullable and field.type != "records":
                value = () if field.array else field.default
            out[field.name] = value
    return out
