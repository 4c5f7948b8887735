"""A plugin that changes a request so that its client cannot use the answer is reported by name."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder import Exchange
from barnabas.plugins.hooks import PeerView, load, parse
from barnabas.plugins.hooks.chain import Chain
from barnabas.plugins.hooks.context import HookEnvironment

PRODUCE = {"acks": 1, "timeout_ms": 1, "topic_data": [{"name": "orders", "partition_data": [{"index": 0, "records": b""}]}]}


def asked(key: int, version: int, fields: dict[str, Any]) -> Exchange:
    frame = decoder.encode_request(key, version, fields, correlation_id=4, client_id="x")
    return Exchange(api_key=key, api_version=version, correlation_id=4, client_id="x", request=frame)


def warned(tmp_path: Path, body: str, exchange: Exchange, response: str = "") -> list[tuple[str, str, str]]:
    """The warnings of a plugin whose request hook has this body."""
    path = tmp_path / "p.py"
    hooks = [f"def request(self, message, ctx): {body}", *([f"def response(self, message, ctx): {response}"] if response else [])]
    path.write_text("class A:\n    apis = '*'\n" + textwrap.indent("\n".join(hooks), "    ") + "\n")
    found: list[tuple[str, str, str]] = []
    around = HookEnvironment({1: PeerView(1, "c:1", "b:2")}, lambda *_: None, lambda *_: None, lambda *_: None)
    faults: list[Any] = []
    plugins = load(parse(str(path)).read())
    chain = Chain(
        plugins, around, lambda *fault: faults.append(fault), lambda *_: None,
        lambda plugin, api, text: found.append((plugin.name, api, text)),
    )  # fmt: skip
    with pytest.raises(StopIteration):
        chain.message("request", exchange, None).send(None)
    assert not faults
    return found


def renamed(path: str) -> str:
    return f"return message.replace({{{path!r}: 'other'}})"


@pytest.mark.parametrize(
    ("body", "key", "version", "fields", "warning"),
    [
        ("return message.replace({'acks': 0})", 0, 7, PRODUCE, "acks is 0 now"),
        ("return message.replace({'acks': -1})", 0, 7, PRODUCE | {"acks": 0}, "acks was 0"),
        ("return message.replace({'acks': -1})", 0, 7, PRODUCE, ""),
        (renamed("topic_data[0].name"), 0, 7, PRODUCE, "topic 'orders' is no longer requested"),
        (renamed("topics[0].name"), 3, 8, {"topics": [{"name": "orders"}]}, "topic 'orders'"),
        ("return message.replace({'topics': []})", 3, 8, {"topics": [{"name": "a"}, {"name": "b"}]}, "topic 'a' and 1 more"),
        ("return message.replace({'groups': ['h']})", 15, 5, {"groups": ["g"]}, "group 'g'"),
        (renamed("group_id"), 12, 1, {"group_id": "g"}, ""),  # no response says which group it is about
        (renamed("member_id"), 12, 1, {"group_id": "g", "member_id": "m"}, ""),
        ("return None", 0, 7, PRODUCE, ""),
    ],
)
def test_changes_that_break_clients_are_reported(
    tmp_path: Path, body: str, key: int, version: int, fields: dict[str, Any], warning: str
) -> None:
    found = warned(tmp_path, body, asked(key, version, fields))
    assert [(name, api) for name, api, _ in found] == ([("A", decoder.facts.api_name(key))] if warning else [])
    assert all(text.startswith(warning) for _, _, text in found)


def test_a_plugin_with_a_response_hook_may_rename_topics(tmp_path: Path) -> None:
    body = renamed("topic_data[0].name")
    assert warned(tmp_path, body, asked(0, 7, PRODUCE), response="return None") == []
    found = warned(tmp_path, "return message.replace({'acks': 0})", asked(0, 7, PRODUCE), response="return None")
    assert found  # there will be no response to change
