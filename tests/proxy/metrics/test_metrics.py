"""The meter's counts: those of a recording of the same bytes, with bounded labels, in formats that Prometheus reads."""

from __future__ import annotations

import http.client
import json
import random
import re
import socket
import struct
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.captures import Recorder, open_capture
from barnabas.captures.recording.index import RECORD
from barnabas.decoder import State
from barnabas.decoder.schema import facts
from barnabas.proxy import Proxy, events
from barnabas.proxy.events import Counts, FindingSeen, ProcessFailed, Recording, RecordingFailed, RuleHit
from barnabas.proxy.metrics.feed.sender import FeedSender
from barnabas.proxy.metrics.meter import TrafficMeter
from barnabas.proxy.metrics.registry import BUCKETS, Metrics
from barnabas.proxy.metrics.settings import MeterConfig, is_counted
from barnabas.proxy.observers.ring_feed import ConnectionEnds
from barnabas.proxy.observers.traffic_decoder import TrafficDecoder
from harness import wire
from harness.scripted import answering
from harness.testbed import Testbed
from harness.waiting import PATIENCE, attempts, until
from harness.wire import with_size
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

ANY = ("127.0.0.1", 0)
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: bytes) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float:
    return found.get((name, tuple(sorted(labels.items()))), 0)


def of(found: Samples, name: str, label: str) -> dict[str, float]:
    """A metric by one label, summed over the others."""
    sums: Counter[str] = Counter()
    for (each, labels), number in found.items():
        if each == name:
            sums[dict(labels)[label]] += number  # type: ignore[assignment]
    return dict(sums)


class Traffic:
    """The same bytes into a recorder and into the meter."""

    def __init__(self, directory: Path | None = None, by: tuple[str, ...] = (), apart: int = 100) -> None:
        self.metrics = Metrics(by, apart)
        self.meter = TrafficMeter(self.metrics, FeedSender("t", 1))
        self.decoder = TrafficDecoder(self.meter.on_event, moved=self.meter.moved)
        self.both: list[Any] = [self.decoder]
        if directory is not None:
            self.both.append(Recorder(directory))
        self.time_ns = 1_700_000_000_000_000_000
        self.number = 0

    def feed(self, name: str, *values: Any) -> None:
        for each in self.both:
            getattr(each, name)(*values)

    def open(self, conn: int = 1) -> None:
        ends = ConnectionEnds(("10.0.0.1", 50000 + conn), ("10.0.0.2", 9092))
        for each in self.both:
            each.opened(conn, self.time_ns, *([ends] if each is self.decoder else ends))

    def ask(
        self, key: int, version: int, fields: dict[str, Any] | None = None, conn: int = 1, client: str | None = "c"
    ) -> int:
        self.number += 1
        frame = decoder.encode_request(key, version, fields or {}, correlation_id=self.number, client_id=client)
        self.feed("data", conn, 0, self.time_ns, with_size(frame))
        return self.number

    def answer(self, number: int, key: int, version: int, fields: dict[str, Any] | None = None, conn: int = 1, after_ns: int = 0) -> None:  # fmt: skip
        frame = decoder.encode_response(key, version, fields or {}, correlation_id=number)
        self.feed("data", conn, 1, self.time_ns + after_ns, with_size(frame))

    def exchange(self, key: int, version: int, asked: Any = None, answered: Any = None, after_ns: int = 0, **options: Any) -> None:  # fmt: skip
        self.answer(self.ask(key, version, asked, **options), key, version, answered, after_ns=after_ns)

    def close(self) -> None:
        for each in self.both[1:]:
            each.close()

    @property
    def samples(self) -> Samples:
        return samples(self.metrics.render()[0])


