"""A hit that turns out to have changed nothing is corrected in the rule's hits and in the recording."""

from __future__ import annotations

import socket
from pathlib import Path

from barnabas import decoder
from barnabas.captures import open_capture
from barnabas.plugins.rules.rules import Rule
from barnabas.proxy.control import Control, ControlConfig
from harness import wire
from harness.testbed import Testbed


def test_a_hit_that_changed_nothing(testbed: Testbed, tmp_path: Path) -> None:
    answer = wire.with_size(decoder.encode_response(1, 4, {"responses": []}, correlation_id=7))

    def script(sock: socket.socket) -> None:
        while wire.read_frame(sock):
            sock.sendall(answer)

    rule = Rule.of("api == Fetch", corrupt="crc", name="r")
    control = ControlConfig(directory=tmp_path / "run")
    proxy = testbed.proxy(testbed.broker(script).address, rules=[rule], record=tmp_path / "r", control=control)
    client = testbed.client(proxy.address)
    assert wire.ask(client, wire.with_size(decoder.encode_request(1, 4, {}, correlation_id=7))) == answer
    outcome = "response not corrupted: crc: the selected part has no records"
    assert proxy.control is not None
    access = proxy.control.access
    (hit,) = Control(access.url, access.token).hits("r")
    assert hit["done"] == [outcome] and hit["note"] == f"rule 'r' (hit 1): {outcome}"
    client.close()
    proxy.stop()
    with open_capture(tmp_path / "r") as capture:
        (exchange,) = capture.exchanges()
    assert exchange.marks.notes[-1] == f"rule 'r' (hit 1): {outcome}"
