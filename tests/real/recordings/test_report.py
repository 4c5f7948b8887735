"""Reports over a recording of real clients: what the tables know of a transaction is what the client did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import show
from harness import commands
from harness.proxies import Proxy
from real.brokers.broker import Cluster
from real.clients import confluent_client

pytest.importorskip("duckdb")
pytestmark = [pytest.mark.real, pytest.mark.slow]


def test_who_fetched_what_a_transactional_id_sent(broker: Cluster, tmp_path: Path) -> None:
    with Proxy(ProxyConfig(upstream=broker.addresses[0], record=tmp_path / "recording")) as proxy:
        seen = confluent_client.transactions(show(proxy.address), "reported")
    done = commands.run("report", "--json", "--only", "transactions,groups", tmp_path / "recording")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (row,) = found["transactions"]["rows"]
    sent = len(seen["read_uncommitted"])
    assert (row["transactional_id"], row["producer_ids"], row["topics"], row["records"]) == ("booker-reported", 1, 1, sent)
    assert row["fetched_records"] >= 2 * sent  # two readers, and brokers send aborted records, too
    (group,) = (each for each in found["groups"]["rows"] if each["group_id"] == "booking-reported")
    assert group["coordinator"] in map(show, broker.addresses)
