"""Traffic of idle clients: heartbeats and refreshes of Metadata, and sometimes an event for detectors: an error, a pause,
a new leader, a late response."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from barnabas import decoder
from barnabas.captures import Recorder
from harness.wire import with_size

START = 1_795_223_022_000_000_000
SECOND = 1_000_000_000
HEARTBEAT, METADATA, FIND_COORDINATOR, JOIN, SYNC, API_VERSIONS = 12, 3, 10, 11, 14, 18


class PlainTraffic:
    """`run(steps)` records it all."""

    def __init__(self, directory: Path, seed: int = 1) -> None:
        self.random, self.recorder = random.Random(seed), Recorder(directory)
        self.now, self.number, self.leader = START, 0, 1

    def run(self, steps: int, members: int = 9) -> None:
        for conn in range(members):
            self.recorder.opened(conn, self.now, ("10.0.0.1", 1000 + conn), ("10.0.0.9", 9092))
            offered = [{"api_key": key, "min_version": 0, "max_version": 12} for key in (3, 10, 11, 12, 14)]
            self.exchange(conn, API_VERSIONS, 3, {"client_software_name": "test"}, {"api_keys": offered})
        # One group is seen to form, the others from the middle on.
        request = {**self.member(0), "session_timeout_ms": 10000, "protocol_type": "consumer"}
        response = {"generation_id": 1, "member_id": "m0", "leader": "m0"}
        self.exchange(0, JOIN, 5, request, response)
        self.exchange(0, SYNC, 3, {**self.member(0), "generation_id": 1}, {})
        for step in range(steps):
            self.step(step, step % members)
        self.recorder.close()

    def step(self, step: int, conn: int) -> None:
        chance = self.random.random()
        if step % 1500 == 700:
            self.now += 8 * SECOND  # a pause of all: most of a session timeout
        if step % 1000 == 999:
            self.leader = 3 - self.leader
        if chance < 0.005:
            self.exchange(conn, HEARTBEAT, 4, {**self.member(conn), "generation_id": 1}, {"error_code": 25})
        elif chance < 0.01:
            self.exchange(conn, HEARTBEAT, 4, {**self.member(conn), "generation_id": 1}, {}, late=2 * SECOND)
        elif chance < 0.7:
            self.exchange(conn, HEARTBEAT, 4, {**self.member(conn), "generation_id": 1}, {})
        elif chance < 0.95:
            self.exchange(conn, METADATA, 9, {"topics": [{"name": "orders"}]}, self.topics())
        else:
            node = {"node_id": 1, "host": "10.0.0.9", "port": 9092}
            self.exchange(conn, FIND_COORDINATOR, 3, {"key": f"g{conn % 3}"}, node)

    @staticmethod
    def member(conn: int) -> dict[str, Any]:
        return {"group_id": f"g{conn % 3}" if conn else "own", "member_id": f"m{conn}"}

    def topics(self) -> dict[str, Any]:
        brokers = [{"node_id": node, "host": f"10.0.0.{8 + node}", "port": 9092} for node in (1, 2)]
        part = {"partition_index": 0, "leader_id": self.leader, "replica_nodes": [1, 2], "isr_nodes": [1, 2]}
        return {"brokers": brokers, "cluster_id": "c", "topics": [{"name": "orders", "partitions": [part]}]}

    def exchange(
        self, conn: int, key: int, version: int, request: dict[str, Any], response: dict[str, Any], late: int = 0
    ) -> None:
        self.number += 1
        frames = (
            decoder.encode_request(key, version, request, correlation_id=self.number, client_id=f"app-{conn}"),
            decoder.encode_response(key, version, response, correlation_id=self.number),
        )
        for direction, frame in enumerate(frames):
            self.now += self.random.randrange(1, 20_000_000) + late * direction
            self.recorder.data(conn, direction, self.now, with_size(frame))
