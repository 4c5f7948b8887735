"""No client is offered a version whose broker addresses could not be changed; nothing else is taken away."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder.schema import facts
from barnabas.proxy.events import Capped
from harness import wire
from harness.testbed import Testbed, next_event

API_VERSIONS = 18
NEWEST = facts.api(API_VERSIONS).versions.high


def offers(**high: int) -> list[dict[str, int]]:
    return [{"api_key": facts.api_key(name), "min_version": 0, "max_version": top} for name, top in high.items()]


def answering(ranges: list[dict[str, int]], seen: list[bytes]) -> Any:
    def script(sock: socket.socket) -> None:
        while frame := wire.read_frame(sock):
            seen.append(frame)
            version = int.from_bytes(frame[6:8], "big")
            number = int.from_bytes(frame[8:12], "big")
            body = {"api_keys": ranges} | ({"throttle_time_ms": 3} if version else {})
            sock.sendall(wire.with_size(decoder.encode_response(API_VERSIONS, version, body, correlation_id=number)))

    return script


def ask(client: socket.socket, version: int, number: int) -> bytes:
    body = {"client_software_name": "x", "client_software_version": "1"} if version >= 3 else {}
    asked = decoder.encode_request(API_VERSIONS, version, body, correlation_id=number, client_id="t")
    return wire.ask(client, wire.with_size(asked))[4:]


@pytest.mark.parametrize("version", range((NEWEST or 0) + 1))
def test_what_is_too_new_to_be_changed_is_not_offered(testbed: Testbed, version: int) -> None:
    known = {name: facts.api(facts.api_key(name)).versions.high or 0 for name in ("Metadata", "Fetch", "Heartbeat")}
    ranges = offers(Metadata=known["Metadata"] + 5, Fetch=known["Fetch"], Heartbeat=known["Heartbeat"] + 9)
    proxy = testbed.proxy(testbed.broker(answering(ranges, [])).address)
    for number in range(2):
        client = testbed.client(proxy.address)
        message = decoder.decode_response(ask(client, version, number), api_key=API_VERSIONS, api_version=version)
        got = {e["api_key"]: e["max_version"] for e in message.to_dict()["api_keys"]}
        assert got == {
            facts.api_key(name): high for name, high in (known | {"Heartbeat": known["Heartbeat"] + 9}).items()
        }
    event = next_event(proxy, Capped)
    assert (event.api_key, event.offered, event.capped) == (3, known["Metadata"] + 5, known["Metadata"])
    proxy.stop()
    assert not [e for e in proxy.events() if isinstance(e, Capped)]  # reported once


def test_what_is_known_passes_byte_for_byte(testbed: Testbed) -> None:
    ranges = [
        {"api_key": key, "min_version": 0, "max_version": facts.api(key).versions.high or 0} for key in facts.api_keys()
    ]
    proxy = testbed.proxy(testbed.broker(answering(ranges, [])).address)
    sent = decoder.encode_response(API_VERSIONS, 4, {"api_keys": ranges, "throttle_time_ms": 3}, correlation_id=9)
    assert ask(testbed.client(proxy.address), 4, 9) == sent


def test_an_api_versions_that_nobody_here_knows_is_answered_as_a_broker_would(testbed: Testbed) -> None:
    seen: list[bytes] = []
    proxy = testbed.proxy(testbed.broker(answering(offers(Metadata=3), seen)).address)
    client = testbed.client(proxy.address)
    newer = wire.request(API_VERSIONS, (NEWEST or 0) + 1, 77)
    for part in (newer[:5], newer[5:11], newer[11:]):
        client.sendall(part)
    message = decoder.decode_response(wire.read_frame(client)[4:], api_key=API_VERSIONS, api_version=(NEWEST or 0) + 1)
    assert message.api_version == 0 and message["error_code"] == facts.error_code("UNSUPPORTED_VERSION")
    assert message["api_keys[0].max_version"] == NEWEST
    assert next_event(proxy, Capped).offered == (NEWEST or 0) + 1
    # and the client goes on with these versions
    message = decoder.decode_response(ask(client, NEWEST or 0, 78), api_key=API_VERSIONS, api_version=NEWEST or 0)
    assert message["api_keys[0].max_version"] == 3
    assert [int.from_bytes(frame[8:12], "big") for frame in seen] == [78]
