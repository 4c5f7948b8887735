"""A limit of bytes a second that a field of a response decides holds from that response on."""

from __future__ import annotations

import time

from barnabas import decoder
from barnabas.plugins.rules.rules import Rule
from harness import scripted, wire
from harness.testbed import Testbed

HEARTBEAT, RATE, COUNT = 12, 500, 20


def test_bandwidth_by_the_error_of_the_response(testbed: Testbed) -> None:
    script = scripted.each(lambda _, number: wire.with_size(decoder.encode_response(HEARTBEAT, 1, {"error_code": 27}, correlation_id=number)))
    rule = Rule.of("api == Heartbeat and err == REBALANCE_IN_PROGRESS", bandwidth=f"{RATE}B", when={"times": 1})
    proxy = testbed.proxy(testbed.broker(script).address, rules=[rule])
    client = testbed.client(proxy.address)
    begun = time.monotonic()
    for number in range(COUNT):
        client.sendall(wire.with_size(decoder.encode_request(HEARTBEAT, 1, {"group_id": "g"}, correlation_id=number)))
    got = [wire.read_frame(client) for _ in range(COUNT)]
    assert time.monotonic() - begun >= (len(b"".join(got)) - 100) / RATE
