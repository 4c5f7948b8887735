"""Producers that do the wrong thing, each a program of real clients (or raw requests, for what no client does).

A scenario is run with the address of a proxy in front of a real broker and a topic of its own; `Scenario` says what the
topic and the proxy must be like. The recordings in tests/decoder/findings/captures come from these.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnabas.plugins.rules import rules
from confluent_kafka import KafkaException, Producer
from harness.waiting import PATIENCE, PATIENCE_MS, until
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from real.findings.scenarios import scene
from real.findings.scenarios.raw_client import RawClient, batch


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
        producer.flush(PATIENCE)


def acks_0(bootstrap: str, topic: str) -> None:
    """librdkafka with acks=0."""
    _one_by_one(_producer(bootstrap, "meter-1", acks=0), topic, [b"reading"] * 5)


def acks_1(bootstrap: str, topic: str) -> None:
    """kafka-python with acks=1."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, client_id="meter-2", acks=1, enable_idempotence=False)
    for _ in range(5):
        producer.send(topic, b"reading").get(PATIENCE)
    producer.close()


def two_with_one_transactional_id(bootstrap: str, topic: str) -> None:
    """Two instances of a service are given the same transactional id; the first one is fenced."""
    first = _producer(bootstrap, "booker-1", **{"transactional.id": f"booking-{topic}"})
    second = _producer(bootstrap, "booker-2", **{"transactional.id": f"booking-{topic}"})
    first.init_transactions(PATIENCE)
    second.init_transactions(PATIENCE)
    first.begin_transaction()
    first.produce(topic, b"booked by 1")
    with contextlib.suppress(KafkaException):
        first.commit_transaction(PATIENCE)
    second.begin_transaction()
    second.produce(topic, b"booked by 2")
    second.commit_transaction(PATIENCE)


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
        producer.flush(PATIENCE)
    producer.close()


def uncompressed(bootstrap: str, topic: str) -> None:
    """Big batches of JSON, not compressed."""
    producer = _producer(bootstrap, "archiver-1", **{"compression.type": "none", "linger.ms": 20})
    for n in range(200):
        order = {"order_id": n, "customer": "Frieda", "address": "Herrenhof, Castle Hill", "state": "accepted"}
        producer.produce(topic, json.dumps(order))
    producer.flush(PATIENCE)


def skewed(bootstrap: str, topic: str) -> None:
    """Nine of ten records have the same key."""
    producer = _producer(bootstrap, "clerk-1", **{"compression.type": "zstd", "linger.ms": 5})
    for customer in range(60):
        for n in range(20):
            producer.produce(topic, b"entry", key=f"customer-{customer}" if n < 2 else "the castle")
        producer.flush(PATIENCE)


def leader_moves(bootstrap: str, topic: str) -> None:
    """The leader moves once and is found again."""
    _one_by_one(_producer(bootstrap, "stock-1", **{"enable.idempotence": True}), topic, [b"item"] * 6)


def reordered(bootstrap: str, topic: str) -> None:
    """Several requests in flight without idempotence, and one of them fails."""
    producer = _producer(bootstrap, "stock-2", **{"batch.num.messages": 1})
    for n in range(12):
        producer.produce(topic, b"state %d" % n)
        producer.poll(0)
    producer.flush(PATIENCE)


def answered_with_errors(bootstrap: str, topic: str, count: int = 4, timeout_ms: int = PATIENCE_MS) -> None:
    """A few records, each of which may fail; ends early when the client gives up."""
    config = {"retry.backoff.ms": 50, "message.timeout.ms": timeout_ms}
    with contextlib.suppress(KafkaException):
        _one_by_one(_producer(bootstrap, "guard-1", **config), topic, [b"seen"] * count)


def idempotent_answered_with_errors(bootstrap: str, topic: str) -> None:
    """The same with idempotence."""
    with contextlib.suppress(KafkaException):
        _one_by_one(_producer(bootstrap, "guard-2", **{"enable.idempotence": True}), topic, [b"seen"] * 4)


