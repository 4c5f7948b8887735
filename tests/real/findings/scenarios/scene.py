"""A scene: real clients do something through a recording proxy, and the detectors read the recording."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from barnabas.decoder.connection.events import ConnectionEvent
from barnabas.decoder.findings import Finding
from barnabas.plugins.rules.rules import Rule
from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import ConnectionClosed, ConnectionOpened
from confluent_kafka.admin import AdminClient, NewTopic
from harness.proxies import Proxy
from harness.waiting import PATIENCE, NeverHappened, attempts, until
from traffic import recordings
from traffic.edited_exchanges import SECOND, edited, exchange_of, time_of


def create(bootstrap: str, topic: str, partitions: int = 1, **more: Any) -> None:
    """Make a topic, and wait until the broker knows it."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": "setup"})
    admin.create_topics([NewTopic(topic, partitions, **more)])[topic].result(PATIENCE)
    until(lambda: topic in admin.list_topics(timeout=PATIENCE).topics, f"topic {topic}")


def record(upstream: tuple[str, int], run: Callable[[str], object], folder: Path, rules: Sequence[Rule] = ()) -> Path:
    """Run it with the address of a proxy in front of a broker, until its clients have gone; the recording's folder."""
    recording = folder / "recording"
    with Proxy(ProxyConfig(upstream=upstream, record=recording, rules=list(rules))) as proxy:
        run("{}:{}".format(*proxy.address))
        gc.collect()  # librdkafka's clients close their connections when they go away
        _until_all_closed(proxy)
    return recording


def _until_all_closed(proxy: Proxy) -> None:
    """Wait for the end of all connections: detectors judge a client also by how it went."""
    opened: set[int] = set()
    for left in attempts(pause=0):
        event = proxy.next_event(min(left, 0.3))
        if isinstance(event, ConnectionOpened):
            opened.add(event.connection)
        elif isinstance(event, ConnectionClosed):
            opened.discard(event.connection)
        elif event is None and not opened:
            return
    raise NeverHappened(f"connections {sorted(opened)} do not end within {PATIENCE:g} s")


def retimed(
    recording: Path, seconds: float | None = None, longer: bool = False, rate: tuple[str, float] | None = None
) -> list[ConnectionEvent]:
    """What happened, with its times shortened to so many seconds in all if it took longer: on a busy machine it does.

    `longer`: lengthened to them, too. `rate`: shortened until there are so many requests of an API in a second.
    """
    events = recordings.recording(recording)
    times = [time for event in events if (time := time_of(event))]
    if rate is not None:
        api, per_second = rate
        seconds = len({id(e) for h in events if (e := exchange_of(h)) and e.api == api}) / per_second
    assert seconds is not None
    factor = seconds * SECOND / max(times[-1] - times[0], 1)
    return edited(events, stretch=factor if longer else min(1.0, factor))


def described(found: list[Finding]) -> str:
    """Findings as text, for the message of a failed assertion."""
    return "found:\n" + "\n".join(f"  {f.id} {f.severity} x{f.count}: {f.seen}" for f in found)
