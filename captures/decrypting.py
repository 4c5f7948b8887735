"""TLS in captures of others: tshark decrypts, with a key log or with the secrets that a pcapng file holds itself.

What comes out is a capture again, in an unnamed temporary file: the packets of other connections as they were, and
for each TLS connection made-up packets of the same ends and times with its plain bytes. tshark reads and decrypts;
which bytes are Kafka, and how they are put together, is found out here as for any capture.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from heapq import merge
from pathlib import Path
from typing import BinaryIO

from . import packets
from .packets import ACK, FIN, MAX_PAYLOAD, PSH, RST, SYN, Address
from .pcapng import CaptureReader
from .sources import Source

_FIELDS = (
    "frame.time_epoch", "tcp.stream", "ip.src", "ipv6.src", "tcp.srcport", "ip.dst", "ipv6.dst", "tcp.dstport",
    "tcp.flags", "data.data",
)  # fmt: skip
_RECORD = struct.Struct("<IIII")
_HEAD = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1)
_ETHERNET = {4: bytes(12) + b"\x08\x00", 6: bytes(12) + b"\x86\xdd"}

Stamped = tuple[int, bytes]


class DecryptionError(ValueError):
    """The captures cannot be decrypted; the text says what is missing."""


class _Plain(Source):
    """The decrypted capture, in a file of its own."""

    def __init__(self, file: BinaryIO, path: Path, note: str | None) -> None:
        self.path, self.file, self.note = path, file, note
        self._raw, self._ended = None, True
        self._read = os.fstat(file.fileno()).st_size

    @property
    def plain(self) -> bool:
        return False

    @property
    def known(self) -> int:
        return self._read


def decrypted(sources: list[Source], keylog: Path | None) -> list[Source]:
    """The same sources when there is nothing to decrypt with; else one in their place, and they are closed.

    Raises DecryptionError.
    """
    holding = [source for source in sources if _holds_secrets(source)]
    if keylog is None and not holding:
        return sources
    tshark = shutil.which("tshark")
    if tshark is None:
        if keylog is None:
            holding[0].note = "it holds TLS secrets, and tshark is not installed, so TLS connections stay closed"
            return sources
        raise DecryptionError("--keylog needs tshark, which decrypts: install it with: apt-get install tshark")
    with tempfile.TemporaryDirectory(prefix="barnabas-") as folder:
        path = _one_file(sources, Path(folder))
        command = [tshark, "-n", "-r", str(path), "-o", "tcp.reassemble_out_of_order:TRUE"]
        if keylog is not None:
            command += ["-o", f"tls.keylog_file:{keylog.absolute()}"]
        ends = _tls_ends(command)
        file = tempfile.TemporaryFile(prefix="barnabas-")  # noqa: SIM115 - mode 0600, and without a name
        try:
            file.write(_HEAD)
            streams = _Streams(command, ends)
            for time_ns, data in merge(_others(sources, ends), streams.packets(), key=lambda stamped: stamped[0]):
                file.write(_RECORD.pack(*divmod(time_ns, 10**9), len(data), len(data)) + data)
            file.flush()
        except BaseException:
            file.close()
            raise
    for source in sources:
        source.close()
    return [_Plain(file, sources[0].path, streams.note)]


def _holds_secrets(source: Source) -> bool:
    """Whether a pcapng file has secrets; they stand in front of the packets."""
    reader = CaptureReader(source.file, str(source.path))
    if reader.classic is None:
        next(reader.packets(), None)
    return reader.secrets


def _one_file(sources: list[Source], folder: Path) -> Path:
    """A file with a name that tshark can read: the file itself, or all of them in one."""
    paths = []
    for number, source in enumerate(sources):
        source.fill_all()
        if source.plain:
            paths.append(source.path.absolute())
            continue
        path = folder / f"{number}.capture"
        source.file.seek(0)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as out:
            shutil.copyfileobj(source.file, out)
        paths.append(path)
    if len(paths) == 1:
        return paths[0]
    mergecap = shutil.which("mergecap")
    if mergecap is None:
        raise DecryptionError("TLS over several files needs mergecap, which comes with tshark; or merge them first")
    _run([mergecap, "-a", "-w", str(folder / "all.capture"), *map(str, paths)])
    return folder / "all.capture"


def _run(command: list[str]) -> bytes:
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise DecryptionError(_why(command[0], done.stderr))
    return done.stdout


def _why(program: str, said: bytes) -> str:
    lines = [line for line in said.decode("utf-8", "replace").splitlines() if "Running as user" not in line]
    return f"{Path(program).name} could not read it: {' '.join(lines)[:300] or 'it gave no reason'}"


def _tls_ends(command: list[str]) -> dict[frozenset[Address], Address]:
    """The TLS connections: both ends, and which one is the server."""
    found = _run([*command, "-Y", "tls.handshake.type == 2", "-T", "fields", *_options(_FIELDS[:8])])
    ends = {}
    for line in found.decode("ascii", "replace").splitlines():
        _, _, server, client = _line(line.split("\t"))
        ends[frozenset((server, client))] = server
    return ends


def _options(fields: tuple[str, ...]) -> list[str]:
    return [word for field in fields for word in ("-e", field)]


def _line(cells: list[str]) -> tuple[int, str, Address, Address]:
    """Time, stream, source and target of a line; of tunnelled packets, the innermost ends."""
    time, stream, source4, source6, source_port, target4, target6, target_port = cells[:8]
    seconds, _, fraction = time.partition(".")
    time_ns = int(seconds) * 10**9 + int((fraction + "000000000")[:9])
    source = ((source4 or source6).split(",")[-1], int(source_port.split(",")[-1]))
    return time_ns, stream, source, ((target4 or target6).split(",")[-1], int(target_port.split(",")[-1]))


def _others(sources: list[Source], ends: dict[frozenset[Address], Address]) -> Iterator[Stamped]:
    """The packets of everything that is not TLS."""
    closed = {frozenset(map(_packed, pair)) for pair in ends}
    for source in sources:
        for packet in CaptureReader(source.file, str(source.path)).packets():
            segment = packets.parse(packet.linktype, packet.data, packet.size)
            if segment is None or segment.cut or frozenset((segment.source, segment.target)) in closed:
                continue
            start = packets.network_start(packet.linktype, packet.data) or 0
            yield packet.time_ns, _ETHERNET[packet.data[start] >> 4] + packet.data[start:]


def _packed(address: Address) -> bytes:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    return socket.inet_pton(family, address[0]) + address[1].to_bytes(2, "big")


class _Stream:
    """A TLS connection: the made-up packets' sequence numbers."""

    def __init__(self, client: Address, server: Address) -> None:
        self.ends = (client, server)
        self.next = [1000, 1000]
        self.plain = self.ended = False

    def packet(self, side: int, flags: int, data: bytes = b"") -> bytes:
        made = packets.build(
            self.ends[side], self.ends[1 - side], self.next[side], self.next[1 - side], flags, data, side
        )
        self.next[side] += len(data) + (1 if flags & (SYN | FIN) else 0)
        return made


