"""Waiting without epoll, eventfd and memfd: the same traffic by selectors, pipes and a file without a name.

The whole of tests/proxy passes with BARNABAS_POLL=selectors; here is what that would not show.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from pathlib import Path

import pytest
from barnabas.proxy.ring import polling, wakeup
from barnabas.proxy.ring.polling import EDGE, READ, WRITE, SelectorPoll
from harness import wire
from harness.run.processes import comes_to_rest
from harness.scripted import echo
from harness.testbed import Testbed
from harness.waiting import attempts


@pytest.fixture
def portable(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a system that is not Linux, in this process and in those it starts."""
    monkeypatch.setenv("BARNABAS_POLL", "selectors")
    monkeypatch.setattr(polling, "PORTABLE", True)
    monkeypatch.setattr(wakeup, "PORTABLE", True)


def test_the_right_one_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "PORTABLE", False)
    assert isinstance(polling.make_poll(lambda fd: None), select.epoll)
    monkeypatch.setattr(polling, "PORTABLE", True)
    assert isinstance(polling.make_poll(lambda fd: None), SelectorPoll)
    assert (READ, WRITE, EDGE) == (select.EPOLLIN, select.EPOLLOUT, select.EPOLLET)


def test_only_what_a_lane_waits_for_is_reported() -> None:
    ours, theirs = socket.socketpair()
    wanted = 0
    poll = SelectorPoll(lambda fd: wanted)
    poll.register(ours.fileno(), polling.ALL)
    theirs.send(b"x")
    assert poll.poll(0.05, 10) == []
    wanted = READ
    assert poll.poll(0.05, 10) == [(ours.fileno(), READ)]
    assert poll.poll(0.05, 10) == [(ours.fileno(), READ)]  # again and again, until it is read
    wanted = WRITE
    assert poll.poll(0.05, 10) == [(ours.fileno(), WRITE)]
    wanted = READ | WRITE
    assert poll.poll(0.05, 10) == [(ours.fileno(), READ | WRITE)]
    poll.unregister(ours.fileno())
    poll.unregister(ours.fileno())
    assert poll.poll(0.0, 10) == []
    ours.close()
    theirs.close()


def test_a_socket_that_nobody_serves_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handshake's socket can always be written to: it must not keep the loop busy."""
    ours, theirs = socket.socketpair()
    poll = SelectorPoll(lambda fd: None)
    poll.register(ours.fileno(), polling.ALL)
    asked = [0]

    def clock() -> float:
        asked[0] += 1
        return asked[0] / 100_000  # a loop that spins sees next to no time go by

    monkeypatch.setattr(polling.time, "monotonic", clock)
    reports = sum(len(poll.poll(0.0, 10)) for _ in range(500))
    assert reports == 1
    poll.poll(0.0, 10)
    poll.modify(ours.fileno(), polling.ALL)
    assert poll.poll(0.0, 10) == [(ours.fileno(), WRITE)]  # armed anew
    ours.close()
    theirs.close()


@pytest.mark.parametrize("kind", ["eventfd", "pipe"])
def test_bells(kind: str, request: pytest.FixtureRequest) -> None:
    if kind == "pipe":
        request.getfixturevalue("portable")
    bell = wakeup.new_bell()
    try:
        assert not select.select([bell], [], [], 0)[0]
        wakeup.hush(bell)  # silent: nothing happens
        for _ in range(100_000 if kind == "pipe" else 10):
            wakeup.sound(bell)  # never waits, also when nobody listens
        assert select.select([bell], [], [], 0)[0]
        for _ in attempts(pause=0):
            wakeup.hush(bell)
            if silent := not select.select([bell], [], [], 0)[0]:
                break
        assert silent
        wakeup.sound(bell)
        assert select.select([bell], [], [], 0)[0]
        assert not os.get_inheritable(bell)
    finally:
        os.close(bell)


def test_memory_without_a_name(portable: None) -> None:
    name = f"barnabas-test-{os.getpid()}"  # others write there too, at any time
    fd = wakeup.shared_memory(name, 8192)
    assert os.fstat(fd).st_size == 8192 and os.fstat(fd).st_nlink == 0
    assert not [each for each in os.listdir("/dev/shm") if each.startswith(name)]
    os.close(fd)


def test_traffic_recording_and_large_frames(testbed: Testbed, tmp_path: Path, portable: None) -> None:
    proxy = testbed.proxy(testbed.broker(echo).address, record=tmp_path)
    large = wire.request(0, 3, 2, os.urandom(3_000_000))
    clients = [testbed.client(proxy.address) for _ in range(20)]
    for client in clients:
        assert wire.ask(client, wire.request(18, 0, 1)) == wire.request(18, 0, 1)
    threading.Thread(target=clients[0].sendall, args=(large,), daemon=True).start()
    assert wire.exactly(clients[0], len(large)) == large
    relay = proxy._children["relay"].pid
    with open(f"/proc/{relay}/maps") as file:
        assert "memfd" not in file.read()
    assert not [fd for fd in os.listdir(f"/proc/{relay}/fd") if "eventfd" in os.readlink(f"/proc/{relay}/fd/{fd}")]
    clients[1].shutdown(socket.SHUT_WR)
    assert clients[1].recv(1) == b""
    proxy.stop()
    assert list(tmp_path.glob("*.pcapng"))


@pytest.mark.slow  # what processes use is measured for seconds
def test_an_idle_proxy_is_idle(testbed: Testbed, portable: None) -> None:
    proxy = testbed.proxy(testbed.broker(echo).address)
    for client in [testbed.client(proxy.address) for _ in range(50)]:
        assert wire.ask(client, wire.request(18, 0, 1))

    def ticks() -> int:
        with open(f"/proc/{proxy._children['relay'].pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    comes_to_rest(ticks)
