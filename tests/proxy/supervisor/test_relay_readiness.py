"""A proxy reports that it listens not before its relays take clients, and not at all where none does."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from barnabas.proxy import Proxy, ProxyConfig, ProxyError
from barnabas.proxy.events import Counts, Listening, NotVerified
from barnabas.proxy.processes.messages import Accepting, Stop, encode
from barnabas.proxy.supervisor.relay_readiness import receive, until_all_accept
from harness.waiting import PATIENCE


class Starter:
    """Starts processes as they always are, but for the relay, whose command `change` may change."""

    def __init__(self, change: Callable[[list[str]], list[str]]) -> None:
        self.relay: subprocess.Popen[bytes] | None = None
        self._change = change

    def start(self, module: str, fds: Sequence[int]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", f"barnabas.proxy.{module}", str(fds[0])]
        if module == "relay.loop":
            command = self._change(command)
        child = subprocess.Popen(command, pass_fds=fds, stdin=subprocess.DEVNULL, process_group=0)
        if module == "relay.loop":
            self.relay = child
        return child


def proxy_by(starter: Starter) -> Proxy:
    fork_server: Any = starter  # has what the supervisor needs of one
    return Proxy(ProxyConfig(upstream=("127.0.0.1", 1), probe=False), fork_server=fork_server)


def test_a_relay_that_is_late_is_waited_for() -> None:
    # It stops itself before it is a relay, as one does that gets no processor.
    late = "import os, signal, sys; os.kill(os.getpid(), signal.SIGSTOP); os.execv(sys.argv[1], sys.argv[1:])"
    starter = Starter(lambda command: [sys.executable, "-c", late, *command])
    proxy = proxy_by(starter)
    starting = threading.Thread(target=proxy.start)
    starting.start()
    try:
        while starter.relay is None:
            starting.join(0.01)
        assert os.waitid(os.P_PID, starter.relay.pid, os.WSTOPPED | os.WNOWAIT) is not None
        assert proxy.next_event(0.2) is None
        assert starting.is_alive()
        with pytest.raises(ProxyError, match="not been started"):
            assert proxy.address
        starter.relay.send_signal(signal.SIGCONT)
        starting.join(PATIENCE)
        event = proxy.next_event(0)
        assert isinstance(event, Listening)
        assert event.address == proxy.address
    finally:
        proxy.stop()
        starting.join()


def test_a_relay_that_ends_as_it_begins_is_an_error() -> None:
    proxy = proxy_by(Starter(lambda _: [sys.executable, "-c", "raise SystemExit(3)"]))
    with pytest.raises(ProxyError, match="the relay: it ended during startup"):
        proxy.start()
    assert not any(isinstance(event, Listening) for event in proxy.events())


WARNING, COUNTS = NotVerified(), Counts(1, 1, 1, 1, 0, 0, 10, 10, 0, 0)


def test_events_before_a_relay_accepts_clients_are_kept() -> None:
    pairs = {name: socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for name in ("first", "second", "third")}
    pairs["first"][1].send(encode(WARNING))
    for name in ("first", "third"):
        pairs[name][1].send(encode(Accepting()))
    pairs["first"][1].send(b"later")
    pairs["second"][1].close()
    accepting, early = until_all_accept({name: ours for name, (ours, _) in pairs.items()})
    assert (accepting, early) == ({"first", "third"}, [("first", WARNING, [])])
    assert pairs["first"][0].recv(10) == b"later"
    for pair in pairs.values():
        for sock in pair:
            sock.close()


def test_the_last_event_of_a_process_that_left_a_message_unread_is_received() -> None:
    """An observer that the relay's end has ended reads no `Stop` any more; its last counts come nevertheless."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.send(encode(Stop(0.0)))
    theirs.send(encode(COUNTS))
    theirs.close()
    assert receive("observer", ours) == ("observer", COUNTS, [])
    assert receive("observer", ours) == ("observer", None, [])
    ours.close()
