"""A process that has everything loaded, and whose forks become a proxy's processes. A fork starts in milliseconds where a fresh
interpreter takes half a second. For programs that start many proxies, such as tests. Linux only.

    python -m barnabas.proxy.processes.fork_server FD      FD: the owner's socket; it ends when that does

A request is one packet: the module, the numbers that its descriptors have in the caller, and the descriptors themselves. The answer
has the fork's pid and a pidfd. The fork server is the parent of all forks, so it is asked for their exit codes.

Why not `multiprocessing`'s forkserver: a proxy's processes need their descriptors under the numbers in their settings, their settings
from a socket, and a process group of their own. That forkserver runs a function of a pickled main module, ends with a resource
tracker, and frees what was loaded object by object. Why not `relay.interception.plugin_host.forkserver`: it must not run any code but its own before it forks,
keeps the plugins' sources, and ends its forks with itself; the forks of this one go on.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NoReturn

from .child import Parent
from .interpreter import python

PACKET = 4096
MOST_FDS = 250
"""Most descriptors in one packet (Linux allows 253, SCM_MAX_FD)."""
START_SECONDS = 300.0
"""For one that hangs: on an overloaded machine it starts late, and fresh interpreters would start later still."""
_PROXY = __package__.rpartition(".")[0]
_MODULES = {"control": "control.server"}
_LOADED = ("relay.loop", "observers.observer", "observers.inspector", "control.server")


class ForkServerGone(OSError):
    """The fork server has ended or could not start; start processes in the ordinary way."""


class Forked:
    """A fork, with the part of `subprocess.Popen` that the supervisor needs."""

    def __init__(self, fork_server: ForkServer, pid: int, pidfd: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._fork_server, self._pidfd = fork_server, pidfd
        self._lock = threading.Lock()

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code (negative for a signal). `subprocess.TimeoutExpired` if it runs longer."""
        ended = select.poll()
        ended.register(self._pidfd, select.POLLIN)
        if not ended.poll(None if timeout is None else max(timeout, 0.0) * 1000):
            assert timeout is not None
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        with self._lock:
            if self.returncode is None:
                self.returncode = self._fork_server.code(self.pid)
            return self.returncode

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """Kill it, if it has not ended."""
        with self._lock:
            if self.returncode is None:
                try:
                    signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def __del__(self) -> None:
        os.close(self._pidfd)  # not before: several may wait


class ForkServer:
    """Starts at once, and is ready when it first answers. available: whether this system supports it."""

    available = hasattr(os, "pidfd_open") and hasattr(socket, "recv_fds")

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(START_SECONDS)
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                python("proxy.processes.fork_server", str(theirs.fileno())),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                process_group=0,
            )

    def start(self, module: str, fds: Sequence[int]) -> Forked:
        """Start `barnabas.proxy.MODULE`; the first descriptor is its control socket. Raises ForkServerGone."""
        if len(fds) > MOST_FDS:
            raise ForkServerGone(f"{len(fds)} descriptors are too many")
        answer, sent = self._ask({"start": _MODULES.get(module, module), "fds": list(fds)}, fds)
        return Forked(self, int(answer["pid"]), sent[0])

    def code(self, pid: int) -> int:
        """The exit code of a fork that has ended; that of a killed process if the fork server is gone."""
        try:
            return int(self._ask({"code": pid}, ())[0]["code"])
        except ForkServerGone:
            return -signal.SIGKILL

    def close(self) -> None:
        """End the fork server. Its forks go on."""
        self._socket.close()
        self._process.wait()

    def _ask(self, what: dict[str, object], fds: Sequence[int]) -> tuple[dict[str, int], list[int]]:
        with self._lock:
            try:
                socket.send_fds(self._socket, [json.dumps(what).encode()], fds)
                packet, sent, _, _ = socket.recv_fds(self._socket, PACKET, 1)
            except OSError as error:
                self._socket.close()  # so that a late answer is not taken for that of another request
                raise ForkServerGone(str(error)) from None
        if not packet:
            raise ForkServerGone("the fork server has ended")
        return json.loads(packet), sent


def serve(owner: socket.socket) -> Callable[[], None] | None:
    """Fork until the owner is gone, then return None. In a fork, return the function to run."""
    while True:
        try:
            packet, sent, _, _ = socket.recv_fds(owner, PACKET, MOST_FDS)
        except ConnectionError:
            return None
        if not packet:
            return None
        asked = json.loads(packet)
        if "code" in asked:
            _, status = os.waitpid(asked["code"], 0)
            owner.send(json.dumps({"code": os.waitstatus_to_exitcode(status)}).encode())
            continue
        pid = os.fork()
        if not pid:
            owner.detach()
            Parent.forked = True
            _renumber(sent, asked["fds"])
            os.setpgid(0, 0)  # Ctrl-C in a terminal does not reach it
            sys.argv = [asked["start"], str(asked["fds"][0])]
            run: Callable[[], None] = import_module(f"{_PROXY}.{asked['start']}").main
            return run
        pidfd = os.pidfd_open(pid)
        try:
            socket.send_fds(owner, [json.dumps({"pid": pid}).encode()], [pidfd])
        except ConnectionError:  # the owner has given up
            return None
        for fd in (pidfd, *sent):
            os.close(fd)


def _renumber(have: Sequence[int], want: Sequence[int]) -> None:
    """Give descriptors the numbers that the settings name, and close all others but the standard three."""
    above = max([*have, *want, 2]) + 1
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, above) for fd in have]
    os.closerange(3, above)
    for fd, number in zip(moved, want, strict=True):
        os.dup2(fd, number)
    os.closerange(above, max(moved) + 1)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    owner = socket.socket(fileno=int(sys.argv[1]))
    for name in _LOADED:
        import_module(f"{_PROXY}.{name}")
    import_module(f"{_PROXY}.relay.interception.frame_editor").watched()  # every relay needs it as it starts
    gc.collect()
    gc.freeze()
    run = serve(owner)
    if run is not None:
        run()
        _end()


def _end() -> NoReturn:
    """End like an interpreter, but leave what was loaded to the system: to free it object by object would copy each of its pages and
    take longer than most proxies of tests run."""
    threading._shutdown()  # type: ignore[attr-defined]  # as multiprocessing does: waits for threads that are no daemons
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
