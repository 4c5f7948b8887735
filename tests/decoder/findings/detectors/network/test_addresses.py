"""Addresses that lead nowhere: on recorded traffic of real clients, and where a broker cannot be made to do it, edited."""

from __future__ import annotations

import pytest
from barnabas.decoder import Connection
from barnabas.decoder.findings import Severity
from barnabas.decoder.findings.engine.host import is_loopback, is_private, same_place
from traffic.conversations import BROKER, Conversations
from traffic.recordings import findings

OURS = [
    "unreachable-advertised-address", "broken-broker-address", "flapping-broker-address", "connection-refused",
    "connection-closed-at-once",
]  # fmt: skip


class AddressConversation(Conversations):
    """Connections of a client, for the detectors of this area."""

    def __init__(self, client: str = "10.0.0.5", broker: str = BROKER) -> None:
        super().__init__(*OURS, client=client, broker=broker)

    def metadata(self, connection: Connection, *brokers: tuple[int, str, int], topics: bool = True) -> None:
        body = {"topics": [{"name": "orders"}] if topics else None}
        advertised = [{"node_id": n, "host": h, "port": p} for n, h, p in brokers]
        self.ask(connection, "Metadata", 9, body, {"brokers": advertised, "cluster_id": "c"})

    def work(self, connection: Connection) -> None:
        """A request that only a client of this broker has."""
        self.ask(connection, "ListOffsets", 5, {"topics": []}, {})

    def refused(self, times: int, seconds: float = 1) -> None:
        """So many connects are refused, one after the other."""
        for _ in range(times):
            tried = self.open(established=False)
            self.wait(seconds)
            self.close(tried, "refused", "broker")


def test_an_advertised_address_that_refuses() -> None:
    found = findings("security-wrong-address", *OURS)
    assert [(f.id, f.severity) for f in found] == [("unreachable-advertised-address", Severity.HIGH)]
    assert "127.0.0.2:9092" in found[0].seen and "broker 1" in found[0].seen and "refused" in found[0].seen
    assert "'shop'" in found[0].seen and "advertised.listeners" in found[0].remedy
    assert found[0].about["advertised"] == "127.0.0.2:9092" and found[0].about["node"] == 1
    assert found[0].exchanges[0].api == "Metadata" and found[0].count == 3


@pytest.mark.parametrize("name", ["unknown-name", "unknown-name-group"])
def test_an_advertised_name_that_does_not_resolve(name: str) -> None:
    (found,) = findings(f"security-{name}", *OURS)
    assert found.id == "unreachable-advertised-address" and found.severity is Severity.HIGH
    assert "kafka-1.invalid:9092" in found.seen and "never connects there" in found.seen
    assert "nc -vz kafka-1.invalid 9092" in found.remedy


@pytest.mark.parametrize("name", ["listing", "plain", "session-renewed", "not-allowed", "http-probe"])
def test_clients_that_need_no_other_broker_are_well(name: str) -> None:
    assert findings(f"security-{name}", *OURS) == []


def test_a_loopback_address_for_a_client_from_elsewhere_is_reported_soon() -> None:
    conversation = AddressConversation()
    conn = conversation.open()
    for _ in range(3):
        conversation.metadata(conn, (1, "localhost", 9092))
        conversation.wait(2)
    (found,) = conversation.findings()
    assert found.id == "unreachable-advertised-address"
    assert "localhost is the client's own machine (10.0.0.5), not the broker's (10.0.0.1)" in found.why


@pytest.mark.parametrize(
    ("client", "host", "topics", "useful"),
    [
        ("10.0.0.1", "localhost", True, False),  # on the broker's own machine
        ("10.0.0.5", "localhost", False, False),  # lists everything: a monitor
        ("10.0.0.5", "localhost", True, True),  # behind a port forward: it works
        ("10.0.0.5", "10.0.0.1", True, False),  # given the real address
        ("10.0.0.5", "kafka-1", True, False),  # too few for a name that nothing speaks against
    ],
)
def test_near_misses_of_a_wrong_address(client: str, host: str, topics: bool, useful: bool) -> None:
    conversation = AddressConversation(client)
    conn = conversation.open()
    for _ in range(4):
        conversation.metadata(conn, (1, host, 9092), topics=topics)
        if useful:
            conversation.work(conn)
        conversation.wait(2)
    assert conversation.findings() == []


def test_one_unreachable_of_several_needs_proof() -> None:
    conversation = AddressConversation()
    conn = conversation.open()
    for _ in range(8):
        conversation.metadata(conn, (1, "10.0.0.1", 9092), (2, "10.0.0.2", 9092))
        conversation.wait(1)
    assert conversation.findings() == []
    for _ in range(3):
        tried = conversation.open("10.0.0.2:9092", established=False)
        conversation.wait(1)
        conversation.close(tried, "unreached", "")
    (found,) = conversation.findings()
    assert found.id == "unreachable-advertised-address" and "gets no answer there, 3 times" in found.seen


def test_two_brokers_at_one_address() -> None:
    conversation = AddressConversation()
    conn = conversation.open()
    for _ in range(3):
        conversation.metadata(conn, (1, "lb", 9092), (2, "kafka-2", 9092), (3, "lb", 9092))
        conversation.work(conn)
    (found,) = conversation.findings()
    assert (found.id, found.count, found.severity) == ("broken-broker-address", 3, Severity.HIGH)
    assert "brokers 1 and 3 the same address lb:9092" in found.seen


