"""Recordings as a relay would write them: the one builder of recordings for all tests.

with RecordingBuilder(tmp_path / "recording") as recording:
    recording.exchange("Heartbeat", 4, {}, {"error_code": 27})
    recording.request("Produce", 9, produce("orders", batch), connection=2, at=500)
    recording.close_connection(2, "rst", by="broker")
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from barnabas import decoder
from barnabas.captures import Recorder
from barnabas.decoder import Direction
from barnabas.decoder.schema import facts

from .wire import with_size

MS = 1_000_000
START_NS = 1_795_223_022_000_000_000
"""The default start of recordings."""

Fields = dict[str, Any]
"""The fields of a message, as ``encode_request`` and ``encode_response`` take them."""
Address = tuple[str, int]
_DEFAULT = "(that of the recording)"


class RecordingBuilder:
    """Writes requests and responses into a recording; connections are opened when they are first used.

    Times are milliseconds after ``start_ns``. A message without one comes 1 ms behind the one before. Correlation ids count
    from 1 on each connection, as those of Kafka clients do. ``options`` are those of ``Recorder``.
    """

    def __init__(
        self,
        directory: Path,
        *,
        client_id: str = "stock-1",
        broker: Address = ("127.0.0.1", 9092),
        start_ns: int = START_NS,
        **options: Any,
    ) -> None:
        self.directory = directory
        self.recorder = Recorder(directory, **options)
        self._client_id, self._broker, self.start_ns = client_id, broker, start_ns
        self._now = 0.0
        self._correlation_ids: dict[int, int] = {}
        """The last one of each connection that is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.recorder.close()

    def close(self) -> Path:
        """End the recording and return its folder."""
        self.recorder.close()
        return self.directory

    def open(
        self, connection: int = 1, *, client: Address | None = None, broker: Address | None = None, at: float | None = None
    ) -> None:
        """Open a connection; the client is 127.0.0.1 with a port of its own unless given."""
        address = client or ("127.0.0.1", 50_000 + connection)
        self.recorder.opened(connection, self._time_ns(at), client=address, broker=broker or self._broker)
        self._correlation_ids[connection] = 0

    def close_connection(self, connection: int = 1, how: str = "fin", by: str = "client", at: float | None = None) -> None:
        """End a connection: ``how`` is "fin" or "rst", ``by`` "client", "broker" or "" if nobody knows."""
        self.recorder.closed(connection, self._time_ns(at), how, by)
        del self._correlation_ids[connection]

    def request(
        self,
        api: str | int,
        version: int,
        fields: Fields,
        *,
        connection: int = 1,
        client_id: str | None = _DEFAULT,
        correlation_id: int | None = None,
        at: float | None = None,
    ) -> int:
        """A request; returns its correlation id."""
        if connection not in self._correlation_ids:
            self.open(connection, at=self._now if at is None else at)
        if correlation_id is None:
            correlation_id = self._correlation_ids[connection] + 1
        self._correlation_ids[connection] = correlation_id
        client_id = self._client_id if client_id == _DEFAULT else client_id
        frame = decoder.encode_request(_key(api), version, fields, correlation_id=correlation_id, client_id=client_id)
        self.frame(Direction.REQUEST, frame, connection=connection, at=at)
        return correlation_id

    def response(
        self, api: str | int, version: int, fields: Fields, correlation_id: int, *, connection: int = 1, at: float | None = None
    ) -> None:
        """A response to an earlier request."""
        frame = decoder.encode_response(_key(api), version, fields, correlation_id=correlation_id)
        self.frame(Direction.RESPONSE, frame, connection=connection, at=at)

    def exchange(
        self,
        api: str | int,
        version: int,
        request: Fields,
        response: Fields | bytes,
        *,
        connection: int = 1,
        client_id: str | None = _DEFAULT,
        correlation_id: int | None = None,
        at: float | None = None,
        took: float = 1.0,
    ) -> int:
        """A request and its response ``took`` ms later; returns the correlation id.

        ``response`` are its fields, or its whole frame without the size (one that is damaged, for example).
        """
        found = self.request(
            api, version, request, connection=connection, client_id=client_id, correlation_id=correlation_id, at=at
        )
        answered = self._now + took
        if isinstance(response, bytes):
            self.frame(Direction.RESPONSE, response, connection=connection, at=answered)
        else:
            self.response(api, version, response, found, connection=connection, at=answered)
        return found

    def frame(self, direction: Direction, frame: bytes, *, connection: int = 1, at: float | None = None) -> None:
        """Any frame, without its size."""
        self.data(direction, with_size(frame), connection=connection, at=at)

    def data(self, direction: Direction, data: bytes, *, connection: int = 1, at: float | None = None) -> None:
        """Any bytes: several frames, a part of one, or something that is not Kafka's."""
        if connection not in self._correlation_ids:
            self.open(connection, at=self._now if at is None else at)
        self.recorder.data(connection, direction, self._time_ns(at), data)

    def _time_ns(self, at: float | None) -> int:
        self._now = self._now + 1.0 if at is None else at
        return self.start_ns + round(self._now * MS)


