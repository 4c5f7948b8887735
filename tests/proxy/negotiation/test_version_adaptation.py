"""A connection that speaks other versions to its client than to the broker. Requests and responses go through its
adapter in order, what the adapter answers or refuses takes its place in the queue, and its faults cost no traffic."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from barnabas import decoder
from barnabas.plugins.versions.adapter import AdaptedRequest, Answer, Close, Forward, Silence, StackedAdapters, Step
from harness import scripted, wire
from harness.run.relays import RelayThread, running_relay
from harness.testbed import Testbed

HEARTBEAT, METADATA, API_VERSIONS, PRODUCE = 12, 3, 18, 0


def head(frame: bytes) -> tuple[int, int, int]:
    """API key, version and correlation id of a request with its size."""
    return tuple(int.from_bytes(frame[a:b], "big") for a, b in ((4, 6), (6, 8), (8, 12)))  # type: ignore[return-value]


@dataclass
class Scripted:
    """An adapter made of functions; Heartbeats are its business."""

    ask: Callable[[bytes], Step]
    back: Callable[[AdaptedRequest, bytes], bytes] = lambda asked, frame: frame
    responses_before: list[tuple[int, bytes]] = field(default_factory=list)

    def wants(self, api_key: int, api_version: int) -> bool:
        return api_key == HEARTBEAT

    def request(self, frame: bytes) -> Step:
        return self.ask(frame)

    def response(self, asked: AdaptedRequest, frame: bytes) -> bytes:
        return self.back(asked, frame)

    def response_before(self, asked: AdaptedRequest, place: int, frame: bytes) -> None:
        self.responses_before.append((place, frame[4:]))
        if frame[4:] == b"bad":
            raise ValueError("bad")


class Bed:
    """A relay in a thread, in front of a broker whose requests are in `seen`."""

    running: RelayThread

    def __init__(self, testbed: Testbed) -> None:
        self.testbed = testbed
        self.seen: list[bytes] = []
        self.answers: Callable[[bytes], bytes] = lambda frame: b"ok"

        def answer(frame: bytes, number: int) -> bytes:
            self.seen.append(frame)
            return wire.response(number, self.answers(frame))

        self.upstream = testbed.broker(scripted.each(answer)).address

    def client_with(self, adapter: Scripted | StackedAdapters) -> socket.socket:
        """A client whose connection has this adapter."""
        self.running.relay.version_negotiation.make = lambda connection: adapter
        return self.testbed.client(self.running.address)

    def events(self) -> str:
        """What the relay has reported so far."""
        self.running.supervisor.setblocking(False)
        found = []
        try:
            while True:
                found.append(self.running.supervisor.recv(1 << 16).decode())
        except BlockingIOError:
            return "\n".join(found)


@pytest.fixture
def bed(testbed: Testbed) -> Iterator[Bed]:
    bed = Bed(testbed)
    with running_relay(bed.upstream) as bed.running:
        yield bed


def version(frame: bytes, number: int) -> bytes:
    return frame[:2] + number.to_bytes(2, "big") + frame[4:]


def test_other_versions_on_both_legs(bed: Bed) -> None:
    def back(asked: AdaptedRequest, frame: bytes) -> bytes:
        assert (asked.api_key, asked.api_version, asked.memo) == (HEARTBEAT, 1, "remembered")
        return frame + b" translated"

    client = bed.client_with(Scripted(lambda frame: Forward(version(frame, 4), memo="remembered"), back))
    client.sendall(wire.request(API_VERSIONS, 0, 1) + wire.request(HEARTBEAT, 1, 2) + wire.request(API_VERSIONS, 0, 3))
    assert [wire.read_frame(client) for _ in range(3)] == [
        wire.response(1, b"ok"), wire.response(2, b"ok translated"), wire.response(3, b"ok")
    ]  # fmt: skip
    assert [head(frame) for frame in bed.seen] == [(API_VERSIONS, 0, 1), (HEARTBEAT, 4, 2), (API_VERSIONS, 0, 3)]


def test_every_cut_of_the_stream(bed: Bed) -> None:
    client = bed.client_with(Scripted(lambda frame: Forward(version(frame, 4)), lambda asked, frame: frame + b"!"))
    stream = b"".join(wire.request(key, 1, number) for number, key in enumerate((HEARTBEAT, 19, HEARTBEAT, HEARTBEAT)))
    for at in range(0, len(stream), 3):
        client.sendall(stream[at : at + 3])
    bodies = [wire.read_frame(client)[8:] for _ in range(4)]
    assert bodies == [b"ok!", b"ok", b"ok!", b"ok!"]


def test_an_answer_and_an_end_wait_for_their_turn(bed: Bed) -> None:
    def ask(frame: bytes) -> Step:
        number = frame[4:8]
        return Answer(number + b"made here") if number[-1] == 2 else Close()

    client = bed.client_with(Scripted(ask))
    client.sendall(
        b"".join(wire.request(key, 0, number) for number, key in ((1, 19), (2, HEARTBEAT), (3, HEARTBEAT), (4, 19)))
    )
    assert wire.read_frame(client) == wire.response(1, b"ok")
    assert wire.read_frame(client) == wire.response(2, b"made here")
    assert wire.read_frame(client) == b""
    assert [head(frame)[2] for frame in bed.seen] == [1]


def test_silence_is_for_ever(bed: Bed) -> None:
    client = bed.client_with(Scripted(lambda frame: Silence()))
    client.sendall(wire.request(19, 0, 1) + wire.request(HEARTBEAT, 0, 2) + wire.request(19, 0, 3))
    assert wire.read_frame(client) == wire.response(1, b"ok")
    other = bed.client_with(Scripted(lambda frame: Silence()))
    assert wire.ask(other, wire.request(19, 0, 4)) == wire.response(4, b"ok")
    assert not wire.readable(client)
    client.shutdown(socket.SHUT_WR)
    assert client.recv(1) == b""  # and who has given up is let go
    assert [head(frame)[2] for frame in bed.seen] == [1, 4]


def test_requests_of_its_own(bed: Bed) -> None:
    own = wire.request(API_VERSIONS, 0, 0)[4:]
    adapter = Scripted(lambda frame: Forward(frame, before=(own, own)))
    bed.answers = lambda frame: b"bad" if head(frame)[2] == 0x7F000002 else b"ok"
    client = bed.client_with(adapter)
    assert wire.ask(client, wire.request(HEARTBEAT, 0, 7) + wire.request(19, 0, 8)) == wire.response(7, b"ok")
    assert wire.read_frame(client) == wire.response(8, b"ok")
    assert adapter.responses_before == [(0, b"ok"), (1, b"bad")]
    assert "ValueError: bad" in bed.events()


def test_an_adapter_that_raises(bed: Bed) -> None:
    def fail(*_: object) -> Any:
        raise RuntimeError("out of luck")

    client = bed.client_with(Scripted(fail))
    assert wire.ask(client, wire.request(HEARTBEAT, 0, 1)) == wire.response(1, b"ok")  # as it came
    client = bed.client_with(Scripted(lambda frame: Forward(frame), fail))
    client.sendall(wire.request(HEARTBEAT, 0, 1))
    assert wire.read_frame(client) == wire.response(1, b"ok")  # the same version: the client can read it
    client = bed.client_with(Scripted(lambda frame: Forward(version(frame, 3)), fail))
    assert wire.ask_or_end(client, wire.request(HEARTBEAT, 0, 1)) == b""  # it could not
    assert "NotTranslated" in bed.events()


def test_what_cannot_be_held_ends_the_connection(bed: Bed) -> None:
    bed.running.relay.hold_limit = 1000
    client = bed.client_with(Scripted(lambda frame: Forward(version(frame, 3))))
    assert wire.ask(client, wire.request(19, 0, 1, bytes(2000))) == wire.response(1, b"ok")  # not its business
    assert wire.ask_or_end(client, wire.request(HEARTBEAT, 0, 2, bytes(2000))) == b""
    assert "NotTranslated" in bed.events()
    bed.answers = lambda frame: bytes(2000)
    client = bed.client_with(Scripted(lambda frame: Forward(version(frame, 3))))
    assert wire.ask_or_end(client, wire.request(HEARTBEAT, 0, 2)) == b""
    client = bed.client_with(Scripted(lambda frame: Forward(frame)))
    assert len(wire.ask(client, wire.request(HEARTBEAT, 0, 2))) == 2008  # at the client's version it may pass


def test_produce_without_acks(bed: Bed) -> None:
    body = {"acks": 0, "timeout_ms": 1, "topic_data": []}
    silent = wire.with_size(decoder.encode_request(PRODUCE, 2, body, correlation_id=1, client_id="t"))
    adapter = Scripted(lambda frame: Forward(version(frame, 3)))
    adapter.wants = lambda api_key, api_version: True  # type: ignore[method-assign]
    client = bed.client_with(adapter)
    client.sendall(silent + wire.request(HEARTBEAT, 0, 2))
    wire.read_frame(client)  # the scripted broker answers everything; nobody awaits this one
    assert wire.read_frame(client) == wire.response(2, b"ok")
    assert [head(frame)[:2] for frame in bed.seen] == [(PRODUCE, 3), (HEARTBEAT, 3)]


def test_two_adapters_as_one(bed: Bed) -> None:
    outer = Scripted(lambda frame: Forward(version(frame, 2)), lambda asked, frame: frame + b" outer")
    inner = Scripted(lambda frame: Forward(version(frame, 4)), lambda asked, frame: frame + b" inner")
    client = bed.client_with(StackedAdapters(outer, inner))
    client.sendall(wire.request(HEARTBEAT, 1, 1) + wire.request(19, 1, 2))
    assert wire.read_frame(client) == wire.response(1, b"ok inner outer")
    assert wire.read_frame(client) == wire.response(2, b"ok")
    assert [head(frame)[1] for frame in bed.seen] == [4, 1]
    client = bed.client_with(StackedAdapters(Scripted(lambda frame: Close()), inner))
    assert wire.ask_or_end(client, wire.request(HEARTBEAT, 1, 1)) == b""
    client = bed.client_with(StackedAdapters(outer, Scripted(lambda frame: Answer(frame[4:8] + b"inner"))))
    assert wire.ask(client, wire.request(HEARTBEAT, 1, 1)) == wire.response(1, b"inner outer")
