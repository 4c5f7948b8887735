"""Producers that do the wrong thing, each a program of real clients (or raw requests, for what no client does).

A scenario is run with the address of a proxy in front of a real broker and a topic of its own; what topic and
proxy must be like stands beside it. The recordings in tests/decoder/findings/captures come from these.
"""

from __future__ import annotations

import contextlib
import gc
import json
import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnabas import decoder
from barnabas.decoder import facts
from barnabas.decoder.records import Record, encode_batch
from barnabas.plugins import rules
from barnabas.proxy import ProxyConfig
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.proxies import Proxy
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from real.workload import Deadline

SECONDS = 15.0
PRODUCE, METADATA, INIT_PRODUCER_ID = map(facts.api_key, ("Produce", "Metadata", "InitProducerId"))


@dataclass(frozen=True)
class Scenario:
    """`run(bootstrap, topic)`; the topic's `partitions` and `config`; `rules`: YAML for the proxy, ``{topic}`` in it."""

    run: Callable[[str, str], None]
    partitions: int = 1
    config: Mapping[str, str] = field(default_factory=dict)
    rules: str = ""


def _producer(bootstrap: str, client_id: str, **config: Any) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "client.id": client_id, "linger.ms": 0, **config})


def _one_by_one(producer: Producer, topic: str, values: list[bytes], **where: Any) -> None:
    for value in values:
        producer.produce(topic, value, **where)
        producer.flush(SECONDS)


def acks_0(bootstrap: str, topic: str) -> None:
    """librdkafka with acks=0."""
    _one_by_one(_producer(bootstrap, "meter-1", acks=0), topic, [b"reading"] * 5)


def acks_1(bootstrap: str, topic: str) -> None:
    """kafka-python with acks=1."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, client_id="meter-2", acks=1, enable_idempotence=False)
    for _ in range(5):
        producer.send(topic, b"reading").get(SECONDS)
    producer.close()


def two_with_one_transactional_id(bootstrap: str, topic: str) -> None:
    """Two instances of a service are given the same transactional id; the first one is fenced."""
    first = _producer(bootstrap, "booker-1", **{"transactional.id": f"booking-{topic}"})
    second = _producer(bootstrap, "booker-2", **{"transactional.id": f"booking-{topic}"})
    first.init_transactions(SECONDS)
    second.init_transactions(SECONDS)
    first.begin_transaction()
    first.produce(topic, b"booked by 1")
    with contextlib.suppress(KafkaException):
        first.commit_transaction(SECONDS)
    second.begin_transaction()
    second.produce(topic, b"booked by 2")
    second.commit_transaction(SECONDS)


def too_large(bootstrap: str, topic: str) -> None:
    """A record that the client's own limit lets through and the topic's does not."""
    producer = _producer(bootstrap, "scanner-1")
    _one_by_one(producer, topic, [b"page" * 100, b"page" * 1500, b"page" * 1500])


def tiny_batches(bootstrap: str, topic: str, count: int = 60) -> None:
    """flush() after each record, as fast as it goes."""
    _one_by_one(_producer(bootstrap, "ticker-1"), topic, [b"tick %d" % n for n in range(count)])


def scattered(bootstrap: str, topic: str, rounds: int = 10) -> None:
    """A record without key for every partition in turn: each request carries six batches of one record."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, client_id="sprinkler-1", linger_ms=5)
    for n in range(rounds):
        for partition in range(6):
            producer.send(topic, b"drop %d" % n, partition=partition)
        producer.flush(SECONDS)
    producer.close()


def uncompressed(bootstrap: str, topic: str) -> None:
    """Big batches of JSON, not compressed."""
    producer = _producer(bootstrap, "archiver-1", **{"compression.type": "none", "linger.ms": 20})
    for n in range(200):
        order = {"order_id": n, "customer": "Frieda", "address": "Herrenhof, Castle Hill", "state": "accepted"}
        producer.produce(topic, json.dumps(order))
    producer.flush(SECONDS)


