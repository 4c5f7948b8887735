"""Committed offsets: those at the beginning of the recording, and those that live clients commit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from ...decoder.schema import facts
from .answers import LiveRequest, NotRecorded, Outcomes, Reply
from .recorded_exchanges import RecordedExchanges

Committed = tuple[int, int, str | None]
"""offset, leader epoch, metadata"""
NATURAL = facts.error_code_set(
    "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "STALE_MEMBER_EPOCH", "FENCED_INSTANCE_ID",
    "FENCED_MEMBER_EPOCH", "MEMBER_ID_REQUIRED",
)  # fmt: skip
"""Errors that follow from the state of a group."""
Judge = Callable[[dict[str, Any]], int]
"""The error of a group for a request with a member id and a generation; 0 if it may."""


class Offsets:
    """OffsetCommit and OffsetFetch, and what transactions commit."""

    def __init__(self, recorded: RecordedExchanges, judge: Judge) -> None:
        self._recorded, self._judge = recorded, judge
        self.groups: set[str] = set()
        self._committed: dict[str, dict[tuple[str, int], Committed]] = defaultdict(dict)
        self.errors: Outcomes[tuple[object, ...]] = Outcomes(NATURAL)
        self.fetch_errors: Outcomes[str] = Outcomes(NATURAL)
        self._read()

    def _read(self) -> None:
        changed: set[tuple[str, str, int]] = set()
        for exchange in self._recorded.of("OffsetFetch", "OffsetCommit", "TxnOffsetCommit"):
            asked, answered = exchange.request.to_dict(), exchange.response.to_dict()
            if exchange.api == "OffsetFetch":
                for group in _groups(answered, asked):
                    self.groups.add(group["group_id"])
                    self.fetch_errors.add(group["group_id"], group.get("error_code", 0), exchange)
                    for topic in group["topics"]:
                        name = self._recorded.topic_of(topic)
                        for item in topic["partitions"]:
                            place = (group["group_id"], name, item["partition_index"])
                            if place not in changed and item["committed_offset"] >= 0:
                                self._committed[place[0]][place[1:]] = _of(item)
                                changed.add(place)
                continue
            group_id = asked["group_id"]
            self.groups.add(group_id)
            errors = {
                (self._recorded.topic_of(topic), item["partition_index"]): item["error_code"]
                for topic in answered["topics"]
                for item in topic["partitions"]
            }
            for topic in asked["topics"]:
                name = self._recorded.topic_of(topic)
                for item in topic["partitions"]:
                    place = (group_id, name, item["partition_index"])
                    code = errors.get(place[1:], 0)
                    self.errors.add((exchange.api, *place, item["committed_offset"]), code, exchange)
                    if not code:
                        changed.add(place)

    def of(self, group: str) -> dict[tuple[str, int], Committed]:
        """A group's committed offsets, by topic and partition."""
        return self._committed[group]

    def forget(self, group: str) -> None:
        """The group was deleted."""
        self._committed.pop(group, None)

    def commit(self, request: LiveRequest) -> Reply:
        """OffsetCommit, or TxnOffsetCommit without a transaction."""
        fields = request.fields
        if fields["group_id"] not in self.groups:
            raise NotRecorded(f"{request.api} v{request.version} for group {fields['group_id']}")
        fault = self._judge(fields)
        taken, topics = self.accept(request, fault)
        self._committed[fields["group_id"]].update(taken)
        return request.reply({"topics": topics})

    def accept(self, request: LiveRequest, fault: int) -> tuple[dict[tuple[str, int], Committed], list[dict[str, Any]]]:
        """The offsets of a commit that are to be taken, and the topics of the answer."""
        group = request.fields["group_id"]
        taken: dict[tuple[str, int], Committed] = {}
        topics = []
        for topic in request.fields["topics"]:
            name = self._recorded.topic_of(topic)
            items = []
            for item in topic["partitions"]:
                place = (name, item["partition_index"])
                error = self.errors.next_error((request.api, group, *place, item["committed_offset"]))
                code = fault or (error[0] if error else 0)
                if not code:
                    epoch = item.get("committed_leader_epoch", -1)
                    taken[place] = item["committed_offset"], epoch, item["committed_metadata"]
                items.append({"partition_index": place[1], "error_code": code})
            topics.append({"name": topic.get("name"), "topic_id": topic.get("topic_id"), "partitions": items})
        return taken, topics

    def fetch(self, request: LiveRequest) -> Reply:
        if "groups" in request.fields:
            groups = [self._fetched(request, group) for group in request.fields["groups"]]
            return request.reply({"groups": groups})
        return request.reply(self._fetched(request, request.fields))

    def _fetched(self, request: LiveRequest, asked: dict[str, Any]) -> dict[str, Any]:
        group = asked["group_id"]
        if group not in self.groups:
            raise NotRecorded(f"OffsetFetch v{request.version} for group {group}")
        error = self.fetch_errors.next_error(group)
        if error:
            return {"group_id": group, "topics": [], "error_code": error[0]}
        known = self._committed[group]
        wanted: list[tuple[dict[str, Any], str, list[int]]] = []
        if asked["topics"] is None:
            for name in sorted({name for name, _ in known}):
                number = self._recorded.topic_ids.get(name)
                topic: dict[str, Any] = {"name": name} | ({"topic_id": number} if number else {})
                wanted.append((topic, name, sorted(at for topic_, at in known if topic_ == name)))
        else:
            for topic in asked["topics"]:
                named = {"name": topic.get("name"), "topic_id": topic.get("topic_id")}
                wanted.append((named, self._recorded.topic_of(topic), topic["partition_indexes"]))
        topics = []
        for topic, name, partitions in wanted:
            items = []
            for partition in partitions:
                offset, epoch, metadata = known.get((name, partition), (-1, -1, ""))
                items.append(
                    {
                        "partition_index": partition, "committed_offset": offset, "committed_leader_epoch": epoch,
                        "metadata": metadata, "error_code": 0,
                    }
                )  # fmt: skip
            topics.append(topic | {"partitions": items})
        return {"group_id": group, "topics": topics, "error_code": 0}


def _groups(answered: dict[str, Any], asked: dict[str, Any]) -> list[dict[str, Any]]:
    if "groups" in answered:
        found: list[dict[str, Any]] = answered["groups"]
        return found
    return [answered | {"group_id": asked["group_id"]}]


def _of(item: dict[str, Any]) -> Committed:
    return item["committed_offset"], item.get("committed_leader_epoch", -1), item["metadata"]
