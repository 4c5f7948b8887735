"""Topics that the target says it has not: waited for once, because they may be in the making, and not each time."""

from __future__ import annotations

from typing import Any

from ...decoder import facts
from ...decoder.message import Message
from .partly import passing

_ABSENT = frozenset(facts.error_code(name) for name in ("UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"))
_CREATE = facts.api_key("CreateTopics")
_NAMES = ("name", "topic", "topic_id", "topic_name")


def absent_topics(answer: Message) -> frozenset[Any]:
    """The topics, by name or id, that an answer says are not there."""
    rows = {path.partition(".")[0] for path, code in answer.errors() if code in _ABSENT}
    return frozenset(_topic(answer, row) for row in rows)


def _topic(answer: Message, row: str) -> Any:
    for name in _NAMES:
        try:
            return answer[f"{row}.{name}"]
        except KeyError:
            continue
    return None


class Absent:
    """What has been waited for in vain."""

    def __init__(self) -> None:
        self._topics: frozenset[Any] = frozenset()

    def in_vain(self, answer: Message) -> None:
        """The target was asked for as long as patience lasts, and this is what it says still."""
        self._topics |= absent_topics(answer)

    def hopeless(self, answer: Message) -> bool:
        """Whether nothing but such topics stands in the way of an answer."""
        if not self._topics or any(passing(code) and code not in _ABSENT for _, code in answer.errors()):
            return False
        absent = absent_topics(answer)
        return bool(absent) and absent <= self._topics

    def answered(self, answer: Message) -> None:
        """Topics may be there from now on."""
        if answer.api_key == _CREATE:
            self._topics = frozenset()
