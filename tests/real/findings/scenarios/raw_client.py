"""A client of one connection that sends whatever a test asks for, right or wrong: for what no client library does."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from barnabas import decoder
from barnabas.decoder.codec.message import Message
from barnabas.decoder.records import Record, encode_batch
from barnabas.decoder.schema import facts
from harness.waiting import until
from harness.wire import read_frame, with_size
from real.clients import raw_client


def batch(count: int = 1, value: bytes = b"record %d", **header: Any) -> bytes:
    """A batch of `count` records with these header fields; a ``%d`` in their value is their number."""
    now = int(time.time() * 1000)
    values = [value % number if b"%d" in value else value for number in range(count)]
    return encode_batch([Record(number, now, None, value) for number, value in enumerate(values)], **header)


class RawClient:
    """One connection. Correlation ids count from 1 unless given."""

    def __init__(self, bootstrap: str, client_id: str | None) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._connection = raw_client.RawClient((host, int(port)), client_id)

    def call_itself(self, client_id: str) -> None:
        """Send another client id from now on."""
        self._connection.client_id = client_id

    def send(
        self, api: str, version: int, body: Mapping[str, Any], correlation_id: int | None = None, client_id: str = ""
    ) -> int:
        """Send a request and do not wait; gives its correlation id."""
        frame = self._connection.request(api, version, body, correlation_id, client_id)
        self.send_frame(frame)
        return int.from_bytes(frame[4:8], "big", signed=True)

    def send_frame(self, frame: bytes) -> None:
        """Send a frame's content as it is."""
        self.send_bytes(with_size(frame))

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are: frames with their sizes, or anything."""
        self._connection.sock.sendall(data)

    def receive(self) -> bytes | None:
        """The next response frame; None when the broker has closed the connection."""
        try:
            return read_frame(self._connection.sock)[4:] or None
        except ConnectionResetError:
            return None

    def ask(self, api: str, version: int, body: Mapping[str, Any]) -> Message | None:
        """A request and its response; None when the broker closes the connection instead."""
        self.send(api, version, body)
        frame = self.receive()
        if frame is None:
            return None
        return decoder.decode_response(frame, api_key=facts.api_key(api), api_version=version)

    def api_versions(self, version: int = 3, name: str = "raw-client") -> Message | None:
        """What a client asks first."""
        software = {"client_software_name": name, "client_software_version": "1.0"} if version >= 3 else {}
        return self.ask("ApiVersions", version, software)

    def metadata(self, topic: str, version: int = 9) -> Message:
        """Metadata of a topic, as a client asks for it before it produces."""
        answer = self.ask("Metadata", version, {"topics": [{"name": topic}], "allow_auto_topic_creation": False})
        assert answer is not None
        return answer

    def producer_id(self) -> dict[str, int]:
        """A new producer id and its epoch; a broker that has just started gives none for a moment."""
        body = {"transactional_id": None, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}

        def given() -> Message | None:
            answer = self.ask("InitProducerId", 4, body)
            assert answer is not None
            return None if answer["error_code"] else answer

        answer = until(given, "a producer id", pause=0.1)
        assert answer is not None
        return {"producer_id": answer["producer_id"], "producer_epoch": answer["producer_epoch"]}

    def produce(self, topic: str | Mapping[str, Any], records: bytes, acks: int = -1, version: int = 9) -> int | None:
        """A batch for partition 0 of a topic (its name, or the fields that say which); the error code it is answered."""
        self.send_produce(topic, records, acks=acks, version=version)
        frame = self.receive()
        if frame is None:
            return None
        answer = decoder.decode_response(frame, api_key=facts.api_key("Produce"), api_version=version)
        code: int = answer["responses[0].partition_responses[0].error_code"]
        return code

    def send_produce(
        self, topic: str | Mapping[str, Any], *batches: bytes, acks: int = -1, version: int = 9
    ) -> None:
        """The same without waiting: a request for each batch, all in one piece, so that all are in flight at once."""
        which = {"name": topic} if isinstance(topic, str) else topic
        frames = []
        for records in batches:
            data = [{**which, "partition_data": [{"index": 0, "records": records}]}]
            body = {"transactional_id": None, "acks": acks, "timeout_ms": 5000, "topic_data": data}
            frames.append(with_size(self._connection.request("Produce", version, body)))
        self.send_bytes(b"".join(frames))

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
