"""The proxy's processes: fresh interpreters (or forks of a fork server), each with one end of a control socket; and when one that has ended
is restarted.

The first time at once, then after a delay that doubles from 0.5 to 30 seconds while the process keeps ending. A process that ran for a
minute starts over with no delay. Readers of the ring and the control server are restarted for as long as the proxy runs. A relay that
ends more than `MOST` times in a minute is given up; a proxy without any relay ends with an error, so that its own supervisor can
restart it.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence

from .fork_server import Forked, ForkServer, ForkServerGone
from .interpreter import python
from .messages import Message, Stop, encode
from .serialization import to_json

Process = subprocess.Popen[bytes] | Forked

ENDING_SECONDS = 5.0
"""How long relays may take beyond their time before they are killed."""
RECORDING_SECONDS, OBSERVER_SECONDS = 25.0, 30.0
"""How long the observer may read what is left in the ring, and when it is killed: it runs at low priority, so it is late on an
overloaded machine, and a recording is to be complete."""
HURRIED = "inspector", "meter"
"""Readers that need not read everything: what they have not seen is counted."""
READER_SECONDS = 30.0
"""How long each other reader may take after the observer has finished. They end earlier by themselves (`REST_SECONDS`), but they run
at low priority, too."""
REST_SECONDS = 0.25, 5.0
"""How long they may at least and at most read what is left, after the relays have ended. The inspector reports what it has not read."""
REPORT_SECONDS = 0.5
"""Of the time to stop, kept for what they do when they have read: the last reports, and their end."""
UNHEARD_SECONDS = 1.0
"""The same for an inspector that serves only the control API (no `findings`): its last results have no reader any more."""
CONTROL_SECONDS = 15.0
"""How long the control server may take. It has little to do: this is for one that hangs."""


def start_child(
    module: str, settings: object, fds: Sequence[int], fork_server: ForkServer | None = None
) -> tuple[Process, socket.socket]:
    """Run `barnabas.proxy.<module>` with these settings and descriptors; return it with our end of its control socket."""
    if fork_server is not None:
        try:
            return _start(settings, lambda control: fork_server.start(module, [control, *fds]))
        except ForkServerGone:  # or late: what it may still fork finds its control socket ended, and does so, too
            pass
    return _start(
        settings,
        lambda control: subprocess.Popen(
            python(f"proxy.{module}", str(control)),
            pass_fds=[control, *fds],
            stdin=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C in a terminal reaches the foreground group: this process, not these
        ),
    )


def _start(settings: object, start: Callable[[int], Process]) -> tuple[Process, socket.socket]:
    """Make the control socket, start a process with a descriptor of its other end, and then send the settings."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with theirs:
            child = start(theirs.fileno())
            ours.send(to_json(settings))
    except BaseException:
        ours.close()
        raise
    return child, ours


def wait_or_kill(child: Process, seconds: float) -> None:
    """Wait for a process to end, at most so long, and then kill it."""
    try:
        child.wait(max(seconds, 0.0))
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


class Children:
    """All processes of a proxy, by name."""

    def __init__(self, fork_server: ForkServer | None = None) -> None:
        self._fork_server = fork_server
        self.processes: dict[str, Process] = {}
        self.controls: dict[str, socket.socket] = {}
        """Our ends of their control sockets."""

    def start(self, name: str, module: str, settings: object, fds: Sequence[int]) -> None:
        """Start a process, or replace one."""
        self.processes[name], self.controls[name] = start_child(module, settings, fds, self._fork_server)

    def send(self, name: str, message: Message) -> None:
        """Send a message. Nothing happens if the process is not there."""
        try:
            self.controls[name].send(encode(message))
        except (OSError, KeyError):
            pass

    def offer(self, name: str, message: Message, fds: Sequence[int] = ()) -> None:
        """Send a message with descriptors, unless the process is gone, or so busy that it takes nothing now."""
        try:
            socket.send_fds(self.controls[name], [encode(message)], fds, socket.MSG_DONTWAIT)
        except (OSError, KeyError):
            pass

    def end(self, relays: Sequence[str], seconds: float, findings: bool) -> None:
        """Wait for the relays, which were asked to stop; then stop the readers of their rings, and the others. All are to be
        done after so long, 0 for at once; only a recording is finished in any case. `findings`: the inspector's last findings are waited for."""
        until = time.monotonic() + seconds
        for name in HURRIED:  # before the relays end: then it may be busy with what that concludes
            self.offer(name, Stop(until - REPORT_SECONDS))
        standing = [self.processes[name] for name in relays if name in self.processes]
        for relay in standing:
            wait_or_kill(relay, until + (ENDING_SECONDS if seconds else 0.0) - time.monotonic())
        in_order = bool(standing) and all(relay.returncode == 0 for relay in standing)
        least, most = REST_SECONDS
        rest = min(max(until - REPORT_SECONDS - time.monotonic(), least), most)
        ends = {"observer": (RECORDING_SECONDS, OBSERVER_SECONDS)} | dict.fromkeys(HURRIED, (rest, READER_SECONDS))
        if not findings:
            ends["inspector"] = rest, UNHEARD_SECONDS
        present = [name for name in ends if name in self.processes]
        for name in present:
            # The relays' last record in the ring ends it; without that, the end of its socket does.
            self.send(name, Stop(time.monotonic() + ends[name][0]))
            if not in_order:
                self.controls[name].shutdown(socket.SHUT_WR)
        for name in present:
            wait_or_kill(self.processes[name], ends[name][1])
        if "control" in self.processes:
            self.controls["control"].shutdown(socket.SHUT_WR)
            wait_or_kill(self.processes["control"], CONTROL_SECONDS)


MOST = 5
"""A relay is restarted at most so often ..."""
WITHIN_SECONDS = 60.0
"""... in this time; ends that are further apart are not counted together."""
FIRST_SECONDS, LONGEST_SECONDS = 0.5, 30.0


class Restarts:
    """The ends of each process, by name."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends: dict[str, deque[float]] = {}
        self._in_a_row: dict[str, int] = {}

    def ended(self, name: str) -> float:
        """A process has ended. Return how long to wait before it is restarted (seconds)."""
        now = self._clock()
        ends = self._ends.setdefault(name, deque(maxlen=MOST + 1))
        lasted = not ends or now - ends[-1] > WITHIN_SECONDS
        ends.append(now)
        count = self._in_a_row[name] = 0 if lasted else self._in_a_row[name] + 1
        return min(FIRST_SECONDS * 2.0 ** min(count - 1, 16), LONGEST_SECONDS) if count else 0.0

    def too_often(self, name: str) -> bool:
        """Whether it has ended more than `MOST` times in the last minute."""
        ends = self._ends.get(name)
        return ends is not None and len(ends) > MOST and self._clock() - ends[0] <= WITHIN_SECONDS
