"""Encrypted legs captured beside the proxy, and read by the keys that the proxy or a client has logged: by tshark, and
by `barnabas import`, which has to find what the proxy has recorded itself."""

from __future__ import annotations

import json
import ssl
import stat
from collections import Counter
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.decoder import Exchange
from barnabas.proxy.events import BrokerFound, show
from barnabas.proxy.relay.negotiation.security import TlsConfig
from confluent_kafka.admin import AdminClient, NewTopic
from harness import commands
from harness.waiting import PATIENCE, PATIENCE_MS
from kafka import KafkaConsumer, KafkaProducer
from real.brokers.secured import Secured
from real.brokers.wireshark import missing, tap, tshark

pytestmark = pytest.mark.needs(why_not=missing)


def imported(capture: Path, keys: Path, own: Path, *options: str) -> None:
    done = commands.run("import", capture, "--keylog", keys, "-o", own, *options)
    assert done.returncode == 0, done.stderr


def write_and_read(count: int, step: int, **where: object) -> None:
    """So many records of growing size through a producer and a consumer."""
    producer = KafkaProducer(**where, acks="all")
    values = [b"value-%d" % i + bytes(i * step) for i in range(count)]
    for value in values:
        producer.send("by-tls", value, partition=0).get(PATIENCE)
    producer.close()
    consumer = KafkaConsumer("by-tls", **where, auto_offset_reset="earliest", consumer_timeout_ms=PATIENCE_MS)
    found: list[bytes] = []
    while found[-count:] != values:
        found.append(next(consumer).value)
    consumer.close()


@pytest.fixture
def topic(secured: Secured) -> None:
    admin = AdminClient({"bootstrap.servers": secured.cluster.bootstrap})
    if "by-tls" not in admin.list_topics(timeout=PATIENCE).topics:
        admin.create_topics([NewTopic("by-tls", 1, 1)])["by-tls"].result(PATIENCE)


@pytest.mark.slow
def test_the_keys_of_the_proxy(secured: Secured, topic: None, tmp_path: Path) -> None:
    """Both legs are TLS."""
    capture, keys, recording = tmp_path / "legs.pcapng", tmp_path / "keys.log", tmp_path / "recording"
    tls = TlsConfig(ca=secured.proxy_ca, broker_ca=secured.ca.path, keylog=keys)
    theirs = {node.listeners["TLS"] for node in secured.cluster.nodes}
    with secured.proxy("TLS", tls=tls, record=recording) as running:
        security = {"bootstrap_servers": running.bootstrap, "security_protocol": "SSL", "ssl_cafile": running.ca}
        # who asks for the brokers has every listener there before the capture begins
        first = KafkaProducer(**security)
        assert first.partitions_for("by-tls") == {0}
        ours = {running.proxy.address[1], *(event.address[1] for event in running.wait_for(BrokerFound))}
        with tap(capture, ours | theirs):
            write_and_read(20, 700, client_id="over-tls", **security)
        first.close()
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    with open_capture(recording) as opened:
        recorded = [e for e in opened.exchanges() if e.client_id == "over-tls"]
    assert {"Produce", "Fetch", "ApiVersions"} <= {e.api for e in recorded}

    # tshark: the same requests on either leg
    for ports in (ours, theirs):
        decoded = [part for port in ports for part in ("-d", f"tcp.port=={port},tls", "-d", f"tls.port=={port},kafka")]
        fields = ["-Y", "kafka.api_key", "-T", "json", *(part for name in FIELDS for part in ("-e", name))]
        requests: set[tuple[int, int]] = set()
        for packet in json.loads("\n".join(tshark(capture, "-o", f"tls.keylog_file:{keys}", *decoded, *fields))):
            layers = packet["_source"]["layers"]
            if int(layers["tcp.dstport"][0]) in ports:
                ids = zip(map(int, layers["kafka.api_key"]), map(int, layers["kafka.correlation_id"]), strict=False)
                requests |= set(ids)
        # it does not separate the fields of several requests in one record
        assert requests >= {(e.api_key, e.correlation_id) for e in recorded if e.api in ("Produce", "ApiVersions")}

    # our own import: the same exchanges as the proxy saw
    imported(capture, keys, tmp_path / "own", *(part for port in ours for part in ("--port", str(port))))
    with open_capture(tmp_path / "own") as opened:
        assert opened.note is None
        # both legs are there; the keys are those of both
        seen = [e for e in opened.exchanges() if e.client_id == "over-tls"]
        found = [e for e in seen if int(e.broker.rpartition(":")[2]) in ours]
    assert Counter(map(same, found)) == Counter(map(same, recorded))


FIELDS = ("tcp.dstport", "kafka.api_key", "kafka.correlation_id")


def same(exchange: Exchange) -> tuple[object, ...]:
    """What an exchange is, wherever it was seen."""
    return exchange.client, exchange.state, exchange.request, exchange.response


@pytest.mark.slow
def test_the_keys_of_a_client(secured: Secured, topic: None, tmp_path: Path) -> None:
    """No proxy at all."""
    capture, keys, own = tmp_path / "tls.pcapng", tmp_path / "keys.log", tmp_path / "own"
    context = ssl.create_default_context(cafile=str(secured.ca.path))
    context.keylog_filename = str(keys)
    where = {"bootstrap_servers": show(secured.address("TLS")), "security_protocol": "SSL", "ssl_context": context}
    with tap(capture, (node.listeners["TLS"] for node in secured.cluster.nodes)):
        write_and_read(50, 700, client_id="over-tls", **where)
    imported(capture, keys, own)
    with open_capture(own) as opened:
        rows = list(opened.rows())
        assert opened.note is None
        assert not any(row.undecoded or row.surplus or row.state == "orphan" for row in rows)
        assert {row.client_id for row in rows} == {"over-tls"}
        produced = [opened.exchange(row) for row in rows if row.api == "Produce"]
        fetched = [opened.exchange(row) for row in rows if row.api == "Fetch"]
    assert len(produced) == 50
    values = b"".join(e.request or b"" for e in produced)
    assert all(b"value-%d" % i + bytes(i * 700) in values for i in range(50))
    assert b"value-49" + bytes(49 * 700) in b"".join(e.response or b"" for e in fetched)
