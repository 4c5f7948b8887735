"""What the meter counts, and how Prometheus reads it.

`Metrics` holds plain numbers, so that counting an exchange costs little; `render` makes the text. Labels are bounded:
APIs, versions and errors are those that Kafka knows (anything else is "other"); client ids and topics are labels only
when asked for, and only the first `APART` of them.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder

from ... import __version__
from ...captures.recording.index import STATE_MASK, STATES, UNDECODED, Record
from ...decoder import Exchange, State
from ...decoder.findings.models.response_times import LONG_POLLS
from ...decoder.schema import facts
from ...decoder.schema.plan import Plan
from .. import events
from ..events import WorkerEnded
from .label_limiter import APART, DIRECTIONS, OTHER, UNKNOWN, LabelLimiter, api_label, by_label, counters, topics_of

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the latency histograms, in seconds."""

_BOUNDS_NS = [round(bound * 1e9) for bound in BUCKETS]
_PAIRED, _NO_RESPONSE, _ORPHAN = (STATES.index(state) for state in (State.PAIRED, State.NO_RESPONSE, State.ORPHAN))


class ApiMetrics:
    """One API's numbers."""

    __slots__ = (
        "buckets", "bytes", "key", "latency_ns", "long_poll", "name", "throttle_ms", "throttled", "unanswered", "undecoded",
    )  # fmt: skip

    def __init__(self, key: int, name: str) -> None:
        self.key, self.name = key, name
        self.long_poll = key in LONG_POLLS
        self.buckets = [0] * (len(BUCKETS) + 1)
        self.latency_ns = 0
        self.bytes = [0, 0]
        self.throttle_ms = self.throttled = self.unanswered = self.undecoded = 0


