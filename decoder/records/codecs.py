"""Kafka's four codecs (gzip, snappy, lz4, zstd), both ways, with a limit on the output.

Sizes that the compressed bytes declare are not trusted: gzip is inflated up to the limit; for the others an upper bound is
computed from the bytes, and the output buffer is never larger than that or the limit.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import cramjam

from .bounds import lz4_bound, old_lz4_header, repair_lz4_header, without_block_checksums, zstd_bound
from .errors import BadLength, CodecError, LimitExceeded, RecordsError, Truncated
from .varint import read_uvarint

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

DEFAULT_LIMIT = 64 << 20  # bytes one batch may decompress to; brokers refuse requests above 100 MiB
DEFAULT_RATIO = 1000  # output to input ...
RATIO_FREE = 8 << 20  # ... but constant payloads up to here are a load test, not a bomb

_PROBE = 16 << 20
"""Bytes that are tried if the compressed data promises more than is allowed: it mostly is as large, and if not (blocks that
are not full, a wrong trailer) this is enough for nearly all batches."""
_GZIP_STEP = 4 << 20

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16  # magic, version, lowest compatible version; writers disagree on the versions' byte order
_XERIAL_LITTLE_ENDIAN = _XERIAL_MAGIC + b"\1\0\0\0\1\0\0\0"
_XERIAL_BLOCK = 32 << 10
_SNAPPY_EXPANSION = 22  # the densest element makes 64 bytes out of 3

_LZ4_LEVEL = 9  # the defaults of KIP-390
_ZSTD_LEVEL = 3

QUICK = {GZIP: 1, LZ4: 1}
"""Levels for compression while a client waits: two to ten times as fast as the defaults, hardly larger."""


def name(codec: int) -> str:
    """The name of a codec number, such as `zstd`; `unknown(6)` for one that Kafka does not have."""
    return NAMES[codec] if 0 <= codec < len(NAMES) else f"unknown({codec})"


def little_endian_snappy(data: bytes) -> bool:
    """Whether snappy data begins with a xerial header whose versions are in the other byte order than xerial writes them."""
    return data.startswith(_XERIAL_LITTLE_ENDIAN)


def decompress(
    codec: int, data: bytes, *, limit: int = DEFAULT_LIMIT, ratio: int = DEFAULT_RATIO, magic: int = 2
) -> bytes:
    """Decompress the records of one batch, or the value of a wrapper message (`magic` 0 or 1). `codec`: 0 none, 1 gzip,
    2 snappy (raw or in xerial's framing), 3 lz4, 4 zstd; gzip, lz4 and zstd may have several members or frames in a row.

    The output has at most `limit` bytes, and beyond 8 MiB at most `ratio` times the input.
    Raises `CodecError`, `Truncated`, `BadLength` or `LimitExceeded`; offsets count in `data`.
    """
    if codec == NONE:
        return bytes(data)
    if codec not in _DECOMPRESS or (codec == ZSTD and magic < 2):
        raise CodecError(f"codec {name(codec)} does not exist in magic {magic}")
    if codec == LZ4 and magic == 0:
        data = repair_lz4_header(data)
    cap = min(limit, max(RATIO_FREE, ratio * len(data)))
    try:
        return _DECOMPRESS[codec](data, cap)
    except MemoryError:
        raise LimitExceeded(f"{name(codec)}: not enough memory to decompress") from None


def compress(codec: int, data: bytes, *, xerial: bool = True, magic: int = 2, level: int | None = None) -> bytes:
    """Compress as Kafka's own clients do: snappy in xerial's framing (or raw), lz4 in independent blocks. `codec` is as in
    `decompress`, `level` the codec's own; None is Kafka's default, and snappy has none.

    `magic` is 0 or 1 for the wrapper of a message set; 0 has lz4's header checksum wrong, as its readers expect.
    Raises `CodecError` for a codec that does not exist in this magic.
    """
    if codec == NONE:
        return bytes(data)
    if codec == ZSTD and magic < 2:
        raise CodecError(f"codec zstd does not exist in magic {magic}")
    if codec == GZIP:
        deflate = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=31)
        return deflate.compress(data) + deflate.flush()
    if codec == SNAPPY:
        return _compress_xerial(data) if xerial else bytes(cramjam.snappy.compress_raw(data))
    if codec == LZ4:
        # Kafka's reader refuses blocks that refer to earlier ones.
        writer = cramjam.lz4.Compressor(
            level=_LZ4_LEVEL if level is None else level, content_checksum=False, block_linked=False
        )
        writer.compress(data)
        frame = without_block_checksums(bytes(writer.finish()))
        return old_lz4_header(frame) if magic == 0 else frame
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL if level is None else level))
    raise CodecError(f"codec {name(codec)} does not exist")


def _over(codec: int, cap: int, offset: int | None = None) -> LimitExceeded:
    return LimitExceeded(f"{NAMES[codec]}: decompresses to more than the {cap} bytes allowed", offset)


def _gunzip(data: bytes, cap: int) -> bytes:
    members: list[bytes] = []
    total = pos = 0
    view = memoryview(data)
    step = max(1, len(data))
    allowed = cap
    if int.from_bytes(data[-4:], "little") > cap:  # the length as the trailer gives it
        allowed = min(cap, _PROBE)
    while True:
        inflate = zlib.decompressobj(wbits=31)
        start = pos
        while not inflate.eof:
            if pos >= len(data):
                raise Truncated("gzip: the stream is cut off", len(data))
            try:
                # in pieces: zlib joins what one call gives, which takes the memory twice
                out = inflate.decompress(view[pos : pos + step], min(allowed - total + 1, _GZIP_STEP))
            except zlib.error as error:
                raise CodecError(f"gzip: {error}", start) from None
            pos = min(pos + step, len(data)) - len(inflate.unused_data) - len(inflate.unconsumed_tail)
            step *= 2
            total += len(out)
            if total > allowed:
                raise _over(GZIP, cap, start)
            members.append(out)
        # gzip allows zeros after the last member
        if pos == len(data) or (data[pos] == 0 and not data[pos:].strip(b"\0")):
            return members[0] if len(members) == 1 else b"".join(members)
        step = 1024  # zlib copies what follows a member: a great many tiny ones must not each copy the rest


def _unsnappy(data: bytes, cap: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        _snappy_length(data, 0, len(data), 0, cap)
        return _unsnappy_block(data, 0)
    if len(data) < _XERIAL_HEADER:
        raise Truncated("snappy: the xerial header is cut off", len(data))
    blocks: list[tuple[int, int]] = []
    total, pos = 0, _XERIAL_HEADER
    while pos < len(data):
        if data.startswith(_XERIAL_MAGIC, pos):  # streams one after another
            pos += _XERIAL_HEADER
            continue
        if pos + 4 > len(data):
            raise Truncated("snappy: a xerial block length is cut off", pos)
        length = int.from_bytes(data[pos : pos + 4], "big", signed=True)
        if length < 0:
            raise BadLength(f"snappy: invalid xerial block length {length}", pos)
        start, pos = pos + 4, pos + 4 + length
        if pos > len(data):
            raise Truncated(f"snappy: a xerial block of {length} bytes is cut off", start)
        blocks.append((start, pos))
        total += _snappy_length(data, start, pos, total, cap)
    return b"".join(_unsnappy_block(data[start:end], start) for start, end in blocks)


def _snappy_length(data: bytes, start: int, end: int, before: int, cap: int) -> int:
    """The declared output size of the raw snappy block data[start:end]; `before` bytes of the cap are used up."""
    try:
        length, _ = read_uvarint(data[start : min(end, start + 5)], 0)
    except RecordsError as error:
        raise error.inside("snappy", start) from None
    if length > _SNAPPY_EXPANSION * (end - start):
        raise BadLength(f"snappy: {end - start} bytes cannot hold the declared {length} bytes", start)
    if before + length > cap:
        raise _over(SNAPPY, cap, start)
    return length


def _unsnappy_block(block: bytes, offset: int) -> bytes:
    """Decompress raw snappy whose declared size has been checked. `offset`: of the block, for errors."""
    length, _ = read_uvarint(block, 0)
    out = bytearray(length)
    try:
        written = cramjam.snappy.decompress_raw_into(block, out)
    except cramjam.DecompressionError as error:
        raise CodecError(str(error), offset) from None
    if written != length:
        raise CodecError(f"snappy: decompressed to {written} bytes, but {length} were declared", offset)
    return bytes(out)


def _bounded(codec: int, into: Callable[[bytes, bytearray], int], data: bytes, bound: int, cap: int) -> bytes:
    out = bytearray(bound if bound <= cap else min(cap, _PROBE))
    try:
        written = into(data, out)
    except cramjam.DecompressionError as error:
        # The library has one class for all errors: only a buffer smaller than the bound can have been too small.
        if bound > cap and "write whole buffer" in str(error):
            raise _over(codec, cap) from None
        raise CodecError(f"{NAMES[codec]}: {str(error).removeprefix('lz4: ')}") from None
    return bytes(memoryview(out)[:written])


def _compress_xerial(data: bytes) -> bytes:
    out = bytearray(_XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1")
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        out += len(block).to_bytes(4, "big") + block
    return bytes(out)


_DECOMPRESS: dict[int, Callable[[bytes, int], bytes]] = {
    GZIP: _gunzip,
    SNAPPY: _unsnappy,
    LZ4: lambda data, cap: _bounded(LZ4, cramjam.lz4.decompress_into, data, lz4_bound(data), cap),
    ZSTD: lambda data, cap: _bounded(ZSTD, cramjam.zstd.decompress_into, data, zstd_bound(data), cap),
}
