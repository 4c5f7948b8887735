"""Bombs: few bytes that announce, or unfold to, very many. Each is measured alone: memory and CPU time.

    PYTHONPATH=tests python -m torture.decoder.bombs     the table, as JSON lines

Run it as a process of its own: memory is the peak of the resident set over what it was before, taken from the kernel.
"""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cramjam
from barnabas import decoder
from barnabas.decoder import embedded, records
from barnabas.decoder.codec.decode import most_items
from barnabas.decoder.codec.encode import encode_struct
from barnabas.decoder.codec.secrets import mask
from barnabas.decoder.present import present
from barnabas.decoder.schema.plan import FieldPlan, Plan, StructPlan, plan
from barnabas.decoder.wire.varint import write_uvarint

from .corpus import old_message, triples

MOST = 2**31 - 1
GIB = 1 << 30
MOST_MS = 1000
"""CPU time of a bomb, which takes 10 ms or so; one that went off would take minutes."""
# What is made of elements that are all there, and so is read or found out at the end: linear, at this much per 64 KiB.
LINEAR = {
    "1 million empty records in a batch of 7 MB",
    "50,000 messages of magic 0",
    "100,000 empty gzip members",
    "65,000 empty headers in a record",
    *(f"as many {what} as {size} MiB may have" for what in ("topics", "tags") for size in (2, 10)),
    "2 MiB of numbers",
    "10 MiB of numbers",
}
MOST_LINEAR_MS = 2000
SEARCHED = "searched, "
MOST_SEARCHED_MS = 4000
"""A search that looks at everything again with each piece takes 14 s for 64 KiB of damaged heads."""


@dataclass
class Bomb:
    """A name, the bytes, and what reads them."""

    name: str
    size: int
    read: Callable[[], object]


@dataclass
class Measure:
    """What became of a bomb. `outcome`: the error's class, or ``read``; `limit`: it was cut off, and the error is one of limits."""

    name: str
    size: int
    outcome: str
    limit: bool
    ms: float
    kib: int
    text: str = ""


def uvarint(value: int) -> bytes:
    out = bytearray()
    write_uvarint(out, value)
    return bytes(out)


def body(name: str, kind: str, key: int, version: int, data: bytes) -> Bomb:
    return Bomb(name, len(data), lambda: decoder.decode_body(kind, key, version, data))


# --- counts in every array of the schema -------------------------------------------------------------------


def one_of_each(of: StructPlan) -> tuple[Any, ...]:
    """Values with one item in every array and nothing null."""
    values = tuple(
        (_one(f),) if f.array else _one(f) if f.tag is None or f.struct or f.array else f.default for f in of.fields
    )
    return (*values, ()) if of.flexible else values


def _one(field: FieldPlan) -> Any:
    if field.struct:
        return one_of_each(field.struct)
    plain = {"string": "x", "bytes": b"x", "records": b"", "bool": True, "float64": 1.0, "uuid": b"\1" * 16}
    return plain.get(field.type, 1)


def array_bombs() -> Iterator[Bomb]:
    """Every array and every tagged section of every message at every version, announcing 2^31-1."""
    for triple in triples():
        of = plan(*triple)
        data = bytearray()
        encode_struct(of.root, one_of_each(of.root), data)
        message = decoder.decode_body(*triple, bytes(data))
        classic, compact = struct.pack(">i", MOST), uvarint(MOST + 1)
        for span in message.map():
            field = _field(of, span.path)
            if field is None or not field.array or span.path.endswith("]"):
                continue
            count = compact if field.compact else classic
            rest = bytes(data[span.start + (1 if field.compact else 4) :])
            label = f"{'compact' if field.compact else 'classic'} array {of.name} v{of.version} {span.path}"
            yield body(label, *triple, bytes(data[: span.start]) + count + rest)
        if of.root.flexible:
            empty = decoder.encode_body(*triple, {})
            yield body(f"tags {of.name} v{of.version}", *triple, empty[:-1] + uvarint(MOST))
            yield body(f"tag size {of.name} v{of.version}", *triple, empty[:-1] + b"\1\x63" + uvarint(MOST))


