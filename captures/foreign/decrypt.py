"""Decrypting TLS in captures of other tools by Wireshark, with a key log or with the secrets that a pcapng file holds.

The result is a capture in an unnamed temporary file: packets of other connections unchanged, and for each TLS connection
synthetic packets of the same ends and times with its plain bytes. Wireshark decrypts (see `wireshark`); reassembly and
recognition then work as for any capture.
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
from typing import Any, BinaryIO

from ...errors import BarnabasError
from ..pcap import packets
from ..pcap.packets import ACK, FIN, MAX_PAYLOAD, PSH, RST, SYN, Address
from ..pcap.pcapng import CaptureReader
from ..pcap.sources import CaptureSource, Ends
from .wireshark import Wireshark, WiresharkError, fields

_PROTOCOLS = "frame ip ipv6 tcp data"
"""The only protocols whose fields are needed."""
_RECORD = struct.Struct("<IIII")
_HEAD = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1)
_ETHERNET = {4: bytes(12) + b"\x08\x00", 6: bytes(12) + b"\x86\xdd"}

Stamped = tuple[int, bytes]


class DecryptionError(BarnabasError, ValueError):
    """The captures cannot be decrypted; the message names what is missing."""


class _Plain(CaptureSource):
    """The decrypted capture, in a file of its own."""

    def __init__(self, file: BinaryIO, path: Path, note: str | None, decrypted: frozenset[Ends]) -> None:
        self.path, self.file, self.note, self.decrypted = path, file, note, decrypted
        self._raw, self._ended = None, True
        self._read = os.fstat(file.fileno()).st_size

    @property
    def plain(self) -> bool:
        return False

    @property
    def known(self) -> int:
        return self._read


def decrypted(sources: list[CaptureSource], keylog: Path | None) -> list[CaptureSource]:
    """The same sources when there is nothing to decrypt with; else one in their place, and they are closed.

    Raises DecryptionError, or WiresharkError where tshark cannot read the captures.
    """
    holding = [source for source in sources if _holds_secrets(source)]
    if keylog is None and not holding:
        return sources
    try:
        wireshark = Wireshark()
    except WiresharkError as error:
        if keylog is None:
            holding[0].note = f"it contains TLS secrets, but TLS connections cannot be decrypted: {error}"
            return sources
        raise DecryptionError(f"--keylog needs tshark, which decrypts: {error}") from None
    with tempfile.TemporaryDirectory(prefix="barnabas-") as folder:
        path = _one_file(sources, Path(folder))
        preferences = {"tcp.reassemble_out_of_order": "TRUE"}
        if keylog is not None:
            preferences["tls.keylog_file"] = str(keylog.absolute())
        return _decrypted(sources, wireshark, path, preferences)


def _decrypted(sources: list[CaptureSource], wireshark: Wireshark, path: Path, preferences: dict[str, str]) -> list[CaptureSource]:
    ends = _tls_ends(wireshark.packets(path, "tls.handshake.type == 2", preferences=preferences, protocols=_PROTOCOLS))
    file = tempfile.TemporaryFile(prefix="barnabas-")  # noqa: SIM115 - mode 0600, and without a name
    try:
        file.write(_HEAD)
        streams = _Streams(ends)
        if ends:
            ports = sorted({server[1] for server in ends.values()})
            found = wireshark.packets(
                path, "tls && data || tcp.flags & 7", decode_as={f"tls.port=={port}": "data" for port in ports},
                preferences=preferences, protocols=_PROTOCOLS,
            )  # fmt: skip
        else:
            found = iter(())
        plain = (made for packet in found for made in streams.packet(packet))
        for time_ns, data in merge(_others(sources, ends), plain, key=lambda stamped: stamped[0]):
            file.write(_RECORD.pack(*divmod(time_ns, 10**9), len(data), len(data)) + data)
        file.flush()
    except BaseException:
        file.close()
        raise
    for source in sources:
        source.close()
    return [_Plain(file, sources[0].path, streams.note, frozenset(_packed_ends(ends)))]


def _holds_secrets(source: CaptureSource) -> bool:
    """Whether a pcapng file has secrets; they stand in front of the packets."""
    reader = CaptureReader(source.file, str(source.path))
    if reader.classic is None:
        next(reader.packets(), None)
    return reader.secrets


def _one_file(sources: list[CaptureSource], folder: Path) -> Path:
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
        raise DecryptionError("TLS over several files needs mergecap, which comes with tshark; or merge the files first")
    done = subprocess.run(
        [mergecap, "-a", "-w", str(folder / "all.capture"), *map(str, paths)],
        capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    if done.returncode:
        raise DecryptionError(f"mergecap could not read it: {done.stderr.strip()[:300] or 'it gave no reason'}")
    return folder / "all.capture"


def _tls_ends(found: Iterator[Any]) -> dict[frozenset[Address], Address]:
    """The TLS connections by the packets with their ServerHello: both ends, and which one is the server."""
    ends = {}
    for packet in found:
        server, client = _ends(packet)
        ends[frozenset((server, client))] = server
    return ends


def _ends(packet: Any) -> tuple[Address, Address]:
    """Source and target of a packet; of a tunnelled one, the innermost."""
    ip = [layer for layer in packet.layers if layer.layer_name in ("ip", "ipv6")][-1]
    tcp = _tcp(packet)
    return (str(ip.src), int(tcp.srcport)), (str(ip.dst), int(tcp.dstport))


def _tcp(packet: Any) -> Any:
    return [layer for layer in packet.layers if layer.layer_name == "tcp"][-1]


def _time_ns(packet: Any) -> int:
    seconds, _, fraction = str(packet.frame_info.time_epoch).partition(".")
    return int(seconds) * 10**9 + int((fraction + "000000000")[:9])


def _data(packet: Any) -> bytes:
    """The decrypted data of this packet."""
    found = (field for layer in packet.layers for field in fields(layer) if field.name == "data.data")
    return b"".join(bytes.fromhex(field.raw_value) for field in found)


def _others(sources: list[CaptureSource], ends: dict[frozenset[Address], Address]) -> Iterator[Stamped]:
    """The packets of everything that is not TLS."""
    closed = set(_packed_ends(ends))
    for source in sources:
        for packet in CaptureReader(source.file, str(source.path)).packets():
            segment = packets.parse(packet.linktype, packet.data, packet.size)
            if segment is None or segment.cut or frozenset((segment.source, segment.target)) in closed:
                continue
            start = packets.network_start(packet.linktype, packet.data) or 0
            yield packet.time_ns, _ETHERNET[packet.data[start] >> 4] + packet.data[start:]


def _packed_ends(ends: dict[frozenset[Address], Address]) -> Iterator[Ends]:
    return (frozenset(map(_packed, pair)) for pair in ends)


def _packed(address: Address) -> bytes:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    return socket.inet_pton(family, address[0]) + address[1].to_bytes(2, "big")


class _Stream:
    """A TLS connection: the sequence numbers of its synthetic packets."""

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
    """Makes packets of the bytes that Wireshark decrypts. `servers`: see `_tls_ends`."""

    def __init__(self, servers: dict[frozenset[Address], Address]) -> None:
        self._servers = servers
        self._streams: dict[str, _Stream] = {}

    @property
    def note(self) -> str | None:
        """A note on connections that could not be decrypted, or None."""
        closed = sum(not stream.plain for stream in self._streams.values())
        if not closed:
            return None
        return f"{closed} of {len(self._streams)} TLS connections could not be decrypted: their secrets are missing"

    def packet(self, packet: Any) -> Iterator[Stamped]:
        """The made-up packets in place of one."""
        time_ns, (source, target) = _time_ns(packet), _ends(packet)
        server = self._servers.get(frozenset((source, target)))
        if server is None:
            return
        tcp = _tcp(packet)
        number, flags = str(tcp.stream), int(str(tcp.flags), 16)
        stream = self._streams.get(number)
        if stream is None:
            stream = self._streams[number] = _Stream(target if source == server else source, server)
            for side, kind in ((0, SYN), (1, SYN | ACK), (0, ACK)):
                yield time_ns, stream.packet(side, kind)
        side = int(source == server)
        data = _data(packet)
        for start in range(0, len(data), MAX_PAYLOAD):
            stream.plain = True
            yield time_ns, stream.packet(side, ACK | PSH, data[start : start + MAX_PAYLOAD])
        if flags & (FIN | RST) and not flags & SYN:
            yield time_ns, stream.packet(side, ACK | flags & (FIN | RST))
