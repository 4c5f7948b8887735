"""Brokers in threads that answer as a test decides, and recordings to replay to them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from barnabas.captures import Recorder
from barnabas.decoder import decode_request, encode_request, encode_response
from barnabas.decoder.codec.message import Message
from barnabas.decoder.schema import facts
from barnabas.decoder.wire.frame import Direction, Framer

from ..wire import with_size

MS = 1_000_000
START = 1_700_000_000_000 * MS
Answer = dict[str, Any] | None | str
"""Fields of the answer; None for no answer; "close" to hang up."""


@dataclass
class ReceivedRequest:
    """A request that a scripted broker got: on which of its connections (counted from 0), when, and what."""

    connection: int
    time_ns: int
    message: Message

    @property
    def api(self) -> str:
        return self.message.api


class ScriptedBroker:
    """A broker. `answers` gives the answer to a request that is not about versions or metadata; `offers` are its versions."""

    def __init__(
        self, answers: Callable[[Message, ReceivedRequest], Answer], offers: dict[str, tuple[int, int]] | None = None
    ) -> None:
        self.answers = answers
        self.offers = offers or {facts.api_name(k): (0, facts.api(k).versions.every()[-1]) for k in facts.api_keys()}
        self.topics: dict[str, tuple[bytes, int]] = {}
        self.cluster_id: str | None = None
        self.received: list[ReceivedRequest] = []
        self.closed: list[int] = []
        self.others: dict[int, ScriptedBroker] = {}
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = self._server.getsockname()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()
        self._sockets: list[socket.socket] = []

    def _accept(self) -> None:
        number = 0
        while True:
            try:
                sock, _ = self._server.accept()
            except OSError:
                return
            self._sockets.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock, number), daemon=True)
            thread.start()
            number += 1

    def _serve(self, sock: socket.socket, number: int) -> None:
        framer = Framer()
        try:
            while data := sock.recv(1 << 16):
                for frame, _ in framer.feed(data):
                    received = ReceivedRequest(number, time.time_ns(), decode_request(frame))
                    own = received.message.header.get("client_id") == "barnabas-replay"
                    if not own:
                        self.received.append(received)
                    answer = self._answer(received, own)
                    if answer == "close":
                        sock.close()
                        return
                    if isinstance(answer, dict):
                        m = received.message
                        out = encode_response(m.api_key, m.api_version, answer, correlation_id=m.header["correlation_id"])
                        sock.sendall(with_size(out))
        except OSError:
            pass
        self.closed.append(number)
        sock.close()

    def _answer(self, received: ReceivedRequest, own: bool) -> Answer:
        if received.api == "ApiVersions":
            meant = received.message.to_dict().get("cluster_id")
            if meant not in (None, self.cluster_id):  # KIP-1242
                return {"error_code": facts.error_code("REBOOTSTRAP_REQUIRED")}
            rows = [
                {"api_key": facts.api_key(n), "min_version": a, "max_version": b} for n, (a, b) in self.offers.items()
            ]
            return {"api_keys": rows}
        if own and received.api == "Metadata":
            brokers = {1: self, **self.others}
            rows = [{"node_id": n, "host": "127.0.0.1", "port": b.address[1]} for n, b in brokers.items()]
            of = {"cluster_id": self.cluster_id} if received.message.api_version >= 2 else {}
            return of | {"brokers": rows, "topics": [self._topic(n, received.message.api_version) for n in self.topics]}
        return self.answers(received.message, received)

    def _topic(self, name: str, version: int) -> dict[str, Any]:
        topic_id, partitions = self.topics[name]
        rows = [
            {"partition_index": p, "leader_id": 1 + p % (1 + len(self.others)), "replica_nodes": [1], "isr_nodes": [1]}
            for p in range(partitions)
        ]
        return {"name": name, "partitions": rows} | ({"topic_id": topic_id} if version >= 10 else {})

    def stop(self) -> None:
        self._server.close()
        for sock in self._sockets:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    @property
    def requests(self) -> list[tuple[str, int]]:
        return [(h.api, h.connection) for h in self.received]


class StartBroker(Protocol):
    """Starts a scripted broker."""

    def __call__(
        self, answers: Callable[[Message, ReceivedRequest], Answer], offers: dict[str, tuple[int, int]] | None = None
    ) -> ScriptedBroker: ...


@dataclass
class TimedRecording:
    """Makes a recording, each message at a time of its own (ms after the start) and on a given connection."""

    folder: Path
    broker: tuple[str, int] = ("127.0.0.1", 9092)
    recorder: Recorder = field(init=False)
    opened: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.recorder = Recorder(self.folder, redact=True)
        self._ids: dict[int, int] = {}

    def request(self, at: float, conn: int, api: str, version: int, fields: dict[str, Any], client_id: str = "c") -> int:
        """A request; returns its correlation id."""
        if conn not in self.opened:
            self.opened.add(conn)
            self.recorder.opened(conn, self._ns(at), client=("127.0.0.1", 40_000 + conn), broker=self.broker)
        identity = self._ids[conn] = self._ids.get(conn, 0) + 1
        frame = encode_request(facts.api_key(api), version, fields, correlation_id=identity, client_id=client_id)
        self.recorder.data(conn, Direction.REQUEST, self._ns(at), with_size(frame))
        return identity

    def response(self, at: float, conn: int, api: str, version: int, fields: dict[str, Any], identity: int) -> None:
        """A response."""
        frame = encode_response(facts.api_key(api), version, fields, correlation_id=identity)
        self.recorder.data(conn, Direction.RESPONSE, self._ns(at), with_size(frame))

    def exchange(self, at: float, conn: int, api: str, version: int, request: dict[str, Any], response: dict[str, Any]) -> None:
        """A request, and its answer 1 ms later."""
        self.response(at + 1, conn, api, version, response, self.request(at, conn, api, version, request))

    def close(self, at: float, conn: int, by: str = "client") -> None:
        self.recorder.closed(conn, self._ns(at), "fin", by)

    def done(self) -> Path:
        self.recorder.close()
        return self.folder

    @staticmethod
    def _ns(at: float) -> int:
        return START + int(at * MS)
