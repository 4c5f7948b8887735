"""What a recording holds, laid out for answering: its exchanges in order, and who and what is in them.

`RecordedExchanges` reads a capture once. Positions are places in that order; they are what "the same place" means when an answer,
or an error, has to come where it came in the recording.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...decoder import Exchange, Message, State
from ...decoder.codec.message_view import MessageView
from ...decoder.schema import facts
from .questions import touches

PRODUCE = facts.api_key("Produce")


@dataclass(slots=True)
class RecordedExchange:
    """One recorded exchange with its answer. `latency` is in seconds; `from_ns` and `until_ns` are when it was asked and
    answered."""

    position: int
    api_key: int
    api_version: int
    asked: Message
    answered: Message | None
    latency: float
    client_id: str | None
    from_ns: int
    until_ns: int

    @property
    def api(self) -> str:
        """The API's name."""
        return facts.api_name(self.api_key)


class RecordedExchanges:
    """The exchanges of a recording. `topic_ids` holds the 16 bytes of every topic's id, the last one by name."""

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        self.kept: list[RecordedExchange] = []
        self.by_api: dict[int, list[RecordedExchange]] = defaultdict(list)
        self.topic_names: dict[bytes, str] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.brokers: dict[int, tuple[str, int]] = {}
        self.skipped = 0
        """exchanges without an answer, or that cannot be read"""
        self.cut = 0
        """those of them of which only the beginning was recorded"""
        for position, exchange in enumerate(exchanges):
            self._take(position, exchange)

    def _take(self, position: int, exchange: Exchange) -> None:
        asked = _readable(exchange.request_message, exchange.request_view)
        answered = _readable(exchange.response_message, exchange.response_view) if exchange.state is State.PAIRED else None
        silent = exchange.api_key == PRODUCE and asked is not None and asked["acks"] == 0
        if asked is None or (answered is None and not silent):
            self.skipped += 1
            self.cut += exchange.cut is not None
            return
        latency = (exchange.latency_ns or 0) / 1e9
        asked_ns = exchange.request_time_ns or 0
        kept = RecordedExchange(
            position, exchange.api_key, exchange.api_version, asked, answered, latency, exchange.client_id,
            asked_ns, asked_ns + (exchange.latency_ns or 0),
        )  # fmt: skip
        if exchange.api in ("Metadata", "CreateTopics", "FindCoordinator", "DescribeCluster") and answered is not None:
            self.learn(answered)
        self.kept.append(kept)
        self.by_api[exchange.api_key].append(kept)

    def learn(self, answered: Message) -> None:
        """Take the topics' ids, and the brokers, that an answer names."""
        fields = answered.to_dict()
        for topic in fields.get("topics") or ():
            name, number = topic.get("name"), topic.get("topic_id")
            if name and number is not None and number.int:
                self.topic_names[number.bytes] = name
                self.topic_ids[name] = number.bytes
        for _, node, host, port in addresses(fields):
            if node >= 0 and host:
                self.brokers[node] = (host, port)

    def of(self, *apis: str) -> list[RecordedExchange]:
        """The exchanges of these APIs, in order."""
        found = [kept for api in apis for kept in self.by_api.get(facts.api_key(api), ())]
        return sorted(found, key=lambda kept: kept.position) if len(apis) > 1 else found

    def named(self, topic_id: bytes) -> str | None:
        """The name of a topic by its id."""
        return self.topic_names.get(topic_id)

    def topic_of(self, item: dict[str, Any]) -> str:
        """The name of the topic that an item of a request or response is about; "" if nobody knows."""
        for field in ("name", "topic"):
            if item.get(field):
                return str(item[field])
        number = item.get("topic_id")
        return self.named(number.bytes) or "" if number is not None else ""

    def words(self, kept: RecordedExchange) -> frozenset[str]:
        """The names in a recorded request."""
        return touches(kept.asked, self.named)


def _readable(message: Message | None, view: MessageView | None) -> Message | None:
    """A message as it was, or without the nulls in it that Kafka does not allow and that could not be answered with."""
    return view if view is not None and any(view.forbidden_nulls()) else message


def addresses(fields: dict[str, Any], path: str = "") -> list[tuple[str, int, str, int]]:
    """Every broker address of a response: (path in front of it, node id or -1, host, port)."""
    found = []
    if isinstance(fields.get("host"), str) and isinstance(fields.get("port"), int):
        node = next((fields[name] for name in ("node_id", "broker_id") if isinstance(fields.get(name), int)), -1)
        found.append((path, node, fields["host"], fields["port"]))
    for name, value in fields.items():
        if isinstance(value, list):
            for at, item in enumerate(value):
                if isinstance(item, dict):
                    found += addresses(item, f"{path}{name}[{at}].")
    return found
