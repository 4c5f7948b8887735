"""Reports how long producing takes, by topic, in an event of the proxy every few seconds.

barnabas proxy --broker HOST:PORT --plugin "latency.py?every=10"
"""

import time
from typing import Any

BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


class ProduceLatency:
    """Keeps a histogram per topic. Messages never wait for it, because it uses only `exchange`."""

    apis = ("Produce",)

    def __init__(self, every: float = 10.0) -> None:
        self.every = every
        self.counts: dict[str, list[int]] = {}
        self.reported_at = time.monotonic()

    def exchange(self, exchange: Any, ctx: Any) -> None:
        """Count an answered request; with acks=0 there is nothing to measure."""
        request = exchange.request_message
        if exchange.latency_ns is None or request is None:
            return
        milliseconds = exchange.latency_ns / 1e6
        place = sum(milliseconds > bound for bound in BOUNDS_MS)
        for topic in request["topic_data"]:
            name = topic.get("name") or exchange.topics.name(topic["topic_id"].bytes) or str(topic["topic_id"])
            self.counts.setdefault(name, [0] * (len(BOUNDS_MS) + 1))[place] += 1

    def tick(self, ctx: Any) -> None:
        """About once a second."""
        if time.monotonic() - self.reported_at < self.every:
            return
        self.reported_at = time.monotonic()
        for topic, counts in sorted(self.counts.items()):
            ctx.log(
                f"{topic}: {sum(counts)} requests, half within {_within(counts, 0.5)}, 99% within {_within(counts, 0.99)}"
            )

    def state(self) -> dict[str, list[int]]:
        """Data for the next version of this file."""
        return self.counts

    def restore(self, state: dict[str, list[int]]) -> None:
        """Data from the previous version of this file."""
        self.counts = state


def _within(counts: list[int], share: float) -> str:
    """The smallest bound within which this share of all requests lies."""
    seen = 0
    for count, bound in zip(counts, BOUNDS_MS, strict=False):
        seen += count
        if seen >= share * sum(counts):
            return f"{bound} ms"
    return f"more than {BOUNDS_MS[-1]} ms"
