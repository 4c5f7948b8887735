"""One run of the tests: where it keeps temporary files, and what is ended and removed when it is over.

The process that the user started gives the run a name, in the environment of everything that it starts. When the run ends,
also by Ctrl-C, the processes with that name in their environment are ended, and their folders and network namespaces
removed. A run that was itself killed is cleaned up by the next one.
"""

from __future__ import annotations

import contextlib
import multiprocessing.util
import os
import secrets
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

NAME = "BARNABAS_TEST_SESSION"
PREFIX = "barnabas-tests-"
NAMESPACES = Path("/run/netns")
_MEMORY, _ROOM = Path("/dev/shm"), 4 << 30
_GRACE_SECONDS = 5.0
_HELPER = "from multiprocessing."
"""In the command lines of the standard library's fork servers and resource trackers."""


@dataclass(frozen=True)
class Session:
    """A run of the tests."""

    name: str
    """``PID.NUMBER`` of the process that the user started."""
    temporary: Path
    """Every temporary file of the run is below this folder, except pytest's own, which it keeps for a while."""
    brokers: Path
    """What brokers write: in memory where there is room. On a disk they wait for it, on a busy machine for half a
    minute."""

    @property
    def running(self) -> bool:
        """Whether the process that the user started still runs."""
        return Path(f"/proc/{self.name.partition('.')[0]}").exists()

    def clean_up(self) -> list[str]:
        """End what still runs and remove what is left; return what that was, for a message."""
        left = [*_end(self.name), *_remove_namespaces(self.name)]
        for folder in {self.temporary, self.brokers}:
            shutil.rmtree(folder, ignore_errors=True)
        return left


def start() -> Session:
    """Begin a run: clean up after earlier ones that were killed, and set where all its processes write."""
    for earlier in _earlier():
        if not earlier.running:
            earlier.clean_up()
    name = f"{os.getpid()}.{secrets.token_hex(4)}"
    memory = _MEMORY if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM else None
    session = _session(name, memory)
    for folder in (session.temporary, session.brokers):
        folder.mkdir(mode=0o700, exist_ok=True)
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    os.environ |= {NAME: name, "TMPDIR": str(session.temporary), "BARNABAS_TEST_BROKERS": str(session.brokers)}
    tempfile.tempdir = None  # read TMPDIR again
    return session


def _session(name: str, memory: Path | None) -> Session:
    temporary = Path(tempfile.gettempdir()) / f"{PREFIX}{name}"
    return Session(name, temporary, memory / f"{PREFIX}{name}" if memory else temporary)


def _earlier() -> Iterator[Session]:
    names = {
        path.name.removeprefix(PREFIX)
        for root in (Path(tempfile.gettempdir()), _MEMORY)
        if root.is_dir()
        for path in root.glob(f"{PREFIX}*.*")
    }
    for name in sorted(names):
        yield _session(name, _MEMORY)


def _end(name: str) -> list[str]:
    """End the processes of a run: SIGTERM, and SIGKILL to those that do not end. Linux only; elsewhere there is no
    /proc."""
    wanted = f"{NAME}={name}".encode()
    ended: list[str] = []
    found = dict(_processes(wanted))
    for pid, command in found.items():
        with contextlib.suppress(OSError):
            # Helpers such as a fork server end with the process they help, which may just have gone.
            if not _is_child(pid) and _HELPER not in command:
                ended.append(f"process {pid}: {command}")
            os.kill(pid, signal.SIGTERM)
    for pid in found:
        if not _ignores_sigterm(pid):
            _wait(pid)
    while left := [pid for pid, _ in _processes(wanted)]:  # those, and what they started meanwhile
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            _wait(pid)
    return ended


def _is_child(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1]) == os.getpid()


def _ignores_sigterm(pid: int) -> bool:
    """As multiprocessing's resource tracker does, which lives as long as somebody has its pipe."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    ignored = next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(ignored, 16) >> (signal.SIGTERM - 1) & 1)


def _wait(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        poller = select.poll()
        poller.register(handle, select.POLLIN)
        poller.poll(_GRACE_SECONDS * 1000)
    finally:
        os.close(handle)


def _processes(wanted: bytes) -> Iterator[tuple[int, str]]:
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        if pid == os.getpid():
            continue
        try:
            if wanted not in (folder / "environ").read_bytes().split(b"\0"):
                continue
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:  # ended meanwhile, or somebody else's
            continue
        if command:  # a zombie has none
            yield pid, command[:200]


def namespace_prefix() -> str:
    """How names of this run's network namespaces begin."""
    return f"barnabas-{os.environ.get(NAME, os.getpid())}-"


def _remove_namespaces(name: str) -> list[str]:
    removed: list[str] = []
    for path in NAMESPACES.glob(f"barnabas-{name}-*"):
        subprocess.run(["ip", "netns", "del", path.name], check=False, capture_output=True)
        removed.append(f"network namespace {path.name}")
    return removed


class _Plugin:
    """In the process that the user started."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C waits until this is done
        finish = getattr(multiprocessing.util, "_run_finalizers", None)
        if finish is not None:
            finish()  # its folder is below ours, and it complains at exit where that has gone
        for each in self._session.clean_up():
            print(f"ended behind the tests: {each}")
        signal.signal(signal.SIGINT, before)


def install(config: pytest.Config) -> None:
    """Begin a run where this process is not part of one, and clean up when pytest ends."""
    if NAME not in os.environ:
        config.pluginmanager.register(_Plugin(start()), "barnabas-session")
