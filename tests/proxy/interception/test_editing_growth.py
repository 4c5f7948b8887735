"""What a held response costs: nothing is done for each partition of a cluster, but that it is decoded."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from barnabas import decoder
from barnabas.plugins.rules.rule_engine import RuleEngine
from barnabas.proxy.relay.interception.frame_editor import METADATA, FrameEditor, framed

OWN = ("127.0.0.1", 40000)


class Map:
    """An address map with one address for all."""

    def listed(self) -> None:
        pass

    def open_in_order(self, found: Iterable[Any], moves: bool) -> None:
        self.found = list(found)

    def stands_for(self, address: Any, node: int, local_host: str) -> tuple[str, int]:
        return OWN


def metadata(partitions: int) -> bytes:
    listed = [
        {"partition_index": n, "leader_id": n % 3, "replica_nodes": [0, 1, 2], "isr_nodes": [0, 1]} for n in range(partitions)
    ]
    brokers = [{"node_id": n, "host": f"broker-{n}", "port": 9092} for n in range(3)]
    body = {"brokers": brokers, "topics": [{"name": "orders", "partitions": listed}]}
    return framed(decoder.encode_response(METADATA, 12, body))


def steps(editor: FrameEditor, frame: bytes) -> tuple[int, bytes | None]:
    """(calls of Python functions that changing a response takes, the response)."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        changed = editor.readdress(frame, METADATA, 12, "127.0.0.1")
    finally:
        sys.setprofile(None)
    return calls, changed


def test_partitions_are_not_looked_at_for_addresses() -> None:
    addresses = Map()
    editor = FrameEditor(addresses, RuleEngine([]))  # type: ignore[arg-type]
    steps(editor, metadata(1))  # plans are compiled
    few, _ = steps(editor, metadata(10))
    many, changed = steps(editor, metadata(2000))
    assert [node for node, _ in addresses.found] == [0, 1, 2]
    assert changed is not None
    message = decoder.decode_response(changed[4:], api_key=METADATA, api_version=12)
    assert [(message[f"brokers[{n}].host"], message[f"brokers[{n}].port"]) for n in range(3)] == [OWN] * 3
    assert len(message["topics[0].partitions"]) == 2000
    assert (many - few) / 1990 < 2  # where nothing is accelerated, decoding takes one call for each