def no_key_in_a_compacted_topic(bootstrap: str, topic: str) -> None:
    """A compacted topic takes records with keys only (INVALID_RECORD)."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, client_id="census-1")
    with contextlib.suppress(KafkaError):
        producer.send(topic, b"nobody").get(PATIENCE)
    producer.close()


def transaction_left_open(bootstrap: str, topic: str) -> None:
    """A transaction whose owner takes longer than its timeout: the broker has ended it when it commits."""
    transactional_id = f"deed-{topic}"
    producer = _producer(
        bootstrap, "notary-1", **{"transactional.id": transactional_id, "transaction.timeout.ms": 1000}
    )
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    producer.produce(topic, b"deed")
    producer.flush(PATIENCE)
    with RawClient(bootstrap, "observer") as observer:

        def ended() -> bool:
            answer = observer.ask("DescribeTransactions", 0, {"transactional_ids": [transactional_id]})
            assert answer is not None
            state: str = answer["transaction_states[0].transaction_state"]
            return state == "CompleteAbort"

        until(ended, "the broker does not end the transaction", pause=0.2)
    with contextlib.suppress(KafkaException):
        producer.commit_transaction(PATIENCE)


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
    producer.send(topic, b"will").get(PATIENCE)
    producer.close(timeout=1)


def _transactions(producer: Producer, topic: str, text: bytes, count: int) -> Iterator[None]:
    """So many, each with one record; who asks ends them."""
    producer.init_transactions(PATIENCE)
    for n in range(count):
        producer.begin_transaction()
        producer.produce(topic, text % n)
        yield


def aborts(bootstrap: str, topic: str, count: int = 12) -> None:
    """Every transaction is rolled back."""
    producer = _producer(bootstrap, "judge-1", **{"transactional.id": f"verdict-{topic}"})
    for _ in _transactions(producer, topic, b"verdict %d", count):
        producer.flush(PATIENCE)
        producer.abort_transaction(PATIENCE)


def commits(bootstrap: str, topic: str, count: int = 12) -> None:
    """Short transactions, one after the other."""
    producer = _producer(bootstrap, "judge-2", **{"transactional.id": f"rule-{topic}"})
    for _ in _transactions(producer, topic, b"rule %d", count):
        producer.commit_transaction(PATIENCE)


def fetched(bootstrap: str, topic: str) -> None:
    """A few records are produced and read again; nothing is wrong."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, client_id="porter-1")
    for n in range(5):
        producer.send(topic, b"letter %d" % n, key=b"K.").get(PATIENCE)
    producer.close()
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, client_id="porter-2", group_id=None, auto_offset_reset="earliest",
        consumer_timeout_ms=PATIENCE_MS,
    )  # fmt: skip
    for n in range(5):
        assert next(consumer).value == b"letter %d" % n
    consumer.close()


def sequence_gap(bootstrap: str, topic: str) -> None:
    """A producer that leaves sequences out."""
    with RawClient(bootstrap, "counter-1") as client:
        client.metadata(topic)
        producer = client.producer_id()
        for sequence in (0, 2, 7, 7):
            client.produce(topic, batch(2, base_sequence=sequence, **producer))


def sent_again(bootstrap: str, topic: str) -> None:
    """A batch is sent again although it was acknowledged, the last time behind five others."""
    with RawClient(bootstrap, "echo-1") as client:
        client.metadata(topic)
        producer = client.producer_id()
        made = [batch(base_sequence=sequence, **producer) for sequence in range(7)]
        for sequence in (0, 1, 1, 2, 3, 4, 5, 6, 0):
            client.produce(topic, made[sequence])


def seven_in_flight(bootstrap: str, topic: str) -> None:
    """Seven requests of an idempotent producer in flight at once; brokers remember five batches."""
    with RawClient(bootstrap, "hasty-1") as client:
        client.metadata(topic)
        producer = client.producer_id()
        client.send_produce(topic, *(batch(base_sequence=sequence, **producer) for sequence in range(7)))
        for _ in range(7):
            client.receive()


def wrong_crc(bootstrap: str, topic: str) -> None:
    """A batch whose CRC does not fit its bytes."""
    with RawClient(bootstrap, "smudge-1") as client:
        client.metadata(topic)
        for crc in (None, 12345):
            client.produce(topic, batch(2, crc=crc))


def wrong_acks(bootstrap: str, topic: str) -> None:
    """acks=5 does not exist."""
    with RawClient(bootstrap, "hopeful-1") as client:
        client.metadata(topic)
        client.produce(topic, batch(), acks=5)


def acks_0_refused(bootstrap: str, topic: str) -> None:
    """acks=0 and a batch that the broker refuses: it closes the connection, as it has no other way to say so."""
    with RawClient(bootstrap, "meter-3") as client:
        client.metadata(topic)
        client.send_produce(topic, batch(crc=1), acks=0)
        assert client.receive() is None


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
    scenario, topic = SCENARIOS[name], f"p-{name}"
    scene.create("{}:{}".format(*address), topic, scenario.partitions, config=dict(scenario.config))
    made: list[rules.Rule] = []
    if scenario.rules:
        (folder / "rules.yaml").write_text(scenario.rules.format(topic=topic))
        made = rules.load_rules(folder / "rules.yaml")
    return scene.record(address, lambda bootstrap: scenario.run(bootstrap, topic), folder, made)
