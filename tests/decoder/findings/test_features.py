"""What brokers offer and clients leave unused: recorded from real clients, and told a little otherwise."""

from __future__ import annotations

from barnabas.decoder import facts
from barnabas.decoder.findings import Severity
from barnabas.decoder.happening import Happening
from retold.versions import answered, exchange_of, findings, offering, one, told, without

NEVER = -1, -1


def until(happenings: list[Happening], api: str, count: int) -> list[Happening]:
    """The same up to the `count`-th exchange of an API."""
    seen: dict[int, None] = {}
    out = []
    for h in happenings:
        e = exchange_of(h)
        if e is not None and e.api == api:
            seen.setdefault(id(e))
            if len(seen) > count:
                break
        out.append(h)
    return out


def test_a_producer_without_idempotence() -> None:
    finding = one(told("plain-producer"), "idempotence-unused")
    assert finding.severity is Severity.INFO and finding.count == 60
    assert "acks=all" in finding.seen and "KIP-98" in finding.why and "enable.idempotence=true" in finding.remedy


def test_a_few_requests_or_a_producer_id_say_otherwise() -> None:
    assert findings(until(told("plain-producer"), "Produce", 49), "idempotence-unused") == []
    assert findings(until(told("plain-producer"), "Produce", 50), "idempotence-unused")
    assert findings(told("lost-sequence"), "idempotence-unused") == []
    happenings = told("plain-producer")
    last = [e for h in happenings if (e := exchange_of(h)) is not None][-1]
    last.api_key = facts.api_key("InitProducerId")  # the client has asked for one after all
    assert findings(happenings, "idempotence-unused") == []
    assert findings(offering(told("plain-producer"), InitProducerId=NEVER), "idempotence-unused") == []


def test_consumers_that_come_back_as_new_members() -> None:
    finding = one(told("leaving-and-coming"), "static-membership-unused")
    assert finding.about["group"] == "leaving-and-coming" and finding.count == 3
    assert "KIP-345" in finding.why and "group.instance.id" in finding.remedy


def test_members_that_did_not_leave_before_have_not_come_back() -> None:
    stayed = without(told("leaving-and-coming"), lambda e: e.api == "LeaveGroup")
    assert findings(stayed, "static-membership-unused") == []
    assert findings(until(told("leaving-and-coming"), "LeaveGroup", 3), "static-membership-unused")
    assert findings(until(told("leaving-and-coming"), "LeaveGroup", 2), "static-membership-unused") == []


def test_classic_groups_on_a_broker_with_the_new_protocol() -> None:
    finding = one(told("leaving-and-coming"), "classic-group-protocol")
    assert finding.about["groups"] == ["leaving-and-coming"] and "KIP-848" in finding.why
    # Kafka 3.9 offers version 0 of it: a preview
    assert findings(offering(told("leaving-and-coming"), ConsumerGroupHeartbeat=(0, 0)), "classic-group-protocol") == []
    assert findings(until(told("leaving-and-coming"), "LeaveGroup", 1), "classic-group-protocol") == []


def test_a_consumer_that_fetches_by_name() -> None:
    finding = one(told("plain-consumer"), "topic-ids-unused")
    assert "Fetch v11" in finding.seen and "KIP-516" in finding.why
    assert findings(until(told("plain-consumer"), "Fetch", 49), "topic-ids-unused") == []
    assert findings(offering(told("plain-consumer"), Fetch=(4, 12)), "topic-ids-unused") == []


def test_a_consumer_that_does_not_say_its_rack() -> None:
    finding = one(told("plain-consumer"), "rack-unaware-fetch")
    assert finding.about["racks"] == ["north", "south"] and "client.rack" in finding.remedy
    assert findings(until(told("plain-consumer"), "Fetch", 49), "rack-unaware-fetch") == []
    one_rack = answered(told("plain-consumer"), "Metadata", lambda body: {"brokers[1].rack": "north"})
    assert findings(one_rack, "rack-unaware-fetch") == []
