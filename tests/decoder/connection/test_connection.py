"""Correlation: whatever way the bytes are cut, the same events."""

from __future__ import annotations

import random
import struct

import pytest
from barnabas import decoder
from barnabas.decoder import Direction, ExchangeDone, Opaque, RequestSeen
from barnabas.decoder.connection import connection
from harness.run.steps import assert_linear
from harness.wire import with_size


def request(key: int, version: int, correlation_id: int, client_id: str | None = "c", **fields: object) -> bytes:
    return with_size(decoder.encode_request(key, version, fields, correlation_id=correlation_id, client_id=client_id))


def response(key: int, version: int, correlation_id: int, **fields: object) -> bytes:
    return with_size(decoder.encode_response(key, version, fields, correlation_id=correlation_id))


def states(events: list[object]) -> list[tuple[str, int, str]]:
    return [
        (e.exchange.api, e.exchange.correlation_id, str(e.exchange.state))
        for e in events
        if isinstance(e, ExchangeDone)
    ]


def test_a_conversation_cut_at_every_byte():
    asked = (
        request(18, 3, 0, client_software_name="x", client_software_version="1") + request(3, 12, 1) + request(12, 4, 2)
    )
    answered = response(18, 3, 0) + response(3, 12, 1) + response(12, 4, 2, error_code=25)
    whole = None
    for cut in range(len(asked) + len(answered)):
        conn = decoder.Connection()
        events = []
        for data, receive in ((asked, conn.receive_from_client), (answered, conn.receive_from_broker)):
            at = min(cut, len(data)) if data is asked else max(0, cut - len(asked))
            events += receive(data[:at], 5) + receive(data[at:], 6)
        found = states(events)
        whole = whole or found
        assert found == whole == [("ApiVersions", 0, "paired"), ("Metadata", 1, "paired"), ("Heartbeat", 2, "paired")]
        assert all(e.exchange.undecoded is None for e in events)


def test_a_frame_has_the_time_of_its_first_byte():
    conn = decoder.Connection()
    data = request(3, 12, 1)
    events = conn.receive_from_client(data + data[:3], 10) + conn.receive_from_client(data[3:], 20)
    assert [e.exchange.request_time_ns for e in events] == [10, 10]
    answer = response(3, 12, 1)
    done = conn.receive_from_broker(answer[:2], 30) + conn.receive_from_broker(answer[2:], 40)
    assert done[0].exchange.latency_ns == 20


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("client_id", [None, "", "producer"])
def test_acks_0_gets_no_response_at_every_version(version, client_id):
    conn = decoder.Connection()
    fire = request(0, version, 1, client_id, acks=0)
    asked = request(0, version, 2, client_id, acks=-1)
    events = conn.receive_from_client(fire + asked + fire)
    assert [type(e) for e in events] == [RequestSeen, ExchangeDone, RequestSeen, RequestSeen, ExchangeDone]
    assert conn.in_flight == 1
    assert states(conn.receive_from_broker(response(0, version, 2))) == [("Produce", 2, "paired")]
    assert conn.in_flight == 0 and conn.close() == []


def test_missing_and_orphan_responses_are_told():
    conn = decoder.Connection()
    conn.receive_from_client(request(3, 9, 1) + request(3, 9, 2) + request(3, 9, 3))
    events = conn.receive_from_broker(response(3, 9, 7) + response(3, 9, 2))
    assert states(events) == [("", 7, "orphan"), ("Metadata", 1, "no_response"), ("Metadata", 2, "paired")]
    assert states(conn.close()) == [("Metadata", 3, "no_response")]


def test_the_same_correlation_id_again_and_again():
    conn = decoder.Connection()
    conn.receive_from_client(request(3, 9, 1) * 1000)
    assert conn.in_flight == 1000
    assert len(states(conn.receive_from_broker(response(3, 9, 1) * 1000))) == 1000 and conn.in_flight == 0


def test_the_oldest_of_too_many_requests_are_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection, "MOST_WAITING", 3)
    conn = decoder.Connection()
    asked = conn.receive_from_client(b"".join(request(12, 4, n) for n in range(5)))
    assert states(asked) == [("Heartbeat", 0, "no_response"), ("Heartbeat", 1, "no_response")] and conn.in_flight == 3
    assert states(conn.receive_from_broker(response(12, 4, 2))) == [("Heartbeat", 2, "paired")]