def mixed(traffic: Traffic, seed: int) -> None:
    """Several connections, all kinds of exchanges, some broken."""
    choice = random.Random(seed)
    for conn in range(1, 5):
        traffic.open(conn)
    for _ in range(150):
        traffic.time_ns += choice.randrange(10**7)
        conn, key = choice.randrange(1, 5), choice.choice([1, 3, 12, 18, 10, 22, 11, 14])
        version = choice.choice(facts.api(key).versions.every())
        if choice.random() < 0.05:
            traffic.feed("data", conn, 0, traffic.time_ns, with_size(key.to_bytes(2, "big") + b"\x7f\x00" + bytes(8)))
        number = traffic.ask(key, version, conn=conn, client=choice.choice([None, "a", "b" * 20]))
        if choice.random() < 0.1:
            frame = decoder.encode_response(key, version, {}, correlation_id=number)
            traffic.feed("broker_leg", conn, 1, traffic.time_ns, with_size(frame))
        names = [field.name for field in facts.api(key).response.fields]
        answered: dict[str, Any] = {}
        try:
            if choice.random() < 0.3 and "ErrorCode" in names:
                answered = {"error_code": choice.choice([27, 16, 999])}
                decoder.encode_response(key, version, answered, correlation_id=1)
        except (decoder.DecodeError, ValueError):  # this version has no such field
            answered = {}
        if choice.random() < 0.05:
            traffic.feed("data", conn, 1, traffic.time_ns, with_size(number.to_bytes(4, "big") + b"\xff\xff\xff"))
        elif choice.random() < 0.9:
            if choice.random() < 0.1:
                traffic.feed("note", conn, number, "a rule")
            traffic.answer(number, key, version, answered, conn, choice.randrange(10**9))
        if choice.random() < 0.03:
            traffic.feed("data", conn, 1, traffic.time_ns, with_size(b"\x7f\xff\xff\xffwho asked?"))
        if choice.random() < 0.03:
            traffic.feed("lost", conn, choice.randrange(2), 1000)
    for conn in range(1, 5):
        traffic.feed("closed", conn, traffic.time_ns, "fin")


@pytest.mark.parametrize("seed", range(4))
def test_the_meter_counts_what_was_recorded(seed: int, tmp_path: Path) -> None:
    traffic = Traffic(tmp_path)
    mixed(traffic, seed)
    traffic.close()
    with open_capture(tmp_path) as capture:
        rows = list(capture.rows())
    found = traffic.samples
    known = [row for row in rows if row.state is not State.ORPHAN]
    assert len(known) > 100

    requests = Counter((row.api, row.api_version) for row in known)
    for (api, version), count in requests.items():
        label = str(version) if version in facts.api(facts.api_key(api)).versions else "other"
        assert value(found, "barnabas_requests_total", api=api, api_version=label) == count
    assert sum(of(found, "barnabas_requests_total", "api").values()) == len(known)
    codes = Counter("other" if row.error == 999 else facts.error_name(row.error) for row in known if row.error)
    assert of(found, "barnabas_errors_total", "error") == codes
    assert value(found, "barnabas_orphans_total") == len(rows) - len(known)
    undecoded = Counter(row.api for row in known if row.undecoded)
    assert of(found, "barnabas_undecoded_total", "api") == undecoded
    assert of(found, "barnabas_frame_bytes_total", "direction") == {
        "request": sum(row.request_size or 0 for row in known),
        "response": sum(row.response_size or 0 for row in known),
    }
    unanswered = Counter(row.api for row in known if row.state is State.NO_RESPONSE)
    assert of(found, "barnabas_unanswered_total", "api") == unanswered

    timed = [row for row in known if row.latency_ns is not None]
    polls = {"Fetch", "JoinGroup", "SyncGroup"}
    for name, chosen in (
        ("barnabas_request_duration_seconds", [row for row in timed if row.api not in polls]),
        ("barnabas_long_poll_duration_seconds", [row for row in timed if row.api in polls]),
    ):
        assert chosen
        assert of(found, name + "_count", "api") == Counter(row.api for row in chosen)
        assert sum(of(found, name + "_sum", "api").values()) == pytest.approx(
            sum(r.latency_ns or 0 for r in chosen) / 1e9
        )
        for api in {row.api for row in chosen}:
            for bound in BUCKETS:
                within = sum(row.api == api and (row.latency_ns or 0) <= bound * 1e9 for row in chosen)
                assert value(found, name + "_bucket", api=api, le=str(bound)) == within
    totals = traffic.meter.totals()
    assert totals.exchanges == len(rows)
    assert totals.errors == sum(row.error != 0 for row in rows)
    assert sum(rate.requests for rate in totals.rates) == len(known)
    assert traffic.meter.totals().rates == ()
    assert traffic.decoder.faults == 0


