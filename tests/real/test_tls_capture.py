"""TLS traffic of a real client and broker, captured by dumpcap and decrypted by the client's key log."""

from __future__ import annotations

import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from real.findings.secure_broker import start_secure_cluster

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


def test_import_with_a_key_log(tmp_path: Path) -> None:
    capture, keys, own = tmp_path / "tls.pcapng", tmp_path / "keys.log", tmp_path / "own"
    with start_secure_cluster() as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.at(cluster.plain)})
        admin.create_topics([NewTopic("by-tls", 1, 1)])["by-tls"].result(30)
        tap = subprocess.Popen(
            ["dumpcap", "-q", "-i", "lo", "-w", capture, "-f", f"tcp port {cluster.tls}"], stderr=subprocess.DEVNULL
        )
        try:
            time.sleep(2)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # what is tested is the capture
            context.keylog_filename = str(keys)
            where = {
                "bootstrap_servers": cluster.at(cluster.tls),
                "security_protocol": "SSL",
                "ssl_context": context,
                "client_id": "over-tls",
            }
            producer = KafkaProducer(**where, acks="all")
            for i in range(50):
                producer.send("by-tls", b"value-%d" % i + bytes(i * 700)).get(30)
            producer.close()
            consumer = KafkaConsumer("by-tls", **where, auto_offset_reset="earliest", consumer_timeout_ms=20_000)
            read = [next(consumer).value for _ in range(50)]
            consumer.close()
            time.sleep(1)
        finally:
            tap.terminate()
            tap.wait()
    command = [sys.executable, "-m", "barnabas", "import", capture, "--keylog", keys, "-o", own]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
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
    assert len(read) == 50
