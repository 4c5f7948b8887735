"""A plugin that makes its clients hang is named among the proxy's events, once."""

from __future__ import annotations

from collections.abc import Callable

from barnabas import decoder
from barnabas.proxy.events import PluginHangs
from harness.wire import with_size

from .stage import Stage

RENAMES = """
    class Renames:
        apis = {"DescribeGroups"}
        def request(self, message, ctx):
            return message.replace({"groups": ["other"]})
"""


def test_it_is_named_once(make_stage: Callable[..., Stage]) -> None:
    stage = make_stage()
    stage.load(RENAMES)
    client = stage.client()
    frame = decoder.encode_request(15, 0, {"groups": ["mine"]}, correlation_id=1, client_id="c")
    client.sock.sendall(with_size(frame) * 3)
    event = stage.wait_for(PluginHangs)
    assert (event.plugin, event.api) == ("Renames", "DescribeGroups")
    assert event.warning and event.text.startswith("plugin 'Renames' changes DescribeGroups requests so that clients hang or fail: group 'mine'")
