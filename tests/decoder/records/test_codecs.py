"""Codecs against independent implementations (Python's gzip, Arrow's C++), damaged input, and bombs."""

import gzip
import random
import struct
import subprocess
import sys
import zlib

import cramjam
import pytest
from barnabas.decoder import records as R
from barnabas.decoder.records import codecs
from barnabas.decoder.records.bounds import lz4_bound, zstd_bound
from harness.waiting import PATIENCE

pa = pytest.importorskip("pyarrow")

ARROW = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
SAMPLES = {
    "empty": b"",
    "byte": b"x",
    "text": b"".join(b'{"order": %d, "state": "open"}\n' % i for i in range(20_000)),
    "noise": random.Random(1).randbytes(300_000),
    "constant": bytes(5 << 20),
}


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("codec", range(5))
def test_round_trip(codec, sample):
    data = SAMPLES[sample]
    assert R.decompress(codec, R.compress(codec, data)) == data


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("codec", ARROW)
def test_agrees_with_arrow_both_ways(codec, sample):
    data = SAMPLES[sample]
    assert R.decompress(codec, pa.compress(data, ARROW[codec], asbytes=True)) == data
    ours = R.compress(codec, data, xerial=False)
    if data:
        assert pa.decompress(ours, len(data), ARROW[codec], asbytes=True) == data


def test_agrees_with_pythons_gzip():
    data = SAMPLES["text"]
    assert R.decompress(1, gzip.compress(data)) == data
    assert gzip.decompress(R.compress(1, data)) == data


@pytest.mark.parametrize("codec", [1, 3, 4])
def test_several_members_or_frames_are_one_stream(codec):
    parts = [b"one" * 50, b"", b"two" * 70_000]
    assert R.decompress(codec, b"".join(R.compress(codec, part) for part in parts)) == b"".join(parts)


def test_gzip_allows_padding_but_no_garbage():
    data = gzip.compress(b"abc")
    assert R.decompress(1, data + bytes(9)) == b"abc"
    with pytest.raises(R.CodecError) as caught:
        R.decompress(1, data + b"rubbish")
    assert caught.value.offset == len(data)


def test_many_tiny_gzip_members_are_read():
    assert R.decompress(1, gzip.compress(b"a") * 5000) == b"a" * 5000


def test_xerial_framing():
    first, second = SAMPLES["text"][:40_000], b"second"
    framed = R.compress(2, first)
    assert framed.startswith(b"\x82SNAPPY\0\0\0\0\1\0\0\0\1")
    (size,) = struct.unpack_from(">i", framed, 16)
    block = pa.decompress(framed[20 : 20 + size], 32 << 10, "snappy", asbytes=True)
    assert block == first[: 32 << 10]
    assert R.decompress(2, framed + R.compress(2, second)) == first + second
    little_endian = framed[:8] + b"\1\0\0\0\1\0\0\0" + framed[16:]
    assert R.decompress(2, little_endian) == first


