"""Fetch sessions (KIP-227): what a connection's client asked for and was told, so that it need not repeat itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...decoder import facts
from .asked import Ask

NOT_FOUND = facts.error_code("FETCH_SESSION_ID_NOT_FOUND")
BAD_EPOCH = facts.error_code("INVALID_FETCH_SESSION_EPOCH")
_NEW, _NONE = 0, -1

Wanted = list[tuple[dict[str, Any], dict[str, Any]]]
"""(topic, partition) of a request"""


@dataclass(slots=True)
class _Session:
    epoch: int = 1
    wanted: dict[Any, tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=dict)
    told: dict[Any, Any] = field(default_factory=dict)


class FetchSessions:
    """All sessions; their ids are counted from 1."""

    def __init__(self) -> None:
        self._sessions: dict[int, _Session] = {}
        self._last = 0

    def asked(self, ask: Ask) -> tuple[Wanted, int]:
        """What a request wants, its session's partitions included; and an error code, if the session is not there."""
        number, epoch = ask.fields.get("session_id", 0), ask.fields.get("session_epoch", _NONE)
        listed = [
            ({"topic": topic.get("topic"), "topic_id": topic.get("topic_id")}, item)
            for topic in ask.fields["topics"]
            for item in topic["partitions"]
        ]
        marks = ask.session.marks
        marks["fetch_session"], marks["fetch_incremental"] = 0, False
        if epoch in (_NEW, _NONE):
            self._sessions.pop(number, None)
            if epoch == _NEW and ask.version >= 7:
                self._last += 1
                new = self._sessions[self._last] = _Session()
                new.wanted = {_key(topic, item["partition"]): (topic, item) for topic, item in listed}
                marks["fetch_session"] = self._last
            return listed, 0
        known = self._sessions.get(number)
        if known is None:
            return [], NOT_FOUND
        if epoch != known.epoch:
            return [], BAD_EPOCH
        known.epoch = known.epoch % 0x7FFFFFFF + 1
        for topic, item in listed:
            known.wanted[_key(topic, item["partition"])] = topic, item
        for topic in ask.fields.get("forgotten_topics_data") or ():
            for partition in topic["partitions"]:
                known.wanted.pop(_key(topic, partition), None)
        marks["fetch_session"], marks["fetch_incremental"] = number, True
        return list(known.wanted.values()), 0

    def number(self, ask: Ask) -> int:
        """The session of the answer; 0 for none."""
        found: int = ask.session.marks.get("fetch_session", 0)
        return found

    def answered(self, ask: Ask, items: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[dict[str, Any]]:
        """The topics of the answer: in a session only partitions with records, errors, or another end of the log."""
        known = self._sessions.get(self.number(ask))
        topics: dict[Any, dict[str, Any]] = {}
        for topic, item in items:
            key = _key(topic, item["partition_index"])
            state = (item["high_watermark"], item.get("last_stable_offset"), item.get("log_start_offset"))
            if known is not None:
                same = known.told.get(key) == state and not item["records"] and not item["error_code"]
                known.told[key] = state
                if same and ask.session.marks.get("fetch_incremental"):
                    continue
            answer = topics.setdefault(_key(topic, 0)[:2], topic | {"partitions": []})
            answer["partitions"].append(item)
        return list(topics.values())


def _key(topic: dict[str, Any], partition: int) -> tuple[Any, Any, int]:
    return topic.get("topic"), topic.get("topic_id"), partition
