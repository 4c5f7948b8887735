"""Damaged and hostile bytes: the decoder's own errors and nothing else, bounded by the bytes present."""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest
from barnabas import decoder
from barnabas.decoder.schema import facts
from harness.run.examples import times
from hypothesis import given
from hypothesis import strategies as st

KEYS = facts.api_keys()


def attempt(kind: str, key: int, version: int, body: bytes) -> decoder.DecodeError | None:
    try:
        decoder.decode_body(kind, key, version, body)
    except decoder.DecodeError as error:
        assert 0 <= error.offset <= len(body) and error.api == facts.api_name(key)
        return error
    return None


def test_every_prefix_of_every_message_is_refused(every_triple, generator):
    for kind, key, version in every_triple:
        _, body = generator.body(kind, key, version)
        for cut in {0, 1, len(body) // 2, len(body) - 1} & set(range(len(body))):
            assert attempt(kind, key, version, body[:cut]) is not None, (kind, key, version, cut)


def test_flipped_bytes(every_triple, generator):
    noise = random.Random(3)
    for kind, key, version in every_triple:
        _, body = generator.body(kind, key, version)
        for _ in range(10):
            damaged = bytearray(body)
            for _ in range(noise.randrange(1, 5)):
                if damaged:
                    damaged[noise.randrange(len(damaged))] = noise.randrange(256)
            attempt(kind, key, version, bytes(damaged))


@times(3)
@given(st.sampled_from(["request", "response"]), st.sampled_from(KEYS), st.integers(0, 20), st.binary(max_size=300))
def test_arbitrary_bytes(kind, key, version, body):
    versions = facts.api(key).versions
    attempt(kind, key, version % (versions.high + 1), body)


@times(3)
@given(st.binary(max_size=200))
def test_arbitrary_frames(frame):
    try:
        decoder.decode_request(frame)
    except decoder.DecodeError:
        pass


BOMBS = {
    "2^31-1 topics in a short Metadata v1": ("request", 3, 1, struct.pack(">i", 2**31 - 1)),
    "2^31-1 topics in a compact array": ("request", 3, 12, b"\xff\xff\xff\xff\x0f"),
    "2^31-1 tags": ("request", 18, 3, b"\x01\x01\xff\xff\xff\xff\x07"),
    "a varint without end": ("request", 3, 12, b"\xff" * 64),
    "a string of length -2": ("request", 10, 0, b"\xff\xfe"),
    "2^31-1 ints": ("response", 3, 1, struct.pack(">iii", 0, 0, 2**31 - 1)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_length_bombs_take_no_memory(name):
    kind, key, version, body = BOMBS[name]
    decoder.decode_body(kind, key, version, decoder.encode_body(kind, key, version, {}))  # compile outside the measure
    tracemalloc.start()
    try:
        assert attempt(kind, key, version, body) is not None
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
