"""A proxy that may open 256 files, and a broker that names hundreds: it goes on serving clients, old and new ones."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys

import pytest
from barnabas import decoder
from barnabas.proxy.events import Event, ListenerFailed, RelayFault
from harness import wire
from harness.lines import line
from harness.testbed import Testbed, next_event
from harness.waiting import PATIENCE

from .test_destinations import Brokers, naming, told

FILES = 256
MANY: Brokers = [(number, f"10.0.{number >> 8}.{number & 255}", 9092) for number in range(700)]
REQUEST = wire.request(18, 0, 3)


def served(client: socket.socket) -> None:
    client.sendall(REQUEST)
    assert wire.read_frame(client) == wire.response(3, bytes(6))


def test_hundreds_of_brokers_leave_files_for_clients(testbed: Testbed) -> None:
    proxy = testbed.proxy(naming(testbed, lambda: MANY))
    pid = proxy._children["relay"].pid
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (FILES, FILES))
    first = testbed.client(proxy.address)
    own = [address for address in told(first) if address[0] == "127.0.0.1"]
    assert 1 < len(own) <= FILES // 2
    refused = next_event(proxy, ListenerFailed)
    assert refused.brokers == len(MANY) - len(own)
    clients = [testbed.client(proxy.address) for _ in range(25)]
    for client in (*clients, first):
        served(client)
        assert sorted(told(client)) == sorted(told(first))
    with socket.create_connection(own[-1], timeout=PATIENCE):  # a broker's listener takes clients, whatever becomes of them
        served(first)
    for client in clients:
        client.close()
    for _ in range(25):
        with testbed.client(proxy.address) as client:
            served(client)
    proxy.stop()
    rest: list[Event] = list(proxy.events())
    assert not [event for event in rest if isinstance(event, RelayFault)]


@pytest.mark.slow
def test_a_proxy_started_with_so_few_files_goes_on(testbed: Testbed) -> None:
    host, port = naming(testbed, lambda: MANY)
    command = [sys.executable, "-m", "barnabas", "proxy", "--broker", f"{host}:{port}", "--listen", "127.0.0.1:0", "--json"]

    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))

    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, preexec_fn=few)
    try:
        listening = json.loads(line(process, "where it listens"))
        while "address" not in listening:
            listening = json.loads(line(process, "where it listens"))
        address = listening["address"]
        address = tuple(address) if isinstance(address, list) else (address.rpartition(":")[0], int(address.rpartition(":")[2]))
        first = testbed.client(address)
        own = [each for each in told(first) if each[0] == "127.0.0.1"]
        assert 1 < len(own) <= FILES // 2
        for _ in range(30):
            with testbed.client(address) as client:
                served(client)
                assert decoder.facts.api_name(18) == "ApiVersions"
        served(first)
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait(PATIENCE)
