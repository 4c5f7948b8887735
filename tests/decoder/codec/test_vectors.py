"""Bytes that other projects recorded or wrote down."""

from __future__ import annotations

import itertools
import re

import pytest
from barnabas import decoder
from barnabas.decoder.codec.encode import encode_struct
from barnabas.decoder.schema import facts


def reencoded(message: decoder.Message) -> bytes:
    out = bytearray(message.frame[: message.body_start])
    encode_struct(message.plan.root, message.values, out)
    return bytes(out)


def test_kafkajs_bodies(vectors):
    read, odd = 0, []
    for row in vectors("kafkajs_bodies.jsonl"):
        match = re.fullmatch(r"(\w+)/fixtures/v(\d+)_(?:\w+_)?(request|response)(?:_\w+)?\.json(?:\.json)?", row["src"])
        if not match or match[1] not in {
            facts.api_name(k)[0].lower() + facts.api_name(k)[1:] for k in facts.api_keys()
        }:
            odd.append(row["src"])
            continue
        data = bytes.fromhex(row["hex"])
        key, version = facts.api_key(match[1]), int(match[2])
        try:
            message = decoder.decode_body(match[3], key, version, data)
        except decoder.DecodeError:
            odd.append(row["src"])
            continue
        assert reencoded(message) == data, row["src"]
        read += 1
    assert read >= 170, (read, odd)
    # what is left: embedded parts, SASL tokens, bodies that begin with a header's tag byte, one cut on purpose
    for source in odd:
        assert re.search(
            r"Assign|Metadata|_bytes|sasl|PartitionReassignments|missing|member|describeGroups|findCoordinator", source
        ), source


@pytest.mark.parametrize("name", ["pixie.jsonl", "kafka-python.jsonl"])
def test_frames_and_bodies(vectors, name):
    read = 0
    for row in vectors(name):
        kind = row["kind"].split("_")[0]
        if kind not in ("request", "response") or row["kind"] == "response_bad":
            continue
        data = bytes.fromhex(row["hex"])
        if "starts with one surplus zero byte" in row["note"]:
            data = data[1:]
        if row["kind"].endswith("_body"):
            message = decoder.decode_body(kind, row["api_key"], row["api_version"], data)
        else:
            frame = data if row["kind"].endswith("_noframe") else data[4:]
            if kind == "request":
                message = decoder.decode_request(frame)
                assert (message.api_key, message.api_version) == (row["api_key"], row["api_version"])
            else:
                message = decoder.decode_response(frame, api_key=row["api_key"], api_version=row["api_version"])
            data = frame
        assert reencoded(message) == data, row["source"]
        read += 1
    assert read >= 25


def test_a_fallback_answer_is_read_as_version_0(vectors):
    rows = [r for r in vectors("kafka-python.jsonl") if r["kind"] in ("request", "response")]
    asked, answer = next((a, b) for a, b in itertools.pairwise(rows) if "DOWNGRADE" in b["note"])
    assert asked["api_version"] == 4
    message = decoder.decode_response(bytes.fromhex(answer["hex"])[4:], api_key=18, api_version=4)
    assert message.api_version == 0 and message["error_code"] == 35
    assert message["api_keys"] == [{"api_key": 18, "min_version": 0, "max_version": 3}]


def test_wrong_responses_are_reported(vectors):
    rows = vectors("codecrafters.jsonl")
    for request, answer in zip(rows[::2], rows[1::2], strict=True):
        conn = decoder.Connection()
        seen = conn.receive_from_client(bytes.fromhex(request["hex"]))
        exchange = seen[0].exchange
        assert exchange.undecoded is None
        events = [*conn.receive_from_broker(bytes.fromhex(answer["hex"])), *conn.close()]
        done = [e.exchange for e in events if isinstance(e, decoder.ExchangeDone)]
        if "checksum" in answer["source"]:
            # the message is right, the batches in it are not
            partitions = done[0].response_message["responses[0].partitions"]
            batches = [b for p in partitions for b in decoder.records.batches(p["records"])]
            assert batches and not any(b.crc_ok for b in batches)
            continue
        faults = [bool(x.undecoded) or any(x.surplus) or x.state != "paired" for x in done]
        assert any(faults) or any(isinstance(e, decoder.Opaque) for e in events), answer
