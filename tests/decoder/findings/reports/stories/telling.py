"""What a story of a public bug report is made of, and a client that plays it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from barnabas.decoder import Connection, encode_request, records
from barnabas.decoder.connection.events import Opened
from barnabas.decoder.records import Record
from barnabas.decoder.reference import releases
from barnabas.decoder.schema import facts
from harness.wire import with_size
from traffic.conversations import BROKER, Conversations

Fields = dict[str, Any]
Broker = tuple[int, str, int]
HERE: Broker = (1, "10.0.0.1", 9092)
NOW_MS = 1_753_000_000_000
LATER = 2.0


@dataclass(frozen=True)
class Story:
    """A report that somebody wrote, played as traffic.

    `ids`: the detectors whose finding may come first. `words`: what its text (seen, why, remedy) must match. `named`: whether it
    does; a story that is not named yet must at least not be explained wrongly: no finding above info matches `refuted`.
    """

    source: str
    client: str
    broker: str
    wire: str
    expected: str
    play: Callable[[], Conversations]
    ids: frozenset[str]
    words: tuple[str, ...]
    named: bool = True
    refuted: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        owner, repository, _, number = self.source.removeprefix("https://github.com/").split("/")
        return f"{repository if repository not in {'kafka', 'charts'} else f'{owner}-{repository}'}-{number}"


class Talk(Conversations):
    """A client that negotiates as real ones do, with a broker of a certain release."""

    def __init__(
        self,
        software: str = "",
        version: str = "",
        release: str = "3.9",
        client_id: str = "shop",
        broker: str = BROKER,
        client: str = "10.0.0.5",
        tls: bool = False,
    ) -> None:
        super().__init__(client=client, broker=broker)
        self.tls = frozenset({"client", "broker"} if tls else ())
        self.now = NOW_MS * 1_000_000
        self.software, self.version, self.client_id = software, version, client_id
        self.offered = dict(releases.release(release).offered)

    def open(self, broker: str = "", established: bool = True) -> Connection:
        self._number += 1
        connection = Connection(self._number, f"{self.client}:{40000 + self._number}", broker or self.broker)
        self.inspector.feed(
            Opened(self._number, connection.client, connection.broker, self.now, established, tls=self.tls)
        )
        return connection

    def ask(self, connection: Connection, api: str, version: int, body: Fields, answer: Any, **options: Any) -> None:
        options.setdefault("client_id", self.client_id)
        super().ask(connection, api, version, body, answer, **options)
        self.wait(options.get("took", 0.001) + 0.0005)

    def meet(self, broker: str = "", version: int = 3, by_name: bool = True) -> Connection:
        """A new connection whose first exchange is ApiVersions."""
        connection = self.open(broker)
        self.wait(0.0004)
        said = {"client_software_name": self.software, "client_software_version": self.version} if version >= 3 else {}
        keys = [{"api_key": k, "min_version": low, "max_version": high} for k, (low, high) in self.offered.items()]
        self.ask(connection, "ApiVersions", version, said, {"api_keys": keys})
        return connection

    def metadata(
        self,
        connection: Connection,
        topics: list[Fields] | None = None,
        brokers: tuple[Broker, ...] = (HERE,),
        version: int = 9,
        asked: list[str] | None = None,
        **answer: Any,
    ) -> None:
        """A Metadata exchange, for the topics answered if `asked` does not say otherwise."""
        answered = topics or []
        names = [t["name"] for t in answered] if asked is None else asked
        body = {"topics": [{"name": n} for n in names]}
        nodes = [{"node_id": n, "host": h, "port": p} for n, h, p in brokers]
        controller = brokers[0][0] if brokers else -1
        given: Fields = {
            "brokers": nodes,
            "cluster_id": "Mk3-1xq7SzqcM4",
            "controller_id": controller,
            "topics": answered,
        }
        if version < 2:
            del given["cluster_id"]
        if version < 1:
            del given["controller_id"]
        if version < 7:
            given["topics"] = [
                t | {"partitions": [{k: v for k, v in p.items() if k != "leader_epoch"} for p in t["partitions"]]}
                for t in answered
            ]
        self.ask(connection, "Metadata", version, body, given | answer)

    def coordinator(
        self,
        connection: Connection,
        key: str,
        node: Broker | None = HERE,
        error: int = 0,
        kind: int = 0,
        version: int = 2,
    ) -> None:
        number, host, port = node or (-1, "", -1)
        where = {"error_code": error, "node_id": number, "host": host, "port": port}
        if version >= 4:
            self.ask(
                connection, "FindCoordinator", version, {"coordinator_keys": [key], "key_type": kind},
                {"coordinators": [where | {"key": key}]},
            )  # fmt: skip
        else:
            self.ask(
                connection, "FindCoordinator", version, {"key": key} | ({"key_type": kind} if version else {}), where
            )

    def produce(
        self, connection: Connection, data: bytes, topic: str = "orders", version: int = 7, error: int = 0, base: int = 0,
        transactional_id: str | None = None, **answer: Any,
    ) -> None:  # fmt: skip
        parts = [{"index": 0, "records": data}]
        body = {"acks": -1, "timeout_ms": 30000, "topic_data": [{"name": topic, "partition_data": parts}]}
        given = {"index": 0, "error_code": error, "base_offset": -1 if error else base} | answer
        responses = {"responses": [{"name": topic, "partition_responses": [given]}]}
        self.ask(connection, "Produce", version, body | {"transactional_id": transactional_id}, responses, took=0.003)

    def fetch(
        self, connection: Connection, offset: int, data: bytes = b"", end: int = 0, topic: str = "orders", version: int = 10,
        took: float = 0.5, error: int = 0, max_bytes: int = 1 << 20, isolation: int = 0, epoch: int = -1, **answer: Any,
    ) -> None:  # fmt: skip
        asked = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": max_bytes}
        if version >= 9:
            asked["current_leader_epoch"] = epoch
        body = {
            "max_wait_ms": 500, "min_bytes": 1, "max_bytes": 52428800, "isolation_level": isolation,
            "topics": [{"topic": topic, "partitions": [asked]}],
        }  # fmt: skip
        part: Fields = {"partition_index": 0, "error_code": error, "high_watermark": end, "records": data}
        part |= {"last_stable_offset": end} | ({"log_start_offset": 0} if version >= 5 else {})
        given = {"responses": [{"topic": topic, "partitions": [part | answer]}]}
        self.ask(connection, "Fetch", version, body, given, took=took)

    def pipelined(self, connection: Connection, *asked: tuple[str, int, Fields]) -> list[int]:
        """Requests one behind the other; their correlation ids."""
        numbers = []
        for api, version, body in asked:
            self._correlation_id += 1
            numbers.append(self._correlation_id)
            key = facts.api_key(api)
            self.sent(
                connection,
                with_size(encode_request(key, version, body, correlation_id=numbers[-1], client_id=self.client_id)),
            )
            self.wait(0.0002)
        return numbers


def topic(
    name: str = "orders", leader: int = 1, partitions: int = 1, error: int = 0, nodes: tuple[int, ...] = (1,)
) -> Fields:
    """A topic as Metadata answers it."""
    places = [
        {
            "partition_index": p,
            "leader_id": leader,
            "leader_epoch": 4,
            "replica_nodes": list(nodes),
            "isr_nodes": list(nodes),
        }
        for p in range(partitions)
    ]
    return {"name": name, "error_code": error, "partitions": [] if error else places}


def batch(base: int = 0, count: int = 3, timestamp: int = NOW_MS, key: bytes | None = b"k", **options: Any) -> bytes:
    """A record batch."""
    made = [Record(base + i, timestamp + i, key, b'{"id": %d, "sum": 12}' % (base + i)) for i in range(count)]
    return records.encode_batch(made, **options)


def subscription(topics: list[str], version: int = 1, owned: bool = True) -> bytes:
    """A ConsumerProtocolSubscription, as far as a client writes it."""
    made = version.to_bytes(2, "big") + len(topics).to_bytes(4, "big")
    for name in topics:
        made += len(name).to_bytes(2, "big") + name.encode()
    made += b"\xff\xff\xff\xff"
    return made + bytes(4) if version >= 1 and owned else made


def assignment(name: str, *partitions: int) -> bytes:
    """A ConsumerProtocolAssignment of one topic."""
    made = (0).to_bytes(2, "big") + (1).to_bytes(4, "big") + len(name).to_bytes(2, "big") + name.encode()
    made += len(partitions).to_bytes(4, "big") + b"".join(p.to_bytes(4, "big") for p in partitions)
    return made + b"\xff\xff\xff\xff"


java = partial(Talk, "apache-kafka-java")
librdkafka = partial(Talk, "librdkafka")
