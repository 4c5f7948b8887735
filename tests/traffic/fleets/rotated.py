"""The traffic of a small cluster, as one recorder saw it, however often its files rotate, or as one recorder per broker.

What names things (ApiVersions, Metadata) is asked at the start of connections only; produce and fetch requests name topics by id, and
connections, groups and problems last over the whole time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from barnabas import decoder
from barnabas.captures import Recorder
from barnabas.decoder.records import Record, encode_batch

START_NS = 1_700_000_000_000_000_000
CLUSTER_ID = "rotated"
TOPICS = {f"topic-{n}": bytes(15) + bytes([n + 1]) for n in range(3)}
_OFFERED = ((0, 3, 13), (1, 4, 17), (3, 0, 13), (8, 2, 9), (10, 0, 6), (11, 0, 9), (12, 0, 4), (13, 0, 5), (14, 0, 5), (18, 0, 4))


class Step(NamedTuple):
    """A frame, or with neither bytes nor `None` the beginning or end of a connection."""

    time_ns: int
    connection: int
    direction: int
    frame: bytes | None
    how: str = ""


def steps(count: int = 2400, seed: int = 1) -> list[Step]:
    """About so many exchanges of twelve connections to three brokers; some are in flight for long."""
    chance = random.Random(seed)
    made: list[Step] = []
    for connection in range(12):
        time_ns = START_NS + connection * 1_000_000
        made.append(Step(time_ns, connection, 0, None, "opened"))
        for number, (asked, answered) in enumerate(_conversation(connection, count // 12, chance)):
            time_ns += chance.randrange(5_000_000, 30_000_000)
            made.append(Step(time_ns, connection, 0, asked))
            time_ns += chance.randrange(200_000, 2_000_000) if number % 40 else 900_000_000
            made.append(Step(time_ns, connection, 1, answered))
        if connection % 3:
            made.append(Step(time_ns + 1_000_000, connection, 0, None, "fin"))
    return sorted(made, key=lambda step: step.time_ns)


def record(directory: Path, made: list[Step], segment_bytes: int = 64 << 20, broker: int | None = None) -> Path:
    """What a recorder sees of it; of one broker, if it is one recorder for each."""
    recorder = Recorder(directory, segment_bytes=segment_bytes)
    numbers: dict[int, int] = {}
    for step in made:
        if broker is not None and step.connection % 3 != broker:
            continue
        number = numbers.setdefault(step.connection, len(numbers) + 1)
        if step.frame is not None:
            recorder.data(number, step.direction, step.time_ns, len(step.frame).to_bytes(4, "big") + step.frame)
        elif step.how == "opened":
            client, port = (f"10.1.0.{step.connection}", 30000 + step.connection), (f"kafka-{step.connection % 3 + 1}", 9092)
            recorder.opened(number, step.time_ns, client, port)
        else:
            recorder.closed(number, step.time_ns, step.how)
    recorder.close()
    return directory


def _both(key: int, version: int, number: int, client_id: str | None, asked: dict[str, Any], answered: dict[str, Any]) -> tuple[bytes, bytes]:
    return (
        decoder.encode_request(key, version, asked, correlation_id=number, client_id=client_id),
        decoder.encode_response(key, version, answered, correlation_id=number),
    )


def _conversation(connection: int, count: int, chance: random.Random) -> Iterator[tuple[bytes, bytes]]:
    role, client_id = connection // 3, f"app-{connection // 3}"
    if role != 3:  # an old client does not ask
        asked = {"client_software_name": f"lib-{role}", "client_software_version": "1.0"}
        offered = [{"api_key": key, "min_version": low, "max_version": high} for key, low, high in _OFFERED]
        yield _both(18, 3, 0, client_id, asked, {"api_keys": offered})
        yield _both(3, 12, 1, client_id, {"topics": None}, _metadata())
    for number in range(2, count):
        yield (_produce, _fetch, _group, _old)[role](connection, number, client_id, chance)


def _metadata() -> dict[str, Any]:
    partitions = [
        {"partition_index": n, "leader_id": n + 1, "leader_epoch": 1, "replica_nodes": [n + 1], "isr_nodes": [n + 1]} for n in range(3)
    ]
    return {
        "brokers": [{"node_id": n, "host": f"kafka-{n}", "port": 9092} for n in (1, 2, 3)], "cluster_id": CLUSTER_ID, "controller_id": 1,
        "topics": [{"name": name, "topic_id": topic_id, "partitions": partitions} for name, topic_id in TOPICS.items()],
    }  # fmt: skip


def _topic_id(chance: random.Random) -> bytes:
    return chance.choice(list(TOPICS.values()))


def _records(number: int, producer_id: int = -1) -> bytes:
    record = Record(offset=0, timestamp=1_700_000_000_000, key=None, value=b"v" * (number % 90))
    epoch, sequence = (0, number) if producer_id >= 0 else (-1, -1)
    return encode_batch([record], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def _produce(connection: int, number: int, client_id: str, chance: random.Random) -> tuple[bytes, bytes]:
    topic_id, index = _topic_id(chance), connection % 3
    asked = {"acks": -1, "timeout_ms": 30000, "topic_data": [
        {"topic_id": topic_id, "partition_data": [{"index": index, "records": _records(number, connection)}]}]}  # fmt: skip
    error = 6 if number % 25 == 0 else 0
    done = {"index": index, "error_code": error, "base_offset": number, "log_append_time_ms": -1, "log_start_offset": 0}
    return _both(0, 13, number, client_id, asked, {"responses": [{"topic_id": topic_id, "partition_responses": [done]}]})


def _fetch(connection: int, number: int, client_id: str, chance: random.Random) -> tuple[bytes, bytes]:
    topic_id, index = _topic_id(chance), connection % 3
    part = {"partition": index, "fetch_offset": number, "partition_max_bytes": 1 << 20, "current_leader_epoch": 1}
    asked = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 25, "session_id": 0, "session_epoch": -1,
             "topics": [{"topic_id": topic_id, "partitions": [part]}]}  # fmt: skip
    found = {"partition_index": index, "high_watermark": number + 1, "last_stable_offset": number + 1, "log_start_offset": 0,
             "records": _records(number) if number % 3 else b""}  # fmt: skip
    answered = {"session_id": 0, "responses": [{"topic_id": topic_id, "partitions": [found]}]}
    return _both(1, 13, number, client_id, asked, answered)


def _group(connection: int, number: int, client_id: str, chance: random.Random) -> tuple[bytes, bytes]:
    group, member = f"group-{connection % 3}", f"member-{connection}"
    generation = number // 30 + 1
    if number % 30 == 2:
        protocols = [{"name": "range", "metadata": b""}]
        asked = {"group_id": group, "session_timeout_ms": 10000, "rebalance_timeout_ms": 60000, "member_id": member,
                 "protocol_type": "consumer", "protocols": protocols}  # fmt: skip
        answered = {"generation_id": generation, "protocol_type": "consumer", "protocol_name": "range", "leader": member, "member_id": member,
                    "members": [{"member_id": member, "metadata": b""}]}  # fmt: skip
        return _both(11, 7, number, client_id, asked, answered)
    asked = {"group_id": group, "generation_id": generation, "member_id": member}
    return _both(12, 4, number, client_id, asked, {"error_code": 27 if number % 30 == 1 else 0})


def _old(connection: int, number: int, client_id: str, chance: random.Random) -> tuple[bytes, bytes]:
    asked = {"consumer_group": None, "group_id": f"group-{connection % 3}", "topics": [{"name": "topic-0", "partition_indexes": [0]}]}
    asked.pop("consumer_group")
    part = {"partition_index": 0, "committed_offset": number, "metadata": "", "error_code": 0}
    return _both(9, 1, number, client_id, asked, {"topics": [{"name": "topic-0", "partitions": [part]}]})
