"""Any bytes: nothing but DecodeError, and from `of` nothing at all."""

from __future__ import annotations

import random

import pytest
from barnabas import decoder
from barnabas.decoder import DecodeError, embedded
from barnabas.decoder.embedded import groups
from barnabas.decoder.schema import facts
from hypothesis import given
from hypothesis import strategies as st

READERS = [
    embedded.subscription,
    embedded.assignment,
    lambda data: embedded.subscription(data, "connect"),
    lambda data: embedded.assignment(data, "connect"),
    groups.streams_subscription,
    groups.streams_assignment,
    groups.sticky,
    embedded.sasl_step,
    embedded.metrics,
    lambda data: embedded.of_control(data[:4], data[4:]),
    *(lambda data, topic=topic: embedded.of_record(topic, data[:20], data[20:]) for topic in sorted(embedded.INTERNAL)),
    *(lambda data, topic=topic: embedded.of_record(topic, data[:2], data) for topic in sorted(embedded.INTERNAL)),
]

CARRIERS = [
    ("request", "JoinGroup", ["protocols", "metadata"]),
    ("response", "JoinGroup", ["members", "metadata"]),
    ("request", "SyncGroup", ["assignments", "assignment"]),
    ("response", "SyncGroup", ["assignment"]),
    ("response", "DescribeGroups", ["groups", "members", "member_metadata"]),
    ("request", "SaslAuthenticate", ["auth_bytes"]),
    ("request", "Envelope", ["request_data"]),
    ("request", "Envelope", ["request_principal"]),
    ("response", "Envelope", ["response_data"]),
    ("request", "PushTelemetry", ["metrics"]),
    ("request", "Produce", ["topic_data", "partition_data", "records"]),
    ("response", "Fetch", ["responses", "partitions", "records"]),
    ("response", "ShareFetch", ["responses", "partitions", "records"]),
    ("response", "FetchSnapshot", ["topics", "partitions", "unaligned_records"]),
]


def read_or_decode_error(read, data: bytes) -> None:
    try:
        read(data)
    except DecodeError as fault:
        assert fault.text


@given(data=st.binary(max_size=300))
def test_any_bytes(data):
    for read in READERS:
        read_or_decode_error(read, data)


@given(number=st.integers(-2, 30), version=st.integers(-1, 12), data=st.binary(max_size=120))
def test_any_bytes_behind_a_plausible_start(number, version, data):
    start = number.to_bytes(2, "big", signed=True)
    lead = version.to_bytes(2, "big", signed=True)
    for topic in sorted(embedded.INTERNAL):
        read_or_decode_error(lambda _, topic=topic: embedded.of_record(topic, start + data, lead + data), b"")
        read_or_decode_error(lambda _, topic=topic: embedded.of_record(topic, b"", bytes((1, number & 127, version & 15)) + data), b"")
    read_or_decode_error(lambda _: embedded.of_control(b"\0\0" + start, lead + data), b"")
    for read in READERS:
        read_or_decode_error(read, lead + data)
        read_or_decode_error(read, version.to_bytes(4, "big", signed=True) + data)


def mutations(data: bytes, random_: random.Random):
    for _ in range(150):
        changed = bytearray(data)
        for _ in range(random_.choice((1, 1, 3))):
            changed[random_.randrange(len(changed))] = random_.choice((0, 1, 0x7F, 0x80, 0xFF, random_.randrange(256)))
        yield bytes(changed[: random_.choice((len(changed), random_.randrange(len(changed)) + 1))])


def test_mutations_of_real_payloads(group_payloads, telemetry_payloads):
    random_ = random.Random(6)
    for payload in [*group_payloads.values(), *telemetry_payloads.values()]:
        for data in mutations(payload, random_):
            for read in READERS[:7]:
                read_or_decode_error(read, data)
            read_or_decode_error(embedded.metrics, data)
            read_or_decode_error(lambda d: embedded.metrics(d, random_.randrange(5)), data)


@pytest.mark.parametrize(("kind", "api", "steps"), CARRIERS)
def test_of_never_raises(generator, group_payloads, kind, api, steps):
    random_ = random.Random(7)
    key = facts.api_key(api)
    samples = [b"", b"\0", *group_payloads.values(), *(random_.randbytes(n) for n in (1, 7, 61, 200))]
    for version in facts.api(key).versions.every():
        for data in samples:
            fields: object = data
            for step in reversed(steps):
                fields = {step: fields}
                if step != steps[0]:
                    fields = [fields]
            assert isinstance(fields, dict)
            message = decoder.decode_body(kind, key, version, decoder.encode_body(kind, key, version, fields))
            for request in (None, message):
                for payload in embedded.of(message, request):
                    assert payload.path and payload.kind and payload.fields


def test_of_takes_any_generated_message(generator, every_triple):
    opened = 0
    for kind, key, version in every_triple:
        for _ in range(2):
            message = decoder.decode_body(kind, key, version, generator.body(kind, key, version)[1])
            opened += len(list(embedded.of(message)))
    assert opened > 20
