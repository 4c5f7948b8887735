"""Stands before a real broker as another: offers other versions than it does, or answers in another order.

What is behind it is the real broker, and its answers are real except for what is changed here. A request of a version
that it does not offer is treated as Kafka does: the connection is closed.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Mapping
from types import TracebackType

from barnabas import decoder
from barnabas.decoder.codec.message import Message
from barnabas.decoder.schema import facts

API_VERSIONS = facts.api_key("ApiVersions")
METADATA = facts.api_key("Metadata")
SWAPPED = 2  # answers that change places


class EditedBroker:
    """`offers`: (min, max) by API name, instead of the broker's. `nodes`: addresses by node id that Metadata names
    (this one is node 1 by default). `racks`: theirs by node id. `swaps`: the API whose answers come in pairs, the second one first."""

    def __init__(
        self,
        broker: tuple[str, int],
        offers: Mapping[str, tuple[int, int]] | None = None,
        nodes: Mapping[int, tuple[str, int]] | None = None,
        racks: Mapping[int, str] | None = None,
        swaps: str | None = None,
    ) -> None:
        self._broker = broker
        self._offers = {facts.api_key(name): ends for name, ends in (offers or {}).items()}
        self._racks = dict(racks or {})
        self._swaps = None if swaps is None else facts.api_key(swaps)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self.nodes = dict(nodes or {1: self.address})
        self._sockets: set[socket.socket] = {self._listener}
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                broker = socket.create_connection(self._broker)
            except OSError:
                return
            asked: dict[int, tuple[int, int]] = {}
            self._sockets |= {client, broker}
            for way in ((client, broker, True), (broker, client, False)):
                threading.Thread(target=self._carry, args=(*way, asked), daemon=True).start()

    def _carry(
        self, source: socket.socket, target: socket.socket, requests: bool, asked: dict[int, tuple[int, int]]
    ) -> None:
        held: list[bytes] = []
        try:
            with source.makefile("rb") as stream:
                while head := stream.read(4):
                    frame = stream.read(struct.unpack(">i", head)[0])
                    if requests:
                        key, version, number = decoder.peek_request(frame)
                        low, high = self._offers.get(key, (0, 1 << 15))
                        if not low <= version <= high:
                            break
                        asked[number] = key, version
                        out = [frame]
                    else:
                        key, version = asked.pop(int.from_bytes(frame[:4], "big", signed=True), (-1, -1))
                        out = [self._edited(frame, key, version)]
                        if key == self._swaps:
                            held += out
                            out = held[::-1] if len(held) == SWAPPED else []
                            held = [] if out else held
                    for each in out:
                        target.sendall(struct.pack(">i", len(each)) + each)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()
            self._sockets.discard(end)

    def _edited(self, frame: bytes, key: int, version: int) -> bytes:
        if key not in (API_VERSIONS, METADATA):
            return frame
        message = decoder.decode_response(frame, api_key=key, api_version=version)
        return (self._narrowed(message) if key == API_VERSIONS else self._renamed(message)).encode()

    def _narrowed(self, message: Message) -> Message:
        apis = [
            api | dict(zip(("min_version", "max_version"), self._offers[api["api_key"]], strict=True))
            if api["api_key"] in self._offers
            else api
            for api in message["api_keys"]
        ]
        return message.replace({"api_keys": apis})

    def _renamed(self, message: Message) -> Message:
        first = message["brokers"][0]
        brokers = [
            first | {"node_id": n, "host": host, "port": port, "rack": self._racks.get(n)}
            for n, (host, port) in self.nodes.items()
        ]
        return message.replace({"brokers": brokers})

    def __enter__(self) -> EditedBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in list(self._sockets):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()
