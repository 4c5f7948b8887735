"""A proxy that may open 256 files, and a broker that names hundreds: it goes on serving clients, old and new ones."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys

import pytest
from harness import wire
from harness.run.lines import line
from harness.testbed import Testbed
from harness.waiting import PATIENCE

from ..addressing.test_destinations import Brokers, naming, told

FILES = 256
MANY: Brokers = [(number, f"10.0.{number >> 8}.{number & 255}", 9092) for number in range(700)]
REQUEST = wire.request(18, 0, 3)


def served(client: socket.socket) -> None:
    client.sendall(REQUEST)
    assert wire.read_frame(client) == wire.response(3, bytes(6))


def listening(process: subprocess.Popen[str]) -> tuple[str, int]:
    while True:
        said = json.loads(line(process, "where it listens"))
        if "address" in said:
            host, _, port = said["address"].rpartition(":") if isinstance(said["address"], str) else (said["address"][0], "", said["address"][1])
            return host, int(port)


@pytest.mark.slow
def test_a_proxy_started_with_so_few_files_goes_on(testbed: Testbed) -> None:
    host, port = naming(testbed, lambda: MANY)
    command = [sys.executable, "-m", "barnabas", "proxy", "--broker", f"{host}:{port}", "--listen", "127.0.0.1:0", "--json"]

    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))

    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, preexec_fn=few)
    try:
        address = listening(process)
        first = testbed.client(address)
        own = [each for each in told(first) if each[0] == "127.0.0.1"]
        assert 1 < len(own) <= FILES // 2
        for _ in range(30):
            with testbed.client(address) as client:
                served(client)
        with testbed.client(own[-1]) as client:  # a broker's listener takes clients, whatever becomes of them
            client.sendall(REQUEST)
        assert sorted(told(first)) == sorted(told(first)) and len([each for each in told(first) if each[0] == "127.0.0.1"]) == len(own)
        served(first)
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait(PATIENCE)
