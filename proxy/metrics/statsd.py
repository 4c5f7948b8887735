"""Metrics to a StatsD server: once a second, what happened in that second, as UDP datagrams of several lines.

Counters are differences (`|c`), connections a gauge (`|g`), latencies timers (`|ms`): at most `SAMPLES` per API, with
their sample rate. With tags (DogStatsD) the API, version, error and direction are tags; without, they are parts of the
name. docs/metrics.md lists the names.
"""

from __future__ import annotations

import random
import re
import socket
from collections.abc import Iterator
from typing import Any

import asyncio_dgram

from ...captures.recording.index import STATE_MASK, STATES, Record
from ...decoder import State
from ...decoder.schema import facts
from .label_limiter import DIRECTIONS, OTHER, UNKNOWN, api_label
from .registry import Metrics

SAMPLES = 50
DATAGRAM = 1400
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_-]")
_ORPHAN = STATES.index(State.ORPHAN)


class StatsD:
    """Makes the datagrams, sans-IO."""

    def __init__(self, metrics: Metrics, prefix: str = "barnabas", tags: bool = False) -> None:
        self._metrics = metrics
        self._prefix = ".".join(_plain(part) for part in prefix.split(".") if part)
        self._tags = tags
        self._sent: dict[object, float] = {}
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
        for (key, version), count in list(metrics.requests.items()):
            known = str(version) if version < UNKNOWN else OTHER
            yield from self._difference("requests", count, api=api_label(key), api_version=known)
        for (key, code), count in list(metrics.errors.items()):
            error = facts.error_name(code) if code < UNKNOWN else OTHER
            yield from self._difference("errors", count, api=api_label(key), error=error)
        for api in list(metrics.apis.values()):
            for direction, number in zip(DIRECTIONS, api.bytes, strict=True):
                yield from self._difference("frame_bytes", number, api=api.name, direction=direction)
            yield from self._difference("throttle_ms", api.throttle_ms, api=api.name)
            yield from self._difference("unanswered", api.unanswered, api=api.name)
            yield from self._difference("undecoded", api.undecoded, api=api.name)
        for direction, number in zip(DIRECTIONS, metrics.stream_bytes, strict=True):
            yield from self._difference("bytes", number, direction=direction)
        yield from self._difference("orphans", metrics.orphans)
        yield from self._difference("connections_opened", metrics.opened)
        yield from self._difference("connections_failed", metrics.failed)
        yield from self._difference("meter_lost_bytes", metrics.lost_bytes)
        yield from self._difference("observer_lost_bytes", metrics.process_events.observer_lost[0])
        for rule, hits in list(metrics.process_events.rules.items()):
            yield from self._difference("rule_hits", hits, rule=rule)
        yield self._line("connections", metrics.connections, "g", {})
        latencies, self._latencies = self._latencies, {}
        seen, self._seen = self._seen, {}
        for key, kept in latencies.items():
            name = metrics.apis[key].name if key in metrics.apis else OTHER
            rate = f"|@{len(kept) / seen[key]:.6g}" if len(kept) < seen[key] else ""
            for latency in kept:
                yield self._line("latency", f"{latency / 1e6:.3f}", "ms", {"api": name}, rate)

    def _difference(self, name: str, value: float, **labels: str) -> Iterator[str]:
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


class StatsDSender:
    """Sends the datagrams. A server that is not there costs nothing; `errors` counts what the kernel reported."""

    def __init__(self, statsd: StatsD) -> None:
        self.statsd = statsd
        self.errors = 0
        self._stream: Any = None

    async def start(self, sock: socket.socket) -> None:
        """Send on a connected UDP socket."""
        sock.setblocking(False)
        self._stream = await asyncio_dgram.from_socket(sock)

    async def send(self) -> None:
        """Send what happened since the last call."""
        for datagram in self.statsd.datagrams():
            for _ in range(2):  # the error is of an earlier datagram; this one was not sent then
                try:
                    await self._stream.send(datagram)
                except OSError:
                    self.errors += 1
                except asyncio_dgram.TransportClosed:
                    return
                else:
                    break

    def stop(self) -> None:
        if self._stream is not None:
            self._stream.close()
