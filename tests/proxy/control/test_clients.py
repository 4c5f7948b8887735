"""A real client against a mock cluster, while its requests and responses are held and edited."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from barnabas import decoder
from harness.peers.control_api import StartControlApi
from harness.run.lines import line
from harness.waiting import PATIENCE, PATIENCE_MS


@pytest.fixture
def cluster() -> Iterator[tuple[str, int]]:
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "barnabas.ui.demo.cluster", "1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as mock:
        assert mock.stdin is not None
        host, _, port = json.loads(line(mock, "the mock cluster"))["bootstrap"].rpartition(":")
        yield host, int(port)
        mock.stdin.close()


def test_a_metadata_response_is_edited(start_api: StartControlApi, cluster: tuple[str, int]) -> None:
    from confluent_kafka.admin import AdminClient

    api = start_api(cluster)
    host, port = api.proxy.address
    api.control.intercept("api == Metadata", response=True, times=1, timeout=PATIENCE)
    admin = AdminClient({"bootstrap.servers": f"{host}:{port}", "log_level": 0})
    (held,) = api.control.held(wait=PATIENCE)
    assert held["body"]["brokers"][0]["port"] == port  # the proxy's address, as the client will get it
    api.control.resume(held["id"], {"cluster_id": "edited by hand", "controller_id": held["body"]["controller_id"]})
    assert admin.list_topics(timeout=PATIENCE).brokers
    exchanges = api.control.exchanges("api == Metadata", since=0, wait=PATIENCE, bodies=True)
    assert next(each for each in exchanges if each["changed"])["response"]["cluster_id"] == "edited by hand"


def test_a_produce_request_is_edited(start_api: StartControlApi, cluster: tuple[str, int]) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    api = start_api(cluster)
    host, port = api.proxy.address
    bootstrap = {"bootstrap.servers": f"{host}:{port}", "log_level": 0}
    producer = Producer(bootstrap | {"message.timeout.ms": PATIENCE_MS, "partitioner": "consistent", "client.id": "edited"})
    assert "orders" in producer.list_topics("orders", timeout=PATIENCE).topics
    api.control.intercept("api == Produce and topic == orders", request=True, times=1, timeout=PATIENCE)
    delivered: list[Any] = []
    producer.produce("orders", b"as the client meant it", partition=0, on_delivery=lambda *report: delivered.append(report))
    producer.poll(0)
    (held,) = api.control.held(wait=PATIENCE)
    assert held["client_id"] == "edited"
    partition = held["body"]["topic_data"][0]["partition_data"][0]
    assert partition["index"] == 0 and partition["records"][0]["records"][0]["value_size"] == 22  # values are left out
    api.control.resume(held["id"], {"topic_data[0].partition_data[0].index": 1})
    producer.flush(PATIENCE)
    assert len(delivered) == 1
    consumer = Consumer(bootstrap | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("orders", 1, 0)])
    message = consumer.poll(PATIENCE)
    assert message is not None and message.error() is None
    assert (message.partition(), message.value()) == (1, b"as the client meant it")
    consumer.close()
    assert decoder.facts.api_key("Produce") == held["api_key"]