def test_a_summary_is_the_record_of_the_recording(tmp_path: Path) -> None:
    traffic = Traffic(tmp_path)
    summaries: list[Any] = []
    count = traffic.metrics.exchange
    traffic.metrics.exchange = lambda record, exchange: (summaries.append(record), count(record, exchange))[1]  # type: ignore[method-assign,assignment,func-returns-value]
    mixed(traffic, 9)
    traffic.close()
    (index,) = tmp_path.glob("*.index")
    recorded = list(RECORD.iter_unpack(index.read_bytes()[64:]))
    # all but the places in the file and the number of the client id's string
    assert [(*r[:2], *r[4:12]) for r in summaries] == [(*r[:2], *r[4:12]) for r in recorded]
    assert any(r.flags & 8 for r in summaries) and any(r.flags & 16 for r in summaries)


def test_a_produce_without_acks_is_not_unanswered() -> None:
    traffic = Traffic()
    traffic.open()
    traffic.ask(0, 9, {"acks": 0, "timeout_ms": 1})
    traffic.ask(12, 4)
    traffic.feed("closed", 1, 0, "rst")
    found = traffic.samples
    assert of(found, "barnabas_unanswered_total", "api") == {"Heartbeat": 1}
    assert of(found, "barnabas_requests_total", "api") == {"Produce": 1, "Heartbeat": 1}
    assert of(found, "barnabas_connections_closed_total", "how") == {"rst": 1}
    assert (value(found, "barnabas_connections"), value(found, "barnabas_connections_opened_total")) == (0, 1)


def test_throttle_times_add_up() -> None:
    traffic = Traffic()
    traffic.open()
    for throttle in (0, 250, 1500):
        traffic.exchange(12, 4, {}, {"throttle_time_ms": throttle})
    found = traffic.samples
    assert value(found, "barnabas_throttle_seconds_total", api="Heartbeat") == 1.75
    assert value(found, "barnabas_throttled_total", api="Heartbeat") == 2


def test_failed_connections_have_a_count_of_their_own() -> None:
    traffic = Traffic()
    traffic.decoder.opened(1, 0, ConnectionEnds(("a", 1), ("b", 2), failed="refused"))
    traffic.decoder.closed(1, 0, "rst")
    found = traffic.samples
    assert value(found, "barnabas_connections_failed_total") == 1
    assert value(found, "barnabas_connections_opened_total") == 0
    assert of(found, "barnabas_connections_closed_total", "how") == {}


@given(st.lists(st.tuples(st.integers(-(1 << 15), (1 << 15) - 1), st.integers(-(1 << 15), (1 << 15) - 1)), max_size=40))
@example([(24576, 0)])
def test_unknown_apis_and_versions_share_a_label(pairs: list[tuple[int, int]]) -> None:
    traffic = Traffic()
    traffic.open()
    # A first frame that begins with 0x60 is a Kerberos token of Kafka 0.9 clients, not a request.
    traffic.feed("data", 1, 0, 0, with_size(struct.pack(">hhIh", 18, 0, 0, -1)))
    for number, (key, version) in enumerate(pairs, 1):
        traffic.feed("data", 1, 0, 0, with_size(struct.pack(">hhIh", key, version, number, -1) + bytes(30)))
    traffic.feed("closed", 1, 0, "fin")
    names = {facts.api_name(key) for key in facts.api_keys()} | {"other"}
    found = traffic.samples
    assert set(of(found, "barnabas_requests_total", "api")) <= names
    for name, labels in found:
        if name == "barnabas_requests_total":
            asked = dict(labels)
            assert (
                asked["api_version"] == "other"
                or int(asked["api_version"]) in facts.api(facts.api_key(asked["api"])).versions
            )
    assert sum(of(found, "barnabas_requests_total", "api").values()) == 1 + len(pairs)


