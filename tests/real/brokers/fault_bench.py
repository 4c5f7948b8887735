"""What the modules on faults share: a proxy in front of mock or real brokers, and the wire as it is up to now."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from barnabas.ui.testing.cluster import EmbeddedCluster
from barnabas.ui.testing.fixture import Barnabas, Injected
from harness.waiting import until
from real.clients.confluent_client import create_topic
from real.clients.raw_client import RawClient


@contextmanager
def mocked(directory: Path) -> Iterator[Barnabas]:
    """A proxy in front of three mock brokers."""
    cluster = EmbeddedCluster()
    try:
        with in_front_of(cluster.address, directory) as proxy:
            yield proxy
    finally:
        cluster.stop()


@contextmanager
def in_front_of(address: tuple[str, int], directory: Path) -> Iterator[Barnabas]:
    """A proxy in front of a broker."""
    proxy = Barnabas(address, directory)
    try:
        yield proxy.start()
    finally:
        proxy.stop()


@contextmanager
def injected(bench: Barnabas, match: str = "", *, times: int, **rule: Any) -> Iterator[Injected]:
    """A rule for as long as the block runs; it has hit so often by the end, no more and no less."""
    with bench.inject(match, times=times, **rule) as fault:
        yield fault
        assert fault.hits == times


def new_topic(bench: Barnabas) -> str:
    """A topic of one partition."""
    return create_topic(bench.bootstrap, f"t-{uuid.uuid4().hex[:8]}")


def seen(bench: Barnabas, since: int, filter: str = "") -> list[dict[str, Any]]:
    """All exchanges since then that a filter selects, and that have ended."""
    cursor(bench)
    found: list[dict[str, Any]] = []
    while True:
        page = bench.control.exchange_page(filter, since=since, limit=1000)
        found += page["exchanges"]
        since = page["next"]
        if not page.get("more"):
            return found


def cursor(bench: Barnabas) -> int:
    """Wait until everything up to now is recorded: a request of our own goes the same way. Its number, for `seen`."""
    name = f"mark-{uuid.uuid4().hex}"
    with RawClient(bench.proxy.address, name) as client:
        client.ask("ApiVersions", 0, {})
    own = until(lambda: bench.control.exchange_page(f"client == '{name}'", wait=1.0)["exchanges"])
    return int(own[0]["id"])