def _field(of: Plan, path: str) -> FieldPlan | None:
    struct_: StructPlan | None = of.root
    field = None
    for name in path.split("."):
        field = next((f for f in struct_.fields if f.name == name.split("[")[0]), None) if struct_ else None
        if field is None:
            return None
        struct_ = field.struct
    return field


# --- single bombs -------------------------------------------------------------------------------------------


def message_bombs() -> Iterator[Bomb]:
    """Bodies and frames."""
    five = 5_000_000
    yield body("5 million 2-byte tags, 10 MB", "request", 18, 3, b"\1\1" + uvarint(five) + b"\x63\0" * five)
    header = struct.pack(">hhih", 18, 3, 1, -1) + uvarint(five) + b"\x63\0" * five + b"\1\1\0"
    yield Bomb("5 million 2-byte tags in the request header", len(header), lambda: decoder.decode_request(header))
    frame = struct.pack(">hhih", 18, 3, 1, -1) + uvarint(MOST) + b"\1\1\0"
    yield Bomb("2^31-1 tags in the request header", len(frame), lambda: decoder.decode_request(frame))
    answer = struct.pack(">i", 7) + uvarint(MOST) + b"\0" * 20
    read = lambda: decoder.decode_response(answer, api_key=3, api_version=12)  # noqa: E731
    yield Bomb("2^31-1 tags in the response header", len(answer), read)
    yield body("5 million empty strings, classic", "request", 3, 1, struct.pack(">i", five) + b"\0\0" * five)
    compact = b"\2\2\2a" + uvarint(five + 1) + b"\1" * five + b"\0\0\0\0"
    yield body("5 million empty strings, compact", "request", 32, 4, compact)
    yield body("5 million empty structs", "request", 3, 9, uvarint(five + 1) + b"\1\0" * five + b"\1\1\1\0")
    fault = b"\3ab\0" * 1_000_000
    yield body("1 million topics and a fault behind them", "request", 3, 9, uvarint(1_000_001) + fault + b"\1\1\1\1")
    for size in (2 << 20, 10 << 20):
        most = most_items(size) - 2
        topics = uvarint(most + 1) + b"\3ab\0" * most
        name = f"as many topics as {size >> 20} MiB may have"
        fill = size - len(topics) - 10
        yield body(name, "request", 3, 9, topics + b"\1\1\1\1\x63" + uvarint(fill) + bytes(fill))
        tags = uvarint(most) + b"\x63\0" * (most - 1)
        fill = size - len(tags) - 10
        tagged = b"\1\1" + tags + b"\x63" + uvarint(fill) + bytes(fill)
        yield body(f"as many tags as {size >> 20} MiB may have", "request", 18, 3, tagged)
        numbers = uvarint(2) + b"\2a" + uvarint((size - 20) // 4 + 1) + b"\1" * ((size - 20) // 4 * 4) + b"\0"
        yield body(f"{size >> 20} MiB of numbers", "request", 9, 7, b"\2g" + numbers + b"\0\0")
    yield body("a varint without end", "request", 3, 12, b"\xff" * 1_000_000)
    yield body("a string of length -2", "request", 10, 0, b"\xff\xfe" + b"x" * 100)
    yield body("a string longer than the data", "request", 10, 0, b"\x7f\xff" + b"x" * 100)
    yield body("bad UTF-8", "request", 10, 0, b"\x7f\xff" + b"\xc0\x80" * 16383 + b"x")
    yield body("bytes of 2^31-1", "request", 36, 0, struct.pack(">i", MOST) + b"x" * 100)
    yield body("10 MB of 0xff", "response", 1, 16, b"\xff" * 10_000_000)
    yield body("10 MB of 0x00", "response", 1, 11, b"\0" * 10_000_000)


def area(name: str, data: bytes) -> Bomb:
    def read() -> None:
        for entry in records.batches(data):
            for _ in entry.records():
                pass

    return Bomb(name, len(data), read)


def batch_of(payload: bytes, codec: int, count: int = 1, length: int | None = None) -> bytes:
    """A magic 2 batch around bytes that are taken as they are."""
    size = 49 + len(payload) if length is None else length
    return struct.pack(">qiibIhiqqqhii", 0, size, 0, 2, 0, codec, 0, 0, 0, -1, -1, -1, count) + payload


def gzip_zeros(size: int) -> bytes:
    """A gzip stream of `size` zeros (a multiple of 1 MiB), made of equal pieces; its checksum is wrong."""
    deflate = zlib.compressobj(9, wbits=-15)
    piece = deflate.compress(bytes(1 << 20)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return (
        b"\x1f\x8b\x08" + bytes(7) + piece * (size >> 20) + b"\x03\0" + bytes(4) + struct.pack("<I", size & 0xFFFFFFFF)
    )


def zstd_zeros(size: int, declared: bool = False) -> bytes:
    """A zstd frame of RLE blocks of 128 KiB."""
    head = b"\x28\xb5\x2f\xfd" + (b"\xc0\x58" + struct.pack("<Q", size) if declared else b"\0\x58")
    blocks = size >> 17
    rle = struct.pack("<I", (1 << 17) << 3 | 1 << 1)[:3] + b"\0"
    last = struct.pack("<I", (1 << 17) << 3 | 1 << 1 | 1)[:3] + b"\0"
    return head + rle * (blocks - 1) + last


def lz4_zeros(size: int) -> bytes:
    """An lz4 frame of blocks of 4 MiB."""
    block = bytes(cramjam.lz4.compress_block(bytes(4 << 20), store_size=False))
    head = bytes.fromhex("04224d18607073")  # independent blocks of at most 4 MiB, no checksums
    return head + (struct.pack("<I", len(block)) + block) * (size >> 22) + bytes(4)


def snappy_zeros(size: int, xerial: bool) -> bytes:
    """Raw snappy of one long run, or xerial's blocks of 32 KiB."""
    if not xerial:
        return uvarint(size) + b"\0\0" + b"\xfe\1\0" * (size // 64)
    block = bytes(cramjam.snappy.compress_raw(bytes(32 << 10)))
    return b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + (struct.pack(">i", len(block)) + block) * (size >> 15)


def record_bombs() -> Iterator[Bomb]:
    """Record areas."""
    zeros = {
        "gzip": (1, gzip_zeros(GIB)),
        "zstd": (4, zstd_zeros(GIB)),
        "zstd, size declared": (4, zstd_zeros(GIB, declared=True)),
        "lz4": (3, lz4_zeros(GIB)),
        "snappy": (2, snappy_zeros(GIB, xerial=False)),
        "snappy in xerial's framing": (2, snappy_zeros(GIB, xerial=True)),
    }
    for name, (codec, data) in zeros.items():
        yield area(f"1 GiB of zeros: {name}, magic 2", batch_of(data, codec))
        if codec != 4:
            yield area(f"1 GiB of zeros: {name}, magic 1", old_message(1, 0, data, codec))
    for magic in (0, 1):
        inner = gzip_zeros(GIB)
        for _ in range(3):
            inner = old_message(magic, 0, records.compress(1, inner), 1)
        yield area(f"gzip three times nested, magic {magic}", inner)
        nested = old_message(magic, 0, b"x")
        for _ in range(50):
            nested = old_message(magic, 0, records.compress(1, nested), 1)
        yield area(f"messages nested 50 times, magic {magic}", nested)
    thrice = gzip_zeros(GIB)
    for _ in range(2):
        thrice = records.compress(1, thrice)
    yield area("gzip three times nested, magic 2", batch_of(thrice, 1))
    members = records.compress(1, b"") * 100_000
    yield area("100,000 empty gzip members", batch_of(members, 1))
    for length in (-1, -(2**31), 0, MOST):
        yield area(f"batch length {length}", batch_of(b"", 0, length=length))
    for codec in range(5):
        payload = records.compress(codec, b"\x0c\0\0\0\1\1\0")
        yield area(f"record count 2^31-1, codec {codec}", batch_of(payload, codec, MOST))
        yield area(f"record count -1, codec {codec}", batch_of(payload, codec, -1))
    yield area("2^31-1 headers in a record", batch_of(b"\x16\0\0\0\1\1" + b"\xfe\xff\xff\xff\x0f" + b"\0", 0))
    small = b"\x0c\0\0\0\1\1\0"
    yield area("1 million empty records in a batch of 7 MB", batch_of(small * 1_000_000, 0, 1_000_000))
    header_rich = b"\0\0\0\1\1" + b"\x80\x89\x7a" + b"\0\1" * 1_000_000
    rich = uvarint(len(header_rich) << 1) + header_rich
    yield area("1 million empty headers in a record", batch_of(rich, 0))
    header_rich = b"\0\0\0\1\1" + uvarint(65_000 << 1) + b"\0\1" * 65_000
    some = uvarint(len(header_rich) << 1) + header_rich
    yield area("65,000 empty headers in a record", batch_of(some, 0))
    yield area("50,000 messages of magic 0", old_message(0, 0, None) * 50_000)
    declared = {"zstd": b"\x28\xb5\x2f\xfd\xc0\x58" + b"\xff" * 8 + b"\1\0\0", "snappy": b"\xff\xff\xff\xff\x0f\0\0"}
    yield area("zstd that declares 2^64-1 bytes", batch_of(declared["zstd"], 4))
    yield area("snappy that declares 2^32-1 bytes", batch_of(declared["snappy"], 2))


# --- what others were hit by --------------------------------------------------------------------------------


def known_bombs() -> Iterator[Bomb]:
    """The shape of each advisory in Kafka, its clients and Wireshark's dissector, one row each."""
    tags = struct.pack(">hhih", 18, 3, 1, -1) + uvarint(4_000_000) + b"\0\0" * 4_000_000
    name = "CVE-2026-111115: 2-byte tags in header 2 before authentication"
    yield Bomb(name, len(tags), lambda: decoder.decode_request(tags))
    counted = struct.pack(">i", MOST) + b"\0" * 7
    yield body("CVE-2026-111108: a declared array count is allocated", "request", 3, 1, counted)
    endless = b"\1\1" + b"\xff" * 9 + b"\1" + b"\0" * 200  # a tag count of 2^64 whose tags have no bytes
    yield body("CVE-2021-4190: a large loop without progress", "request", 18, 3, endless)

    def framed(data: bytes) -> Callable[[], object]:
        def read() -> None:
            conn = decoder.Connection()
            events = conn.receive_from_client(data) + conn.receive_from_broker(data) + conn.close()
            if not all(isinstance(e, decoder.Opaque) for e in events):
                raise AssertionError(events)

        return read

    huge = struct.pack(">i", MOST) + b"\0" * 1000
    yield Bomb("CVE-2026-10142: a frame size of 2 GiB", len(huge), framed(huge))
    large = struct.pack(">i", 500 << 20) + struct.pack(">hhih", 36, 2, 1, -1) + b"\0" * 1000
    yield Bomb("CVE-2022-34917: a SASL frame of 500 MiB announced before authentication", len(large), framed(large))
    negative = struct.pack(">i", -5) + b"\0" * 1000
    yield Bomb("a negative frame size", len(negative), framed(negative))
    nested = decoder.encode_request(18, 3, {})
    for _ in range(5000):
        nested = decoder.encode_request(58, 0, {"request_data": nested})
    yield Bomb("5000 nested Envelopes, masked", len(nested), lambda: mask(decoder.Direction.REQUEST, 58, 0, nested))
    yield Bomb("5000 nested Envelopes, shown", len(nested), lambda: present(decoder.decode_request(nested)))
    scram = b"r=abcdefgh,s=c2FsdA==,i=2147483647"
    yield Bomb("CVE-2026-10143: SCRAM's iteration count", len(scram), lambda: embedded.sasl_step(scram))
    pushed = records.compress(4, bytes(256 << 20))
    yield Bomb("CVE-2026-111073: pushed telemetry of 256 MiB", len(pushed), lambda: embedded.metrics(pushed, 4))
    frame = lz4_zeros(4 << 20)
    damaged = frame + frame[:7] + struct.pack("<I", 200) + b"\xf0" * 200 + bytes(4)
    yield area("CVE-2020-17498: a second lz4 frame is damaged", batch_of(damaged, 3))
    leak = [batch_of(records.compress(codec, b"x" * 50_000)[:-9] + b"\xff" * 9, codec) for codec in (1, 2, 3, 4)]

    def again_and_again() -> None:
        for _ in range(50):
            for data in leak:
                try:
                    list(next(iter(records.batches(data))).records())
                except records.RecordsError:
                    continue
                raise AssertionError("damaged records were read")

    yield Bomb("CVE-2020-26418: memory of failed decompressions", sum(map(len, leak)) * 50, again_and_again)
    for codec in (5, 6, 7):
        yield area(f"CVE-2025-13499: an uninitialised pointer, codec {codec}", batch_of(b"\0" * 300, codec, 5))


def searched_streams(size: int) -> dict[str, bytes]:
    """Streams of so many bytes in whose middle a capture begins, without any frame."""
    return {
        "random bytes": random.Random(1).randbytes(size),
        "zeros": bytes(size),
        "0x01": b"\1" * size,
        "request heads": b"\0\0\0\x08\0\3\0\0\0\0\0\0\xff\xff" * (size // 14),
        "request heads of damaged frames": b"\0\0\0\x0c\0\3\0\1\0\0\0\0\0\0\1\1" * (size // 16),
        "request heads of large frames": b"\0\0\x70\0\0\3\0\1\0\0\0\0\0\0\0\0\0\1" * (size // 18),
    }


def search(data: bytes, side: str) -> None:
    """Look for the first frame in small pieces of a stream, as they come."""
    conn = decoder.Connection(mid_stream=True)
    receive = conn.receive_from_client if side == "client" else conn.receive_from_broker
    for at in range(0, len(data), 100):
        receive(data[at : at + 100])


def search_bombs() -> Iterator[Bomb]:
    """Streams in whose middle the capture begins."""
    for name, data in searched_streams(1 << 16).items():
        for side in ("client", "broker"):
            yield Bomb(f"{SEARCHED}from the {side}: {name}", len(data), partial(search, data, side))


# --- measuring ----------------------------------------------------------------------------------------------


def _peak() -> int:
    """The peak of the resident set in KiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1])
    raise RuntimeError("the kernel has no VmHWM")


def most_ms(name: str, size: int) -> float:
    """How much CPU a bomb may take, in ms: twenty times what it does, which only another order of growth exceeds."""
    if name.startswith(SEARCHED):
        return MOST_SEARCHED_MS * size / 65536
    return MOST_LINEAR_MS * size / 65536 if name in LINEAR else MOST_MS


def measure(bomb: Bomb) -> Measure:
    """Set it off."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is now what is resident
    before = _peak()
    at = time.process_time_ns()
    outcome, text, limit = _outcome(bomb)
    spent = time.process_time_ns() - at
    return Measure(bomb.name, bomb.size, outcome, limit, spent / 1e6, _peak() - before, text)


def _outcome(bomb: Bomb) -> tuple[str, str, bool]:
    try:
        bomb.read()
    except (decoder.DecodeError, records.RecordsError) as fault:
        limit = isinstance(fault, (decoder.LimitExceeded, records.LimitExceeded))
        return type(fault).__name__, str(fault)[:200], limit
    return "read", "", False


def run(pure: bool) -> list[Measure]:
    """All bombs in a process of its own."""
    settings = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "BARNABAS_PURE": "1" if pure else ""}
    command = [sys.executable, "-m", "torture.decoder.bombs"]
    done = subprocess.run(command, capture_output=True, text=True, env=settings, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    return [Measure(**json.loads(line)) for line in done.stdout.splitlines()]


def main() -> int:
    """All of them, each as a line of JSON."""
    for triple in triples():  # compiled outside of the measure
        decoder.decode_body(*triple, decoder.encode_body(*triple, {}))
    for make in (array_bombs, message_bombs, record_bombs, known_bombs, search_bombs):
        for bomb in make():
            print(json.dumps(vars(measure(bomb))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
