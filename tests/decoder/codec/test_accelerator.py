"""The accelerator against the pure Python reference: the same values, the same refusals, no memory left behind."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
from barnabas.decoder import records
from barnabas.decoder.codec.decode import FAULTS, decoder, python_decoder
from barnabas.decoder.codec.plan import plan
from barnabas.decoder.native import accelerator
from barnabas.decoder.native.accelerator import description
from barnabas.decoder.records.record import BatchBase, python_scan, scan
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
from barnabas.decoder.codec.plan import plan
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
        "from barnabas.decoder.native import accelerator; from barnabas.decoder.codec import decode; from barnabas.decoder.codec.plan import plan;"
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