def skewed(bootstrap: str, topic: str) -> None:
    """Nine of ten records have the same key."""
    producer = _producer(bootstrap, "clerk-1", **{"compression.type": "zstd", "linger.ms": 5})
    for batch in range(60):
        for n in range(20):
            producer.produce(topic, b"entry", key=f"customer-{batch}" if n < 2 else "the castle")
        producer.flush(SECONDS)


def leader_moves(bootstrap: str, topic: str) -> None:
    """The leader moves once and is found again."""
    _one_by_one(_producer(bootstrap, "stock-1", **{"enable.idempotence": True}), topic, [b"item"] * 6)


def reordered(bootstrap: str, topic: str) -> None:
    """Several requests in flight without idempotence, and one of them fails."""
    producer = _producer(bootstrap, "stock-2", **{"batch.num.messages": 1})
    for n in range(12):
        producer.produce(topic, b"state %d" % n)
        producer.poll(0)
    producer.flush(SECONDS)


def answered_with_errors(bootstrap: str, topic: str, count: int = 4) -> None:
    """A few records, each of which may fail; ends early when the client gives up."""
    with contextlib.suppress(KafkaException):
        _one_by_one(_producer(bootstrap, "guard-1", **{"retry.backoff.ms": 50}), topic, [b"seen"] * count)


def idempotent_answered_with_errors(bootstrap: str, topic: str) -> None:
    """The same with idempotence."""
    with contextlib.suppress(KafkaException):
        _one_by_one(_producer(bootstrap, "guard-2", **{"enable.idempotence": True}), topic, [b"seen"] * 4)


def no_key_in_a_compacted_topic(bootstrap: str, topic: str) -> None:
    """A compacted topic takes records with keys only (INVALID_RECORD)."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, client_id="census-1")
    with contextlib.suppress(KafkaError):
        producer.send(topic, b"nobody").get(SECONDS)
    producer.close()


def transaction_left_open(bootstrap: str, topic: str) -> None:
    """A transaction whose owner takes longer than its timeout."""
    producer = _producer(bootstrap, "notary-1", **{"transactional.id": f"deed-{topic}", "transaction.timeout.ms": 1000})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"deed")
    producer.flush(SECONDS)
    time.sleep(2.0)
    with contextlib.suppress(KafkaException):
        producer.commit_transaction(SECONDS)


def transaction_abandoned(bootstrap: str, topic: str) -> None:
    """A producer that goes away inside a transaction."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        client_id="notary-2",
        transactional_id=f"will-{topic}",
        transaction_timeout_ms=60_000,
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"will").get(SECONDS)
    producer.close(timeout=1)


def aborts(bootstrap: str, topic: str, count: int = 12) -> None:
    """Every transaction is rolled back."""
    producer = _producer(bootstrap, "judge-1", **{"transactional.id": f"verdict-{topic}"})
    producer.init_transactions(SECONDS)
    for n in range(count):
        producer.begin_transaction()
        producer.produce(topic, b"verdict %d" % n)
        producer.flush(SECONDS)
        producer.abort_transaction(SECONDS)


def commits(bootstrap: str, topic: str, count: int = 12) -> None:
    """Short transactions, one after the other."""
    producer = _producer(bootstrap, "judge-2", **{"transactional.id": f"rule-{topic}"})
    producer.init_transactions(SECONDS)
    for n in range(count):
        producer.begin_transaction()
        producer.produce(topic, b"rule %d" % n)
        producer.commit_transaction(SECONDS)