@pytest.mark.parametrize(
    ("data", "error", "offset"),
    [
        (b"\x82SNAPPY\0\0\0", R.Truncated, 10),
        (b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\0\0", R.Truncated, 16),
        (b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\xff\xff\xff\xff", R.BadLength, 16),
        (b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\0\0\0\x09ab", R.Truncated, 20),
        (b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\0\0\0\x02\x05\xff", R.CodecError, 20),
        (b"\xff\xff\xff\xff\x0f\0", R.BadLength, 0),
        (b"\xff\xff\xff\xff\xff\x0f", R.BadLength, 0),
        (b"", R.Truncated, 0),
    ],
)
def test_damaged_snappy(data, error, offset):
    with pytest.raises(error) as caught:
        R.decompress(2, data)
    assert type(caught.value) is error
    assert caught.value.offset == offset


@pytest.mark.parametrize("codec", [1, 3, 4])
def test_cut_at_any_byte_is_truncated(codec):
    data = R.compress(codec, b"hello " * 30)
    for cut in range(len(data)):
        with pytest.raises(R.Truncated):
            R.decompress(codec, data[:cut])


@pytest.mark.parametrize("codec", [1, 3, 4])
def test_rubbish_is_a_codec_error(codec):
    with pytest.raises(R.CodecError):
        R.decompress(codec, b"neither this nor that, and long enough")


@pytest.mark.parametrize(("codec", "magic"), [(5, 2), (7, 2), (4, 1), (4, 0), (-1, 2)])
def test_codecs_that_do_not_exist(codec, magic):
    with pytest.raises(R.CodecError, match="does not exist"):
        R.decompress(codec, b"abc", magic=magic)


def test_lz4_header_checksum_counts_only_from_magic_1():
    frame = R.compress(3, b"kafka" * 100)
    wrong = frame[:6] + bytes([frame[6] ^ 0x5A]) + frame[7:]
    with pytest.raises(R.CodecError):
        R.decompress(3, wrong, magic=1)
    assert R.decompress(3, wrong, magic=0) == b"kafka" * 100
    assert R.decompress(3, frame, magic=0) == b"kafka" * 100


@pytest.mark.parametrize("sample", SAMPLES)
def test_lz4_blocks_have_no_checksums(sample):
    lz4 = pytest.importorskip("lz4.frame")
    frame = R.compress(3, SAMPLES[sample])
    frame_info = lz4.get_frame_info(frame)
    assert not frame_info["block_checksum"] and not frame_info["block_linked"] and not frame_info["content_checksum"]
    assert lz4.decompress(frame) == SAMPLES[sample]


def test_lz4_header_with_content_size_is_repaired():
    frame = pa.compress(b"kafka" * 100, "lz4", asbytes=True)
    sized = frame[:4] + bytes([frame[4] & ~0x0C | 0x08, frame[5]]) + struct.pack("<Q", 500) + b"\0" + frame[7:]
    assert R.decompress(3, sized, magic=0) == b"kafka" * 100


@pytest.mark.parametrize("level", [1, 3, 9, 19])
@pytest.mark.parametrize("sample", SAMPLES)
def test_bounds_hold_and_are_close(sample, level):
    data = SAMPLES[sample]
    assert len(data) <= zstd_bound(bytes(cramjam.zstd.compress(data, level=level))) <= len(data) + (128 << 10)
    for linked in (False, True):
        writer = cramjam.lz4.Compressor(level=level, content_checksum=True, block_linked=linked)
        writer.compress(data)
        assert len(data) <= lz4_bound(bytes(writer.finish())) <= len(data) + (4 << 20)


@pytest.mark.parametrize("codec", range(1, 5))
def test_the_limit_is_exact(codec):
    data = SAMPLES["text"]
    packed = R.compress(codec, data)
    assert R.decompress(codec, packed, limit=len(data)) == data
    with pytest.raises(R.LimitExceeded, match=r"more than the \d+ bytes allowed"):
        R.decompress(codec, packed, limit=len(data) - 1)


def test_the_ratio_limit_begins_at_8_mib():
    block = struct.pack("<I", (128 << 10) << 3 | 2)[:3] + b"a"  # run of 128 KiB

    def frame(blocks: int) -> bytes:
        last = bytes([block[0] | 1]) + block[1:]
        return b"\x28\xb5\x2f\xfd\x00\x58" + block * (blocks - 1) + last

    assert R.decompress(4, frame(64)) == b"a" * codecs.RATIO_FREE
    with pytest.raises(R.LimitExceeded):
        R.decompress(4, frame(65))
    assert len(R.decompress(4, frame(65), ratio=1 << 20)) == 65 * (128 << 10)


# The child may take 200 MiB beyond what it has; every bomb would be 256 MiB or more.
BOMB = r"""
import resource, struct, sys, zlib
from barnabas.decoder import records as R

def gzip():
    c = zlib.compressobj(1, wbits=31)
    return b"".join([c.compress(bytes(1 << 20)) for _ in range(256)] + [c.flush()])

def gzip_members():
    c = zlib.compressobj(9, wbits=31)
    return (c.compress(bytes(1 << 20)) + c.flush()) * 256

def snappy():
    return b"\x80\x80\x80\x80\x01" + b"\x00a" + b"\xfe\x01\x00" * (1 << 22)

def xerial():
    block = R.compress(2, bytes(1 << 20), xerial=False)
    return b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + (struct.pack(">i", len(block)) + block) * 256

def lz4():
    frame = R.compress(3, bytes(64 << 10))
    size = struct.unpack_from("<I", frame, 7)[0]
    return frame[:7] + frame[7 : 11 + size] * 8192 + bytes(4)

def lz4_empty_promises():
    return bytes.fromhex("04224d18607073") + (struct.pack("<I", 1) + b"\0") * (1 << 20) + bytes(4)

def zstd():
    block = struct.pack("<I", (128 << 10) << 3 | 2)[:3] + b"a"
    return b"\x28\xb5\x2f\xfd\x00\x58" + block * 8192 + bytes([block[0] | 1]) + block[1:]

def zstd_window():
    return b"\x28\xb5\x2f\xfd\x00\xff" + b"\x01\x00\x00"

def zstd_declared():
    return b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 40) + b"\x01\x00\x00"

bomb, codec = locals()[sys.argv[1]](), int(sys.argv[2])
for warm in range(5):
    R.decompress(warm, R.compress(warm, bytes(1000)))
with open("/proc/self/statm") as statm:
    taken = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (200 << 20),) * 2)
try:
    R.decompress(codec, bomb)
except R.RecordsError as error:
    print(type(error).__name__)
else:
    print("no error")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("bomb", "codec", "error"),
    [
        ("gzip", 1, "LimitExceeded"),
        ("gzip_members", 1, "LimitExceeded"),
        ("snappy", 2, "LimitExceeded"),
        ("xerial", 2, "LimitExceeded"),
        ("lz4", 3, "LimitExceeded"),
        ("lz4_empty_promises", 3, "no error"),
        ("zstd", 4, "LimitExceeded"),
        ("zstd_window", 4, "CodecError"),
        ("zstd_declared", 4, "CodecError"),
    ],
)
def test_bombs_take_bounded_memory(bomb, codec, error):
    child = subprocess.run(
        [sys.executable, "-c", BOMB, bomb, str(codec)], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert (child.returncode, child.stdout.strip()) == (0, error), child.stderr


def test_gzip_with_a_wrong_checksum_is_an_error():
    data = bytearray(gzip.compress(b"abc" * 100))
    data[-5] ^= 1
    with pytest.raises(R.CodecError, match="gzip"):
        R.decompress(1, bytes(data))
    assert zlib.decompressobj(wbits=31).decompress(bytes(data[:-8])) == b"abc" * 100
