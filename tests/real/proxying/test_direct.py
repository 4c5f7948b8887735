"""The broker fixture and the client programs, without a proxy: what the other tests of this folder compare with."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from harness.waiting import PATIENCE, until
from real.brokers.broker import BrokerFailed, answers_api_versions, free_ports, jar_directory, start_cluster
from real.clients.workloads import CLIENTS, expected, in_turn


@pytest.mark.parametrize("name", in_turn())
def test_workload_gives_what_it_must(direct, name):
    assert direct(name) == expected(name)


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_get_the_brokers_own_address(broker, client):
    assert CLIENTS[client].broker_addresses(broker.bootstrap) == broker.addresses


def test_missing_jars_are_a_failure_with_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("BARNABAS_KAFKA_JARS", str(tmp_path))
    with pytest.raises(BrokerFailed, match="make broker"):
        jar_directory()


@pytest.mark.slow
def test_a_broker_that_ends_at_its_start_shows_its_log_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = [*free_ports(1), taken.getsockname()[1]]
        monkeypatch.setattr("real.brokers.broker.free_ports", lambda count: ports[:count])
        with pytest.raises(BrokerFailed, match=r"exited during startup \(1\)(.|\n)*Address already in use"):
            start_cluster()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_broker_does_not_outlive_a_killed_test_process(tmp_path):
    program = (
        "import os, signal; from real.brokers.broker import start_cluster\n"
        "cluster = start_cluster(); print(cluster.nodes[0].port, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    port = int(done.stdout)
    until(lambda: not answers_api_versions(("127.0.0.1", port)), "the broker still answers")
    until(lambda: list(tmp_path.iterdir()) == [], lambda: list(tmp_path.iterdir()))