def _key(api: str | int) -> int:
    return facts.api_key(api) if isinstance(api, str) else api


def heartbeats(
    directory: Path,
    count: int,
    *,
    error: Callable[[int], bool] = lambda number: False,
    first: int = 0,
    in_flight: int = 1,
    **options: Any,
) -> Path:
    """Record ``count`` Heartbeats of one member, correlation ids from ``first`` on; returns the folder.

    Those for which ``error(number)`` holds are answered with UNKNOWN_MEMBER_ID. So many requests are ``in_flight`` when
    one is answered: with more than one, the last requests have no response.
    """
    with RecordingBuilder(directory, **options) as recording:
        for number in range(first, first + count):
            recording.request("Heartbeat", 4, {}, correlation_id=number)
            if (answered := number - in_flight + 1) >= first:
                recording.response("Heartbeat", 4, {"error_code": 25 * error(answered)}, answered)
    return directory


def as_pcap(recording: Path, pcap: Path) -> Path:
    """The packets of a recording of one segment, in a file as another tool writes it."""
    from scapy.utils import rdpcap, wrpcap

    pcap.parent.mkdir(parents=True, exist_ok=True)
    (segment,) = recording.glob("*.pcapng")
    wrpcap(str(pcap), rdpcap(str(segment)))
    return pcap


def metadata_request(correlation_id: int, size: int = 0, client_id: str | None = "stock-1") -> bytes:
    """A Metadata request v1 with its size bytes; ``size`` bytes are added to its topic's name."""
    fields = {"topics": [{"name": f"topic-{correlation_id}" + "x" * size}]}
    return with_size(decoder.encode_request(3, 1, fields, correlation_id=correlation_id, client_id=client_id))


def metadata_answer(correlation_id: int, size: int = 0, error: int = 0) -> bytes:
    """Its response with its size bytes: one broker, one topic of three partitions, with that error code."""
    partition = {"error_code": 0, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}
    topic = {
        "error_code": error,
        "name": f"topic-{correlation_id}" + "y" * size,
        "is_internal": False,
        "partitions": [partition | {"partition_index": index} for index in range(3)],
    }
    brokers = [{"node_id": 1, "host": "kafka", "port": 9092, "rack": None}]
    fields = {"brokers": brokers, "controller_id": 1, "topics": [topic]}
    return with_size(decoder.encode_response(3, 1, fields, correlation_id=correlation_id))


def produce(topic: str, records: bytes, *, partition: int = 0, acks: int = -1) -> Fields:
    """The fields of a Produce request of one partition."""
    partitions = [{"index": partition, "records": records}]
    return {"acks": acks, "timeout_ms": 30_000, "topic_data": [{"name": topic, "partition_data": partitions}]}


def produced(topic: str, error: int = 0, *, partition: int = 0) -> Fields:
    """The fields of its response."""
    partitions = [{"index": partition, "error_code": error, "base_offset": 7}]
    return {"responses": [{"name": topic, "partition_responses": partitions}]}
