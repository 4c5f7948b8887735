"""Passive recording from a network interface.

`Tap` gives packets as a growing capture: by dumpcap or tcpdump where installed (they lose fewer packets), else by a packet
socket (Linux; root or CAP_NET_RAW). `sniff` feeds it to an `Importer`.
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import BinaryIO

from ...errors import BarnabasError
from ..pcap import packets
from ..pcap.pcapng import LINKTYPE_ETHERNET
from ..pcap.sources import CaptureSource
from .importer import Importer

PROGRAMS = ("dumpcap", "tcpdump")
SOCKET = "socket"
_KEEP_BEHIND = 256 << 20  # bytes of packets that stay readable: frames that are not whole yet begin there
_POLL_SECONDS = 0.2
_BUFFER = 64 << 20
_PUNCH = 3  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
_ETH_P_ALL = 3
_SOL_PACKET, _PACKET_STATISTICS, _PACKET_OUTGOING = 263, 6, 4
_SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 33, 35
_RECORD = struct.Struct("<IIII")
_DROPPED = {
    "dumpcap": re.compile(rb"Packets received/dropped on interface .*: (\d+)/(\d+)"),
    "tcpdump": re.compile(rb"(\d+) packets? dropped by kernel"),
}


class SniffError(BarnabasError, OSError):
    """The interface cannot be listened to; the message has the reason and the remedy."""


class _Growing(CaptureSource):
    """A capture in an unnamed file that grows, and of which the oldest parts are let go."""

    def __init__(self, interface: str) -> None:
        self.path, self.note = Path(interface), None
        self.file: BinaryIO = tempfile.TemporaryFile(prefix="barnabas-")  # noqa: SIM115 - mode 0600, and without a name
        self._raw, self._ended = None, True
        self._read = self._freed = 0
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._waiting: bytes | bytearray = b""
        self.trouble = ""  # why what waits cannot be written just now

    def add(self, data: bytes | bytearray) -> None:
        """More of the capture; not while something waits. What there is no room for waits until `retry`."""
        self._waiting = data
        self.retry()

    def retry(self) -> bool:
        """Write what waits; whether nothing waits any more."""
        while self._waiting:
            try:
                done = os.pwrite(self.file.fileno(), self._waiting, self._read)
            except OSError as error:
                self.trouble = f"no room for packets in {tempfile.gettempdir()}: {error.strerror or error}"
                return False
            self._read += done
            self._waiting = self._waiting[done:]
        self.trouble = ""
        self._free()
        return True

    def _free(self) -> None:
        if self._read - self._freed > 2 * _KEEP_BEHIND:
            size = self._read - _KEEP_BEHIND - self._freed
            free = self._libc.fallocate
            free.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
            free(self.file.fileno(), _PUNCH, self._freed, size)  # where that is not known, the file just grows
            self._freed += size


def _in_order(taken: list[tuple[int, bool, bytes]]) -> list[tuple[int, bytes]]:
    """(time, packet) in the order in which they came, from (time, the kernel noted it on arrival, packet).

    The kernel begins to note arrivals a moment after the first socket asks for it. A packet of before has the time at
    which it is read, which may be after that of the packets behind it: it came no later than they did.
    """
    found: list[tuple[int, bytes]] = []
    latest: int | None = None
    for time_ns, noted, data in reversed(taken):
        if not noted and latest is not None:
            time_ns = min(time_ns, latest)
        latest = time_ns
        found.append((time_ns, data))
    found.reverse()
    return found


class Tap:
    """Listens to `interface`. `by`: "dumpcap", "tcpdump" or "socket"; "" takes the first one that is there.

    `poll` waits for packets a moment and adds them to `source`; while there is no room for them it takes none, so that
    those which come meanwhile count as dropped (see `source.trouble`). `close` ends it; then `packets` and `dropped`
    count what was taken and what was missed (None: not known). Raises SniffError.
    """

    def __init__(self, interface: str, ports: Collection[int] = (), by: str = "") -> None:
        self.interface, self._ports = interface, frozenset(port.to_bytes(2, "big") for port in ports)
        self.by = by or next(filter(shutil.which, PROGRAMS), SOCKET)
        known = [name for _, name in socket.if_nameindex()]
        if interface not in known and interface != "any":
            raise SniffError(f"there is no interface {interface}; there are: {', '.join(known)}")
        self.packets: int | None = None
        self.dropped: int | None = None
        self.source = _Growing(interface)
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._stderr: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            if self.by == SOCKET:
                self._listen()
            else:
                self._start(ports)
        except BaseException:
            self.source.close()
            self._stderr.close()
            raise

    @property
    def began(self) -> bool:
        """There is a capture to be read: its header has come."""
        return self.source.read >= 24

    def poll(self, seconds: float = _POLL_SECONDS) -> bool:
        """Take what comes within that time; False when no more will."""
        if not self.source.retry():
            time.sleep(seconds)
            return True
        return self._poll_socket(seconds) if self._socket is not None else self._poll_program(seconds)

    # a program

    def _start(self, ports: Collection[int]) -> None:
        program = shutil.which(self.by)
        if program is None:
            raise SniffError(f"{self.by} is not installed; omit --by, or install it")
        wanted = " or ".join(f"tcp port {port}" for port in ports) or "tcp"
        filter_ = f"({wanted}) or (vlan and ({wanted}))"
        options = ["-q", "-s", "0", "-B", "64"] if self.by == "dumpcap" else ["-n", "-U", "-s", "0", "-B", "65536"]
        filters = ["-f", filter_] if self.by == "dumpcap" else [filter_]
        self._process = subprocess.Popen(
            [program, "-i", self.interface, *options, "-w", "-", *filters],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            start_new_session=True,  # Ctrl-C is for us: we end it, and then read what it has still got
            preexec_fn=_end_with_us,
        )
        # The header comes when the program listens: from then on nothing is missed.
        until = time.monotonic() + 10
        while self.poll(0.05) and not self.began:
            if time.monotonic() > until:
                self.close()
                raise SniffError(f"{self.by} captures nothing on {self.interface}")
        if not self.began:
            self._process.wait()
            raise SniffError(f"{self.by} cannot listen on {self.interface}: {self._words()}")

    def _poll_program(self, seconds: float) -> bool:
        assert self._process is not None and self._process.stdout is not None
        out = self._process.stdout
        if not select.select([out], [], [], seconds)[0]:
            return True
        data = os.read(out.fileno(), 1 << 20)
        self.source.add(data)
        return bool(data)

    def _words(self) -> str:
        self._stderr.seek(0)
        lines = self._stderr.read().decode("utf-8", "replace").splitlines()
        shown = [
            line.strip() for line in lines if line.strip() and not line.startswith(("Capturing", "Running", "File:"))
        ]
        return " ".join(shown)[:300] or "it gave no reason"

    # a socket of our own

    def _listen(self) -> None:
        if self.interface == "any":
            raise SniffError("capturing on all interfaces at once needs dumpcap or tcpdump; or give one with --interface")
        try:
            listening = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # nothing comes before it is bound
        except PermissionError:
            raise SniffError(
                "listening on an interface needs root or CAP_NET_RAW: run it with sudo, or install dumpcap for your user"
            ) from None
        except AttributeError:
            raise SniffError("this system has no packet sockets: install dumpcap or tcpdump") from None
        self._socket = listening
        for option in (_SO_RCVBUFFORCE, socket.SO_RCVBUF):
            try:
                listening.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
                break
            except OSError:  # only root may have more than the system's limit
                continue
        listening.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        listening.setblocking(False)
        listening.bind((self.interface, _ETH_P_ALL))
        self._loopback = self.interface == "lo" or self.interface.startswith("lo:")
        self.packets = self.dropped = 0
        self.source.add(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, LINKTYPE_ETHERNET))

    def _poll_socket(self, seconds: float) -> bool:
        assert self._socket is not None and self.packets is not None
        select.select([self._socket], [], [], seconds)
        taken: list[tuple[int, bool, bytes]] = []
        size = 0
        receive = self._socket.recvmsg
        while size < 1 << 20:
            before = time.time_ns()
            try:
                data, ancillary, _, address = receive(1 << 18, 64)
            except BlockingIOError:
                break
            if self._loopback and address[2] == _PACKET_OUTGOING:
                continue  # on lo every packet passes twice
            if self._ports and not self._is_wanted(data):
                continue
            time_ns = before
            for level, kind, value in ancillary:
                if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(value) == 16:
                    seconds_, fraction = struct.unpack("qq", value)
                    time_ns = seconds_ * 10**9 + fraction
            taken.append((time_ns, time_ns < before, data))
            size += len(data)
            self.packets += 1
        if taken:
            self.source.add(
                b"".join(
                    _RECORD.pack(*divmod(time_ns, 10**9), len(data), len(data)) + data
                    for time_ns, data in _in_order(taken)
                )
            )
        self._count()
        return True

    def _is_wanted(self, data: bytes) -> bool:
        segment = packets.parse(LINKTYPE_ETHERNET, data)
        return segment is not None and not self._ports.isdisjoint((segment.source[-2:], segment.target[-2:]))

    def _count(self) -> None:
        assert self._socket is not None and self.dropped is not None
        _, drops = struct.unpack("II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        self.dropped += drops  # reading sets it to zero

    def close(self) -> None:
        """Stop listening, and take what is still on its way."""
        if self._socket is not None:
            if self.source.retry():
                self._poll_socket(0)
            self._count()
            self._socket.close()
        process = self._process
        if process is not None and process.stdout is not None:
            time.sleep(_POLL_SECONDS)  # the kernel's buffer reaches the program in steps
            process.terminate()
            while self.source.retry() and self._poll_program(2.0):
                if process.poll() is not None and not select.select([process.stdout], [], [], 0)[0]:
                    break
            process.stdout.close()
            process.wait()
            self._stderr.seek(0)
            found = _DROPPED[self.by].search(self._stderr.read())
            if found and self.by == "dumpcap":
                self.packets, self.dropped = int(found[1]), int(found[2])
            elif found:
                self.dropped = int(found[1])
        self._stderr.close()


_prctl = getattr(ctypes.CDLL(None), "prctl", None)


def _end_with_us() -> None:
    """In the new process: should we be killed, it ends too (Linux)."""
    if _prctl is not None:
        _prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def sniff(
    tap: Tap, importer: Importer, stopped: Callable[[], bool], trouble: Callable[[str], None] = lambda text: None
) -> None:
    """Record what `tap` hears until `stopped()`, and end both. An importer with `on_trouble` goes on when the recording
    cannot be written, another one raises OSError. `trouble` hears when there is no room for packets."""
    reported = ""
    try:
        importer.begin(tap.source)
        more = True
        while more and not stopped():
            more = tap.poll()
            if tap.source.trouble != reported:
                reported = tap.source.trouble
                trouble(
                    f"{reported}; further packets are dropped and counted"
                    if reported
                    else "there is room for packets again"
                )
            while importer.advance():
                pass
            importer.flush()
    finally:
        tap.close()
        try:
            while importer.advance():
                pass
        finally:
            importer.close()
            tap.source.close()