def test_clients_and_topics_are_counted_on_request_with_bounded_labels() -> None:
    assert not [name for name, _ in Traffic().samples if "client" in name or "topic" in name]
    traffic = Traffic(by=("client", "topic"), apart=2)
    traffic.open()
    for number, client in enumerate(["a", 'quo"te\n', "c", "d", "a"]):
        fields = {"acks": 1, "topic_data": [{"name": f"t{number}", "partition_data": [{"index": 0, "records": b"x"}]}]}
        answered = {"responses": [{"name": f"t{number}", "partition_responses": [{"index": 0, "error_code": 6}]}]}
        traffic.exchange(0, 9, fields, answered, client=client)
    found = traffic.samples
    assert of(found, "barnabas_client_requests_total", "client_id") == {"a": 2, 'quo"te\n': 1, "other": 2}
    assert of(found, "barnabas_topic_requests_total", "topic") == {"t0": 1, "t1": 1, "other": 3}
    assert of(found, "barnabas_topic_errors_total", "topic") == {"t0": 1, "t1": 1, "other": 3}
    assert set(of(found, "barnabas_client_frame_bytes_total", "direction")) == {"request", "response"}


def test_events_of_other_processes_are_counted() -> None:
    metrics = Metrics()
    for event in (
        Recording("/r"),
        Counts(1, 1, 1, 1, 0, 0, 10, 10, 77, 3),
        FindingSeen("stale", "high", "s", "w", "r", 1, {}, 1),
        FindingSeen("stale", "high", "s", "w", "r", 5, {}, 1),
        FindingSeen("stale", "high", "s", "w", "r", 2, {}, 2),
        RuleHit("leader moved", 1, 0, 9, 1, 3),
        RuleHit("leader moved", 1, 0, 9, 1, 9),
        ProcessFailed("inspector", -9),
    ):
        assert is_counted(event)
        metrics.process_events.take(events.decode(events.encode(event)))
    found = samples(metrics.render()[0])
    assert value(found, "barnabas_recording") == 1
    assert value(found, "barnabas_observer_lost_bytes_total") == 77
    assert value(found, "barnabas_findings", severity="high") == 2
    assert value(found, "barnabas_finding_occurrences_total", id="stale", severity="high") == 7
    assert value(found, "barnabas_rule_hits_total", rule="leader moved") == 9
    assert value(found, "barnabas_processes_failed_total", process="inspector") == 1
    metrics.process_events.take(RecordingFailed("disk full"))
    assert value(samples(metrics.render()[0]), "barnabas_recording") == 0
    assert not is_counted(events.Listening(("a", 1), ("b", 2)))


def test_openmetrics_is_rendered_on_request() -> None:
    traffic = Traffic(by=("client", "topic"))
    traffic.open()
    traffic.exchange(12, 4, {}, {"error_code": 27}, after_ns=10**6)
    text, kind = traffic.metrics.render("application/openmetrics-text; version=1.0.0")
    assert "openmetrics" in kind
    families = {family.name: family for family in openmetrics(text.decode())}
    assert families["barnabas_request_duration_seconds"].type == "histogram"
    assert all(family.documentation for family in families.values())


def test_the_dashboard_asks_for_metrics_and_labels_that_are_there(repository: Path) -> None:
    traffic = Traffic()
    traffic.open()
    traffic.exchange(12, 4, {}, {"error_code": 27, "throttle_time_ms": 5}, after_ns=10**6)
    traffic.exchange(11, 5, {}, {}, after_ns=10**6)
    traffic.ask(12, 4)
    traffic.feed("closed", 1, traffic.time_ns, "fin", "client")
    traffic.metrics.process_events.take(FindingSeen("stale", "high", "s", "w", "r", 1, {}, 1))
    labels: dict[str, set[str]] = {}
    for name, found in traffic.samples:
        labels.setdefault(name, set()).update(label for label, _ in found)
    dashboard = json.loads((repository / "examples" / "grafana" / "metrics.json").read_text("utf-8"))
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [re.sub(r"label_values\((\w+), (\w+)\)", r"sum by (\2) (\1)", each.get("query", "")) for each in dashboard["templating"]["list"]]
    for text in asked:
        names = set(re.findall(r"\bbarnabas_\w+", text))
        assert names <= labels.keys(), text
        wanted = {label.strip() for group in re.findall(r"by \(([^)]*)\)", text) for label in group.split(",")}
        wanted |= set(re.findall(r"(\w+)=~?\"", text))
        assert all(wanted <= labels[name] for name in names), text
    assert sum("barnabas_" in text for text in asked) == len(dashboard["panels"]) + 1


