"""What goes wrong with versions, features and contradicting statements: each function does one such thing.

They take the address of a bootstrap broker (usually the proxy's) and the name of a topic that is there. Some need another
broker behind the proxy: `two_brokers` and `gzip_librdkafka` an `EditedBroker`,
`wrong_leader` three nodes, `group_protocol_off` a broker with `group.coordinator.rebalance.protocols=classic`.
"""

from __future__ import annotations

import contextlib
import uuid
from time import sleep
from typing import Any

from barnabas.decoder.schema import facts
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.waiting import PATIENCE, PATIENCE_MS, until
from kafka import KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError
from real.findings.scenarios.group_clients import until_assigned
from real.findings.scenarios.raw_client import RawClient, batch
from real.findings.scenarios.scene import create as create

FETCH = {
    "max_wait_ms": 10, "min_bytes": 1, "max_bytes": 1000, "isolation_level": 0, "session_id": 0, "session_epoch": -1,
    "topics": [], "forgotten_topics_data": [], "rack_id": "",
}  # fmt: skip
VALUE = b"a record that compresses well, well, well, well, well, well, well, well, well"


def metadata(client: RawClient, topic: str | None) -> dict[str, Any]:
    """The Metadata of one topic (None: of none) as the client gets it."""
    topics = [] if topic is None else [{"topic_id": uuid.UUID(int=0), "name": topic}]
    found = client.ask("Metadata", 12, {"topics": topics, "allow_auto_topic_creation": False})
    assert found is not None
    return found.to_dict()


# --- versions ----------------------------------------------------------------------------------------------


def old_kafka_python(bootstrap: str, topic: str) -> None:
    """kafka-python configured for a broker of 0.10: it uses fixed versions, Produce v2 among them, and gives up."""
    with contextlib.suppress(KafkaPythonError):
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            client_id="shop",
            api_version=(0, 10, 0),
            retries=2,
            retry_backoff_ms=200,
            reconnect_backoff_ms=200,
            max_block_ms=PATIENCE_MS,
            request_timeout_ms=3000,
        )
        with contextlib.suppress(KafkaPythonError):
            producer.send(topic, VALUE).get(PATIENCE)
        producer.close(1)


def old_librdkafka(bootstrap: str, topic: str) -> None:
    """librdkafka configured not to ask, for a broker of 0.9, until it reports that it was disconnected."""
    errors: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "till",
            "api.version.request": False,
            "broker.version.fallback": "0.9.0",
            "error_cb": errors.append,
            "log_level": 0,
        }
    )
    producer.produce(topic, VALUE)

    def disconnected() -> bool:
        producer.poll(0.2)
        return bool(errors)

    until(disconnected, "it was not disconnected")
    producer.purge()


def api_versions_of_the_future(bootstrap: str, topic: str) -> None:
    """Ask ApiVersions v99 three times, take the fallback each time and go on; a fourth connection gives up."""
    for number in range(4):
        with RawClient(bootstrap, "newcomer") as client:
            client.send_frame(future_api_versions())
            assert client.receive() is not None
            if number < 3:
                assert client.api_versions(4) is not None
                metadata(client, None)


def api_versions_given_up(bootstrap: str, topic: str) -> None:
    """Ask ApiVersions v99 on three connections, and close each when it is refused."""
    for _ in range(3):
        with RawClient(bootstrap, "newcomer") as client:
            client.send_frame(future_api_versions())
            assert client.receive() is not None


def future_api_versions() -> bytes:
    """A request of a version that no release has; its layout is that of version 3."""
    name = b"newcomer"
    key = facts.api_key("ApiVersions").to_bytes(2, "big")
    head = key + (99).to_bytes(2, "big") + (1).to_bytes(4, "big") + len(name).to_bytes(2, "big") + name
    return head + b"\0" + bytes([9]) + name + bytes([3]) + b"99" + b"\0"


def answer_ignored(bootstrap: str, topic: str) -> None:
    """Ask ApiVersions, and then use Fetch v3 all the same: Kafka 4 closes the connection."""
    for _ in range(3):
        with RawClient(bootstrap, "stubborn") as client:
            client.api_versions()
            metadata(client, topic)
            body = {"replica_id": -1, "max_wait_ms": 10, "min_bytes": 1, "max_bytes": 1000, "topics": []}
            assert client.ask("Fetch", 3, body) is None


def never_asks(bootstrap: str, topic: str) -> None:
    """Fixed versions that the broker happens to serve."""
    with RawClient(bootstrap, "fixed") as client:
        for _ in range(12):
            metadata(client, topic)


def group_protocol_off(bootstrap: str, topic: str) -> None:
    """A KIP-848 consumer where the broker offers the API and its feature is off."""
    with RawClient(bootstrap, "modern") as client:
        client.api_versions()
        for _ in range(3):
            body = {
                "group_id": "orders", "member_id": "m-1", "member_epoch": 0, "rebalance_timeout_ms": 1000,
                "subscribed_topic_names": [topic], "topic_partitions": [],
            }  # fmt: skip
            assert client.ask("ConsumerGroupHeartbeat", 0, body) is not None


