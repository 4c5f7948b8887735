"""What the modules on faults share: a proxy in front of mock or real brokers, and the wire as it is up to now."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from barnabas import decoder
from barnabas.ui.testing.cluster import EmbeddedCluster
from barnabas.ui.testing.fixture import Barnabas
from harness.waiting import PATIENCE, until
from harness.wire import with_size
from real.clients.confluent_client import create_topic


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


def new_topic(bench: Barnabas) -> str:
    """A topic of one partition."""
    return create_topic(bench.bootstrap, f"t-{uuid.uuid4().hex[:8]}")


def cursor(bench: Barnabas) -> int:
    """The wire from here on: for `seen`."""
    return settle(bench)


def seen(bench: Barnabas, since: int, filter: str = "") -> list[dict[str, Any]]:
    """All exchanges since then that a filter selects, and that have ended."""
    settle(bench)
    found: list[dict[str, Any]] = []
    while True:
        page = bench.control.exchange_page(filter, since=since, limit=1000)
        found += page["exchanges"]
        since = page["next"]
        if not page.get("more"):
            return found


def settle(bench: Barnabas) -> int:
    """Wait until everything up to now is known: a request of our own goes the same way. Its number."""
    name = f"mark-{uuid.uuid4().hex}"
    frame = decoder.encode_request(18, 0, {}, correlation_id=1, client_id=name)
    with socket.create_connection(bench.proxy.address, PATIENCE) as sock:
        sock.sendall(with_size(frame))
        sock.recv(4)
    own = until(lambda: bench.control.exchange_page(f"client == '{name}'", wait=1.0)["exchanges"])
    return int(own[0]["id"])
