"""The loop of a process that reads the ring beside the relay, at its own pace. Traffic never waits for it or stops with it,
except for a lossless recorder.

    until the relay reports that nothing follows, or the supervisor is gone:
        read the ring into the consumer (`ring_feed`); once a second let the task report; answer commands

What is done with what is read is a `Task`: recording (`observer`) or findings (`inspector`). The meter (`metrics.meter`) serves sockets
of its own and has its own loop, with the same feed and the same link to the supervisor.
"""

from __future__ import annotations

import gc
import select
import socket
import sys
import time
from typing import Protocol

from ... import diagnostics
from ...diagnostics import contained
from ..events import Event, InternalError
from ..processes.channel import Channel
from ..processes.child import PACKET, Parent
from ..processes.control_messages import Answers, Commands, Failure, Refused, command, packed
from ..processes.messages import Message, NewControlServer, Stop, decode, encode
from ..ring.merged_rings import RingAccess
from ..ring.reader import NativeConsumer
from .ring_feed import RingFeed

ATTEND_SECONDS = 0.1
"""How often to look whether the supervisor has sent something."""
CHUNKS, NATIVE_CHUNKS = 16, 512
"""Most chunks to read before a report or a command may wait no longer: of 64 KiB of small frames, 16 take a second, but
on native recorders 512 take far less."""
SERVED_AFTER = 512
"""Most chunks before commands of the control server are answered: an answer is about what was in the ring when its command
came, unless that is more."""


class SupervisorLink:
    """The control socket: events go out, messages come in."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self._parent = Parent()
        self._ended = False
        self.stop_at: float | None = None
        """When to end at the latest (monotonic seconds); None until `Stop`."""
        self.new_channel = -1
        """The descriptor of the channel to a new control server, after `NewControlServer`."""
        diagnostics.listen(lambda error: self.emit(InternalError(error.what, error.error, error.count)))

    def emit(self, event: Event) -> bool:
        """Send an event. False if the supervisor's end does not take it: it is full, or gone (see `gone`)."""
        try:
            self.control.send(encode(event), socket.MSG_DONTWAIT)
        except OSError:
            return False
        return True

    def receive(self) -> Message | None:
        """The next message, if there is one."""
        try:
            # Not `socket.recv_fds`: that forgets its flags, and would wait.
            packet, sent, _, _ = self.control.recvmsg(PACKET, socket.CMSG_LEN(4), socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:
            packet, sent = b"", []
        if sent:
            self.new_channel = int.from_bytes(sent[0][2][:4], sys.byteorder)
        if not packet:
            self._ended = True
            return None
        return decode(packet)

    def over(self, now: float) -> bool:
        """Whether the time to stop is up."""
        return self.stop_at is not None and now >= self.stop_at

    def gone(self, now: float) -> bool:
        """Whether to end now: the supervisor is gone, or the time to stop is up."""
        return self._ended or self._parent.gone or self.over(now)


class Task(Protocol):
    """What a process does with what it reads from the ring."""

    def report(self, loop: ObserverLoop) -> None:
        """Called about once a second, and at the end (`loop.ending`)."""

    def command(self, number: int, command: Commands, loop: ObserverLoop) -> Answers | None:
        """Answer a command of the control server; None if the answer comes later (`loop.answer` with its number)."""

    def supervisor_sent(self, message: Message) -> None:
        """Called with a message of the supervisor, other than `Stop` and `NewControlServer`."""

    def pause(self, loop: ObserverLoop) -> float | None:
        """Do what there is to do besides the ring, and return the longest wait for the ring in seconds, None for the usual."""

    def close(self) -> None:
        """Nothing follows."""


class ObserverLoop:
    """Reads the ring into a feed, for a task."""

    def __init__(
        self,
        link: SupervisorLink,
        access: RingAccess,
        commands: int | None,
        feed: RingFeed,
        task: Task,
        tracks: NativeConsumer | None = None,
    ) -> None:
        """commands: the descriptor of the channel to the control server. tracks: takes plain chunks from the ring without a
        call for each."""
        self.link = link
        self.reader = access.open()
        self.feed = feed
        self._task = task
        self._tracks = tracks
        self._commands = Channel(socket.socket(fileno=commands)) if commands is not None else None
        """The channel to the control server, which rings the reader's bell after every command."""
        self.idle = False
        """Whether everything in the ring has been read."""
        self.ending = False
        """Whether nothing more is read: this is the last report."""
        self._next_look = 0.0

    @property
    def lost_bytes(self) -> int:
        """Data bytes that were not read, so far; at the end also those that are left in the ring."""
        return self.reader.lost_bytes + (self.reader.unread_bytes if self.ending else 0)

    @property
    def controlled(self) -> bool:
        """Whether there is a control server."""
        return self._commands is not None

    def answer(self, number: int, answer: Answers) -> None:
        """Answer a command of the control server, if it is still there."""
        if self._commands is not None:
            self._commands.send(packed(answer, number))

    def run(self) -> None:
        """Until the relay reports that nothing follows, the supervisor is gone, or the time that it gives for the rest is up."""
        next_report = time.monotonic() + 1.0
        unserved = 0
        limit = CHUNKS if self._tracks is None else NATIVE_CHUNKS
        while not self.feed.finished:
            worked = False
            for record in self.reader.read(limit, self._tracks):
                self.feed.take(record)
                worked = True
                unserved += 1
                if self._over():
                    break
            now = time.monotonic()
            if self._over() or (not worked and self.link.gone(now)):
                break
            if now >= next_report:
                next_report = now + 1.0
                self._task.report(self)
            self.idle = not worked
            if self._commands is not None and (self.idle or unserved >= SERVED_AFTER):
                unserved = 0
                self._serve(self._commands)
            nap = self._nap(not worked)
            if not worked and nap:
                self.reader.wait(max(min(next_report - now, nap), 0.0))
        self.ending = True
        self._task.close()
        self._task.report(self)
        gc.freeze()  # or the interpreter searches all that was kept for garbage before it ends

    def _over(self) -> bool:
        """Whether the time that the supervisor gives is up. Looks now and then whether it has sent something."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + ATTEND_SECONDS
            self._attend_supervisor()
        return self.link.over(now)

    def _serve(self, commands: Channel) -> None:
        """Answer the control server."""
        commands.flush()
        for packet, _ in commands.receive():
            number = int(packet.pop("id"))
            answer: Answers | None
            try:
                answer = self._task.command(number, command(packet), self)
            except Exception as error:  # a command may fail; what is observed goes on
                contained("a command of the control server", error, reported=True)
                answer = Refused(Failure.FAILED, f"{type(error).__name__}: {error}")
            if answer is not None:
                self.answer(number, answer)
        if commands.closed:
            self._commands = None

    def _nap(self, idle: bool) -> float:
        """How long to wait for the ring's bell at most (seconds)."""
        pause = self._task.pause(self)
        if self._commands is not None and self._commands.pending:
            if idle and pause != 0.0:
                select.select([], [self._commands], [], 0.05)
            return 0.0
        return 1.0 if pause is None else pause

    def _attend_supervisor(self) -> None:
        message = self.link.receive()
        if isinstance(message, NewControlServer):
            self._commands = Channel(socket.socket(fileno=self.link.new_channel))
        elif isinstance(message, Stop):
            self.link.stop_at = message.until
        elif message is not None:
            self._task.supervisor_sent(message)
