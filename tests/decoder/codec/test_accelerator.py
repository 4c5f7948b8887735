"""The accelerator against the pure Python reference: the same values, the same refusals, no memory left behind."""

from __future__ import annotations

import random
import struct
import subprocess
import sys

import barnabas.decoder as decoder_package
import pytest
from barnabas.decoder import records
from barnabas.decoder.codec import codec
from barnabas.decoder.codec.decode import FAULTS, decoder, python_decoder
from barnabas.decoder.native import accelerator
from barnabas.decoder.native.accelerator import description
from barnabas.decoder.records.record import BatchBase, python_scan, scan
from barnabas.decoder.schema.plan import plan
from harness.waiting import PATIENCE

native = accelerator.native
needs_accelerator = pytest.mark.skipif(native is None, reason="the accelerator is not built here (no compiler)")


def outcome(read, body):
    try:
        return read(body, 0)
    except FAULTS:
        return "refused"


@needs_accelerator
def test_same_values_and_refusals_for_every_message(every_triple, generator):
    noise = random.Random(11)
    for triple in every_triple:
        of = plan(*triple)
        fast, slow = native.Reader(description(of.root)), python_decoder(of)
        _, body = generator.body(*triple)
        assert fast(body, 0) == slow(body, 0)
        for _ in range(15):
            damaged = bytearray(body[: noise.randrange(len(body) + 1)] if noise.random() < 0.3 else body)
            for _ in range(noise.randrange(1, 4)):
                if damaged:
                    damaged[noise.randrange(len(damaged))] = noise.choice((0, 1, 127, 128, 255, noise.randrange(256)))
            assert outcome(fast, bytes(damaged)) == outcome(slow, bytes(damaged)), (triple, damaged.hex())


def read_whole(kind, key, version, frame, body):
    """A message's parts, or the error; of a response the frame has no header of its own."""
    found = []
    for read in (
        lambda: decoder_package.decode_body(kind, key, version, body),
        lambda: decoder_package.decode_request(frame),
        lambda: decoder_package.decode_response(frame, api_key=key, api_version=version),
        lambda: decoder_package.decode_request_header(frame),
        lambda: decoder_package.peek_request(frame),
    ):
        try:
            made = read()
        except decoder_package.DecodeError as error:
            found.append((type(error), str(error), error.path, error.offset))
            continue
        if isinstance(made, decoder_package.Message):
            outer = [made[field.name] for field in made.plan.root.fields]  # before there are values
            made = (outer, made.header, made.plan, made.values, made.frame, made.body_start, made.trailing, made.to_dict())
        found.append(made)
    return found


@needs_accelerator
def test_messages_headers_and_errors_are_those_of_the_reference(every_triple, generator, monkeypatch):
    noise = random.Random(13)
    for kind, key, version in every_triple:
        _, body = generator.body(kind, key, version)
        number = plan(kind, key, version).header_version
        client = noise.choice((b"\xff\xff", b"\0\0", b"\0\3abc", b"\0\4a\xc3\xbcb", b"\0\2a\xff", b"\xff\xfe"))
        head = {
            ("request", 0): struct.pack(">hhi", key, version, -5),
            ("request", 1): struct.pack(">hhi", key, version, 1 << 30) + client,
            ("request", 2): struct.pack(">hhi", key, version, 70_000) + client + noise.choice((b"\0", b"\1\5\1x")),
            ("response", 0): struct.pack(">i", -1),
            ("response", 1): struct.pack(">i", 90_000) + noise.choice((b"\0", b"\1\5\1x")),
        }[kind, number]
        for _ in range(6):
            damaged = bytearray(head + body + b"\0" * (noise.random() < 0.1))
            if noise.random() < 0.7:
                del damaged[noise.randrange(len(damaged)) if noise.random() < 0.3 else len(damaged) :]
                for _ in range(min(len(damaged), noise.randrange(3))):
                    damaged[noise.randrange(len(damaged))] = noise.choice((0, 1, 127, 128, 255, noise.randrange(256)))
            given = kind, key, version, bytes(damaged), bytes(damaged[len(head) :])
            fast = read_whole(*given)
            with monkeypatch.context() as patched:
                patched.setattr(codec, "_read", codec._Reference)
                assert fast == read_whole(*given), given


@needs_accelerator
def test_same_records_from_damaged_batches():
    noise = random.Random(12)
    made = [
        records.Record(i, 1000 + i, b"k" * (i % 3) or None, b"v" * (i * 7), ((b"h", b"x"),) * (i % 2))
        for i in range(40)
    ]
    batch = records.encode_batch(made)
    base = BatchBase(5, 1000, sequence=3)

    def read(function, data, count):
        found = []
        try:
            found.extend(function(data, 61, len(data), count, base))
        except records.RecordsError as error:
            return found, type(error), str(error)
        return found, None, ""

    assert len(read(scan, batch, 40)[0]) == 40
    for _ in range(3000):
        damaged = bytearray(batch)
        for _ in range(noise.randrange(1, 4)):
            damaged[noise.randrange(61, len(damaged))] = noise.randrange(256)
        count = noise.choice((39, 40, 41))
        fast, slow = read(scan, bytes(damaged), count), read(python_scan, bytes(damaged), count)
        # the list of what was given before the damage may differ only in what a reader that stops early never sees
        assert fast == slow


@needs_accelerator
def test_memory_does_not_leak():
    program = """
import resource, random
from barnabas.decoder import decode_body, encode_body, DecodeError, records
from barnabas.decoder.codec.decode import decoder, FAULTS
from barnabas.decoder.schema.plan import plan
body = encode_body("response", 3, 12, {"brokers": [{"host": "h" * 50}] * 5, "topics": [{"name": "t" * 30, "partitions": [{}] * 20}] * 5})
read = decoder(plan("response", 3, 12))
batch = next(iter(records.batches(records.encode_batch([records.Record(i, 1, b"k", b"v" * 50, ((b"h", b"x"),)) for i in range(20)]))))
rng = random.Random(1)
def work(times):
    for _ in range(times):
        read(body, 0)
        damaged = bytearray(body); damaged[rng.randrange(len(damaged))] = 255
        try: read(bytes(damaged), 0)
        except FAULTS: pass
        for data in body, bytes(damaged):
            try: message = decode_body("response", 3, 12, data)
            except DecodeError: continue
            message["cluster_id"], message.values, message["topics[0].name"], message.header
        list(batch.records()); records.RecordIndex(batch)
work(1000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
work(8000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 2048  # KiB; one lost body per round would be 20 MiB


def test_pure_python_is_used_when_asked_for():
    program = (
        "from barnabas.decoder.native import accelerator; from barnabas.decoder.codec import decode; from barnabas.decoder.schema.plan import plan;"
        "print(accelerator.native, type(decode.decoder(plan('request', 3, 12))).__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={"BARNABAS_PURE": "1", "PATH": ""},
        timeout=PATIENCE,
    )
    assert done.stdout.split() == ["None", "function"], done.stderr
    assert decoder(plan("request", 3, 12)) is decoder(plan("request", 3, 12))
