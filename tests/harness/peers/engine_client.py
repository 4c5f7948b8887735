"""Recordings built in memory, and clients of the serving engine, without sockets."""

from __future__ import annotations

from typing import Any

from barnabas import decoder
from barnabas.captures.serving import DelayedReply, Engine, LiveSession, Reply
from barnabas.decoder import Exchange, State, records
from barnabas.decoder.records import Record

METADATA, PRODUCE, FETCH = 3, 0, 1


class Exchanges:
    """Builds the exchanges of a recording."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []

    def add(self, api: int, version: int, asked: dict[str, Any], answered: dict[str, Any] | None, ms: float = 0.5) -> Exchanges:
        number = len(self.exchanges)
        frame = decoder.encode_request(api, version, asked, correlation_id=number, client_id="till")
        response = None if answered is None else decoder.encode_response(api, version, answered, correlation_id=number)
        self.exchanges.append(
            Exchange(
                api_key=api, api_version=version, correlation_id=number, client_id="till", request=frame,
                request_time_ns=number * 1_000_000, response=response, response_time_ns=number * 1_000_000 + int(ms * 1e6),
                state=State.NO_RESPONSE if response is None else State.PAIRED,
            )
        )  # fmt: skip
        return self

    def metadata(self, topic: str, error: int = 0, partitions: int = 1, ms: float = 0.5) -> Exchanges:
        places = [
            {"error_code": 0, "partition_index": n, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}
            for n in range(0 if error else partitions)
        ]
        body = {
            "brokers": [{"node_id": 1, "host": "kafka", "port": 9092}], "controller_id": 1,
            "topics": [{"error_code": error, "name": topic, "partitions": places}],
        }  # fmt: skip
        return self.add(METADATA, 4, {"topics": [{"name": topic}], "allow_auto_topic_creation": False}, body, ms)

    def produced(self, topic: str, values: list[bytes], base: int, error: int = 0, acks: int = -1) -> Exchanges:
        answer = {"index": 0, "error_code": error, "base_offset": -1 if error else base}
        body = None if acks == 0 else {"responses": [{"name": topic, "partition_responses": [answer]}]}
        return self.add(PRODUCE, 5, produce(topic, values, acks), body)

    def fetched(self, topic: str, offset: int, data: bytes, end: int, error: int = 0) -> Exchanges:
        item = {"partition_index": 0, "error_code": error, "high_watermark": end, "records": data}
        return self.add(FETCH, 4, fetch(topic, offset), {"responses": [{"topic": topic, "partitions": [item]}]})


def batch(values: list[bytes], base: int = 0) -> bytes:
    return records.encode_batch([Record(base + n, 1000 + n, None, value) for n, value in enumerate(values)])


def produce(topic: str, values: list[bytes], acks: int = -1) -> dict[str, Any]:
    parts = [{"index": 0, "records": batch(values)}]
    return {"acks": acks, "timeout_ms": 1000, "topic_data": [{"name": topic, "partition_data": parts}]}


def fetch(topic: str, offset: int, wait_ms: int = 500) -> dict[str, Any]:
    parts = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]
    return {"max_wait_ms": wait_ms, "min_bytes": 1, "replica_id": -1, "topics": [{"topic": topic, "partitions": parts}]}


class EngineClient:
    """A client of an engine; its clock is set by hand."""

    def __init__(self, builder: Exchanges, **options: Any) -> None:
        self.engine = Engine(builder.exchanges, **options)
        self.engine.ports[1] = 19092
        self.session = LiveSession(1, "localhost")
        self.now = 100.0

    def start(self, api: int, version: int, fields: dict[str, Any]) -> tuple[Any, Reply | DelayedReply]:
        frame = decoder.encode_request(api, version, fields, correlation_id=77, client_id="live")
        ask = self.engine.read(self.session, frame, self.now, 1_700_000_000_000)
        return ask, self.engine.answer(ask)

    def ask(self, api: int, version: int, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields of the response; the clock is set to when it comes."""
        frame = self.frame(api, version, fields)
        assert frame is not None, "no response is due"
        message = decoder.decode_response(frame, api_key=api, api_version=version)
        assert message.header["correlation_id"] == 77
        return message.to_dict()

    def frame(self, api: int, version: int, fields: dict[str, Any]) -> bytes | None:
        """The response's frame; None where none is due."""
        ask, found = self.start(api, version, fields)
        if isinstance(found, DelayedReply):
            self.now = found.deadline
            reply = found.poll(self.now, True)
            assert reply is not None
            found = reply
        return self.engine.encode(ask, found)

    def values(self, topic: str, offset: int) -> list[bytes | None]:
        data = self.ask(FETCH, 4, fetch(topic, offset))["responses"][0]["partitions"][0]["records"] or b""
        return [
            record.value for found in records.batches(data) for record in found.records() if record.offset >= offset
        ]

    def produce(self, topic: str, values: list[bytes]) -> dict[str, Any]:
        item: dict[str, Any] = self.ask(PRODUCE, 5, produce(topic, values))["responses"][0]["partition_responses"][0]
        return item