class Metrics:
    """Numbers since the start. by: what to count by as well (of `settings.BY`)."""

    def __init__(self, by: Iterable[str] = (), apart: int = APART) -> None:
        self.started = time.time()
        self.requests: Counter[tuple[int, int]] = Counter()
        """Requests by API key and version."""
        self.errors: Counter[tuple[int, int]] = Counter()
        """Exchanges by API key and error code."""
        self.apis: dict[int, ApiMetrics] = {}
        self.orphans = 0
        self.connections = self.opened = self.failed = 0
        self.closed: Counter[str] = Counter()
        self.stream_bytes = [0, 0]
        self.lost_bytes = self.lost_chunks = self.faults = 0
        self.subscribers = self.feed_records = self.feed_unsent = 0
        self.process_events = ProcessEvents()
        wanted = set(by)
        self.clients = LabelLimiter(apart) if "client" in wanted else None
        self.topics = LabelLimiter(apart) if "topic" in wanted else None
        self._registry = CollectorRegistry()
        self._registry.register(self)

    # -- counting --------------------------------------------------------------------------------------------

    def exchange(self, record: Record, exchange: Exchange) -> None:
        """Count an exchange that is done; record: its summary."""
        state = record.flags & STATE_MASK
        if state == _ORPHAN:
            self.orphans += 1
            return
        key = record.api_key
        api = self.apis.get(key) or self._api(key)
        key = api.key
        asked = key, record.api_version
        if asked not in self.requests:
            asked = _known_version(*asked)
        self.requests[asked] += 1
        api.bytes[0] += record.request_size
        api.bytes[1] += record.response_size
        error = record.error
        if error:
            self.errors[key, error if error in _errors() else UNKNOWN] += 1
        if record.flags & UNDECODED:
            api.undecoded += 1
        if state == _PAIRED:
            if record.latency_ns >= 0:
                api.buckets[bisect_left(_BOUNDS_NS, record.latency_ns)] += 1
                api.latency_ns += record.latency_ns
            message = exchange.response_message
            if message is not None:
                at = _throttle_at(message.plan)
                throttle = message.values[at] if at >= 0 else 0
                if throttle > 0:
                    api.throttle_ms += throttle
                    api.throttled += 1
        elif state == _NO_RESPONSE and not _expects_no_response(exchange):
            api.unanswered += 1
        if self.clients is not None:
            self.clients.count([exchange.client_id or ""], key, record)
        if self.topics is not None:
            self.topics.count(topics_of(exchange), key, record)

    def _api(self, key: int) -> ApiMetrics:
        if key not in _known():
            return self.apis.setdefault(UNKNOWN, ApiMetrics(UNKNOWN, OTHER))
        return self.apis.setdefault(key, ApiMetrics(key, facts.api_name(key)))

    # -- reading ---------------------------------------------------------------------------------------------

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """(text, content type) for a scraper that accepts `accept`: Prometheus' text format, or OpenMetrics."""
        encoder, content_type = choose_encoder(accept)
        return encoder(self._registry), content_type

    def collect(self) -> Iterator[Metric]:
        """Called by `prometheus_client`."""
        yield InfoMetricFamily("barnabas", "The version of Barnabas.", {"version": __version__})
        yield _gauge("barnabas_start_time_seconds", "When the meter was started.", self.started)
        yield from self._of_exchanges()
        yield from self._of_apis()
        yield from self._of_connections()
        yield from self._of_the_meter()
        if self.clients is not None:
            yield from self.clients.collect("client", "client_id")
        if self.topics is not None:
            yield from self.topics.collect("topic", "topic")
        yield from self.process_events.collect()

    def _of_exchanges(self) -> Iterator[Metric]:
        requests, errors = list(self.requests.items()), list(self.errors.items())
        yield counters("barnabas_requests", "Requests, answered or not.", ("api", "api_version"), (
            ([api_label(key), OTHER if version == UNKNOWN else str(version)], count) for (key, version), count in requests
        ))  # fmt: skip
        yield counters("barnabas_errors", "Exchanges by the first error code of their response.", ("api", "error"), (
            ([api_label(key), OTHER if error == UNKNOWN else facts.error_name(error)], count) for (key, error), count in errors
        ))  # fmt: skip
        yield _counter("barnabas_orphans", "Responses whose request was not seen.", self.orphans)

    def _of_apis(self) -> Iterator[Metric]:
        answers = HistogramMetricFamily(
            "barnabas_request_duration_seconds",
            "Time from a request's first byte to its response's, for APIs that brokers answer at once.",
            labels=["api"],
        )
        waits = HistogramMetricFamily(
            "barnabas_long_poll_duration_seconds",
            "The same for APIs whose requests a broker may hold until records or members arrive.",
            labels=["api"],
        )
        apis = list(self.apis.values())
        for api in apis:
            if any(api.buckets):
                histogram = waits if api.long_poll else answers
                histogram.add_metric([api.name], _cumulative(api.buckets), api.latency_ns / 1e9)
        yield from (answers, waits)
        yield counters("barnabas_frame_bytes", "Sizes of requests and responses.", ("api", "direction"), (
            ([api.name, direction], size) for api in apis for direction, size in zip(DIRECTIONS, api.bytes, strict=True)
        ))  # fmt: skip
        for name, text, values in (
            ("throttle_seconds", "Sum of the throttle times in responses.", [api.throttle_ms / 1000 for api in apis]),
            ("throttled", "Responses with a throttle time.", [api.throttled for api in apis]),
            ("unanswered", "Requests that should have been answered and were not.", [api.unanswered for api in apis]),
            ("undecoded", "Exchanges with a frame that could not be decoded.", [api.undecoded for api in apis]),
        ):
            rows = (([api.name], value) for api, value in zip(apis, values, strict=True) if value)
            yield counters(f"barnabas_{name}", text, ["api"], rows)

    def _of_connections(self) -> Iterator[Metric]:
        yield _gauge("barnabas_connections", "Connections that are open now.", self.connections)
        yield _counter("barnabas_connections_opened", "Connections that reached their broker.", self.opened)
        yield _counter("barnabas_connections_failed", "Connections whose broker could not be reached.", self.failed)
        yield by_label("barnabas_connections_closed", "Connections that ended, by how they ended.", "how", self.closed)
        sizes = dict(zip(DIRECTIONS, self.stream_bytes, strict=True))
        yield by_label("barnabas_bytes", "Bytes that the meter saw, whether they could be decoded or not.", "direction", sizes)

    def _of_the_meter(self) -> Iterator[Metric]:
        yield _counter("barnabas_meter_lost_bytes", "Bytes that the meter missed; no other metric counts them.", self.lost_bytes)
        yield _counter("barnabas_meter_lost_chunks", "Chunks that the meter missed.", self.lost_chunks)
        yield _counter("barnabas_meter_faults", "Exchanges that were not counted because of a bug in the meter.", self.faults)
        yield _gauge("barnabas_feed_subscribers", "Subscribers of the live feed.", self.subscribers)
        yield _counter("barnabas_feed_records", "Summaries that the live feed sent, or would have sent to a subscriber.", self.feed_records)
        yield _counter("barnabas_feed_unsent", "Summaries that did not fit into the sender's queue.", self.feed_unsent)


