"""Brokers by TLS name: a client that never uses the names it is given is reported."""

from __future__ import annotations

import pytest
from barnabas.proxy.events import Event, NamesUnused
from barnabas.proxy.relay.addressing import sni_address_map

OWN = ("kafka-1.intern", 9092)


class Day:
    """A clock that is set by hand, in place of the module `time`."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def day(monkeypatch: pytest.MonkeyPatch) -> Day:
    made = Day()
    monkeypatch.setattr(sni_address_map, "time", made)
    return made


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def brokers(events: list[Event]) -> sni_address_map.NamedBrokers:
    made = sni_address_map.NamedBrokers(("127.0.0.1", 9093), OWN, suffix="kafka.example", emit=events.append)
    assert made.stands_for(OWN, 1, "") == ("broker-1.kafka.example", 9093)
    events.clear()
    return made


def test_a_client_that_never_comes_by_name_is_reported_once(brokers: sni_address_map.NamedBrokers, events: list[Event], day: Day) -> None:
    for _ in range(20):
        assert brokers.broker_for("kafka.example", "10.0.0.7") == OWN
        day.now += 1.0
    assert events == [NamesUnused("10.0.0.7", 6, "broker-1.kafka.example")]
    assert "connected 6 times" in events[0].text and "/etc/hosts" in events[0].text
    for _ in range(20):
        brokers.broker_for("10.0.0.1", "10.0.0.8")
        day.now += 1.0
    assert [event.client for event in events if isinstance(event, NamesUnused)] == ["10.0.0.7", "10.0.0.8"]


def test_who_came_by_one_and_who_hurries_are_not(brokers: sni_address_map.NamedBrokers, events: list[Event], day: Day) -> None:
    brokers.broker_for("broker-1.kafka.example", "10.0.0.7")
    for _ in range(20):
        brokers.broker_for("kafka.example", "10.0.0.7")
        brokers.broker_for("kafka.example", "10.0.0.9")
        day.now += 0.1
    assert not events


def test_no_client_is_reported_before_there_are_names(events: list[Event], day: Day) -> None:
    brokers = sni_address_map.NamedBrokers(("127.0.0.1", 9093), OWN, suffix="kafka.example", emit=events.append)
    for _ in range(20):
        brokers.broker_for("kafka.example", "10.0.0.7")
        day.now += 1.0
    assert not events


def test_clients_without_end_are_forgotten(brokers: sni_address_map.NamedBrokers, events: list[Event], day: Day) -> None:
    for number in range(2 * sni_address_map.MOST_CLIENTS):
        brokers.broker_for("kafka.example", f"10.1.{number >> 8}.{number & 255}")
        day.now += 1.0
    assert len(brokers._strays) == sni_address_map.MOST_CLIENTS and not events
