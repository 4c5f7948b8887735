"""The search for a frame in the middle of a stream: however bytes are made, few frames are decoded in vain, and real ones
are still found."""

from __future__ import annotations

import struct

import pytest
from barnabas import decoder
from barnabas.decoder import Connection, ExchangeDone, RequestSeen, connection, facts

SIZE = 1 << 20
MOST = 12_000
"""Frames that may be decoded in vain in so many bytes: a fiftieth of a millisecond each."""


def heads(size: int, key: int, version: int, behind: bytes = b"") -> bytes:
    """Nothing but heads of small frames, each of which has to be decoded to be seen through."""
    unit = struct.pack(">ihhih", size, key, version, 5, -1) + behind
    return (unit * (SIZE // len(unit) + 1))[:SIZE]


@pytest.mark.parametrize(
    "data",
    [heads(38, 3, 1), heads(10, 18, 3), heads(12, 8, 8, b"\0\0"), heads(24, 1, 12, b"\xff" * 4)],
    ids=["Metadata", "ApiVersions", "OffsetCommit", "Fetch"],
)
@pytest.mark.parametrize("piece", [pytest.param(SIZE, marks=pytest.mark.slow), 1 << 16])
def test_few_frames_are_decoded_in_vain(data: bytes, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    real = connection.decode_request
    monkeypatch.setattr(connection, "decode_request", lambda frame: (tried.append(1), real(frame))[1])
    searching = Connection(mid_stream=True)
    for start in range(0, SIZE, piece):
        searching.receive_from_client(data[start : start + piece])
    assert 0 < len(tried) < MOST


def test_an_answer_behind_many_small_numbers_is_found() -> None:
    """Arrays of small numbers look like sizes of responses at every place, with ids that nobody asked with."""
    numbers = b"".join(struct.pack(">i", n % 60) for n in range(1 << 10))
    asked = decoder.encode_request(facts.api_key("Metadata"), 1, {"topics": None}, correlation_id=77, client_id="orders-service")
    answer = decoder.encode_response(facts.api_key("Metadata"), 1, {"brokers": [], "controller_id": 1, "topics": []}, correlation_id=77)
    found = Connection(mid_stream=True)
    events = found.receive_from_client(struct.pack(">i", len(asked)) + asked, 1)
    assert any(isinstance(event, RequestSeen) and event.exchange.correlation_id == 77 for event in events)
    done = found.receive_from_broker(numbers + struct.pack(">i", len(answer)) + answer, 2)
    assert any(isinstance(event, ExchangeDone) and event.exchange.response == answer for event in done)
