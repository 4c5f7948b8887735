"""What the workers of one proxy share in memory: how busy each is, and what they have learned of brokers.

    header     4096 bytes of 64-bit words: magic, workers, bytes of the log, the next port;
               from word 64 on a block of 8 words per worker: state, open connections, accepted ones, clients wait, until when it
               has recorded which brokers it uses
    log        JSON, one entry a line; two halves, of which one is in use: it is appended to, until it is full and what
               still holds is written into the other one
    named      65,536 doubles by port: when a response last named the broker whose listener has this port, in seconds of
               the monotonic clock, which is the same in all processes
    own        65,536 words by source port: a mark of the worker's own connection to a broker (`transparent`)
    counters   of rules (`shared_counters`), written under the lock

Each word has one writer, but for `named`, where all write the current time. The log and the next port are written under a lock that ends
with its holder, however that one ends; a worker that cannot get it in time goes on without it. Readers read the log up to its length: one
word holds the length and how often the log was rewritten, so that a writer that dies leaves the one log or the other.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..ring.wakeup import shared_memory
from .shared_counters import SIZE as COUNTERS_SIZE

MOST_WORKERS = 32
LOCK_SECONDS = 0.25
"""The lock is held for a few microseconds. A process that holds it longer has been stopped, and traffic must not stop with it."""
LOG_BYTES = 1 << 20
"""Of each half."""

_MAGIC = 0x44524F424E5242
_HEADER = 4096
_PORTS = 1 << 16
_NAMED_AT = _HEADER + 2 * LOG_BYTES
_OWN_AT = _NAMED_AT + 8 * _PORTS
_SIZE = _OWN_AT + 8 * _PORTS + COUNTERS_SIZE
_W_MAGIC, _W_WORKERS, _W_LOGGED, _W_PORT = range(4)
_W_BLOCKS = 64
_STATE, _OPEN, _ACCEPTED, _WAITS, _USED_UNTIL = range(5)
_TO_COME, _HERE, _GONE = range(3)
_REWRITTEN = 1 << 32
"""The log's word: its length, and so much more for each time that it was rewritten."""


