"""A recording as a file that another program might have written."""

from __future__ import annotations

from pathlib import Path

from barnabas.captures.pcap.pcapng import CaptureReader


def as_pcap(source: Path, target: Path) -> Path:
    """The packets of a recording's segment as a pcap file with nanoseconds, without the recorder's blocks and comments."""
    with open(source, "rb") as file, open(target, "wb") as out:
        out.write(bytes.fromhex("4d3cb2a1020004000000000000000000ffff000001000000"))
        for packet in CaptureReader(file, str(source)).packets():
            seconds, nanoseconds = divmod(packet.time_ns, 1_000_000_000)
            sizes = len(packet.data), len(packet.data)
            out.write(b"".join(n.to_bytes(4, "little") for n in (seconds, nanoseconds, *sizes)) + bytes(packet.data))
    return target
