"""A proxy whose processes are forks of a fork server is a proxy like any other: it works, ends, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import open_capture
from barnabas.proxy import Proxy, ProxyConfig
from barnabas.proxy.control import Control, ControlConfig
from barnabas.proxy.events import ProcessFailed
from barnabas.proxy.processes.children import start_child
from barnabas.proxy.processes.fork_server import ForkServer, ForkServerGone
from harness import wire
from harness.scripted import answering
from harness.testbed import Testbed, next_event
from harness.waiting import until

pytestmark = pytest.mark.skipif(not ForkServer.available, reason="there is no pidfd on this system")


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()


def processes(proxy: Proxy) -> dict[str, Any]:
    return proxy._children


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def descriptors(pid: int) -> list[str]:
    return sorted(os.listdir(f"/proc/{pid}/fd"))


def test_it_works_and_leaves_nothing(server: ForkServer, testbed: Testbed, tmp_path: Path) -> None:
    own = server._process.pid
    upstream = testbed.broker(answering(bytes(6))).address
    held = None
    for number in range(2):
        config = ProxyConfig(
            upstream=upstream, probe=False, findings=True, record=tmp_path / f"{number}",
            control=ControlConfig(directory=tmp_path / "control"),
        )  # fmt: skip
        with Proxy(config, fork_server=server) as proxy:
            assert set(processes(proxy)) == {"relay", "observer", "inspector", "control"}
            assert {parent(child.pid) for child in processes(proxy).values()} == {own}
            client = testbed.client(proxy.address)
            assert wire.ask(client, wire.request(18, 0, 7))[4:8] == (7).to_bytes(4, "big")
            assert proxy.control is not None
            access = proxy.control.access
            control = Control(access.url, access.token)
            found = until(lambda control=control: control.exchange_page("", since=0, limit=10, wait=5)["exchanges"])
            assert [each["correlation_id"] for each in found] == [7]
            pids = [child.pid for child in processes(proxy).values()]
            client.close()
        assert [child.returncode for child in processes(proxy).values()] == [0, 0, 0, 0]
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        held, before = descriptors(own), held
        assert before in (None, held)
        assert [exchange.correlation_id for exchange in open_capture(tmp_path / f"{number}").exchanges()] == [7]


def test_a_killed_process_is_reported(server: ForkServer, testbed: Testbed) -> None:
    with Proxy(ProxyConfig(upstream=testbed.broker(answering(bytes(6))).address, probe=False), fork_server=server) as proxy:
        os.kill(processes(proxy)["observer"].pid, signal.SIGKILL)
        failed = next_event(proxy, ProcessFailed)
        assert (failed.process, failed.code) == ("observer", -signal.SIGKILL)
        processes(proxy)["relay"].kill()
        failed = next_event(proxy, ProcessFailed)
        assert (failed.process, failed.code) == ("relay", -signal.SIGKILL)
        processes(proxy)["relay"].kill()  # again: nothing happens


@pytest.mark.slow  # fresh interpreters, as without a fork server
def test_without_it_processes_are_fresh_interpreters(testbed: Testbed) -> None:
    server = ForkServer()
    upstream = testbed.broker(answering(bytes(6))).address
    with Proxy(ProxyConfig(upstream=upstream, probe=False), fork_server=server) as before:
        server._process.kill()
        server._process.wait()
        with Proxy(ProxyConfig(upstream=upstream, probe=False), fork_server=server) as after:
            assert {parent(child.pid) for child in processes(after).values()} == {os.getpid()}
            for proxy in (before, after):  # the forks have gone on
                client = testbed.client(proxy.address)
                assert wire.ask(client, wire.request(18, 0, 3))[4:8] == (3).to_bytes(4, "big")
                client.close()
    server.close()


def test_what_a_late_one_forks_gets_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are for the fresh interpreter: two processes would read the same ring, and one of them nobody would know."""
    ends: list[socket.socket] = []

    class Late:
        def start(self, module: str, fds: Sequence[int]) -> None:
            ends.append(socket.socket(fileno=os.dup(fds[0])))
            raise ForkServerGone("timed out")

    def fresh(command: list[str], *, pass_fds: Sequence[int], **_: Any) -> None:
        ends.append(socket.socket(fileno=os.dup(pass_fds[0])))

    monkeypatch.setattr(subprocess, "Popen", fresh)
    late: Any = Late()
    _, control = start_child("relay.loop", {"given": "once"}, [], late)
    with control, ends[0], ends[1]:
        assert [end.recv(100, socket.MSG_DONTWAIT) for end in ends] == [b"", b'{"given": "once"}']


def test_it_ends_with_its_owner() -> None:
    server = ForkServer()
    server.close()
    assert server._process.returncode == 0
    with pytest.raises(ForkServerGone):
        server.start("relay.loop", [0])