def test_orphans_beside_many_requests_in_flight():
    conn = decoder.Connection()
    conn.receive_from_client(b"".join(request(3, 9, number) for number in range(2_000)))
    orphans = conn.receive_from_broker(response(3, 9, -5) * 2_000)
    assert len(orphans) == 2_000 and conn.in_flight == 2_000
    assert states(conn.receive_from_broker(response(3, 9, 0))) == [("Metadata", 0, "paired")]
    assert len(conn.close()) == 1_999


def test_an_orphan_takes_no_more_steps_beside_more_requests_in_flight():
    def work(count):
        conn = decoder.Connection()
        conn.receive_from_client(b"".join(request(3, 9, number) for number in range(count)))
        orphans = response(3, 9, -5) * count  # each would look at all that wait
        return lambda: conn.receive_from_broker(orphans)

    assert_linear(work, 300)


def test_raw_sasl_tokens_are_masked_and_requests_go_on_behind_them():
    conn = decoder.Connection()
    conn.receive_from_client(request(17, 0, 1, mechanism="PLAIN"))
    conn.receive_from_broker(response(17, 0, 1, mechanisms=["PLAIN"]))
    events = conn.receive_from_client(with_size(b"\x00alice\x00s3cret"), 4) + conn.receive_from_broker(with_size(b""), 5)
    assert [(e.direction, e.data, e.framed) for e in events if isinstance(e, Opaque)] == [
        (Direction.REQUEST, b"*" * 13, True),
        (Direction.RESPONSE, b"", True),
    ]
    events = conn.receive_from_client(request(3, 9, 2)) + conn.receive_from_broker(response(3, 9, 2))
    assert states(events) == [("Metadata", 2, "paired")]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (bytes.fromhex("160301020001000001fc0303"), "TLS hello"),
        (bytes.fromhex("15030300020246"), "TLS alert"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (b"\xff\xff\xff\xfe12345678", "size -2"),
    ],
)
def test_other_protocols_are_named_and_kept_whole(data, says):
    for cut in range(1, len(data)):
        conn = decoder.Connection()
        events = conn.receive_from_client(data[:cut]) + conn.receive_from_client(data[cut:])
        assert says in events[0].reason
        assert b"".join(e.data for e in events) == data


def test_bytes_lost_in_the_middle_of_a_frame():
    conn = decoder.Connection()
    conn.receive_from_client(request(3, 9, 1)[:-3])
    conn.lost(Direction.REQUEST)
    events = conn.receive_from_client(request(3, 9, 2)) + conn.receive_from_broker(response(3, 9, 2))
    assert states(events) == [("Metadata", 2, "paired")]


def details(events: list[object]) -> list[object]:
    return [
        e if isinstance(e, Opaque) else (type(e), *(getattr(e.exchange, name) for name in EXCHANGE_FIELDS)) for e in events
    ]


EXCHANGE_FIELDS = ("state", "api", "correlation_id", "request", "request_cut", "request_time_ns", "response", "response_cut",
                   "response_time_ns")  # fmt: skip


@pytest.mark.parametrize("seed", range(10))
def test_frames_received_whole_give_the_same_as_their_bytes(seed):
    pick = random.Random(seed)
    by_bytes, by_frames = decoder.Connection(), decoder.Connection()

    def feed(conn: decoder.Connection, direction: Direction, data: bytes, time_ns: int, cut: int) -> list[object]:
        receive = conn.receive_from_broker if direction else conn.receive_from_client
        return receive(data, time_ns) + (conn.skip(direction, cut, time_ns) if cut else [])

    whole = 0
    for number in range(200):
        direction = Direction(pick.randrange(2))
        login = request(17, 0, number, mechanism="PLAIN")
        asked = request(3, 9, number), request(0, 7, number, acks=0), login, with_size(b"token")
        earlier = max(0, number - pick.randrange(4))
        answered = response(3, 9, earlier), response(17, 0, earlier), with_size(b"token"), with_size(b"")
        data = pick.choices(answered if direction else asked, (9, 1, 1, 1))[0]
        cut = pick.randrange(len(data) - 18) if len(data) > 18 and pick.random() < 0.2 else 0
        data = data[: len(data) - cut]
        expected = feed(by_bytes, direction, data, number, cut)
        begun = min(pick.choice((0, 0, 1, 4, 5)), len(data) - 1)
        if begun:
            assert feed(by_frames, direction, data[:begun], number, 0) == []
            assert by_frames.receive_frame(direction, data[4:], 0, cut) is None
            events = feed(by_frames, direction, data[begun:], number, cut)
        else:
            events = by_frames.receive_frame(direction, data[4:], number, cut)
            whole += events is not None
            if events is None:
                events = feed(by_frames, direction, data, number, cut)
        assert details(events) == details(expected)
    assert details(by_frames.close(9)) == details(by_bytes.close(9))
    assert whole > 50