class ProcessEvents:
    """Counts events of the proxy's other processes: recording, losses, findings, rules, restarts."""

    def __init__(self) -> None:
        self.recording: bool | None = None
        self.observer_lost = [0, 0]
        self.inspector_lost = 0
        self.findings: dict[int, tuple[str, str, int]] = {}
        """Findings by number: id, severity and how often each was seen."""
        self.rules: dict[str, int] = {}
        self.ended: Counter[str] = Counter()
        self.warnings: Counter[str] = Counter()
        """Warnings by the name of their event."""
        self.internal_errors: Counter[str] = Counter()

    def take(self, event: events.Event) -> None:
        """Count an event."""
        if event.warning:
            self.warnings[type(event).__name__] += 1
        if isinstance(event, events.InternalError):
            self.internal_errors[event.what] += event.count
        elif isinstance(event, events.Recording):
            self.recording = True
        elif isinstance(event, events.RecordingFailed):
            self.recording = False
        elif isinstance(event, events.Counts):
            self.observer_lost = [event.lost_bytes, event.lost_chunks]
        elif isinstance(event, events.NotInspected):
            self.inspector_lost = event.lost_bytes
        elif isinstance(event, events.FindingSeen):
            if event.number in self.findings or len(self.findings) < _MOST_FINDINGS:
                self.findings[event.number] = event.finding, event.severity, event.count
        elif isinstance(event, events.RuleHit):
            # Some events may have been suppressed; the number of hits in them counts all.
            if event.rule in self.rules or len(self.rules) < _MOST_RULES:
                self.rules[event.rule] = max(event.hits, self.rules.get(event.rule, 0))
        elif isinstance(event, events.ProcessFailed):
            self.ended[event.process] += 1
            if event.process == "observer" and self.recording:
                self.recording = False
        elif isinstance(event, WorkerEnded):
            self.ended["relay"] += 1

    def collect(self) -> Iterator[Metric]:
        if self.recording is not None:
            yield _gauge("barnabas_recording", "1: traffic is being recorded; 0: it should be, but is not.", int(self.recording))
        yield _counter("barnabas_observer_lost_bytes", "Bytes missing from the recording.", self.observer_lost[0])
        yield _counter("barnabas_observer_lost_chunks", "Chunks missing from the recording.", self.observer_lost[1])
        yield _counter("barnabas_inspector_lost_bytes", "Bytes that were not searched for findings.", self.inspector_lost)
        different = GaugeMetricFamily("barnabas_findings", "Different findings so far.", labels=["severity"])
        for severity, count in Counter(severity for _, severity, _ in self.findings.values()).items():
            different.add_metric([severity], count)
        yield different
        times: Counter[tuple[str, str]] = Counter()
        for name, severity, count in self.findings.values():
            times[name, severity] += count
        yield counters("barnabas_finding_occurrences", "How often each kind of finding was seen.", ("id", "severity"), times.items())
        yield by_label("barnabas_rule_hits", "How often each rule fired.", "rule", self.rules)
        yield by_label("barnabas_processes_failed", "Processes of this proxy that ended unexpectedly.", "process", self.ended)
        yield by_label("barnabas_warnings", "Warnings of the proxy, by their event.", "event", self.warnings)
        yield by_label(
            "barnabas_internal_errors", "Errors inside Barnabas that were contained, by what failed.", "what", self.internal_errors
        )


_MOST_FINDINGS = 10_000
_MOST_RULES = 1000


@cache
def _known() -> frozenset[int]:
    return frozenset(facts.api_keys())


@cache
def _errors() -> frozenset[int]:
    return frozenset(facts.errors())


def _known_version(key: int, version: int) -> tuple[int, int]:
    known = key != UNKNOWN and version in facts.api(key).versions
    return key, version if known else UNKNOWN


@cache
def _throttle_at(of: Plan) -> int:
    """The index of the throttle time among a response's values; -1 if it has none."""
    names = [field.name for field in of.root.fields]
    return names.index("throttle_time_ms") if "throttle_time_ms" in names else -1


def _expects_no_response(exchange: Exchange) -> bool:
    """Whether it is a Produce with acks=0, which no broker answers."""
    message = exchange.request_message
    return message is not None and message.api == "Produce" and message["acks"] == 0


def _cumulative(buckets: list[int]) -> list[tuple[str, float]]:
    total = 0
    found: list[tuple[str, float]] = []
    for bound, count in zip((*map(str, BUCKETS), "+Inf"), buckets, strict=True):
        total += count
        found.append((bound, total))
    return found


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
