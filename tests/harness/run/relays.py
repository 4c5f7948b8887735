"""A relay in a thread of the test's own process."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from barnabas.proxy.events import Address
from barnabas.proxy.processes.worker_shared_state import SharedState
from barnabas.proxy.relay.loop import Relay
from barnabas.proxy.relay.relay_settings import RelaySettings, WorkerResources
from barnabas.proxy.ring.ring import Ring
from harness.waiting import PATIENCE


@dataclass
class RelayThread:
    """`address`: where clients connect; `supervisor`: the supervisor's end of its control socket."""

    relay: Relay
    address: Address
    supervisor: socket.socket


@contextmanager
def running_relay(upstream: Address) -> Iterator[RelayThread]:
    """A relay without rules. It has ended, by itself or because it was stopped, when this does."""
    supervisor, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    room_bell = os.eventfd(0, os.EFD_NONBLOCK)
    resources = WorkerResources(
        ring=Ring.create().fd, room_bell=room_bell, shared_state=SharedState.create(1, 0).fd, listener=listener.detach()
    )
    relay = Relay(control, RelaySettings(resources=resources, upstream=upstream))
    control.setblocking(False)
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        yield RelayThread(relay, address, supervisor)
    finally:
        supervisor.close()  # the relay ends with it
        thread.join(PATIENCE)
        os.close(room_bell)
        control.close()
    assert not thread.is_alive()
