"""Fetch requests that would begin a session go on without one while a rule asks for topics (KIP-227), decoded or not."""

from __future__ import annotations

import random
import socket
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder.schema import facts
from barnabas.plugins.answers import fetch_sessions
from barnabas.plugins.rules.rules import Rule
from barnabas.proxy.events import RuleHit
from harness import wire
from harness.testbed import Testbed
from harness.wire import with_size

FETCH = facts.api_key("Fetch")
LATEST = facts.api(FETCH).versions.high or 0


def fetch(version: int, session: int, epoch: int, client: str | None = "c", **more: Any) -> bytes:
    """A request with its size."""
    fields = {"session_id": session, "session_epoch": epoch, **more} if version >= fetch_sessions.SINCE else {}
    frame = decoder.encode_request(FETCH, version, fields, correlation_id=7, client_id=client)
    return with_size(frame)


@pytest.mark.parametrize("version", range(LATEST + 1))
@pytest.mark.parametrize("client", ["", None, "shop", "x" * 300])
def test_at_a_glance_as_by_fields(version: int, client: str | None) -> None:
    """What `alone` makes of the bytes is what `instead` makes of the decoded message; the decoder is the judge."""
    for session, epoch in ((0, 0), (0, -1), (0, 4), (5, 0), (5, 3), (5, -1)):
        frame = fetch(version, session, epoch, client, max_bytes=77, isolation_level=1)
        other, ended = fetch_sessions.replacement(decoder.decode_request(frame[4:]), 7)
        glanced = fetch_sessions.without_session(frame)
        if (session, epoch) != (0, 0) or version < fetch_sessions.SINCE:
            assert glanced is None
        else:
            assert glanced is not None and ended is None and glanced[4:] == other
            assert decoder.decode_request(glanced[4:])["session_epoch"] == -1


def test_what_is_cut_or_has_tags_is_not_seen_at_a_glance() -> None:
    frame = fetch(12, 0, 0)
    for end in range(len(frame) - 20):
        assert fetch_sessions.epoch_offset(frame[:end]) is None
    tagged = frame[:15] + b"\1\0\0" + frame[16:]
    assert frame[15:16] == b"\0" and fetch_sessions.without_session(tagged) is None
    assert fetch_sessions.epoch_offset(b"\0" * 5 + frame, 5) == fetch_sessions.epoch_offset(frame) + 5  # type: ignore[operator]


def test_the_broker_gets_no_session_and_rules_their_topic(testbed: Testbed) -> None:
    """Every request goes on without a session, in order, and only those of one topic are answered here, although most
    requests begin like one that was seen to concern no rule."""
    seen: list[tuple[int, int, bytes]] = []

    def script(sock: socket.socket) -> None:
        while frame := wire.read_frame(sock):
            asked = decoder.decode_request(frame[4:])
            number = asked.header["correlation_id"]
            seen.append((number, asked["session_epoch"], frame))
            sock.sendall(wire.with_size(decoder.encode_response(FETCH, 12, {}, correlation_id=number)))

    rule = Rule.of("api == Fetch and topic == b", error="UNKNOWN_SERVER_ERROR", name="b")
    proxy = testbed.proxy(testbed.broker(script).address, rules=[rule])
    client, chance = testbed.client(proxy.address), random.Random(3)
    meant, sent, frames = [], b"", []
    for number in range(400):
        topic = "b" if chance.random() < 0.05 else chance.choice("ac")
        meant += [number] if topic == "b" else []
        topics = [{"topic": topic, "partitions": [{"partition": chance.randrange(2), "fetch_offset": number}]}]
        fields = {"session_epoch": 0, "topics": topics}
        frames.append(wire.with_size(decoder.encode_request(FETCH, 12, fields, correlation_id=number, client_id="c")))
        sent += frames[-1]
    wire.send_cut(client, sent, chance)
    got = [wire.read_frame(client) for _ in range(400)]
    assert [int.from_bytes(frame[4:8], "big") for frame in got] == list(range(400))
    errors = [decoder.decode_response(frame[4:], api_key=FETCH, api_version=12)["error_code"] for frame in got]
    assert [number for number, error in enumerate(errors) if error] == meant
    assert [number for number, _, _ in seen] == [number for number in range(400) if number not in meant]
    for number, epoch, frame in seen:
        place = fetch_sessions.epoch_offset(frames[number])
        assert place is not None and epoch == -1
        assert frame == frames[number][:place] + b"\xff" * 4 + frames[number][place + 4 :]
    proxy.stop()
    assert [event.correlation_id for event in proxy.events() if isinstance(event, RuleHit)] == meant