class SharedState:
    """The mapped memory, as one worker sees it (`worker`, from 0; -1: no worker)."""

    def __init__(self, fd: int, worker: int = -1) -> None:
        self.fd = fd
        self.worker = worker
        self._map = mmap.mmap(fd, _SIZE)
        self._buffer = memoryview(self._map)
        self._words = self._buffer[:_HEADER].cast("Q")
        self._log = self._buffer[_HEADER:_NAMED_AT]
        self.named = self._buffer[_NAMED_AT:_OWN_AT].cast("d")
        """When brokers were last named, by their listeners' ports."""
        self._own = self._buffer[_OWN_AT : _SIZE - COUNTERS_SIZE].cast("Q")
        self.rule_counters = self._buffer[_SIZE - COUNTERS_SIZE :]
        """The counters of rules (`shared_counters`)."""
        self._read = 0
        """The log's word when it was read last."""
        if not self._words[_W_MAGIC]:
            return
        if self._words[_W_MAGIC] != _MAGIC:
            raise ValueError("this file descriptor is not a shared state")
        self.workers: int = self._words[_W_WORKERS]

    @classmethod
    def create(cls, workers: int, next_port: int) -> SharedState:
        """Create the memory. next_port: the first that a broker's listener may have, 0 for any."""
        shared_state = cls(shared_memory("barnabas-shared_state", _SIZE))
        shared_state._words[_W_MAGIC], shared_state._words[_W_WORKERS] = _MAGIC, workers
        shared_state._words[_W_PORT] = next_port
        shared_state.workers = workers
        return shared_state

    def close(self) -> None:
        for view in (self.rule_counters, self._own, self.named, self._log, self._words, self._buffer):
            view.release()
        self._map.close()
        os.close(self.fd)

    # -- how busy each worker is -----------------------------------------------------------------------------

    def _word(self, worker: int, word: int) -> int:
        return _W_BLOCKS + worker * 8 + word

    def begin(self, worker: int) -> int:
        """A worker starts, with no connection. Return how many connections its predecessor has accepted."""
        words = self._words
        words[self._word(worker, _OPEN)] = words[self._word(worker, _WAITS)] = 0
        words[self._word(worker, _STATE)] = _HERE
        return words[self._word(worker, _ACCEPTED)]

    def end(self, worker: int) -> None:
        """A worker is gone: it no longer counts."""
        words = self._words
        words[self._word(worker, _STATE)] = _GONE
        words[self._word(worker, _OPEN)] = 0

    def alive(self, worker: int) -> bool:
        """Whether a worker runs."""
        return self._words[self._word(worker, _STATE)] == _HERE

    def gathering(self) -> bool:
        """Whether some workers have not started for the first time."""
        return any(self._words[self._word(worker, _STATE)] == _TO_COME for worker in range(self.workers))

    def accepted(self, count: int, standing: int) -> None:
        """Set how many connections this worker has accepted, and how many are open."""
        self._words[self._word(self.worker, _ACCEPTED)] = count
        self._words[self._word(self.worker, _OPEN)] = standing

    def standing(self, count: int) -> None:
        """Set how many connections of this worker are open."""
        self._words[self._word(self.worker, _OPEN)] = count

    def all_accepted(self) -> int:
        """Connections that all workers have accepted, including those that have ended."""
        return sum(self._words[self._word(worker, _ACCEPTED)] for worker in range(self.workers))

    def all_standing(self) -> int:
        """Open connections of all workers."""
        return sum(self._words[self._word(worker, _OPEN)] for worker in range(self.workers))

    def less_busy(self) -> int | None:
        """The worker with the fewest open connections, if it is another one."""
        words = self._words
        fewest, found = words[self._word(self.worker, _OPEN)], None
        for worker in range(self.workers):
            if words[self._word(worker, _OPEN)] < fewest and self.alive(worker):
                fewest, found = words[self._word(worker, _OPEN)], worker
        return found

    def wait(self, clients: bool) -> None:
        """Set whether clients wait at this worker for a connection to end."""
        self._words[self._word(self.worker, _WAITS)] = int(clients)

    def waiting(self) -> list[int]:
        """The other workers at which clients wait."""
        return [w for w in range(self.workers) if w != self.worker and self._words[self._word(w, _WAITS)]]

    def used_until(self, now: float) -> float:
        """This worker has written to `named` which brokers' listeners are in use `now`; until when all that are alive have. Seconds."""
        self._words[self._word(self.worker, _USED_UNTIL)] = int(now * 1e9)
        return min([now, *(self._words[self._word(w, _USED_UNTIL)] / 1e9 for w in range(self.workers) if self.alive(w))])

    # -- the log ---------------------------------------------------------------------------------------------

    @contextmanager
    def locked(self, seconds: float = LOCK_SECONDS) -> Iterator[bool]:
        """Hold the lock; yields False where it could not be had within `seconds`."""
        until = time.monotonic() + seconds
        while True:
            try:
                fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() >= until:
                    yield False
                    return
                time.sleep(0.0005)
        try:
            yield True
        finally:
            fcntl.lockf(self.fd, fcntl.LOCK_UN)

    @property
    def next_port(self) -> int:
        return self._words[_W_PORT]

    @next_port.setter
    def next_port(self, port: int) -> None:
        self._words[_W_PORT] = port

    def append(self, entry: list[Any]) -> bool:
        """Add to the log: under the lock, and after `new_entries`, which does not return this entry. False if it is full."""
        rewrites, at = divmod(self._words[_W_LOGGED], _REWRITTEN)
        return self._write(rewrites, at, [entry])

    def rewrite(self, entries: list[list[Any]]) -> bool:
        """Replace the log: under the lock, and after `new_entries`; everyone reads it. False if it is too long; nothing has changed then."""
        return self._write(self._words[_W_LOGGED] // _REWRITTEN + 1, 0, entries)

    def _write(self, rewrites: int, at: int, entries: list[list[Any]]) -> bool:
        lines = b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)
        end = at + len(lines)
        if end > LOG_BYTES:
            return False
        half = rewrites % 2 * LOG_BYTES
        self._log[half + at : half + end] = lines
        self._words[_W_LOGGED] = self._read = rewrites * _REWRITTEN + end
        return True

    def new_entries(self) -> list[list[Any]]:
        """Entries that others have added since the last call; all entries if the log was rewritten since."""
        while (logged := self._words[_W_LOGGED]) != self._read:
            rewrites, end = divmod(logged, _REWRITTEN)
            read_rewrites, read = divmod(self._read, _REWRITTEN)
            half = rewrites % 2 * LOG_BYTES
            lines = bytes(self._log[half + (read if rewrites == read_rewrites else 0) : half + end])
            if self._words[_W_LOGGED] // _REWRITTEN == rewrites:  # else these may have been overwritten already
                self._read = logged
                return [json.loads(line) for line in lines.splitlines()]
        return []

    # -- own connections -------------------------------------------------------------------------------------

    def claim(self, port: int, mark: int) -> None:
        """Mark the source port of one of this worker's own connections."""
        self._own[port] = mark

    def disclaim(self, port: int, mark: int) -> None:
        if self._own[port] == mark:
            self._own[port] = 0

    def claimed(self, port: int, mark: int) -> bool:
        """Whether a worker has marked this source port."""
        return self._own[port] == mark
