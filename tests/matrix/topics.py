"""Topics that are there before a client comes: Metadata v0 makes them on every release."""

from __future__ import annotations

from typing import Any

from harness.waiting import NeverHappened, until
from matrix.brokers import Address
from real.clients.raw_client import RawClient


def make(address: Address, names: list[str]) -> None:
    """Return when each of these topics has leaders; TimeoutError where that takes too long."""
    def answer() -> list[dict[str, Any]]:
        with RawClient(address, "matrix") as client:
            topics: list[dict[str, Any]] = client.ask("Metadata", 0, {"topics": [{"name": name} for name in names]}).to_dict()["topics"]
            return topics

    def led() -> bool:
        topics = answer()
        codes = {topic["error_code"] for topic in topics} | {p["error_code"] for t in topics for p in t["partitions"]}
        return codes == {0} and all(topic["partitions"] for topic in topics)

    try:
        until(led, answer, pause=0.1)
    except NeverHappened as reason:
        raise TimeoutError(f"no leaders for {', '.join(names)}: {reason}") from None
