"""What a rule did is known to be its doing in a recording, too: read packet by packet, by its index, and while it is live."""

from __future__ import annotations

from pathlib import Path

from barnabas import decoder
from barnabas.captures import open_capture
from barnabas.decoder.findings import Inspector
from barnabas.plugins.rules.rules import Rule
from barnabas.proxy.events import FindingSeen
from harness import scripted, wire
from harness.testbed import Testbed

HEARTBEAT, COUNT = 12, 5


def test_findings_of_a_recording_know_what_rules_did(testbed: Testbed, tmp_path: Path) -> None:
    script = scripted.each(lambda _, number: wire.with_size(decoder.encode_response(HEARTBEAT, 1, {}, correlation_id=number)))
    rule = Rule.of("api == Heartbeat and group == g", error="GROUP_AUTHORIZATION_FAILED", name="no access")
    proxy = testbed.proxy(testbed.broker(script).address, rules=[rule], record=tmp_path / "r", findings=True)
    client = testbed.client(proxy.address)
    for number in range(COUNT):
        fields = {"group_id": "g", "member_id": "m"}
        client.sendall(wire.with_size(decoder.encode_request(HEARTBEAT, 1, fields, correlation_id=number, client_id="shop")))
        assert decoder.decode_response(wire.read_frame(client)[4:], api_key=HEARTBEAT, api_version=1)["error_code"] == 30
    client.close()
    proxy.stop()
    assert not [event for event in proxy.events() if isinstance(event, FindingSeen) and event.severity in ("high", "medium")]
    for by_index in (False, True):
        inspector = Inspector()
        with open_capture(tmp_path / "r") as capture:
            if by_index:
                for exchange in capture.exchanges():
                    inspector.look(exchange)
            else:
                for event in capture.events():
                    inspector.feed(event)
        found = [each for each in inspector.findings() if each.severity.rank >= 2]
        assert found and all(each.injected and each.rules == ["no access"] for each in found), found
