"""Metrics to a StatsD server: once a second, what happened in that second, as UDP datagrams of several lines.

Counters are differences (`|c`), connections a gauge (`|g`), latencies timers (`|ms`): at most `SAMPLES` per API, with
their sample rate. With tags (DogStatsD) the API, version, error and direction are tags; without, they are parts of the
name. docs/metrics.md lists the names.
"""

from __future__ import annotations

import contextlib
import random
import re
import socket
from collections.abc import Iterator
from typing import Any

from ...captures.recording.index import STATE_MASK, STATES, Record
from ...decoder import State
from .label_limiter import OTHER
from .registry import Metrics

SAMPLES = 50
DATAGRAM = 1400
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_-]")
_ORPHAN = STATES.index(State.ORPHAN)
COUNTERS = {
    "barnabas_throttle_seconds": ("throttle_ms", 1000),
    **{f"barnabas_{name}": (name, 1) for name in (
        "requests", "errors", "frame_bytes", "unanswered", "undecoded", "bytes", "orphans", "connections_opened", "connections_failed",
        "meter_lost_bytes", "observer_lost_bytes", "rule_hits",
    )},
}  # fmt: skip
"""The counters of `Metrics.collect` that are sent: their names here, and what their values are multiplied with."""


class StatsD:
    """Makes the datagrams, sans-IO."""

    def __init__(self, metrics: Metrics, prefix: str = "barnabas", tags: bool = False) -> None:
        self._metrics = metrics
        self._prefix = ".".join(_plain(part) for part in prefix.split(".") if part)
        self._tags = tags
        self._sent: dict[object, int] = {}
        self._latencies: dict[int, list[int]] = {}
        self._seen: dict[int, int] = {}
        self._random = random.Random()

    def exchange(self, record: Record) -> None:
        """Sample its latency: each exchange of a second has the same chance."""
        if record.latency_ns < 0 or record.flags & STATE_MASK == _ORPHAN:
            return
        key = record.api_key
        kept = self._latencies.setdefault(key, [])
        self._seen[key] = seen = self._seen.get(key, 0) + 1
        if len(kept) < SAMPLES:
            kept.append(record.latency_ns)
        elif (place := self._random.randrange(seen)) < SAMPLES:
            kept[place] = record.latency_ns

    def datagrams(self) -> Iterator[bytes]:
        """What happened since the last call."""
        lines: list[bytes] = []
        size = 0
        for line in self._lines():
            data = line.encode()
            if lines and size + len(data) + 1 > DATAGRAM:
                yield b"\n".join(lines)
                lines, size = [], 0
            lines.append(data)
            size += len(data) + 1
        if lines:
            yield b"\n".join(lines)

    def _lines(self) -> Iterator[str]:
        metrics = self._metrics
        for family in metrics.collect():
            name, factor = COUNTERS.get(family.name, ("", 1))
            for sample in family.samples if name else ():
                yield from self._difference(name, round(sample.value * factor), sample.labels)
        yield self._line("connections", metrics.connections, "g", {})
        latencies, self._latencies = self._latencies, {}
        seen, self._seen = self._seen, {}
        for key, kept in latencies.items():
            name = metrics.apis[key].name if key in metrics.apis else OTHER
            rate = f"|@{len(kept) / seen[key]:.6g}" if len(kept) < seen[key] else ""
            for latency in kept:
                yield self._line("latency", f"{latency / 1e6:.3f}", "ms", {"api": name}, rate)

    def _difference(self, name: str, value: int, labels: dict[str, str]) -> Iterator[str]:
        key = (name, *labels.values())
        difference = value - self._sent.get(key, 0)
        if difference:
            self._sent[key] = value
            yield self._line(name, difference, "c", labels)

    def _line(self, name: str, value: Any, kind: str, labels: dict[str, str], rate: str = "") -> str:
        if self._tags:
            tags = "|#" + ",".join(f"{label}:{_plain(text)}" for label, text in labels.items()) if labels else ""
            return f"{self._prefix}.{name}:{value}|{kind}{rate}{tags}"
        return f"{'.'.join((self._prefix, name, *map(_plain, labels.values())))}:{value}|{kind}{rate}"


def _plain(text: str) -> str:
    """The text with only letters that have no meaning to StatsD, at most 100."""
    return _NOT_PLAIN.sub("_", text)[:100]


def send(sock: socket.socket, datagrams: Iterator[bytes]) -> None:
    """Send on a connected UDP socket that does not block. A server that is not there costs nothing."""
    for datagram in datagrams:
        try:
            sock.send(datagram)
        except OSError:  # of an earlier datagram; this one was not sent then
            with contextlib.suppress(OSError):
                sock.send(datagram)
