"""Requests in which a controller sends brokers the addresses of the others: no address of a broker passes there either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.captures import open_capture
from barnabas.decoder.schema import facts
from harness import scripted, wire
from harness.testbed import Testbed

UPDATE_METADATA, LEADER_AND_ISR, STOP_REPLICA = (
    facts.api_key(name) for name in ("UpdateMetadata", "LeaderAndIsr", "StopReplica")
)
OTHERS = [(2, "10.9.8.7", 9002), (3, "10.9.8.8", 9003)]


def named_brokers(key: int, version: int) -> dict[str, Any]:
    """A request that names two other brokers."""
    if key == LEADER_AND_ISR:
        return {"live_leaders": [{"broker_id": n, "host_name": host, "port": port} for n, host, port in OTHERS]}
    if version == 0:
        return {"live_brokers": [{"id": n, "v0_host": host, "v0_port": port} for n, host, port in OTHERS]}
    ends = [(n, [{"host": host, "port": port}]) for n, host, port in OTHERS]
    return {"live_brokers": [{"id": n, "endpoints": endpoints} for n, endpoints in ends]}


def addresses(key: int, version: int, frame: bytes) -> list[tuple[str, int]]:
    fields = decoder.decode_request(frame[4:]).to_dict()
    if key == LEADER_AND_ISR:
        return [(each["host_name"], each["port"]) for each in fields["live_leaders"]]
    if version == 0:
        return [(each["v0_host"], each["v0_port"]) for each in fields["live_brokers"]]
    return [(end["host"], end["port"]) for each in fields["live_brokers"] for end in each["endpoints"]]


CASES = [(key, version) for key in (UPDATE_METADATA, LEADER_AND_ISR) for version in facts.api(key).versions.every()]


@pytest.mark.parametrize(("key", "version"), CASES)
def test_addresses_are_the_proxys(testbed: Testbed, tmp_path: Path, key: int, version: int) -> None:
    received: list[bytes] = []

    def answer(frame: bytes, number: int) -> bytes:
        received.append(frame)
        return wire.response(number)

    proxy = testbed.proxy(testbed.broker(scripted.each(answer)).address, record=tmp_path / "r")
    controller = testbed.client(proxy.address)
    fields = named_brokers(key, version)
    frames = [
        wire.with_size(decoder.encode_request(key, version, fields, correlation_id=number, client_id="c"))
        for number in range(3)
    ]
    other = wire.request(STOP_REPLICA, 0, 9, b"\0" * 13)
    controller.sendall(frames[0] + other + frames[1])
    for number in (0, 9, 1):
        assert wire.read_frame(controller) == wire.response(number)
    controller.sendall(frames[2])  # and when it has gone quiet
    assert wire.read_frame(controller) == wire.response(2)
    assert received[1] == other
    given = [addresses(key, version, frame) for frame in (received[0], received[2], received[3])]
    assert given[0] == given[1] == given[2]
    assert all(host == "127.0.0.1" for host, _ in given[0]) and len(set(given[0])) == 2
    original = [(host, port) for _, host, port in OTHERS]
    assert not set(given[0]) & set(original)
    controller.close()
    proxy.stop()
    with open_capture(tmp_path / "r") as capture:
        changed = [exchange for exchange in capture.exchanges() if exchange.api_key == key]
        assert [addresses(key, version, b"\0\0\0\0" + (e.request or b"")) for e in changed] == [original] * 3
        assert all(exchange.marks.changed for exchange in changed)
