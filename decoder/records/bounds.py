"""How much an lz4 or zstd frame can decompress to, from its block headers.

Both formats are a chain of blocks that begin with their size. Reading a few bytes per block gives an upper bound (nearly exact,
as writers fill every block but the last) and finds cut frames. The bound follows from bytes that are present; sizes that a
frame merely declares can only lower it. Formats: LZ4 Frame Format 1.6, RFC 8878.
"""

from __future__ import annotations

import struct

from .errors import CodecError, Truncated

_LZ4_MAGIC = 0x184D2204
_ZSTD_MAGIC = 0xFD2FB528
_SKIPPABLE = 0x184D2A50  # the low 4 bits are free; shared by both formats
_ZSTD_BLOCK = 128 << 10
_LZ4_EXPANSION = 255  # no lz4 block grows by more
_U32 = struct.Struct("<I")

_MASK32 = 0xFFFFFFFF
_P1, _P2, _P3, _P4, _P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393


def lz4_bound(data: bytes) -> int:
    """The most bytes that the lz4 frames in `data` can hold. Raises `Truncated` or `CodecError`."""
    pos = total = 0
    size = len(data)
    try:
        while pos < size or not pos:
            frame = pos
            (magic,) = _U32.unpack_from(data, pos)
            if magic & ~0xF == _SKIPPABLE:
                pos = _end(pos + 8 + _U32.unpack_from(data, pos + 4)[0], size)
                continue
            if magic != _LZ4_MAGIC:
                raise CodecError("not an lz4 frame", frame)
            flags, block_code = data[pos + 4], data[pos + 5] >> 4 & 7
            if block_code < 4:
                raise CodecError("lz4 frame with an unknown block size", frame + 5)
            block_size = 1 << (8 + 2 * block_code)
            pos += _lz4_header_length(flags)
            while True:
                (word,) = _U32.unpack_from(data, pos)
                pos += 4
                if not word:
                    break
                length = word & 0x7FFFFFFF
                if length > block_size:
                    raise CodecError(f"lz4 block of {length} bytes, but the frame allows at most {block_size}", pos - 4)
                total += length if word >> 31 else min(block_size, length * _LZ4_EXPANSION)
                pos = _end(pos + length + (flags >> 4 & 1) * 4, size)
            pos = _end(pos + (flags >> 2 & 1) * 4, size)
    except (struct.error, IndexError):
        raise Truncated("an lz4 frame is cut off", size) from None
    return total


def zstd_bound(data: bytes, cut: bool = False) -> int:
    """The most bytes that the zstd frames in `data` can hold. Raises `Truncated` or `CodecError`; with `cut`, a frame that is
    cut off counts as far as it goes."""
    pos = total = held = 0
    size = len(data)
    try:
        while pos < size or not pos:
            frame = pos
            (magic,) = _U32.unpack_from(data, pos)
            if magic & ~0xF == _SKIPPABLE:
                pos = _end(pos + 8 + _U32.unpack_from(data, pos + 4)[0], size)
                continue
            if magic != _ZSTD_MAGIC:
                raise CodecError("not a zstd frame", frame)
            flags = data[pos + 4]
            single_segment = flags >> 5 & 1
            pos += 5 + (not single_segment) + (0, 1, 2, 4)[flags & 3]
            content_width = (single_segment, 2, 4, 8)[flags >> 6]
            declared = None
            if content_width:
                declared = int.from_bytes(data[pos : pos + content_width], "little")
                declared += 256 * (content_width == 2)
            pos = _end(pos + content_width, size)
            held = 0
            last = 0
            while not last:
                header = data[pos] | data[pos + 1] << 8 | data[pos + 2] << 16
                last, kind, length = header & 1, header >> 1 & 3, header >> 3
                if kind == 3 or length > _ZSTD_BLOCK:
                    raise CodecError("zstd block with a reserved type or size", pos)
                held += _ZSTD_BLOCK if kind == 2 else length
                pos = _end(pos + 3 + (1 if kind == 1 else length), size)
            total += held if declared is None else min(held, declared)
            held = 0
            pos = _end(pos + (flags >> 2 & 1) * 4, size)
    except (struct.error, IndexError):
        if cut:
            return total + held
        raise Truncated("a zstd frame is cut off", size) from None
    return total


def repair_lz4_header(data: bytes) -> bytes:
    """The frame with the right header checksum. Data that is too short or no lz4 is returned as it is.

    Kafka clients before 0.10 computed it over the wrong bytes and did not check it (KAFKA-3160), so that it means nothing
    in messages of magic 0.
    """
    return _with_lz4_checksum(data, 4)


def old_lz4_header(data: bytes) -> bytes:
    """The frame with the header checksum of clients before 0.10, which includes the frame's magic number."""
    return _with_lz4_checksum(data, 0)


def without_block_checksums(frame: bytes) -> bytes:
    """An lz4 frame without block checksums, as Kafka's own clients write it.

    Go's pierrec/lz4, which sarama, franz-go and kafka-go use, refuses frames with checksums and compressed blocks.
    """
    flags = frame[4]
    if not flags & _BLOCK_CHECKSUMS:
        return frame
    pos = _lz4_header_length(flags)
    out = bytearray(frame[:pos])
    out[4] = flags & ~_BLOCK_CHECKSUMS
    while size := _U32.unpack_from(frame, pos)[0]:
        end = pos + 4 + (size & 0x7FFFFFFF)
        out += frame[pos:end]
        pos = end + 4
    out += frame[pos:]
    return _with_lz4_checksum(bytes(out), 4)


_BLOCK_CHECKSUMS = 0x10


def _with_lz4_checksum(data: bytes, start: int) -> bytes:
    if len(data) < 7 or _U32.unpack_from(data)[0] != _LZ4_MAGIC:
        return data
    end = _lz4_header_length(data[4])
    if len(data) < end:
        return data
    checksum = _xxh32_short(data[start : end - 1]) >> 8 & 0xFF
    return data[: end - 1] + bytes((checksum,)) + data[end:]


def _end(pos: int, size: int) -> int:
    """`pos`. Raises IndexError if it is beyond `size`, as reading there would."""
    if pos > size:
        raise IndexError
    return pos


def _lz4_header_length(flags: int) -> int:
    return 7 + (flags >> 3 & 1) * 8 + (flags & 1) * 4


def _xxh32_short(data: bytes) -> int:
    """xxHash32, seed 0, of fewer than 16 bytes: all that an lz4 frame descriptor can have."""
    value = _P5 + len(data)
    words = len(data) // 4 * 4
    for (word,) in _U32.iter_unpack(data[:words]):
        value = value + word * _P3 & _MASK32
        value = (value << 17 | value >> 15) * _P4 & _MASK32
    for byte in data[words:]:
        value = value + byte * _P5 & _MASK32
        value = (value << 11 | value >> 21) * _P1 & _MASK32
    value = (value ^ value >> 15) * _P2 & _MASK32
    value = (value ^ value >> 13) * _P3 & _MASK32
    return value ^ value >> 16
