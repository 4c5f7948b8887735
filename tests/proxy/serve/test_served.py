"""Real clients run their tests on committed recordings, without any broker."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from barnabas.captures import Recorder, open_capture
from barnabas.captures.serving import OfferMode
from barnabas.proxy.serve import OnMiss, ServeConfig, Served, ServeError
from barnabas.proxy.serve.events import NameTaken, Serving, WaitsForProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.waiting import PATIENCE, until
from harness.wire import with_size
from real.clients.workloads import WORKLOADS, expected

TRANSACTIONS = "kafka-python transactions"
RUN = "c-kafka-python-transactions"


def two_members(served: Served) -> tuple[dict[int, int], set[bytes]]:
    """Two members share four partitions: (how many each got, the values that both read)."""
    admin = AdminClient({"bootstrap.servers": served.bootstrap})
    admin.create_topics([NewTopic("two-confluent", 4)])["two-confluent"].result(PATIENCE)
    producer = Producer({"bootstrap.servers": served.bootstrap})
    for number in range(40):
        producer.produce("two-confluent", b"v%d" % number, partition=number % 4)
    assert producer.flush(PATIENCE) == 0
    read: set[bytes] = set()
    shares: dict[int, int] = {0: 0, 1: 0}
    done = threading.Event()

    def consume(member: int) -> None:
        config = {"group.id": "g-confluent", "auto.offset.reset": "earliest", "heartbeat.interval.ms": 200}
        consumer = Consumer({"bootstrap.servers": served.bootstrap, **config})
        consumer.subscribe(["two-confluent"])
        while not done.is_set():
            message = consumer.poll(0.05)
            if message is not None and not message.error():
                read.add(message.value())
            shares[member] = len(consumer.assignment())
        consumer.close()

    threads = [threading.Thread(target=consume, args=(member,)) for member in shares]
    for thread in threads:
        thread.start()
    try:
        until(lambda: sorted(shares.values()) == [2, 2] and len(read) == 40, lambda: (shares, len(read)))
        return dict(shares), read
    finally:
        done.set()
        for thread in threads:
            thread.join(PATIENCE)


def test_a_transactional_test_runs_offline(recorded):
    with Served(recorded("transactions")) as served:
        assert WORKLOADS[TRANSACTIONS](served.bootstrap, RUN) == expected(TRANSACTIONS)
        assert served.misses == []
        assert served.summary().never_asked == {}


def test_another_client_at_other_versions_runs_on_it(recorded):
    with Served(recorded("transactions")) as served:
        found = WORKLOADS["aiokafka transactions"](served.bootstrap, RUN)
        assert found == expected("aiokafka transactions")
        assert served.misses == []


def test_a_test_runs_repeatedly(recorded):
    folder = recorded("transactions")
    for _ in range(2):
        with Served(folder) as served:
            assert WORKLOADS[TRANSACTIONS](served.bootstrap, RUN) == expected(TRANSACTIONS)


def test_an_admin_test_runs_offline(recorded):
    with Served(recorded("admin")) as served:
        assert WORKLOADS["aiokafka admin"](served.bootstrap, "c-aiokafka-admin") == expected("aiokafka admin")
        assert served.misses == []


def test_two_members_share_a_group(recorded):
    with Served(recorded("two-members")) as served:
        shares, read = two_members(served)
        assert shares == {0: 2, 1: 2}
        assert read == {b"v%d" % number for number in range(40)}
        assert served.misses == []


def test_random_names_are_matched_with_recorded_ones(recorded, tmp_path):
    """A test that uses new names for its topics and groups in every run."""
    folder, work = tmp_path / "new", WORKLOADS["aiokafka transactions"]
    with open_capture(recorded("transactions")) as capture:
        recorder = Recorder(folder)
        for exchange in capture.exchanges():
            new = [data.replace(b"c-kafka-python", b"d-7f3a91c0b2de") for data in (exchange.request, exchange.response)]
            for direction, data in enumerate(new):
                recorder.data(exchange.connection, direction, exchange.request_time_ns, with_size(data))
        recorder.close()
    with Served(folder) as served:
        assert work(served.bootstrap, "d-0a1b2c3d4e5f-transactions") == expected("aiokafka transactions")
        assert served.misses == []
        taken = {event.live: event.recorded for event in served.events() if isinstance(event, NameTaken)}
    assert taken["ledger-d-0a1b2c3d4e5f-transactions"] == "ledger-d-7f3a91c0b2de-transactions"


def consumer_of(served: Served, topic: str, **config: Any) -> Consumer:
    settings = {"bootstrap.servers": served.bootstrap, "group.id": "g-confluent", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | config)
    consumer.subscribe([topic])
    return consumer


def test_a_lone_consumer_reads_everything_on_request(recorded):
    with Served(ServeConfig(recorded("two-members"), everything=True)) as served:
        consumer = consumer_of(served, "two-confluent")
        messages = consumer.consume(40, timeout=PATIENCE)
        consumer.close()
    assert sorted(message.value() for message in messages) == sorted(b"v%d" % number for number in range(40))


def test_a_consumer_at_the_end_of_a_log_is_reported_with_the_missing_records(recorded):
    with Served(recorded("two-members")) as served:
        consumer = consumer_of(served, "two-confluent", **{"fetch.wait.max.ms": 100})
        hints: set[tuple[str, int, int]] = set()

        def all_hinted() -> bool:
            assert consumer.poll(0.05) is None
            events = [event for event in served.events() if isinstance(event, WaitsForProducer)]
            hints.update((hint.topic, hint.partition, hint.records) for hint in events)
            return len(hints) == 4

        until(all_hinted, lambda: hints)
        consumer.close()
    assert hints == {("two-confluent", n, 10) for n in range(4)}


def test_a_topic_that_was_not_recorded_is_a_miss_with_the_nearest(recorded):
    with Served(recorded("two-members")) as served:
        admin = AdminClient({"bootstrap.servers": served.bootstrap})
        topic = admin.list_topics("two-confluant", timeout=PATIENCE).topics["two-confluant"]
        assert topic.error.name() == "UNKNOWN_TOPIC_OR_PART"
        (miss, *_) = served.misses
    assert miss.what.endswith("for two-confluant") and "two-confluent" in miss.nearest
    assert "nearest in the recording" in miss.text


def test_an_unrecorded_request_fails_with_a_reason(recorded):
    with Served(recorded("two-members")) as served:
        admin = AdminClient({"bootstrap.servers": served.bootstrap})
        with pytest.raises(KafkaException) as failed:
            admin.create_topics([NewTopic("other", 1)], request_timeout=PATIENCE)["other"].result(PATIENCE)
        assert served.summary().misses == {"CreateTopics": 1}
    assert "not in the recording: CreateTopics" in str(failed.value)


def test_answerable_offers_no_more_than_was_recorded(recorded):
    with Served(ServeConfig(recorded("two-members"), offer=OfferMode.ANSWERABLE)) as served:
        assert two_members(served)[0] == {0: 2, 1: 2}


def test_recorded_times_are_kept(recorded):
    folder = recorded("admin")
    with open_capture(folder) as capture:
        took = sum((e.latency_ns or 0) / 1e9 for e in capture.exchanges() if e.api in ("CreateTopics", "CreatePartitions"))
    started = time.monotonic()
    with Served(ServeConfig(folder, recorded_times=True)) as served:
        assert WORKLOADS["aiokafka admin"](served.bootstrap, "c-aiokafka-admin") == expected("aiokafka admin")
    assert time.monotonic() - started > took > 0


def test_misses_pass_through_and_addresses_are_those_of_the_server(recorded):
    """The "real" broker is another recording, served."""
    with (
        Served(recorded("two-members")) as behind,
        Served(ServeConfig(recorded("transactions"), on_miss=OnMiss.PASSTHROUGH, broker=behind.address)) as served,
    ):
        assert two_members(served)[0] == {0: 2, 1: 2}
        assert WORKLOADS[TRANSACTIONS](served.bootstrap, RUN) == expected(TRANSACTIONS)
        assert served.misses == []
        assert served.summary().by_kind["forwarded"] > 10
        brokers = AdminClient({"bootstrap.servers": served.bootstrap}).list_topics(timeout=PATIENCE).brokers.values()
        assert [(broker.host, broker.port) for broker in brokers] == [served.address]


def test_passed_through_requests_are_recorded_and_served_later(recorded, tmp_path):
    folder = tmp_path / "new"
    with (
        Served(recorded("transactions")) as behind,
        Served(ServeConfig(folder, on_miss=OnMiss.RECORD, broker=behind.address)) as served,
    ):
        assert WORKLOADS[TRANSACTIONS](served.bootstrap, RUN) == expected(TRANSACTIONS)
    with Served(folder) as served:
        assert WORKLOADS[TRANSACTIONS](served.bootstrap, RUN) == expected(TRANSACTIONS)
        assert served.misses == []


def test_a_port_in_use_is_an_error(recorded):
    folder = recorded("admin")
    with Served(folder) as served, pytest.raises(ServeError, match="the port is in use"):
        Served(ServeConfig(folder, listen=served.address)).start()


def test_a_single_file_cannot_be_recorded_to(recorded):
    (file,) = recorded("admin").glob("*.pcapng")
    with pytest.raises(ServeError, match="one file"):
        Served(ServeConfig(file, on_miss=OnMiss.RECORD, broker=("127.0.0.1", 1))).start()


def test_the_first_event_has_the_address(recorded):
    with Served(recorded("admin")) as served:
        (event,) = [event for event in served.events() if isinstance(event, Serving)]
        assert f"{served.address[0]}:{served.address[1]}" in event.text