# -- served ------------------------------------------------------------------------------------------------------


def serving(testbed: Testbed, **meter: Any) -> Proxy:
    broker = testbed.broker(answering(decoder.encode_response(12, 4, {"error_code": 27}, correlation_id=0)[4:]))
    return testbed.proxy(broker.address, meter=MeterConfig(metrics=ANY, **meter))


def scrape(proxy: Proxy, path: str = "/metrics") -> bytes:
    host, port = proxy.meter.metrics
    with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=PATIENCE) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        return answer.read()


def answered(proxy: Proxy) -> bytes:
    """What is scraped; empty while too many clients are connected."""
    try:
        return scrape(proxy)
    except (urllib.error.HTTPError, ConnectionError):
        return b""


def test_a_running_proxy_is_scraped(testbed: Testbed) -> None:
    proxy = serving(testbed)
    client = testbed.client(proxy.address)
    request = decoder.encode_request(12, 4, {"group_id": "g"}, correlation_id=0, client_id="zebra-1")
    for _ in range(30):
        wire.ask(client, with_size(request))
    for _ in attempts():
        found = samples(scrape(proxy))
        if value(found, "barnabas_requests_total", api="Heartbeat", api_version="4") == 30:
            break
    assert value(found, "barnabas_errors_total", api="Heartbeat", error="REBALANCE_IN_PROGRESS") == 30
    assert value(found, "barnabas_request_duration_seconds_count", api="Heartbeat") == 30
    assert 0 < value(found, "barnabas_request_duration_seconds_sum", api="Heartbeat") < 30
    assert value(found, "barnabas_bytes_total", direction="request") == 30 * (4 + len(request))
    assert value(found, "barnabas_connections") == 1
    assert b"zebra" not in scrape(proxy)


def test_only_metrics_are_served(testbed: Testbed) -> None:
    proxy = serving(testbed)
    host, port = proxy.meter.metrics

    def status(method: str, path: str) -> int:
        connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)
        connection.request(method, path, body=b"x" if method == "POST" else None)
        answer = connection.getresponse()
        body = answer.read()
        assert not (method == "HEAD" and body)
        connection.close()
        return answer.status

    assert status("GET", "/metrics?x=1") == 200
    assert status("HEAD", "/metrics") == 200
    assert status("GET", "/") == 404
    assert status("POST", "/metrics") == 405
    for nonsense in (b"\x00\x00\x00\x10\x00\x12" + bytes(20) + b"\r\n\r\n", b"x" * 40_000, b""):
        with socket.create_connection((host, port), timeout=PATIENCE) as raw:
            raw.sendall(nonsense)
            raw.shutdown(socket.SHUT_WR)
            try:
                assert raw.recv(100)[:12] in (b"", b"HTTP/1.1 400")
            except ConnectionResetError:
                pass
    assert status("GET", "/metrics") == 200


def test_scraping_works_again_after_idle_clients_left(testbed: Testbed) -> None:
    proxy = serving(testbed)
    idle = [socket.create_connection(proxy.meter.metrics) for _ in range(40)]
    try:
        with pytest.raises((urllib.error.HTTPError, ConnectionError)):
            scrape(proxy)
        for sock in idle:
            sock.close()
        until(lambda: answered(proxy), "nobody is served any more")
    finally:
        for sock in idle:
            sock.close()
