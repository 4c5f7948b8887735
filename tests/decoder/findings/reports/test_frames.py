"""Public reports about broken frames, versions and offers: the first finding above info is the cause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder.compat.matrix import broker
from barnabas.decoder.findings import Finding, Severity
from barnabas.decoder.reference import releases
from barnabas.decoder.schema import facts
from harness.wire import with_size
from traffic.conversations import Conversations

Offer = Mapping[int, tuple[int, int]]
KAFKA_4 = releases.release("4.1").offered
KAFKA_3 = releases.release("3.6").offered


def api_keys(offer: Offer) -> list[dict[str, int]]:
    return [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in offer.items()]


def software(name: str, version: str) -> dict[str, str]:
    return {"client_software_name": name, "client_software_version": version}


def negotiate(talk: Conversations, at: decoder.Connection, offer: Offer, version: int = 3, **client: str) -> None:
    talk.ask(at, "ApiVersions", version, client, {"api_keys": api_keys(offer)})


def cause(talk: Conversations) -> Finding:
    """The first finding above info."""
    return next(finding for finding in talk.findings() if finding.severity is not Severity.INFO)


def troubles(talk: Conversations) -> list[tuple[str, str]]:
    """What is found above low."""
    return [(f.id, f.seen) for f in talk.findings() if f.severity.rank > Severity.LOW.rank]


# --- broken responses --------------------------------------------------------------------------------------


def offered_behind_header_1(wrong: bool) -> Conversations:
    talk = Conversations()
    for _ in range(3):
        at = talk.open()
        frame = decoder.encode_response(18, 3, {"api_keys": api_keys(KAFKA_3)})
        talk.ask(at, "ApiVersions", 3, software("librdkafka", "2.3.0"), frame[:4] + b"\0" * wrong + frame[4:])
        if not wrong:
            talk.ask(at, "Metadata", 12, {"topics": []}, {"brokers": [{"node_id": 1, "host": "10.0.0.1", "port": 9092}]})
        talk.wait(0.5)
        talk.close(at)
        talk.wait(1)
    return talk


def test_api_versions_behind_response_header_1() -> None:  # kafka-protocol-rs#113
    found = cause(offered_behind_header_1(wrong=True))
    assert (found.id, found.severity, found.count) == ("surplus-bytes", Severity.HIGH, 3)
    assert "ApiVersions v3 response of broker 10.0.0.1:9092" in found.seen
    assert "decodes exactly behind a response header v1" in found.seen and "the client then closed the connection (3 times)" in found.seen
    assert "ApiVersions responses have header v0 in every version" in found.why and "broker" in found.remedy
    assert troubles(offered_behind_header_1(wrong=False)) == []


def test_nothing_is_read_from_shifted_bytes() -> None:
    ids = {finding.id for finding in offered_behind_header_1(wrong=True).findings()}
    assert ids == {"surplus-bytes"}  # no throttle time of 16777 minutes, no offer


def asked_once(api: str, version: int, answer: bytes, then: str = "closed", **fields: Any) -> Finding:
    """A response as these bytes behind the correlation id, twice; and what the client did `then`."""
    talk = Conversations()
    for _ in range(2):
        at = talk.open()
        talk.ask(at, api, version, fields, b"\0\0\0\0" + answer)
        talk.wait(0.1)
        if then == "went on":
            talk.ask(at, "Metadata", 4, {"topics": []}, {"brokers": [{"node_id": 1, "host": "10.0.0.1", "port": 9092}]})
        elif then == "older":
            talk.ask(at, api, version - 1, fields, HOST)
        talk.wait(0.1)
        talk.close(at)
    return cause(talk)


def body(api: str, version: int, fields: dict[str, Any]) -> bytes:
    return decoder.encode_body("response", facts.api_key(api), version, fields)


HOST = {"node_id": 1, "host": "broker-1.example.com", "port": 9092}
METADATA = {
    "brokers": [HOST, HOST | {"node_id": 2, "port": 9093}],
    "topics": [{"name": "orders", "partitions": [{"leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}]}],
}


@pytest.mark.parametrize(
    ("api", "version", "answer", "ids", "says"),
    [
        ("Metadata", 8, b"\0" + body("Metadata", 8, METADATA), None, "behind a response header v1"),
        ("Metadata", 9, body("Metadata", 9, METADATA), None, "behind a response header v0"),
        ("FindCoordinator", 3, b"\0" + body("FindCoordinator", 3, HOST)[:-1], "undecodable-frame", "with one more byte 00 at its end"),
        ("FindCoordinator", 2, body("FindCoordinator", 3, HOST)[:-1], None, "with compact lengths"),
        ("FindCoordinator", 2, body("FindCoordinator", 2, HOST) + b"\0", "surplus-bytes", "with a tag buffer at its end"),
        ("Metadata", 7, body("Metadata", 6, METADATA), None, "as Metadata v6"),
        ("Metadata", 1, body("Metadata", 5, METADATA), None, "as Metadata v"),
        (
            "InitProducerId",
            1,
            body("InitProducerId", 1, {"producer_id": 4711})[:-2] + b"\0\0\0\7",
            "surplus-bytes",
            "if producer_epoch is int32 instead of int16",
        ),
    ],
)
def test_the_layout_that_fits_is_named(api: str, version: int, answer: bytes, ids: str | None, says: str) -> None:
    found = asked_once(api, version, answer)
    assert ids in (None, found.id)
    assert found.severity is Severity.HIGH and f"decodes exactly {says}" in found.seen, found.seen


@pytest.mark.parametrize(
    ("then", "severity"), [("closed", Severity.HIGH), ("older", Severity.MEDIUM), ("went on", Severity.LOW)]
)
def test_how_bad_it_is_depends_on_what_came_next(then: str, severity: Severity) -> None:
    found = asked_once("FindCoordinator", 3, b"\0" + body("FindCoordinator", 3, HOST) + b"\1", then, key="g")
    assert (found.id, found.severity) == ("surplus-bytes", severity)


def test_a_client_that_reads_surplus_bytes_and_closes_in_the_end_is_not_above_low() -> None:
    talk = Conversations()
    at = talk.open()
    for _ in range(20):
        talk.ask(at, "Heartbeat", 0, {"group_id": "g"}, bytes(4) + body("Heartbeat", 0, {}) + bytes(3))
        talk.wait(3)
    talk.close(at)
    found = next(f for f in talk.findings() if f.id == "surplus-bytes")
    assert (found.severity, found.count) == (Severity.LOW, 20) and "closed" not in found.seen
    assert troubles(talk) == []


def test_a_client_that_is_silent_after_a_broken_answer() -> None:
    talk = Conversations()
    talk.ask(talk.open(), "FindCoordinator", 3, {"key": "g"}, bytes(5) + body("FindCoordinator", 3, HOST) + b"\1")
    talk.wait(60)
    negotiate(talk, talk.open("10.0.0.2:9092"), KAFKA_4)
    assert (cause(talk).id, cause(talk).severity) == ("surplus-bytes", Severity.HIGH)
    assert "the client then sent nothing more" in cause(talk).seen


def test_a_null_instead_of_an_empty_array() -> None:
    found = asked_once("Metadata", 1, b"\xff\xff\xff\xff" + b"\0\0\0\1" + bytes(4))
    assert (found.id, found.severity) == ("forbidden-null", Severity.HIGH) and "has a null in brokers" in found.seen


@pytest.mark.parametrize(("throttle", "says"), [(1006632960, "1006632960 in throttle_time_ms"), (-5, "-5 in throttle_time_ms")])
def test_a_throttle_time_that_cannot_be(throttle: int, says: str) -> None:
    found = asked_once("ListGroups", 1, body("ListGroups", 1, {"throttle_time_ms": throttle}))
    assert found.id == "impossible-value" and says in found.seen


def test_a_port_that_cannot_be() -> None:
    found = asked_once("Metadata", 4, body("Metadata", 4, {"brokers": [HOST | {"port": 70000}]}))
    assert found.id == "impossible-value" and "70000 in brokers[0].port" in found.seen


def test_a_long_throttle_time_that_can_be_is_a_quota() -> None:
    found = asked_once("ListGroups", 1, body("ListGroups", 1, {"throttle_time_ms": 60_000}))
    assert found.id == "throttled-by-quota"


def test_a_refused_login_with_null_bytes_is_still_a_refused_login() -> None:
    talk = Conversations()
    for _ in range(2):
        at = talk.open()
        talk.ask(at, "SaslHandshake", 1, {"mechanism": "PLAIN"}, {"mechanisms": ["PLAIN"]})
        refusal = b"\0\0\0\0" + b"\0\x3a" + b"\0\3bad" + b"\xff\xff\xff\xff"
        talk.ask(at, "SaslAuthenticate", 0, {"auth_bytes": b"\0user\0secret"}, refusal)
        talk.close(at, by="broker")
    assert cause(talk).id == "sasl-authentication-failed"


# --- broken requests ---------------------------------------------------------------------------------------


def cut_request(whole: bool) -> Conversations:
    """SyncGroup v3 whose assignment claims 80 bytes."""
    talk = Conversations()
    for _ in range(4):
        at = talk.open()
        request = decoder.encode_request(
            14,
            3,
            {"group_id": "g", "generation_id": 1, "member_id": "m", "assignments": [{"member_id": "m", "assignment": bytes(80)}]},
            correlation_id=5,
            client_id="workflow-kafka",
        )
        talk.sent(at, with_size(request if whole else request[:-80]))
        talk.wait(0.1)
        if whole:
            talk.received(at, with_size(decoder.encode_response(14, 3, {"assignment": bytes(80)}, correlation_id=5)))
        talk.close(at, by="client" if whole else "broker")
        talk.wait(1)
    return talk


def test_a_request_that_is_cut() -> None:  # sogou/workflow#1229
    found = cause(cut_request(whole=False))
    assert (found.id, found.severity) == ("undecodable-frame", Severity.HIGH)
    assert "SyncGroup v3 request of client 'workflow-kafka'" in found.seen
    assert "expected 80 bytes, only 0 left at assignments[0].assignment" in found.seen and "broker closed the connection" in found.seen
    assert "client library" in found.remedy and "closed-on-first-request" in found.effects
    assert troubles(cut_request(whole=True)) == []


def test_a_request_of_another_version_than_its_header_names() -> None:
    talk = Conversations()
    for number in range(3):
        at = talk.open()
        frame = decoder.encode_request(3, 4, {"topics": [{"name": "orders"}], "allow_auto_topic_creation": True}, correlation_id=number)
        talk.sent(at, with_size(frame[:3] + b"\x08" + frame[4:]))
        talk.close(at, by="broker")
    found = cause(talk)
    assert found.id == "undecodable-frame" and "decodes exactly as Metadata v" in found.seen


def test_surplus_of_a_request_that_does_no_harm() -> None:  # as librdkafka 2.16 sends Metadata v13
    talk = Conversations()
    at = talk.open()
    negotiate(talk, at, KAFKA_4)
    for number in range(10, 20):
        request = decoder.encode_request(3, 12, {"topics": []}, correlation_id=number)
        talk.sent(at, with_size(request + b"\0"))
        answer = {"throttle_time_ms": 2000, "brokers": [HOST]}
        talk.received(at, with_size(decoder.encode_response(3, 12, answer, correlation_id=number)))
        talk.wait(3)
    found = {finding.id: finding for finding in talk.findings()}
    assert found["surplus-bytes"].severity is Severity.INFO
    assert "throttled-by-quota" in found  # what the responses say still counts


def test_surplus_of_a_request_in_flight_when_the_broker_stops_is_no_cause() -> None:
    talk = Conversations()
    for number in range(10, 13):
        at = talk.open()
        for answered in (True, False) if number < 12 else (False,):
            request = decoder.encode_request(3, 12, {"topics": []}, correlation_id=number)
            talk.sent(at, with_size(request + b"\0"))
            if answered:
                talk.received(at, with_size(decoder.encode_response(3, 12, {"brokers": [HOST]}, correlation_id=number)))
        talk.wait(0.01)
        talk.close(at, by="broker")
    assert next(f for f in talk.findings() if f.id == "surplus-bytes").severity is Severity.INFO


def test_surplus_of_requests_that_are_never_accepted() -> None:
    talk = Conversations()
    for number in range(3):
        at = talk.open()
        talk.sent(at, with_size(decoder.encode_request(3, 4, {"topics": []}, correlation_id=number) + bytes(7)))
        talk.close(at, by="broker")
    assert (cause(talk).id, cause(talk).severity) == ("surplus-bytes", Severity.HIGH)


def test_a_healthy_frame_with_header_2() -> None:  # kafka-protocol-rs#4: the bytes of the report
    talk = Conversations()
    for _ in range(3):
        at = talk.open()
        frame = "0012000300000065000d61646d696e636c69656e742d3100126170616368652d6b61666b612d6a61766106322e382e3000"
        talk.sent(at, with_size(bytes.fromhex(frame)))
        answer = decoder.encode_response(18, 3, {"api_keys": api_keys(KAFKA_3)}, correlation_id=0x65)
        talk.received(at, with_size(answer))
        talk.ask(at, "Metadata", 9, {"topics": []}, {"brokers": [HOST]}, client_id="adminclient-1")
        talk.close(at)
    assert [f for f in talk.findings() if f.severity is not Severity.INFO] == []


# --- clients that end after ApiVersions --------------------------------------------------------------------

CONTROLLER = releases.release("4.0-controller").offered


def only_asks(talk: Conversations, offer: Offer, version: int = 3, count: int = 1, client_id: str = "shop", **client: str) -> None:
    """Connections on which the client asks for the versions alone."""
    for _ in range(count):
        at = talk.open()
        talk.ask(at, "ApiVersions", version, client, {"api_keys": api_keys(offer)}, client_id=client_id)
        talk.wait(0.05)
        talk.close(at)
        talk.wait(1)


def seeks(talk: Conversations, offer: Offer, version: int = 4, asked: int = 3, kind: int = 0, **client: str) -> None:
    """A connection on which the client finds its coordinator."""
    at = talk.open()
    negotiate(talk, at, offer, asked, **client)
    names = {"key_type": kind, "coordinator_keys": ["g"]} if version >= 4 else {"key": "g"}
    answer = {"coordinators": [HOST | {"key": "g"}]} if version >= 4 else HOST
    talk.ask(at, "FindCoordinator", version, names, answer)
    talk.close(at)


def test_a_controller_s_listener() -> None:
    talk = Conversations()
    only_asks(talk, CONTROLLER, count=4, **software("librdkafka", "2.16.0"))
    found = cause(talk)
    assert (found.id, found.severity, found.count) == ("controller-listener", Severity.HIGH, 4)
    assert "BrokerRegistration" in found.seen and "neither Metadata nor Produce" in found.seen and "a broker's address" in found.remedy


def test_a_client_that_waits_at_a_controller_s_listener() -> None:
    talk = Conversations()
    negotiate(talk, talk.open(), CONTROLLER, 3, **JAVA)
    talk.wait(60)
    negotiate(talk, talk.open("10.0.0.2:9092"), KAFKA_4, 3)
    assert cause(talk).id == "controller-listener"


def test_a_broker_and_an_admin_tool_at_a_controller_s_listener_are_healthy() -> None:
    talk = Conversations()
    node = {"broker_id": 1, "host": "10.0.0.1", "port": 9093}
    for api, version, answer in (("BrokerHeartbeat", 1, {}), ("DescribeCluster", 1, {"endpoint_type": 2, "brokers": [node], "controller_id": 1})):
        at = talk.open()
        talk.ask(at, "ApiVersions", 3, {}, {"api_keys": api_keys(CONTROLLER)}, client_id=api)
        talk.ask(at, api, version, {}, answer, client_id=api)
        talk.close(at)
        only_asks(talk, CONTROLLER, count=3, client_id=api)
    assert troubles(talk) == []


def test_a_client_too_old_for_the_offered_join_group() -> None:  # brod at a broker with JoinGroup v2 to v9
    talk = Conversations()
    offer = {**KAFKA_4, 11: (2, 9)}
    for _ in range(6):
        seeks(talk, offer, version=0, asked=0)
        only_asks(talk, offer, version=0)
    found = cause(talk)
    assert (found.id, found.severity, found.count) == ("client-gives-up", Severity.HIGH, 6)
    assert "offers JoinGroup v2 to v9, and the client probably has v0 to v1" in found.seen and "upgrade the client" in found.remedy


@pytest.mark.parametrize("hidden", ["JoinGroup", "SyncGroup"])
def test_a_group_api_that_is_not_offered(hidden: str) -> None:
    talk = Conversations()
    offer = {key: ends for key, ends in KAFKA_4.items() if key != facts.api_key(hidden)}
    seeks(talk, offer)
    only_asks(talk, offer)
    found = cause(talk)
    assert (found.id, found.severity) == ("client-gives-up", Severity.HIGH) and f"it does not offer {hidden}" in found.seen


def test_transactions_that_are_not_offered() -> None:
    talk = Conversations()
    offer = {key: ends for key, ends in KAFKA_4.items() if key not in facts.api_key_set("InitProducerId", "EndTxn")}
    seeks(talk, offer, kind=1)
    only_asks(talk, offer)
    assert "transactional id 'g'" in cause(talk).seen and "does not offer InitProducerId, EndTxn" in cause(talk).seen


def test_a_producer_with_idempotence_where_it_is_not_offered() -> None:
    talk = Conversations()
    offer = {key: ends for key, ends in KAFKA_4.items() if key != facts.api_key("InitProducerId")}
    at = talk.open()
    negotiate(talk, at, offer)
    talk.ask(at, "Metadata", 9, {"topics": [{"name": "orders"}]}, METADATA)
    only_asks(talk, offer, count=3)
    found = cause(talk)
    assert found.id == "client-gives-up" and "does not offer InitProducerId" in found.seen and "enable.idempotence=false" in found.remedy


def test_the_new_group_protocol_is_not_offered() -> None:
    talk = Conversations()
    seeks(talk, KAFKA_3, **software("apache-kafka-java", "4.1.0"))
    only_asks(talk, KAFKA_3, **software("apache-kafka-java", "4.1.0"))
    found = cause(talk)
    assert found.id == "client-gives-up" and "does not offer ConsumerGroupHeartbeat" in found.seen
    assert "group.protocol=classic" in found.remedy


def test_an_old_librdkafka_with_gssapi_at_kafka_4_0_0() -> None:  # KAFKA-19444
    talk = Conversations()
    only_asks(talk, {**KAFKA_4, 11: (2, 9)}, count=5, **software("librdkafka", "2.8.0"))
    found = cause(talk)
    assert (found.id, found.severity) == ("client-gives-up", Severity.HIGH) and "JoinGroup v2 to v9" in found.seen
    assert "2.11.0" in found.remedy and "KAFKA-19444" in found.why


def test_an_offer_without_metadata() -> None:
    talk = Conversations()
    only_asks(talk, {0: (3, 9), 1: (4, 12), 18: (0, 3)}, count=3)
    assert cause(talk).id == "client-gives-up" and "does not offer Metadata" in cause(talk).seen


def test_a_probe_that_only_asks_for_versions_is_not_above_low() -> None:
    talk = Conversations()
    only_asks(talk, KAFKA_4, count=20, **software("librdkafka", "2.8.0"))
    assert troubles(talk) == []


def test_clients_that_end_after_api_versions_without_a_reason_are_healthy() -> None:
    for offer, version in ((KAFKA_4, "4.1.0"), (KAFKA_3, "3.6.0")):  # everything is offered; a client without the new protocol
        talk = Conversations()
        seeks(talk, offer, **software("apache-kafka-java", version))
        only_asks(talk, offer, count=5, **software("apache-kafka-java", version))
        assert troubles(talk) == []


def test_a_client_that_joins_later_is_healthy() -> None:
    talk = Conversations()
    java = software("apache-kafka-java", "4.1.0")
    seeks(talk, KAFKA_3, **java)
    only_asks(talk, KAFKA_3, count=4, **java)
    at = talk.open()
    negotiate(talk, at, KAFKA_3, 3, **java)
    talk.ask(at, "JoinGroup", 9, {"group_id": "g"}, {"generation_id": 1, "member_id": "m", "leader": "m"})
    assert "client-gives-up" not in {f.id for f in talk.findings()}


KAFKA_0_10 = releases.release("0.10.2").offered


def falls_back(talk: Conversations, offer: Offer, **client: str) -> decoder.Connection:
    """A client of today at a broker that knows only the first version of ApiVersions."""
    at = talk.open()
    for version in (3, 2, 1):
        refusal = decoder.encode_response(18, 0, {"error_code": 35, "api_keys": []}, correlation_id=len(talk.exchanges) + 1)
        talk.ask(at, "ApiVersions", version, client if version == 3 else {}, refusal)
    talk.ask(at, "ApiVersions", 0, {}, {"api_keys": api_keys(offer)})
    return at


@pytest.mark.parametrize("asks_metadata", [False, True])
def test_a_client_of_today_that_has_no_old_produce(asks_metadata: bool) -> None:  # rskafka 0.6 at Kafka 0.10.2.2
    talk = Conversations()
    if asks_metadata:
        at = falls_back(talk, KAFKA_0_10, **software("rskafka", "0.6.0"))
        talk.ask(at, "Metadata", 1, {"topics": [{"name": "orders"}]}, METADATA | {"controller_id": 1})
    for _ in range(3):
        talk.close(falls_back(talk, KAFKA_0_10, **software("rskafka", "0.6.0")))
        talk.wait(0.1)
    found = cause(talk)
    assert (found.id, found.severity) == ("client-gives-up", Severity.MEDIUM)
    assert "it offers only Produce v0 to v2; Fetch v0 to v3" in found.seen
    assert "KIP-896" in found.why and "Produce from v3" in found.why and "2.1 or newer" in found.remedy


def test_a_client_of_today_that_ends_after_metadata() -> None:  # as rskafka 0.6 does at Kafka 0.10.2.2, on two connections
    talk = Conversations()
    for severity in (Severity.LOW, Severity.MEDIUM):  # a tool that only looks at the topic does it once
        for topics in ([], [{"name": "orders"}]):
            at = falls_back(talk, KAFKA_0_10, **software("rskafka", "0.6.0"))
            for asked in (topics, [{"name": "orders"}]):
                talk.ask(at, "Metadata", 2, {"topics": asked}, METADATA | {"controller_id": 1, "topics": METADATA["topics"] if asked else []})
            talk.close(at)
        found = cause(talk)
        assert (found.id, found.severity) == ("client-gives-up", severity)
        assert "sent nothing more than Metadata on that connection" in found.seen and "it offers only Produce v0 to v2" in found.seen


def test_one_connection_that_ends_at_an_old_broker_may_be_a_probe() -> None:
    talk = Conversations()
    talk.close(falls_back(talk, KAFKA_0_10))
    assert troubles(talk) == [] and "client-gives-up" in {f.id for f in talk.findings()}


@pytest.mark.parametrize("old", [False, True])
def test_a_client_that_goes_on_with_old_versions_is_healthy(old: bool) -> None:
    talk = Conversations()
    talk.close(falls_back(talk, KAFKA_0_10))
    at = talk.open() if old else falls_back(talk, KAFKA_0_10)
    if old:  # it asks for version 0 at once: it is as old as the broker
        talk.ask(at, "ApiVersions", 0, {}, {"api_keys": api_keys(KAFKA_0_10)})
    talk.ask(at, "Metadata", 1, {"topics": [{"name": "orders"}]}, METADATA | {"controller_id": 1})
    talk.ask(at, "Produce", 2, {"acks": 1, "timeout_ms": 1, "topic_data": []}, {"responses": []})
    talk.close(at)
    assert "client-gives-up" not in {f.id for f in talk.findings()}


# --- ApiVersions without an answer -------------------------------------------------------------------------


def closed_on(talk: Conversations, version: int, count: int = 4, client_id: str = "producer-1", **client: str) -> None:
    for _ in range(count):
        at = talk.open()
        talk.ask(at, "ApiVersions", version, client, None, client_id=client_id)
        talk.wait(0.01)
        talk.close(at, by="broker")
        talk.wait(1)


JAVA = software("apache-kafka-java", "3.9.0")


def test_api_versions_4_at_something_that_knows_it_to_3() -> None:  # kroxylicious#1611
    talk = Conversations()
    closed_on(talk, 4, 8, **JAVA)
    found = cause(talk)
    assert (found.id, found.severity, found.count) == ("closed-on-first-request", Severity.HIGH, 8)
    assert "ApiVersions v4 of apache-kafka-java 3.9.0" in found.seen and "probably a proxy or product that knows ApiVersions only to v3" in found.seen
    first = found.why.partition("Likeliest first: ")[2]
    assert first.startswith("a proxy or a Kafka-compatible product that knows ApiVersions only to v3") and "KIP-511" in found.why
    assert "a client older than 3.9" in found.remedy and "MaxVersions" in found.remedy


def test_it_is_certain_once_a_lower_version_is_answered() -> None:
    talk = Conversations(client="10.0.0.7")
    at = talk.open()
    negotiate(talk, at, KAFKA_3, 3, **software("apache-kafka-java", "3.8.0"))
    talk.client = "10.0.0.5"
    closed_on(talk, 4, **JAVA)
    found = cause(talk)
    assert found.id == "closed-on-first-request" and "Likeliest" not in found.why
    assert "answers ApiVersions v3 and closes the connection on v4" in found.why and "knows ApiVersions only to v3" in found.why


def test_a_client_that_falls_back_only_loses_time() -> None:
    talk = Conversations()
    for _ in range(4):
        closed_on(talk, 3, 1, **JAVA)
        at = talk.open()
        talk.ask(at, "ApiVersions", 0, {}, {"api_keys": api_keys({3: (0, 5), 18: (0, 2), 0: (0, 7), 1: (0, 10)})})
        talk.ask(at, "Metadata", 5, {"topics": []}, {"brokers": [HOST]})
        talk.close(at)
    found = next(f for f in talk.findings() if f.id == "closed-on-first-request")
    assert found.severity is Severity.LOW and "it answers v0" in found.seen and "falls back and works" in found.seen
    assert troubles(talk) == []


def test_the_version_is_not_the_reason_where_others_get_an_answer() -> None:
    talk = Conversations(client="10.0.0.7")
    negotiate(talk, talk.open(), KAFKA_4, 4, **JAVA)
    talk.client = "10.0.0.5"
    closed_on(talk, 4, **JAVA)
    found = cause(talk)
    assert found.id == "closed-on-first-request" and "max.connections" in found.why
    assert "older than 0.10" not in found.why and "product" not in found.why


def test_a_broker_that_answers_metadata_but_not_api_versions_is_old() -> None:
    talk = Conversations(client="10.0.0.7")
    talk.ask(talk.open(), "Metadata", 0, {"topics": []}, {"brokers": [HOST]})
    talk.client = "10.0.0.5"
    closed_on(talk, 4, **JAVA)
    found = cause(talk)
    assert "answers Metadata v0 but closes the connection on ApiVersions, as brokers older than 0.10.0 do" in found.why


def test_where_version_0_gets_no_answer_either_the_version_is_not_the_reason() -> None:
    talk = Conversations()
    closed_on(talk, 3, 2, **JAVA)
    closed_on(talk, 0, 2)
    assert cause(talk).why.startswith("Likeliest first: a broker older than 0.10.0")


def test_a_restarting_broker_is_not_blamed() -> None:
    talk = Conversations()
    at = talk.open()
    negotiate(talk, at, KAFKA_4, 4, **JAVA)
    talk.ask(at, "Metadata", 12, {"topics": []}, {"brokers": [HOST]})
    talk.close(at, by="broker")
    closed_on(talk, 4, **JAVA)
    assert "closed-on-first-request" not in {f.id for f in talk.findings()}


# --- which release an offer is of --------------------------------------------------------------------------

PARTIAL = {
    0: (0, 9), 1: (4, 12), 2: (0, 3), 3: (0, 9), 8: (0, 7), 9: (0, 6), 10: (0, 2), 11: (0, 6), 12: (0, 3), 13: (0, 4), 14: (0, 4), 15: (0, 4),
    16: (0, 3), 17: (0, 1), 18: (0, 3), 19: (0, 5), 20: (0, 4), 22: (0, 2), 32: (0, 2), 36: (0, 1), 37: (0, 1), 42: (0, 2),
}  # fmt: skip
"""Of a product: APIs of 2.0 to 2.8, and many that Kafka has are not offered."""


def test_what_is_not_offered_says_nothing_of_the_age() -> None:
    guess = broker("a:9092", PARTIAL).guess
    assert guess == "closest to 2.4 (7 APIs differ, 26 are not offered; probably not Apache Kafka, or a proxy hides them)"


def test_a_broker_without_a_few_apis_is_still_of_its_release() -> None:
    hidden = {key: ends for key, ends in KAFKA_3.items() if key not in (24, 25)}
    assert broker("a:9092", hidden).guess == "closest to 3.6 (2 are not offered)"


# --- causes that the capture can tell apart ----------------------------------------------------------------


def switched_off(features: dict[str, int] | None) -> Finding:
    """ConsumerGroupHeartbeat is offered and refused, by a broker with these finalized features."""
    talk = Conversations()
    at = talk.open()
    levels = [{"name": name, "max_version_level": level, "min_version_level": level} for name, level in (features or {}).items()]
    epoch = -1 if features is None else 7
    answer = {"api_keys": api_keys(KAFKA_4), "finalized_features_epoch": epoch, "finalized_features": levels}
    talk.ask(at, "ApiVersions", 3, JAVA, answer)
    for _ in range(3):
        talk.ask(at, "ConsumerGroupHeartbeat", 1, {"group_id": "g"}, {"error_code": 35})
        talk.wait(1)
    return cause(talk)


def test_a_group_protocol_that_is_switched_off() -> None:
    missing, listed, unknown = (switched_off(each) for each in ({"metadata.version": 20}, {"group.version": 1}, None))
    assert {found.id for found in (missing, listed, unknown)} == {"unsupported-version"}
    assert "group.version is not finalized, as its ApiVersions response says" in missing.why and "rebalance.protocols" not in missing.remedy
    assert "does not include 'consumer'" in listed.why and "kafka-features.sh" not in listed.remedy
    assert "is not finalized, or group.coordinator" in unknown.why


def answered_although_acks_0(acks: int) -> Conversations:
    talk = Conversations()
    at = talk.open()
    negotiate(talk, at, KAFKA_4)
    talk.ask(at, "Metadata", 9, {"topics": [{"name": "orders"}]}, METADATA)
    for number in range(5):
        request = decoder.encode_request(0, 9, {"acks": acks, "topic_data": []}, correlation_id=100 + number, client_id="shop")
        talk.sent(at, with_size(request))
        talk.received(at, with_size(decoder.encode_response(0, 9, {}, correlation_id=100 + number)))
        talk.wait(1)
    return talk


def test_an_answer_to_produce_with_acks_0() -> None:
    found = next(f for f in answered_although_acks_0(0).findings() if f.id == "odd-correlation-ids")
    assert "5 answers" in found.seen and "Produce requests with acks=0" in found.seen and "broker" in found.remedy
    assert troubles(answered_although_acks_0(1)) == []


def first_answers(offset: int, count: int = 4) -> Conversations:
    """The first response of each connection has the id of its request plus an offset."""
    talk = Conversations()
    for number in range(1, count + 1):
        at = talk.open()
        talk.sent(at, with_size(decoder.encode_request(18, 3, JAVA, correlation_id=number, client_id="shop")))
        answer = decoder.encode_response(18, 3, {"api_keys": api_keys(KAFKA_4)}, correlation_id=number + offset)
        talk.received(at, with_size(answer))
        if not offset:
            talk.ask(at, "Metadata", 9, {"topics": []}, METADATA)
        talk.wait(0.1)
        talk.close(at)
        talk.wait(1)
    return talk


def test_a_first_answer_with_a_wrong_correlation_id() -> None:
    found = cause(first_answers(70))
    assert (found.id, found.severity, found.count) == ("odd-correlation-ids", Severity.HIGH, 4)
    assert "the last was 74 to ApiVersions v3 with 4" in found.seen
    assert troubles(first_answers(0)) == []


def sized(extra: int) -> Conversations:
    """ApiVersions responses whose size is larger than they are."""
    talk = Conversations()
    for number in range(1, 4):
        at = talk.open()
        talk.sent(at, with_size(decoder.encode_request(18, 3, JAVA, correlation_id=number, client_id="shop")))
        answer = decoder.encode_response(18, 3, {"api_keys": api_keys(KAFKA_4)}, correlation_id=number)
        talk.received(at, (len(answer) + extra).to_bytes(4, "big") + answer)
        if not extra:
            talk.ask(at, "Metadata", 9, {"topics": []}, METADATA)
        talk.wait(30)
        talk.close(at)
    return talk


def test_a_size_that_counts_itself() -> None:
    found = cause(sized(4))
    assert (found.id, found.severity, found.count) == ("wrong-frame-size", Severity.HIGH, 3)
    assert "the size counts itself" in found.seen and "broker" in found.remedy and "unanswered-request" in found.effects
    assert troubles(sized(0)) == []


# --- reports that were named before ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("api", "offer", "version", "client"),
    [
        ("Metadata", {3: (0, 11), 18: (0, 3), 0: (0, 9), 1: (0, 12)}, 12, software("apache-kafka-java", "3.4.0")),  # kroxylicious#441
        ("Fetch", {3: (0, 9), 18: (0, 3), 0: (0, 8), 1: (0, 11)}, 12, software("librdkafka", "2.6.0")),  # librdkafka#4870
    ],
)
def test_a_version_above_the_offer(api: str, offer: Offer, version: int, client: dict[str, str]) -> None:
    talk = Conversations()
    for _ in range(5):
        at = talk.open()
        negotiate(talk, at, offer, 3, **client)
        talk.ask(at, api, version, {}, None)
        talk.wait(0.01)
        talk.close(at, by="broker")
        talk.wait(1)
    found = cause(talk)
    assert found.id == "api-versions-ignored"
    assert f"{api} v{version}" in found.seen and "v0 to v11" in found.seen and "the broker closed the connection" in found.seen


def test_an_http_server_instead_of_a_broker() -> None:  # sarama#1147
    talk = Conversations()
    for number in range(3):
        at = talk.open()
        talk.sent(at, with_size(decoder.encode_request(3, 1, {"topics": []}, correlation_id=number, client_id="sarama")))
        talk.received(at, b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        talk.close(at, by="broker")
    assert cause(talk).id == "foreign-protocol" and "HTTP" in cause(talk).seen


def test_tls_at_a_plaintext_listener() -> None:  # terraform-provider-kafka#659
    talk = Conversations()
    for _ in range(3):
        at = talk.open()
        talk.sent(at, bytes.fromhex("160301020001 0001fc0303".replace(" ", "")) + bytes(508))
        talk.close(at, by="broker")
    assert cause(talk).id == "tls-on-plaintext-port"


def test_a_browser_at_a_broker() -> None:  # quarkus-quickstarts#1088
    talk = Conversations()
    at = talk.open()
    talk.sent(at, b"GET /topics HTTP/1.1\r\nHost: kafka:9092\r\n\r\n")
    talk.close(at, by="broker")
    assert cause(talk).id == "foreign-protocol" and "HTTP" in cause(talk).seen
