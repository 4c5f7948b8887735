"""Messages of magic 0 and 1, wrappers included, against bytes written out by hand."""

import struct
import zlib

import pytest
from barnabas.decoder import records as R
from barnabas.decoder.records import Record


def message(offset, key, value, *, magic=0, attributes=0, timestamp=77):
    def field(data):
        return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data

    body = struct.pack(">bb", magic, attributes)
    if magic:
        body += struct.pack(">q", timestamp)
    body += field(key) + field(value)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def only(data):
    (entry,) = R.batches(data)
    return entry


def test_fields_of_magic_0():
    data = message(9, b"k", b"value")
    entry = only(data)
    assert (entry.offset, entry.message_size, entry.magic, entry.attributes) == (9, len(data) - 12, 0, 0)
    assert (entry.timestamp, entry.timestamp_type, entry.codec_name) == (None, None, "none")
    assert (entry.key, entry.value, entry.crc_ok) == (b"k", b"value", True)
    assert list(entry.records()) == [Record(9, None, b"k", b"value")]
    assert list(entry.messages()) == []


def test_fields_of_magic_1():
    entry = only(message(9, None, None, magic=1, attributes=8))
    assert (entry.timestamp, entry.timestamp_type) == (77, "log_append")
    assert list(entry.records()) == [Record(9, 77, None, None)]


def test_a_set_of_all_magics_is_walked():
    data = message(0, None, b"a") + message(1, None, b"b", magic=1) + R.encode_batch([Record(2, 5, None, b"c")])
    assert [entry.magic for entry in R.batches(data)] == [0, 1, 2]
    assert [r.value for entry in R.batches(data) for r in entry.records()] == [b"a", b"b", b"c"]
    assert all(entry.crc_ok for entry in R.batches(data))


def test_a_wrong_crc_is_shown():
    data = bytearray(message(0, None, b"abc"))
    data[-1] ^= 1
    assert not only(bytes(data)).crc_ok
    assert only(bytes(data)).value == b"abb"


@pytest.mark.parametrize("codec", [1, 2, 3])
def test_wrapper_of_magic_0_has_absolute_offsets(codec):
    inner = b"".join(message(offset, None, b"v%d" % offset) for offset in (10, 11, 14))
    entry = only(message(14, None, R.compress(codec, inner), attributes=codec))
    assert [(r.offset, r.value) for r in entry.records()] == [(10, b"v10"), (11, b"v11"), (14, b"v14")]
    assert [(m.offset, m.crc_ok) for m in entry.messages()] == [(10, True), (11, True), (14, True)]


@pytest.mark.parametrize("codec", [1, 2, 3])
@pytest.mark.parametrize(
    ("wrapper", "offsets"), [(14, [10, 11, 14]), (4, [0, 1, 4]), (0, [0, 1, 4])], ids=["broker", "first", "zero"]
)
def test_wrapper_of_magic_1_has_relative_offsets(codec, wrapper, offsets):
    inner = b"".join(message(offset, None, b"", magic=1, timestamp=offset + 100) for offset in (0, 1, 4))
    entry = only(message(wrapper, None, R.compress(codec, inner), magic=1, attributes=codec))
    assert [r.offset for r in entry.records()] == offsets
    assert [r.timestamp for r in entry.records()] == [100, 101, 104]


def test_log_append_time_of_the_wrapper_is_the_time_of_all_records():
    inner = b"".join(message(offset, None, b"", magic=1, timestamp=offset) for offset in range(3))
    entry = only(message(2, None, R.compress(1, inner), magic=1, attributes=0x09, timestamp=555))
    assert [r.timestamp for r in entry.records()] == [555] * 3


def wrapper(inner, **more):
    return message(5, None, R.compress(1, inner), attributes=1, **more)


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (message(0, None, None, attributes=1), R.BadLength, "its value is null"),
        (message(0, None, b"no gzip", attributes=1), R.CodecError, "gzip"),
        (message(0, None, b"x", attributes=4), R.CodecError, "zstd does not exist in magic 0"),
        (message(0, None, b"x", attributes=7), R.CodecError, "unknown"),
        (wrapper(wrapper(message(0, None, b"x"))), R.CodecError, "compressed twice"),
        (wrapper(message(0, None, b"x")[:-1]), R.Truncated, "last inner message is cut"),
        (wrapper(message(0, None, b"x")[:9]), R.Truncated, "last inner message is cut"),
        (wrapper(R.encode_batch([])), R.UnknownMagic, "magic 2"),
        (wrapper(b"\0" * 8 + b"\xff" * 4 + bytes(20)), R.BadLength, "inner message declares -1 bytes"),
    ],
)
def test_damaged_wrappers(data, error, text):
    with pytest.raises(error, match=text) as caught:
        list(only(data).records())
    assert type(caught.value) is error
    assert str(caught.value).startswith("message at byte 0: ")


@pytest.mark.parametrize(
    ("at", "value", "text"),
    [
        (18, -2, "a key of -2 bytes"),
        (18, 2**31 - 1, "a key of 2147483647 bytes, only 8 left"),
        (23, -(2**31), "a value of -2147483648"),
        (23, 4, "a value of 4 bytes, only 3 left"),
        (23, 2, "1 byte left over"),
        (18, 6, "no room for the length of the value"),
    ],
)
def test_entries_after_damaged_fields_are_read(at, value, text):
    data = bytearray(message(0, b"k", b"abc"))
    struct.pack_into(">i", data, at, value)
    damaged, after = R.batches(bytes(data) + message(1, None, b"fine"))
    assert after.value == b"fine"
    with pytest.raises(R.RecordsError, match=text):
        list(damaged.records())


def test_a_last_message_cut_at_any_byte_is_partial():
    whole = message(0, b"k", b"v", magic=1)
    data = whole + message(1, b"k", b"v", magic=1)
    for cut in range(len(whole) + 1, len(data)):
        first, partial = R.batches(data[:cut])
        assert first.value == b"v"
        assert (type(partial), partial.end) == (R.Partial, cut)


@pytest.mark.parametrize(("magic", "size"), [(0, 13), (1, 21), (1, 14), (0, 0), (0, -5)])
def test_sizes_too_small_for_the_magic(magic, size):
    data = bytearray(message(0, None, b"", magic=magic))
    struct.pack_into(">i", data, 8, size)
    with pytest.raises(R.BadLength):
        list(R.batches(bytes(data)))
