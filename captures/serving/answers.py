"""What a live client asks, and what it may be told: the types between the server's sockets and the serving logic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...decoder import Message
from ...decoder.schema import facts
from .recorded_exchanges import RecordedExchange


@dataclass(slots=True)
class Session:
    """One live connection. `local_host` is the host by which the client found the server."""

    number: int
    local_host: str
    marks: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class LiveRequest:
    """One live request. `now` is in seconds, of any clock that does not go back; `time_ms` is since the epoch."""

    session: Session
    message: Message
    fields: dict[str, Any]
    now: float
    time_ms: int

    @property
    def api_key(self) -> int:
        """The API's number."""
        return self.message.api_key

    @property
    def api(self) -> str:
        """The API's name."""
        return self.message.api

    @property
    def version(self) -> int:
        """The version of the request, and of its answer."""
        return self.message.api_version

    @property
    def client_id(self) -> str:
        """The client's own name for itself; "" if it has none."""
        return str(self.message.header.get("client_id") or "")


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

    `rest` is the answer with what the recording has, and errors for what it has not; `whole`: it has nothing of it.
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


class Outcomes:
    """Recorded answers in order, by whatever they belong to, to give errors in the same places."""

    def __init__(self, natural: frozenset[int] = frozenset()) -> None:
        self._natural = natural
        self._by_key: dict[Any, list[tuple[int, RecordedExchange]]] = {}
        self._next: dict[Any, int] = {}

    def add(self, key: Any, code: int, kept: RecordedExchange) -> None:
        """The next recorded outcome of `key`."""
        self._by_key.setdefault(key, []).append((code, kept))

    def keys(self) -> list[Any]:
        """Whatever has recorded outcomes."""
        return list(self._by_key)

    def errors_to_come(self) -> list[RecordedExchange]:
        """The exchanges whose recorded errors have not come yet; without those that follow from the state."""
        return [
            kept
            for key, known in self._by_key.items()
            for code, kept in known[self._next.get(key, 0) :]
            if code and code not in self._natural
        ]

    def next_error(self, key: Any) -> tuple[int, RecordedExchange] | None:
        """The error that came at this place in the recording; None for success, for errors that follow from the state
        (those come by themselves), and when there were no more."""
        known = self._by_key.get(key)
        at = self._next.get(key, 0)
        if known is None or at >= len(known):
            return None
        self._next[key] = at + 1
        code, kept = known[at]
        return None if code == 0 or code in self._natural else (code, kept)


def codes(*names: str) -> frozenset[int]:
    """Error codes by their names."""
    return frozenset(facts.error_code(name) for name in names)
