"""The bytes of a held frame in answers of the control API: without secrets and without the content of records."""

from __future__ import annotations

from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder import Direction
from barnabas.decoder.codec.secrets import mask
from barnabas.decoder.records import Record, encode_batch
from barnabas.proxy.control.held_frame_copies import HeldFrameCopy
from barnabas.proxy.processes.control_messages import HeldNotice
from harness.wire import with_size

CANARY = b"canary-password"


def held(frame: bytes, side: str, api_key: int, api_version: int) -> HeldFrameCopy:
    notice = HeldNotice(1, 1, 1, "client:1", "broker:9092", side, api_key, api_version, 1, None, 0, 30.0, 0)
    return HeldFrameCopy(notice, with_size(frame))


def shown(frame: HeldFrameCopy, values: bool = False) -> tuple[bytes, list[tuple[int, int]]]:
    covered = frame.covered_bytes(values)
    return bytes.fromhex(covered["frame"]), [(start, end) for start, end in covered["hidden"]]


def produce(codec: int = 0) -> tuple[bytes, bytes]:
    """A request, and its batch."""
    batch = encode_batch([Record(0, 0, b"key-" + CANARY, b"value-" + CANARY)], codec=codec)
    fields = {"acks": -1, "timeout_ms": 9, "topic_data": [{"name": "a", "partition_data": [{"index": 0, "records": batch}]}]}
    return decoder.encode_request(0, 7, fields, correlation_id=1), batch


def test_secrets_are_masked_as_in_recordings() -> None:
    asked = decoder.encode_request(36, 1, {"auth_bytes": b"\0user\0" + CANARY}, correlation_id=1)
    answered = decoder.encode_response(38, 1, {"hmac": CANARY}, correlation_id=1)
    for frame, side, key, version in ((asked, "request", 36, 1), (answered, "response", 38, 1)):
        assert CANARY in frame
        for values in (False, True):
            covered_bytes, hidden = shown(held(frame, side, key, version), values)
            assert CANARY not in covered_bytes and len(covered_bytes) == len(frame) and not hidden
            assert covered_bytes == mask(Direction.REQUEST if side == "request" else Direction.RESPONSE, key, version, frame)


@pytest.mark.parametrize("api_key", [33, 44])
def test_what_a_response_quotes_of_its_request_is_masked(api_key: int) -> None:
    configs = [{"name": "my.own", "value": CANARY.decode()}]
    asked = decoder.encode_request(api_key, 1, {"resources": [{"resource_type": 2, "resource_name": "a", "configs": configs}]})
    said = {"error_code": 40, "error_message": f"my.own = {CANARY.decode()}?", "resource_type": 2, "resource_name": "a"}
    answered = decoder.encode_response(api_key, 1, {"responses": [said]}, correlation_id=1)
    notice = HeldNotice(1, 1, 1, "client:1", "broker:9092", "response", api_key, 1, 1, None, 0, 30.0, len(asked) + 4)
    frame = HeldFrameCopy(notice, with_size(asked) + with_size(answered))
    assert CANARY not in shown(frame)[0] and CANARY.decode() not in str(frame.to_dict(values=True))
    assert frame.to_dict(values=False)["body"]["responses"][0]["error_message"] == f"my.own = {'*' * len(CANARY)}?"


def test_everything_is_masked_when_secrets_cannot_be_located(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = decoder.encode_request(36, 1, {"auth_bytes": CANARY}, correlation_id=1)
    covered_bytes, _ = shown(held(frame[:-1], "request", 36, 1))  # cannot be decoded
    assert covered_bytes == frame[:8] + b"*" * (len(frame) - 9)

    def broken(*given: Any) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr("barnabas.proxy.control.held_frame_copies.mask", broken)
    covered_bytes, hidden = shown(held(frame, "request", 36, 1), values=True)
    assert covered_bytes == frame[:8] + b"*" * (len(frame) - 8) and hidden == [(8, len(frame))]


@pytest.mark.parametrize("codec", [0, 1])
def test_records_are_covered_unless_values_are_requested(codec: int) -> None:
    frame, batch = produce(codec)
    start = frame.index(batch)
    covered_bytes, hidden = shown(held(frame, "request", 0, 7))
    assert hidden == [(start + 61, start + len(batch))]  # behind the batch's header
    assert covered_bytes == frame[: start + 61] + b"*" * (len(batch) - 61)
    assert shown(held(frame, "request", 0, 7), values=True) == (frame, [])
    covered_bytes, hidden = shown(held(frame + CANARY, "request", 0, 7))  # more bytes than the message has
    assert CANARY not in covered_bytes and hidden[-1] == (len(frame), len(frame) + len(CANARY))
    covered_bytes, hidden = shown(held(frame[: start + len(batch) - 4], "request", 0, 7))  # and fewer
    assert CANARY not in covered_bytes and covered_bytes.startswith(frame[:8])
