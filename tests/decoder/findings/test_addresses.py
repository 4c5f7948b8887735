"""Addresses that lead nowhere: on recorded traffic of real clients, and where a broker cannot be made to do it, edited."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder.connection import Event
from barnabas.decoder.findings import Finding, Inspector, Severity
from barnabas.decoder.findings.host import is_loopback, is_private, same_place
from barnabas.decoder.happening import Closed, Opened

SECOND = 1_000_000_000
OURS = [
    "unreachable-advertised-address", "broken-broker-address", "flapping-broker-address", "connection-refused",
    "connection-closed-at-once",
]  # fmt: skip


class Story:
    """Connections of a client, told to the detectors of this area."""

    def __init__(self, client: str = "10.0.0.5", broker: str = "10.0.0.1:9092") -> None:
        self.inspector = Inspector(OURS)
        self.client, self.broker = client, broker
        self.now = 1_000 * SECOND
        self.number = 0

    def open(self, broker: str = "", established: bool = True) -> decoder.Connection:
        self.number += 1
        client, broker = f"{self.client}:{40000 + self.number}", broker or self.broker
        self.inspector.feed(Opened(self.number, client, broker, self.now, established))
        return decoder.Connection(self.number, client, broker)

    def ask(
        self, conn: decoder.Connection, api: int, version: int, body: dict[str, Any], answer: dict[str, Any]
    ) -> None:
        request = decoder.encode_request(
            api, version, body, correlation_id=self.now // 1000 % 1_000_000, client_id="shop"
        )
        response = decoder.encode_response(api, version, answer, correlation_id=self.now // 1000 % 1_000_000)
        self._feed(conn.receive_from_client(struct.pack(">i", len(request)) + request, self.now))
        self._feed(conn.receive_from_broker(struct.pack(">i", len(response)) + response, self.now + 1_000_000))

    def metadata(self, conn: decoder.Connection, *brokers: tuple[int, str, int], topics: bool = True) -> None:
        body = {"topics": [{"name": "orders"}] if topics else None}
        told = [{"node_id": n, "host": h, "port": p} for n, h, p in brokers]
        self.ask(conn, 3, 9, body, {"brokers": told, "cluster_id": "c"})

    def close(self, conn: decoder.Connection, how: str = "fin", by: str = "client") -> None:
        self._feed(conn.close(self.now))
        self.inspector.feed(Closed(conn.number, self.now, how, by))

    def _feed(self, events: list[Event]) -> None:
        for event in events:
            assert not isinstance(event, decoder.connection.Opaque)
            self.inspector.feed(event)

    def findings(self) -> list[Finding]:
        return self.inspector.findings()


def test_an_advertised_address_that_refuses(replay):
    found = replay("security-wrong-address", OURS)
    assert [(f.id, f.severity) for f in found] == [("unreachable-advertised-address", Severity.HIGH)]
    assert "127.0.0.2:9092" in found[0].seen and "broker 1" in found[0].seen and "refused" in found[0].seen
    assert "'shop'" in found[0].seen and "advertised.listeners" in found[0].remedy
    assert found[0].about["advertised"] == "127.0.0.2:9092" and found[0].about["node"] == 1
    assert found[0].exchanges[0].api == "Metadata" and found[0].count == 3


@pytest.mark.parametrize("name", ["unknown-name", "unknown-name-group"])
def test_an_advertised_name_that_does_not_resolve(replay, name: str):
    (found,) = replay(f"security-{name}", OURS)
    assert found.id == "unreachable-advertised-address" and found.severity is Severity.HIGH
    assert "kafka-1.invalid:9092" in found.seen and "never connects there" in found.seen
    assert "nc -vz kafka-1.invalid 9092" in found.remedy


@pytest.mark.parametrize("name", ["listing", "plain", "session-renewed", "not-allowed", "http-probe"])
def test_clients_that_need_no_other_broker_are_well(replay, name: str):
    assert replay(f"security-{name}", OURS) == []


def test_a_loopback_address_for_a_client_from_elsewhere_is_told_soon():
    story = Story()
    conn = story.open()
    for _ in range(3):
        story.metadata(conn, (1, "localhost", 9092))
        story.now += 2 * SECOND
    (found,) = story.findings()
    assert found.id == "unreachable-advertised-address"
    assert "localhost is the client's own machine (10.0.0.5), not the broker's (10.0.0.1)" in found.why


@pytest.mark.parametrize(
    ("client", "host", "topics", "useful"),
    [
        ("10.0.0.1", "localhost", True, False),  # on the broker's own machine
        ("10.0.0.5", "localhost", False, False),  # lists everything: a monitor
        ("10.0.0.5", "localhost", True, True),  # behind a port forward: it works
        ("10.0.0.5", "10.0.0.1", True, False),  # told where it is
        ("10.0.0.5", "kafka-1", True, False),  # too few for a name that nothing speaks against
    ],
)
def test_near_misses_of_a_wrong_address(client: str, host: str, topics: bool, useful: bool):
    story = Story(client)
    conn = story.open()
    for _ in range(4):
        story.metadata(conn, (1, host, 9092), topics=topics)
        if useful:
            story.ask(conn, 2, 5, {"topics": []}, {})
        story.now += 2 * SECOND
    assert story.findings() == []


def test_one_unreachable_of_several_needs_proof():
    story = Story()
    conn = story.open()
    for _ in range(8):
        story.metadata(conn, (1, "10.0.0.1", 9092), (2, "10.0.0.2", 9092))
        story.now += SECOND
    assert story.findings() == []
    for _ in range(3):
        tried = story.open("10.0.0.2:9092", established=False)
        story.now += SECOND
        story.close(tried, "unreached", "")
    (found,) = story.findings()
    assert found.id == "unreachable-advertised-address" and "gets no answer there, 3 times" in found.seen


def test_two_brokers_at_one_address():
    story = Story()
    conn = story.open()
    for _ in range(3):
        story.metadata(conn, (1, "lb", 9092), (2, "kafka-2", 9092), (3, "lb", 9092))
        story.ask(conn, 2, 5, {"topics": []}, {})
    (found,) = story.findings()
    assert (found.id, found.count, found.severity) == ("broken-broker-address", 3, Severity.HIGH)
    assert "brokers 1 and 3 are both at lb:9092" in found.seen


@pytest.mark.parametrize(("host", "port"), [("", 9092), ("kafka-1", 0), ("kafka-1", -1)])
def test_no_address_at_all(host: str, port: int):
    story = Story()
    conn = story.open()
    story.metadata(conn, (1, host, port))
    story.metadata(conn, (2, "kafka-2", 9092))
    assert [f.id for f in story.findings()] == ["broken-broker-address"]
    assert "broker 1" in story.findings()[0].seen


def test_an_unavailable_coordinator_is_no_broken_address():
    story = Story()
    conn = story.open()
    story.ask(conn, 10, 2, {"key": "g"}, {"error_code": 15, "node_id": -1, "host": "", "port": -1})
    story.ask(conn, 10, 4, {"coordinator_keys": ["g"]}, {"coordinators": [{"key": "g", "node_id": -1, "host": "", "port": -1, "error_code": 15}]})  # fmt: skip
    assert story.findings() == []


def test_an_address_that_goes_back_and_forth():
    story = Story()
    conn = story.open()
    told = []
    for host in ("a", "a", "b", "b", "a", "b"):
        story.metadata(conn, (1, host, 9092))
        story.ask(conn, 2, 5, {"topics": []}, {})
        told.append([f.id for f in story.findings()])
    assert told[:-1] == [[]] * 5  # a move, and a move back, may be
    assert told[-1] == ["flapping-broker-address"]
    other = Story()  # another listener is another address to ask at
    inside, outside = other.open("10.0.0.1:9092"), other.open("10.0.0.1:9093")
    for _ in range(4):
        other.metadata(inside, (1, "inside", 9092), topics=False)
        other.metadata(outside, (1, "outside", 9093), topics=False)
    assert other.findings() == []


def test_a_broker_that_is_down(replay):
    (found,) = replay("security-refused", OURS)
    assert found.id == "connection-refused" and found.severity is Severity.MEDIUM
    assert found.count >= 5 and "127.0.0.1:9092" in found.seen and "refused" in found.seen


def test_a_restart_is_short_and_a_lasting_refusal_is_high():
    story = Story()
    for _ in range(4):
        tried = story.open(established=False)
        story.now += SECOND
        story.close(tried, "refused", "broker")
    story.close(story.open())
    for _ in range(4):
        tried = story.open(established=False)
        story.now += SECOND
        story.close(tried, "refused", "broker")
    assert story.findings() == []
    for _ in range(12):
        tried = story.open(established=False)
        story.now += 6 * SECOND
        story.close(tried, "refused", "broker")
    (found,) = story.findings()
    assert found.severity is Severity.HIGH and found.count == 16


def test_localhost_of_the_other_family_is_no_refusal():
    story = Story("::1", "[::1]:9092")
    story.client = "127.0.0.1"
    story.open("127.0.0.1:9092")
    story.client = "::1"
    for _ in range(9):
        tried = story.open("[::1]:9092", established=False)
        story.now += SECOND
        story.close(tried, "refused", "broker")
    assert story.findings() == []


def test_connections_that_end_before_a_word_is_said():
    story = Story()
    for count in range(6):
        conn = story.open()
        story.now += SECOND // 10
        story.close(conn, "rst" if count else "fin", "broker")
    (found,) = story.findings()
    assert found.id == "connection-closed-at-once" and found.severity is Severity.HIGH and found.count == 6
    assert "before anything was said" in found.seen and "max.connections.per.ip" in found.why


def test_health_checks_close_by_themselves():
    story = Story()
    for _ in range(20):
        story.close(story.open(), "rst", "client")
        story.close(story.open(), "fin", "")
    assert story.findings() == []


def test_hosts():
    assert (
        is_loopback("::1") and is_loopback("LOCALHOST") and is_loopback("127.9.9.9") and is_loopback("::ffff:127.0.0.1")
    )
    assert is_private("192.168.1.1") and not is_private("127.0.0.1") and not is_private("kafka-1")
    assert same_place("kafka-1:9092", "10.0.0.1:9092") and not same_place("kafka-1:9092", "10.0.0.1:9093")
    assert same_place("[::1]:9092", "127.0.0.1:9092") and not same_place("localhost:9092", "10.0.0.1:9092")
    assert same_place("10.0.0.1:9092", "::ffff:10.0.0.1:9092") and not same_place("10.0.0.1:9092", "10.0.0.2:9092")
