"""Metadata versions 0 and 1 of a partition with a replica that is not there, as a broker of 0.10.2 gives both itself."""

from __future__ import annotations

import socket
import uuid
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder.schema import facts
from barnabas.plugins.translation import Translator
from barnabas.plugins.translation.translator import Translated
from harness.waiting import PATIENCE, until
from harness.wire import read_frame, with_size
from real.brokers.old_broker import OldBroker

METADATA, CREATE_TOPICS = 3, 19
NOWHERE = 99
REPLICA_NOT_AVAILABLE = facts.error_code("REPLICA_NOT_AVAILABLE")


@pytest.mark.slow
@pytest.mark.real
def test_a_missing_replica(old_broker: OldBroker) -> None:
    topic = f"half-{uuid.uuid4().hex[:8]}"
    with socket.create_connection(old_broker.address, PATIENCE) as sock:

        def ask(key: int, version: int, fields: dict[str, Any]) -> bytes:
            sock.sendall(with_size(decoder.encode_request(key, version, fields, correlation_id=7, client_id="c")))
            return read_frame(sock)[4:]

        def metadata(version: int) -> bytes:
            return ask(METADATA, version, {"topics": [{"name": topic}]})

        def partition(version: int, frame: bytes) -> dict[str, Any]:
            message = decoder.decode_response(frame, api_key=METADATA, api_version=version)
            found: dict[str, Any] = (message.to_dict()["topics"][0]["partitions"] or [{}])[0]
            for name in found.keys() & {"replica_nodes", "isr_nodes"}:
                found[name].sort()  # the first one is drawn for each topic
            return found

        own = decoder.decode_response(metadata(0), api_key=METADATA, api_version=0)["brokers"][0]["node_id"]
        until(lambda: not partition(0, metadata(0)).get("error_code"))
        topic = f"half-{uuid.uuid4().hex[:8]}"
        placed = {"name": topic, "num_partitions": -1, "replication_factor": -1, "assignments": [{"partition_index": 0, "broker_ids": [own, NOWHERE]}]}
        made = decoder.decode_response(ask(CREATE_TOPICS, 0, {"topics": [placed], "timeout_ms": 9000}), api_key=CREATE_TOPICS, api_version=0)
        assert not list(made.errors()), made.to_dict()
        until(lambda: partition(1, metadata(1)).get("leader_id") == own)
        frames = {version: metadata(version) for version in (0, 1)}
    oldest, newer = (partition(version, frames[version]) for version in (0, 1))
    assert (oldest["error_code"], oldest["replica_nodes"]) == (REPLICA_NOT_AVAILABLE, [own])  # so it is with this broker
    assert (newer["error_code"], newer["replica_nodes"]) == (0, [own, NOWHERE])
    for asked, served in ((0, 1), (1, 0)):
        frame = decoder.encode_request(METADATA, asked, {"topics": [{"name": topic}]}, correlation_id=7, client_id="c")
        translator = Translator({METADATA: (served, served)})
        translated = translator.request(frame)
        assert isinstance(translated, Translated)
        found = partition(asked, translator.response(translated, [frames[served]]))
        wanted = oldest if asked == 0 else newer | {"replica_nodes": [own], "isr_nodes": [own]}  # it cannot know of the other one
        assert found == wanted