class _Streams:
    """Runs tshark over the capture and makes packets of what it decrypts."""

    def __init__(self, command: list[str], ends: dict[frozenset[Address], Address]) -> None:
        self._servers = ends
        ports = sorted({server[1] for server in ends.values()})
        self._command = [
            *command,
            *(word for port in ports for word in ("-d", f"tls.port=={port},data")),
            *("-Y", "tls && data || tcp.flags & 7", "-T", "fields", *_options(_FIELDS)),
        ]
        self._streams: dict[str, _Stream] = {}

    @property
    def note(self) -> str | None:
        """How many connections stayed closed, or None."""
        closed = sum(not stream.plain for stream in self._streams.values())
        if not closed:
            return None
        return f"{closed} of {len(self._streams)} TLS connections could not be decrypted: their secrets are not there"

    def packets(self) -> Iterator[Stamped]:
        """The made-up packets, in the order of tshark's."""
        if not self._servers:
            return
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=said)
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    yield from self._packets(line.decode("ascii", "replace").rstrip("\n").split("\t"))
            finally:
                process.stdout.close()
                code = process.wait()
            if code:
                said.seek(0)
                raise DecryptionError(_why(self._command[0], said.read()))

    def _packets(self, cells: list[str]) -> Iterator[Stamped]:
        time_ns, number, source, target = _line(cells)
        server = self._servers.get(frozenset((source, target)))
        if server is None:
            return
        flags = int(cells[8].split(",")[-1] or "0", 16)
        stream = self._streams.get(number)
        if stream is None:
            stream = self._streams[number] = _Stream(target if source == server else source, server)
            for side, kind in ((0, SYN), (1, SYN | ACK), (0, ACK)):
                yield time_ns, stream.packet(side, kind)
        side = int(source == server)
        data = bytes.fromhex(cells[9].replace(",", "")) if len(cells) > 9 else b""
        for start in range(0, len(data), MAX_PAYLOAD):
            stream.plain = True
            yield time_ns, stream.packet(side, ACK | PSH, data[start : start + MAX_PAYLOAD])
        if flags & (FIN | RST) and not flags & SYN:
            yield time_ns, stream.packet(side, ACK | flags & (FIN | RST))
