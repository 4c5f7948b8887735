"""The search for a frame in the middle of a stream: whatever the bytes, few false frames are decoded, and real ones are found."""

from __future__ import annotations

import struct

import pytest
from barnabas import decoder
from barnabas.decoder import Connection, Direction, ExchangeDone, RequestSeen
from barnabas.decoder.codec.walk import Walker
from barnabas.decoder.connection import connection
from barnabas.decoder.schema import facts
from harness.run.slices import thin
from harness.run.steps import steps
from harness.wire import with_size

SIZE = 1 << 20
MOST = 36_000
"""False frames that may be decoded in SIZE bytes; they are not walked for their error, which would take longest."""


def heads(size: int, key: int, version: int, behind: bytes = b"") -> bytes:
    """Headers of small frames, each of which has to be decoded to be rejected."""
    unit = struct.pack(">ihhih", size, key, version, 5, -1) + behind
    return (unit * (SIZE // len(unit) + 1))[:SIZE]


@pytest.mark.parametrize(
    "data",
    thin([heads(38, 3, 1), heads(10, 18, 3), heads(12, 8, 8, b"\0\0"), heads(24, 1, 12, b"\xff" * 4)], 2),
    ids=["Metadata", "ApiVersions", "OffsetCommit", "Fetch"],
)
@pytest.mark.parametrize("piece", [pytest.param(SIZE, marks=pytest.mark.slow), 1 << 16])
def test_few_false_frames_are_decoded(data: bytes, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    monkeypatch.setattr(Walker, "explain", lambda walker: pytest.fail("it is explained what is wrong with a frame"))
    real = connection.is_request
    monkeypatch.setattr(connection, "is_request", lambda frame: (tried.append(1), real(frame))[1])
    searching = Connection(mid_stream=True)
    for start in range(0, SIZE, piece):
        searching.receive_from_client(data[start : start + piece])
    assert 0 < len(tried) < MOST


def test_a_response_after_many_small_numbers_is_found() -> None:
    """Arrays of small numbers look like sizes of responses everywhere, with correlation ids of no request."""
    numbers = b"".join(struct.pack(">i", n % 60) for n in range(1 << 10))
    asked = decoder.encode_request(facts.api_key("Metadata"), 1, {"topics": None}, correlation_id=77, client_id="orders-service")
    answer = decoder.encode_response(facts.api_key("Metadata"), 1, {"brokers": [], "controller_id": 1, "topics": []}, correlation_id=77)
    found = Connection(mid_stream=True)
    events = found.receive_from_client(struct.pack(">i", len(asked)) + asked, 1)
    assert any(isinstance(event, RequestSeen) and event.exchange.correlation_id == 77 for event in events)
    done = found.receive_from_broker(numbers + struct.pack(">i", len(answer)) + answer, 2)
    assert any(isinstance(event, ExchangeDone) and event.exchange.response == answer for event in done)


NUMBERS = {
    "brokers 10, 11, 12": (10, 11, 12),
    "brokers 20, 3, 7": (20, 3, 7),
    "all 12": (12,),
    "0 to 13": tuple(range(14)),
    "thousands": (2000, 1, 2, 0),
}


@pytest.mark.parametrize("name", thin(NUMBERS, 2))
def test_requests_after_many_small_numbers_are_found(name: str) -> None:
    """Arrays of ids look like small requests. A request with a client id is found at once, one without among the next ones."""
    numbers = struct.pack(f">{len(NUMBERS[name])}i", *NUMBERS[name])
    numbers *= (1 << 17) // len(numbers)
    for client, most in (("orders-service", 1), (None, 20)):
        asked = [decoder.encode_request(3, 1, {"topics": None}, correlation_id=1 << 20 | n, client_id=client) for n in range(most)]
        found = Connection(mid_stream=True)
        events = found.receive_from_client(numbers + b"".join(map(with_size, asked)))
        assert any(isinstance(event, RequestSeen) and event.exchange.request in asked for event in events)


def test_responses_after_pending_correlation_ids_are_found() -> None:
    numbers = struct.pack(">4i", 8, 6, 7, 9) * (1 << 13)
    asked = [decoder.encode_request(3, 1, {"topics": None}, correlation_id=n, client_id="orders") for n in range(200)]
    body = {"brokers": [], "controller_id": 1, "topics": []}
    answers = [decoder.encode_response(3, 1, body, correlation_id=n) for n in range(100, 130)]
    found = Connection()
    found.receive_from_client(b"".join(map(with_size, asked)))
    found.lost(Direction.RESPONSE, at_frame=False)
    done = found.receive_from_broker(numbers + b"".join(map(with_size, answers)))
    assert any(isinstance(event, ExchangeDone) and event.exchange.response in answers for event in done)


@pytest.mark.parametrize("piece", [b"", b"\0"])
def test_empty_pieces_take_the_same_steps_however_many_requests_are_pending(piece: bytes) -> None:
    def looking(waiting: int) -> int:
        asked = [decoder.encode_request(3, 1, {"topics": None}, correlation_id=n, client_id="orders") for n in range(waiting)]
        found = Connection(mid_stream=True)
        found.receive_from_client(b"".join(map(with_size, asked)))
        assert found.in_flight == waiting
        return steps(lambda: [found.receive_from_broker(piece) for _ in range(50)])

    assert looking(400) <= looking(20) + 20


def test_empty_pieces_are_no_events() -> None:
    found = Connection(mid_stream=True)
    assert steps(lambda: [found.receive_from_client(b"") for _ in range(100)]) < 1000
    found = Connection()
    assert found.receive_from_client(b"SSH-2.0-x") and found.receive_from_client(b"more")  # other protocols give events
    assert found.receive_from_client(b"") == []