@pytest.mark.parametrize(("host", "port"), [("", 9092), ("kafka-1", 0), ("kafka-1", -1)])
def test_no_address_at_all(host: str, port: int) -> None:
    conversation = AddressConversation()
    conn = conversation.open()
    conversation.metadata(conn, (1, host, port))
    conversation.metadata(conn, (2, "kafka-2", 9092))
    assert [f.id for f in conversation.findings()] == ["broken-broker-address"]
    assert "broker 1" in conversation.findings()[0].seen


def test_an_unavailable_coordinator_is_no_broken_address() -> None:
    conversation = AddressConversation()
    conn = conversation.open()
    conversation.ask(conn, "FindCoordinator", 2, {"key": "g"}, {"error_code": 15, "node_id": -1, "host": "", "port": -1})
    conversation.ask(conn, "FindCoordinator", 4, {"coordinator_keys": ["g"]}, {"coordinators": [{"key": "g", "node_id": -1, "host": "", "port": -1, "error_code": 15}]})  # fmt: skip
    assert conversation.findings() == []


def test_an_address_that_goes_back_and_forth() -> None:
    conversation = AddressConversation()
    conn = conversation.open()
    reported = []
    for host in ("a", "a", "b", "b", "a", "b"):
        conversation.metadata(conn, (1, host, 9092))
        conversation.work(conn)
        reported.append([f.id for f in conversation.findings()])
    assert reported[:-1] == [[]] * 5  # a move, and a move back, may be
    assert reported[-1] == ["flapping-broker-address"]
    other = AddressConversation()  # another listener is another address to ask at
    inside, outside = other.open("10.0.0.1:9092"), other.open("10.0.0.1:9093")
    for _ in range(4):
        other.metadata(inside, (1, "inside", 9092), topics=False)
        other.metadata(outside, (1, "outside", 9093), topics=False)
    assert other.findings() == []


def test_a_broker_that_is_down() -> None:
    (found,) = findings("security-refused", *OURS)
    assert found.id == "connection-refused" and found.severity is Severity.MEDIUM
    assert found.count >= 5 and "127.0.0.1:9092" in found.seen and "refused" in found.seen


def test_a_restart_is_short_and_a_lasting_refusal_is_high() -> None:
    conversation = AddressConversation()
    conversation.refused(4)
    conversation.close(conversation.open())
    conversation.refused(4)
    assert conversation.findings() == []
    conversation.refused(12, 6)
    (found,) = conversation.findings()
    assert found.severity is Severity.HIGH and found.count == 16


def test_localhost_of_the_other_family_is_no_refusal() -> None:
    conversation = AddressConversation("::1", "[::1]:9092")
    conversation.client = "127.0.0.1"
    conversation.open("127.0.0.1:9092")
    conversation.client = "::1"
    conversation.refused(9)
    assert conversation.findings() == []


def test_connections_that_end_before_a_word_is_said() -> None:
    conversation = AddressConversation()
    for count in range(6):
        conn = conversation.open()
        conversation.wait(0.1)
        conversation.close(conn, "rst" if count else "fin", "broker")
    (found,) = conversation.findings()
    assert found.id == "connection-closed-at-once" and found.severity is Severity.HIGH and found.count == 6
    assert "before any request" in found.seen and "max.connections.per.ip" in found.why


@pytest.mark.parametrize(("wait", "severity"), [(1, Severity.MEDIUM), (20, Severity.HIGH)])
def test_connections_closed_at_once_after_a_broker_has_stopped(wait: float, severity: Severity) -> None:
    """A port forward accepts connections while its broker restarts; if that lasts, it is no restart."""
    conversation = AddressConversation()
    working = [conversation.open() for _ in range(3)]
    for conn in working:
        conversation.work(conn)
    for conn in working:
        conversation.close(conn, "rst", "broker")
    for _ in range(6):
        conversation.wait(wait)
        conversation.close(conversation.open(), "rst", "broker")
    (found,) = (f for f in conversation.findings() if f.id == "connection-closed-at-once")
    assert found.severity is severity and "it ended 3 connections that had worked" in found.seen
    assert found.why.startswith("likeliest first: the broker stopped")


def test_a_connection_that_works_ends_the_row_of_those_closed_at_once() -> None:
    conversation = AddressConversation()
    for _ in range(2):
        for _ in range(4):
            conversation.close(conversation.open(), "rst", "broker")
        conversation.work(conversation.open())
    assert conversation.findings() == []


def test_health_checks_close_by_themselves() -> None:
    conversation = AddressConversation()
    for _ in range(20):
        conversation.close(conversation.open(), "rst", "client")
        conversation.close(conversation.open(), "fin", "")
    assert conversation.findings() == []


def test_hosts() -> None:
    assert (
        is_loopback("::1") and is_loopback("LOCALHOST") and is_loopback("127.9.9.9") and is_loopback("::ffff:127.0.0.1")
    )
    assert is_private("192.168.1.1") and not is_private("127.0.0.1") and not is_private("kafka-1")
    assert same_place("kafka-1:9092", "10.0.0.1:9092") and not same_place("kafka-1:9092", "10.0.0.1:9093")
    assert same_place("[::1]:9092", "127.0.0.1:9092") and not same_place("localhost:9092", "10.0.0.1:9092")
    assert same_place("10.0.0.1:9092", "::ffff:10.0.0.1:9092") and not same_place("10.0.0.1:9092", "10.0.0.2:9092")
