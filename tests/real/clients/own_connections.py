"""Watches where this process connects to: a client that leaves the proxy is seen on the kernel's list of sockets."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterable
from pathlib import Path

SAMPLE_SECONDS = 0.01


class OwnConnections:
    """While it is open, samples this process's new TCP connections to any of ``ports``; ``seen`` are those ports.

    Connections from before do not count: clients of earlier tests may still be closing theirs.
    """

    def __init__(self, ports: Iterable[int]) -> None:
        self.ports = frozenset(ports)
        self.seen: set[int] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="own connections", daemon=True)

    def __enter__(self) -> OwnConnections:
        gc.collect()  # librdkafka's clients connect again and again until they are collected
        self._before = self.now().keys()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(SAMPLE_SECONDS):
            self.seen.update(port for inode, port in self.now().items() if inode not in self._before)

    def now(self) -> dict[str, int]:
        """This process's connections to those ports: {socket: port}."""
        # /proc/net/tcp: sl local_address rem_address st ... inode (column 9); addresses are hex, port after the colon
        candidates: dict[str, int] = {}
        for table in ("tcp", "tcp6"):
            for line in Path("/proc/self/net", table).read_text().splitlines()[1:]:
                columns = line.split()
                port = int(columns[2].rpartition(":")[2], 16)
                if port in self.ports:
                    candidates[f"socket:[{columns[9]}]"] = port
        found: dict[str, int] = {}
        if candidates:
            for number in os.listdir("/proc/self/fd"):
                try:
                    target = os.readlink(f"/proc/self/fd/{number}")
                except OSError:  # closed meanwhile
                    continue
                if target in candidates:
                    found[target] = candidates[target]
        return found
