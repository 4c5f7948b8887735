"""What brokers offer and clients leave unused: recordings of real clients, as they are and edited."""

from __future__ import annotations

from barnabas.decoder.schema import facts
from traffic.edited_exchanges import answered, copied, edited, offering, until, without
from traffic.recordings import findings, one, recording

NEVER = -1, -1


def test_a_few_requests_or_a_producer_id_are_no_finding() -> None:
    assert findings(until(recording("versions-plain-producer"), "Produce", 49), "idempotence-unused") == []
    assert findings(until(recording("versions-plain-producer"), "Produce", 50), "idempotence-unused")
    assert findings("versions-lost-sequence", "idempotence-unused") == []
    asked = facts.api_key("InitProducerId")  # the client has asked for one after all, in its last request
    happened = recording("versions-plain-producer")
    happened = edited(happened, lambda e: copied(e, api_key=asked) if e.correlation_id == 61 else e)
    assert findings(happened, "idempotence-unused") == []
    assert findings(offering(recording("versions-plain-producer"), InitProducerId=NEVER), "idempotence-unused") == []


def test_members_that_did_not_leave_before_have_not_come_back() -> None:
    stayed = without(recording("versions-leaving-and-coming"), lambda e: e.api == "LeaveGroup")
    assert findings(stayed, "static-membership-unused") == []
    assert findings(until(recording("versions-leaving-and-coming"), "LeaveGroup", 3), "static-membership-unused")
    assert findings(until(recording("versions-leaving-and-coming"), "LeaveGroup", 2), "static-membership-unused") == []


def test_classic_groups_on_a_broker_with_the_new_protocol() -> None:
    finding = one("versions-leaving-and-coming", "classic-group-protocol")
    assert finding.about["groups"] == ["leaving-and-coming"] and "KIP-848" in finding.why
    # Kafka 3.9 offers version 0 of it: a preview
    assert (
        findings(
            offering(recording("versions-leaving-and-coming"), ConsumerGroupHeartbeat=(0, 0)), "classic-group-protocol"
        )
        == []
    )
    assert findings(until(recording("versions-leaving-and-coming"), "LeaveGroup", 1), "classic-group-protocol") == []


def test_a_consumer_that_fetches_by_name() -> None:
    finding = one("versions-plain-consumer", "topic-ids-unused")
    assert "Fetch v11" in finding.seen and "KIP-516" in finding.why
    assert findings(until(recording("versions-plain-consumer"), "Fetch", 49), "topic-ids-unused") == []
    assert findings(offering(recording("versions-plain-consumer"), Fetch=(4, 12)), "topic-ids-unused") == []


def test_a_consumer_that_does_not_say_its_rack() -> None:
    finding = one("versions-plain-consumer", "rack-unaware-fetch")
    assert finding.about["racks"] == ["north", "south"] and "client.rack" in finding.remedy
    assert findings(until(recording("versions-plain-consumer"), "Fetch", 49), "rack-unaware-fetch") == []
    one_rack = edited(recording("versions-plain-consumer"), answered({"brokers[1].rack": "north"}), "Metadata")
    assert findings(one_rack, "rack-unaware-fetch") == []