def test_frames_are_received_whole_only_among_frames():
    frame, answer = request(3, 9, 1), response(3, 9, 1)
    conn = decoder.Connection()
    assert conn.receive_frame(Direction.REQUEST, frame[4:]) is None  # the first bytes show whether it is Kafka
    conn.receive_from_client(frame)
    assert conn.receive_frame(Direction.RESPONSE, answer[4:]) is None
    assert len(conn.receive_frame(Direction.REQUEST, request(3, 9, 2)[4:])) == 1
    conn.lost(Direction.REQUEST, at_frame=False)  # the next frame is searched for
    assert conn.receive_frame(Direction.REQUEST, frame[4:]) is None
    conn = decoder.Connection()
    conn.receive_from_client(frame + b"\xff" * 9)
    assert conn.receive_frame(Direction.REQUEST, frame[4:]) is None  # another protocol
    for short in ({"limit": 100}, {"keep": 5}):
        conn = decoder.Connection(**short)
        conn.receive_from_client(frame)
        assert conn.receive_frame(Direction.REQUEST, frame[4:] + bytes(100)) is None


def test_noise_never_raises(every_triple, generator):
    noise = random.Random(7)
    for kind, key, version in every_triple[::7]:
        body = generator.body(kind, key, version)[1]
        conn = decoder.Connection()
        events = conn.receive_from_client(with_size(struct.pack(">hhih", key, version, 1, -1) + body))
        damaged = bytearray(struct.pack(">i", 1) + body)
        for _ in range(3):
            damaged[noise.randrange(len(damaged))] = noise.randrange(256)
        events += conn.receive_from_broker(with_size(bytes(damaged))) + conn.close()
        for event in events:
            if not isinstance(event, Opaque):
                event.exchange.to_dict()


def test_the_stable_keys():
    conn = decoder.Connection(3, "127.0.0.1:5", "127.0.0.1:9092")
    events = conn.receive_from_client(request(12, 4, 2, "me", group_id="g"), 100)
    events += conn.receive_from_broker(response(12, 4, 2, error_code=27), 150)
    found = events[-1].exchange.to_dict()
    assert list(found) == [
        "time_ns",
        "connection",
        "client",
        "broker",
        "api",
        "api_key",
        "api_version",
        "correlation_id",
        "client_id",
        "request_size",
        "response_size",
        "latency_ns",
        "state",
        "error",
        "undecoded",
        "request",
        "response",
    ]
    assert found["error"] == "REBALANCE_IN_PROGRESS" and found["latency_ns"] == 50 and found["connection"] == 3
    assert found["request"]["group_id"] == "g" and found["response"]["error_code"] == 27
    unknown = conn.receive_from_client(with_size(struct.pack(">hhih", 12, 99, 5, -1)))[0].exchange
    assert "version 99 is not known" in unknown.to_dict()["undecoded"]


def test_what_is_inside_of_byte_fields_is_opened():
    member = decoder.embedded.encode("ConsumerProtocolSubscription", 1, {"topics": ["orders"]})
    protocols = [{"name": "range", "metadata": b"\x00\x01" + member}]
    conn = decoder.Connection()
    asked = request(11, 5, 1, group_id="g", protocol_type="consumer", protocols=protocols)
    exchange = conn.receive_from_client(asked)[0].exchange
    inside = exchange.to_dict()["embedded"]["request"]
    assert inside[0]["path"] == "protocols[0].metadata" and inside[0]["fields"]["topics"] == ["orders"]
    assert "embedded" not in conn.receive_from_client(request(3, 9, 2))[0].exchange.to_dict()
