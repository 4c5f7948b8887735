"""How a process of the proxy begins: the supervisor's socket, and the settings that come as its first packet."""

from __future__ import annotations

import json
import os
import signal
import socket
from typing import Any

PACKET = 1 << 20
"""Most bytes of one packet between the supervisor and a process."""


def receive_settings(fd: int) -> tuple[socket.socket, dict[str, Any]]:
    """The control socket, and the settings from its first packet, which is JSON. The process ignores SIGINT and SIGTERM from now on."""
    # Ctrl-C and `kill` may reach the whole group; when to stop is the supervisor's decision.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    control = socket.socket(fileno=fd)
    packet = control.recv(PACKET)
    if not packet:
        raise SystemExit(0)
    settings: dict[str, Any] = json.loads(packet)
    return control, settings


class Parent:
    """The process that started this one.

    A fork of the fork server is the fork server's child and outlives it: only the control socket tells it that its proxy is gone.
    """

    forked = False
    """Whether this process is such a fork."""

    def __init__(self) -> None:
        self._pid = os.getppid()

    @property
    def gone(self) -> bool:
        return not Parent.forked and os.getppid() != self._pid