def fetched(bootstrap: str, topic: str) -> None:
    """A few records are produced and read again; nothing is wrong."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, client_id="porter-1")
    for n in range(5):
        producer.send(topic, b"letter %d" % n, key=b"K.").get(SECONDS)
    producer.close()
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, client_id="porter-2", group_id=None, auto_offset_reset="earliest"
    )
    count, deadline = 0, Deadline(SECONDS)
    while count < 5:
        deadline.check("five letters")
        count += sum(map(len, consumer.poll(500).values()))
    consumer.close()


class Raw:
    """Requests written by hand on one connection."""

    def __init__(self, bootstrap: str, client_id: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=SECONDS)
        self._client_id, self._next = client_id, 0

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def frame(self, api_key: int, version: int, body: dict[str, Any]) -> bytes:
        """The next request, with its size."""
        self._next += 1
        frame = decoder.encode_request(api_key, version, body, correlation_id=self._next, client_id=self._client_id)
        return struct.pack(">i", len(frame)) + frame

    def send(self, data: bytes) -> None:
        """Send without waiting."""
        self._socket.sendall(data)

    def receive(self, api_key: int, version: int) -> decoder.Message:
        """The next response."""
        size = struct.unpack(">i", self._exactly(4))[0]
        return decoder.decode_response(self._exactly(size), api_key=api_key, api_version=version)

    def ask(self, api_key: int, version: int, body: dict[str, Any]) -> decoder.Message:
        """Send and wait."""
        self.send(self.frame(api_key, version, body))
        return self.receive(api_key, version)

    def producer_id(self) -> tuple[int, int]:
        """A new producer id and its epoch; a broker that has just started gives none for a moment."""
        body = {"transactional_id": None, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
        deadline = Deadline(SECONDS)
        while (answer := self.ask(INIT_PRODUCER_ID, 4, body))["error_code"]:
            deadline.check("a producer id")
            time.sleep(0.1)
        return answer["producer_id"], answer["producer_epoch"]

    def produce_frame(self, topic: str, batch: bytes, acks: int = -1) -> bytes:
        """A Produce request with a batch for partition 0."""
        topic_data = {"name": topic, "partition_data": [{"index": 0, "records": batch}]}
        body = {"transactional_id": None, "acks": acks, "timeout_ms": 5000, "topic_data": [topic_data]}
        return self.frame(PRODUCE, 9, body)

    def produce(self, topic: str, batch: bytes, acks: int = -1) -> int:
        """Send a batch for partition 0 and wait; its error code."""
        self.send(self.produce_frame(topic, batch, acks))
        code: int = self.receive(PRODUCE, 9)["responses[0].partition_responses[0].error_code"]
        return code

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return data


def batch(count: int, **header: Any) -> bytes:
    """A batch of `count` records with these header fields."""
    now = int(time.time() * 1000)
    return encode_batch([Record(n, now, None, b"record %d" % n, ()) for n in range(count)], **header)


def sequence_gap(bootstrap: str, topic: str) -> None:
    """A producer that leaves sequences out."""
    with Raw(bootstrap, "counter-1") as raw:
        raw.ask(METADATA, 9, {"topics": [{"name": topic}]})
        number, epoch = raw.producer_id()
        for sequence in (0, 2, 7, 7):
            raw.produce(topic, batch(2, producer_id=number, producer_epoch=epoch, base_sequence=sequence))


def sent_again(bootstrap: str, topic: str) -> None:
    """A batch is sent again although it was acknowledged, the last time behind five others."""
    with Raw(bootstrap, "echo-1") as raw:
        raw.ask(METADATA, 9, {"topics": [{"name": topic}]})
        number, epoch = raw.producer_id()
        for sequence in (0, 1, 1, 2, 3, 4, 5, 6, 0):
            raw.produce(topic, batch(1, producer_id=number, producer_epoch=epoch, base_sequence=sequence))


def seven_in_flight(bootstrap: str, topic: str) -> None:
    """Seven requests of an idempotent producer in flight at once; brokers remember five batches."""
    with Raw(bootstrap, "hasty-1") as raw:
        raw.ask(METADATA, 9, {"topics": [{"name": topic}]})
        number, epoch = raw.producer_id()
        made = [batch(1, producer_id=number, producer_epoch=epoch, base_sequence=sequence) for sequence in range(7)]
        raw.send(b"".join(raw.produce_frame(topic, each) for each in made))
        for _ in range(7):
            raw.receive(PRODUCE, 9)


def wrong_crc(bootstrap: str, topic: str) -> None:
    """A batch whose CRC does not fit its bytes."""
    with Raw(bootstrap, "smudge-1") as raw:
        raw.ask(METADATA, 9, {"topics": [{"name": topic}]})
        for crc in (None, 12345):
            raw.produce(topic, batch(2, crc=crc))


def wrong_acks(bootstrap: str, topic: str) -> None:
    """acks=5 does not exist."""
    with Raw(bootstrap, "hopeful-1") as raw:
        raw.ask(METADATA, 9, {"topics": [{"name": topic}]})
        raw.produce(topic, batch(1), acks=5)


def acks_0_refused(bootstrap: str, topic: str) -> None:
    """acks=0 and a batch that the broker refuses: it closes the connection, as it has no other way to say so."""
    with Raw(bootstrap, "meter-3") as raw:
        raw.ask(METADATA, 9, {"topics": [{"name": topic}]})
        raw.send(raw.produce_frame(topic, batch(1, crc=1), acks=0))
        with contextlib.suppress(OSError):
            raw.receive(PRODUCE, 9)


def _rule(error: str, times: int | None = None, after: int = 0, broker: str = "skipped") -> str:
    when = f"after: {after}" + (f", times: {times}" if times else "")
    return (
        f"rules:\n  - name: {error.lower()}\n    match: api == Produce and topic == {{topic}}\n"
        f"    do: {{{{error: {error}, broker: {broker}}}}}\n    when: {{{{{when}}}}}\n"
    )


SCENARIOS: dict[str, Scenario] = {
    "fetched": Scenario(fetched),
    "acks-0": Scenario(acks_0),
    "acks-1": Scenario(acks_1),
    "acks-0-refused": Scenario(acks_0_refused),
    "fenced": Scenario(two_with_one_transactional_id),
    "too-large": Scenario(too_large, config={"max.message.bytes": "2000"}),
    "tiny": Scenario(tiny_batches),
    "scattered": Scenario(scattered, partitions=6),
    "uncompressed": Scenario(uncompressed),
    "skewed": Scenario(skewed, partitions=6),
    "leader-moves": Scenario(leader_moves, rules=_rule("NOT_LEADER_OR_FOLLOWER", times=3, after=2)),
    "reordered": Scenario(reordered, rules=_rule("NOT_LEADER_OR_FOLLOWER", times=1, after=3)),
    "too-few-replicas": Scenario(answered_with_errors, rules=_rule("NOT_ENOUGH_REPLICAS", times=4, after=1)),
    "timed-out-but-written": Scenario(
        answered_with_errors, rules=_rule("REQUEST_TIMED_OUT", times=1, after=1, broker="executed")
    ),
    "not-allowed": Scenario(answered_with_errors, rules=_rule("TOPIC_AUTHORIZATION_FAILED")),
    "unknown-producer-id": Scenario(
        idempotent_answered_with_errors, rules=_rule("UNKNOWN_PRODUCER_ID", times=1, after=2)
    ),
    "invalid-record": Scenario(no_key_in_a_compacted_topic, config={"cleanup.policy": "compact"}),
    "left-open": Scenario(transaction_left_open),
    "abandoned": Scenario(transaction_abandoned),
    "aborts": Scenario(aborts),
    "commits": Scenario(commits),
    "invalid-state": Scenario(idempotent_answered_with_errors, rules=_rule("INVALID_TXN_STATE", times=1, after=1)),
    "sequence-gap": Scenario(sequence_gap),
    "sent-again": Scenario(sent_again),
    "seven-in-flight": Scenario(seven_in_flight),
    "wrong-crc": Scenario(wrong_crc),
    "wrong-acks": Scenario(wrong_acks),
}


def record(name: str, address: tuple[str, int], folder: Path) -> Path:
    """Run a scenario through a recording proxy; the folder of the recording. `address`: of the broker."""
    scenario = SCENARIOS[name]
    topic = f"p-{name}"
    upstream = f"{address[0]}:{address[1]}"
    new = NewTopic(topic, scenario.partitions, 1, config=dict(scenario.config))
    admin = AdminClient({"bootstrap.servers": upstream})
    admin.create_topics([new])[topic].result(SECONDS)
    made: list[rules.Rule] = []
    if scenario.rules:
        (folder / "rules.yaml").write_text(scenario.rules.format(topic=topic))
        made = rules.load(folder / "rules.yaml")
    with Proxy(ProxyConfig(upstream=address, record=folder / "recording", rules=made)) as proxy:
        host, port = proxy.address
        scenario.run(f"{host}:{port}", topic)
        gc.collect()  # librdkafka's producers close their connections when they go away
        time.sleep(0.2)
    return folder / "recording"
