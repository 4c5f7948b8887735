"""Old clients of several kinds, each doing the same: it produces with every codec it has, reads half in a group, commits,
and another member resumes with the rest. All give what they read: `Read(partition, offset, timestamp, key, value)`."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer
from harness.waiting import PATIENCE
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPartition
from real.clients import confluent_client, java_programs, kafka_python_client

COUNT = 20
"""Records of each codec; in turns to the two partitions."""
FIRST = 1_600_000_000_000
"""The timestamp of each codec's first record; where a format has none, -1."""


class Read(NamedTuple):
    """A record as a consumer got it; `timestamp` -1 where it has none."""

    partition: int
    offset: int
    timestamp: int
    key: str
    value: str


def expected(codecs: Sequence[str], timestamps: bool) -> list[Read]:
    """What must be read, in order."""
    return sorted(
        Read(i % 2, place * (COUNT // 2) + i // 2, FIRST + i if timestamps else -1, f"k{i}", f"{codec} {i}")
        for place, codec in enumerate(codecs)
        for i in range(COUNT)
    )


def kafka_python(bootstrap: str, topic: str, codecs: Sequence[str], api_version: tuple[int, ...] | None) -> list[Read]:
    """kafka-python as it is, configured for brokers of this version (None: it asks)."""
    settings: dict[str, Any] = {"bootstrap_servers": bootstrap, "api_version": api_version}
    timed = api_version is None or api_version >= (0, 10)
    for codec in codecs:
        producer = KafkaProducer(
            **settings, acks="all", compression_type=None if codec == "none" else codec, enable_idempotence=False
        )
        sent = [
            producer.send(
                topic, f"{codec} {i}".encode(), f"k{i}".encode(), partition=i % 2,
                timestamp_ms=FIRST + i if timed else None,
            )
            for i in range(COUNT)
        ]  # fmt: skip
        for each in sent:
            each.get(PATIENCE)
        producer.close()
    found: list[Read] = []
    half = len(codecs) * COUNT // 2
    for most in (half, len(codecs) * COUNT - half):
        consumer = KafkaConsumer(
            topic, **settings, group_id=f"group-of-{topic}", auto_offset_reset="earliest", enable_auto_commit=False
        )
        found += [
            Read(r.partition, r.offset, -1 if r.timestamp is None else r.timestamp, r.key.decode(), r.value.decode())
            for r in kafka_python_client.read(consumer, most)
        ]
        consumer.commit()
        assert sum(consumer.committed(KafkaPartition(topic, p)) or 0 for p in (0, 1)) == len(found)
        consumer.close()
    return sorted(found)


def librdkafka(bootstrap: str, topic: str, codecs: Sequence[str], fallback: str | None) -> list[Read]:
    """librdkafka as it is, configured for brokers of this release (None: it asks)."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0}
    if fallback is not None:
        settings |= {"api.version.request": "false", "broker.version.fallback": fallback}
    for codec in codecs:
        producer = Producer({**settings, "compression.codec": codec, "linger.ms": 20})
        for i in range(COUNT):
            producer.produce(topic, f"{codec} {i}", f"k{i}", i % 2, timestamp=FIRST + i)
        confluent_client.flush(producer)
    found: list[Read] = []
    half = len(codecs) * COUNT // 2
    for most in (half, len(codecs) * COUNT - half):
        group = {"group.id": f"group-of-{topic}", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer(settings | group)
        consumer.subscribe([topic])
        for message in confluent_client.read(consumer, most):
            kind, time = message.timestamp()
            key, value = message.key().decode(), message.value().decode()
            found.append(Read(message.partition(), message.offset(), time if kind else -1, key, value))
        consumer.commit(asynchronous=False)
        consumer.close()
    return sorted(found)


SARAMA = "github.com/IBM/sarama@v1.43.3"


@cache
def _sarama(folder: Path) -> Path:
    """The Go program, built; skips where it cannot be."""
    if shutil.which("go") is None:
        pytest.skip("no go on the PATH")
    folder.mkdir()
    shutil.copy(Path(__file__).parent / "go" / "old_sarama" / "main.go", folder)
    for step in (["mod", "init", "sarama_client"], ["get", SARAMA], ["build", "-o", "sarama_client", "."]):
        done = subprocess.run(["go", *step], cwd=folder, capture_output=True, text=True, timeout=500)
        if done.returncode and step[0] == "get":
            pytest.skip(f"sarama cannot be fetched: {done.stderr.splitlines()[-1]}")
        assert done.returncode == 0, done.stderr
    return folder / "sarama_client"


def sarama(bootstrap: str, topic: str, version: str, folder: Path) -> list[Read]:
    """sarama with its Version at this; it chooses codecs by itself."""
    command = [str(_sarama(folder)), bootstrap, version, topic, str(COUNT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["began"] == [-2, -2]  # nothing committed before
    half = len(result["records"]) // 4
    assert result["resumed"] == [half, half]
    return sorted(Read(p, o, time if time > 0 else -1, key, value) for p, o, key, value, time in result["records"])


def java(bootstrap: str, topic: str, codecs: Sequence[str], release: str, *more: str) -> list[Read]:
    """The Java client of this release."""
    jars = java_programs.jars_of(release)
    output = java_programs.run("ClientOfAnyAge", jars, bootstrap, topic, COUNT, ",".join(codecs), *more)
    lines = [line.split("\t") for line in output.splitlines()]
    rows = [Read(int(p), int(o), int(time), key, value) for p, o, time, key, value in (x for x in lines if len(x) == 5)]
    committed = [int(line[1]) for line in lines if line[0] == "committed"]
    assert committed == [len(rows) // 2, len(rows)]
    return sorted(rows)
