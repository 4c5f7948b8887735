"""A plugin that makes its clients hang is named among the proxy's events, once."""

from __future__ import annotations

from typing import Any

from barnabas.proxy.plugin_events import PluginHangs

RENAMES = """
    class Renames:
        apis = {"DescribeGroups"}
        def request(self, message, ctx):
            return message.replace({"groups": ["other"]})
"""


def test_it_is_named_once(make_stage: Any) -> None:
    from barnabas import decoder

    stage = make_stage()
    stage.load(RENAMES)
    client = stage.client()
    frame = decoder.encode_request(15, 0, {"groups": ["mine"]}, correlation_id=1, client_id="c")
    client.sock.sendall((len(frame).to_bytes(4, "big") + frame) * 3)
    event = stage.wait_for(PluginHangs)
    assert (event.plugin, event.api) == ("Renames", "DescribeGroups")
    assert event.warning and event.text.startswith("plugin 'Renames' changes DescribeGroups requests so that clients hang or fail: group 'mine'")
