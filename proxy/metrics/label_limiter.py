"""Counts by client id and by topic, names that others choose, with a bounded number of labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, Metric

from ...captures.recording.index import Record
from ...decoder import Exchange
from ...decoder.codec.message import Message
from ...decoder.filter.entities import topic_partitions_of
from ...decoder.schema import facts

APART = 100
"""Most client ids, and most topics, that have a label of their own; later ones are counted as `OTHER`."""
OTHER = "other"
DIRECTIONS = ("request", "response")
UNKNOWN = 1 << 15
"""Stands for an API key, a version or an error code that Kafka does not know. It does not fit 16 bits."""


class LabelLimiter:
    """Counts by name: each of the first `limit` names has its own label, all others share one."""

    def __init__(self, limit: int = APART) -> None:
        self._limit = limit
        self._names: set[str] = set()
        self.requests: Counter[tuple[str, int]] = Counter()
        self.errors: Counter[tuple[str, int]] = Counter()
        self.bytes: Counter[tuple[str, int]] = Counter()

    def name(self, name: str) -> str:
        """The label for a name."""
        if name not in self._names:
            if len(self._names) >= self._limit:
                return OTHER
            self._names.add(name)
        return name

    def count(self, names: Iterable[str], key: int, record: Record) -> None:
        """Count an exchange of an API under these names."""
        for name in {self.name(name) for name in names}:
            self.requests[name, key] += 1
            if record.error:
                self.errors[name, key] += 1
            self.bytes[name, 0] += record.request_size
            self.bytes[name, 1] += record.response_size

    def collect(self, what: str, label: str) -> Iterator[Metric]:
        """The metrics, for `prometheus_client`."""
        for name, text, counts in (
            (f"barnabas_{what}_requests", f"Requests by {what}.", self.requests),
            (f"barnabas_{what}_errors", f"Exchanges with an error by {what}.", self.errors),
        ):
            rows = (([value, api_label(key)], count) for (value, key), count in list(counts.items()))
            yield counters(name, text, (label, "api"), rows)
        text = f"Sizes of requests and responses by {what}" + (" (counted in full for every topic in them)." if what == "topic" else ".")
        sizes = (([value, DIRECTIONS[direction]], size) for (value, direction), size in list(self.bytes.items()))
        yield counters(f"barnabas_{what}_frame_bytes", text, (label, "direction"), sizes)


def counters(name: str, text: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], float]]) -> Metric:
    """A counter with labels, from (the labels' values, count)."""
    family = CounterMetricFamily(name, text, labels=labels)
    for values, count in rows:
        family.add_metric(values, count)
    return family


def by_label(name: str, text: str, label: str, counts: Mapping[str, float]) -> Metric:
    """A counter with one label."""
    return counters(name, text, [label], (([value], count) for value, count in list(counts.items())))


def api_label(key: int) -> str:
    """The label of an API key."""
    return OTHER if key == UNKNOWN else facts.api_name(key)


def topics_of(exchange: Exchange) -> Iterator[str]:
    """The topics that a request names; by id, where the name of the id was not seen."""
    message: Message | None = exchange.request_message
    read = topic_partitions_of(message.plan) if message is not None else None
    if message is None or read is None:
        return
    for pair in read(message.values):
        name = pair.topic
        if not name and pair.topic_id is not None:
            name = exchange.topics.name(pair.topic_id) if exchange.topics is not None else None
            name = name or "id " + pair.topic_id.hex()
        if name:
            yield name