def gzip_librdkafka(bootstrap: str, topic: str) -> None:
    """librdkafka with compression set, and records that compress well."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "client.id": "press", "compression.type": "gzip", "linger.ms": 50}
    )
    for _ in range(6):
        for _ in range(20):
            producer.produce(topic, VALUE)
        assert producer.flush(PATIENCE) == 0


def two_brokers(bootstrap: str, topic: str) -> None:
    """Use at broker 2 what broker 1 offers; broker 2 is older and closes the connection."""
    with RawClient(bootstrap, "traveller") as client:
        client.api_versions()
        brokers = {b["node_id"]: f"{b['host']}:{b['port']}" for b in metadata(client, topic)["brokers"]}
    with RawClient(brokers[1], "traveller") as client:
        client.api_versions()
        assert client.ask("Fetch", 17, FETCH) is not None
    for _ in range(2):
        with RawClient(brokers[2], "traveller") as client:
            client.api_versions()
            assert client.ask("Fetch", 17, FETCH) is None


# --- features ----------------------------------------------------------------------------------------------


def plain_producer(bootstrap: str, topic: str) -> None:
    """librdkafka's defaults: acks=all without idempotence, a request for each record."""
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "plain", "linger.ms": 0})
    for _ in range(60):
        producer.produce(topic, VALUE)
        assert producer.flush(PATIENCE) == 0


def leaving_and_coming(bootstrap: str, topic: str) -> None:
    """A consumer that restarts four times, leaving its group each time."""
    for _ in range(4):
        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "client.id": "restless", "group.id": topic, "session.timeout.ms": 6000}
        )
        consumer.subscribe([topic])
        until_assigned(consumer)
        consumer.close()


# --- contradictions ----------------------------------------------------------------------------------------


def topic_recreated(bootstrap: str, topic: str) -> None:
    """Fetch by a topic id that is no more: the topic was deleted and made anew."""
    with RawClient(bootstrap, "loyal") as client:
        client.api_versions()
        old = metadata(client, topic)["topics"][0]["topic_id"]
        admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": "setup"})
        admin.delete_topics([topic])[topic].result(PATIENCE)

        def made_anew() -> bool:
            admin.create_topics([NewTopic(topic, 1, 1)])
            found = metadata(client, topic)["topics"][0]
            return found["error_code"] == 0 and found["topic_id"] != old

        until(made_anew, "the topic made anew", pause=0.1)
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
        fetch = FETCH | {"topics": [{"topic_id": old, "partitions": [partition]}]}
        for _ in range(7):
            assert client.ask("Fetch", 13, fetch) is not None
            assert client.produce({"topic_id": old}, batch(value=VALUE), version=13) is not None
            sleep(0.45)


def lost_sequence(bootstrap: str, topic: str) -> None:
    """An idempotent producer skips a sequence number, and repeats what cannot succeed any more."""
    with RawClient(bootstrap, "counter") as client:
        client.api_versions()
        metadata(client, topic)
        producer = client.producer_id()
        for sequence in (0, *[5] * 14):
            assert client.produce(topic, batch(base_sequence=sequence, **producer)) is not None
            sleep(0.2)


def several_clients_on_one_connection(bootstrap: str, topic: str) -> None:
    """Another client id and other software on a connection, as through something that shares connections."""
    with RawClient(bootstrap, "first") as client:
        client.api_versions(name="one")
        client.call_itself("second")
        client.api_versions(name="two")
        for name in ("first", "second") * 4:
            client.call_itself(name)
            metadata(client, None)


def ids_in_flight(bootstrap: str, topic: str) -> None:
    """Correlation id 7 for three requests at once, several times."""
    with RawClient(bootstrap, "careless") as client:
        client.api_versions()
        for _ in range(3):
            for _ in range(3):
                client.send("FindCoordinator", 3, {"key": "orders", "key_type": 0}, correlation_id=7)
            for _ in range(3):
                assert client.receive() is not None


def wrong_leader(bootstrap: str, topic: str) -> None:
    """Produce to a broker that Metadata does not name leader, again and again."""
    with RawClient(bootstrap, "blind") as client:
        client.api_versions()
        answer = metadata(client, topic)
    leader = answer["topics"][0]["partitions"][0]["leader_id"]
    brokers = {b["node_id"]: f"{b['host']}:{b['port']}" for b in answer["brokers"]}
    other = next(n for n in sorted(brokers) if n != leader)
    with RawClient(brokers[other], "blind") as client:
        client.api_versions()
        for _ in range(8):
            sleep(0.5)
            assert client.produce(topic, batch(value=VALUE)) is not None
