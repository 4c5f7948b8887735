"""A client of one connection that does what it is told, right or wrong: for what no client library does."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from barnabas import decoder
from barnabas.decoder import facts
from barnabas.decoder.message import Message

SECONDS = 10.0  # for one answer


class RawClient:
    """One connection. Correlation ids count from 1 unless told."""

    def __init__(self, bootstrap: str, client_id: str | None) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.client_id = client_id
        self._next = 1
        self._socket = socket.create_connection((host, int(port)), timeout=SECONDS)

    def send(
        self, api: str, version: int, body: Mapping[str, Any], correlation_id: int | None = None, client_id: str = ""
    ) -> int:
        """Send a request and do not wait; gives its correlation id."""
        number = self._next if correlation_id is None else correlation_id
        self._next = number + 1
        name = client_id or self.client_id
        self.send_frame(
            decoder.encode_request(facts.api_key(api), version, body, correlation_id=number, client_id=name)
        )
        return number

    def send_frame(self, frame: bytes) -> None:
        """Send a frame's content as it is."""
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self) -> bytes | None:
        """The next response frame; None when the broker has closed the connection."""
        head = self._exactly(4)
        return None if head is None else self._exactly(struct.unpack(">i", head)[0])

    def _exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                more = self._socket.recv(size - len(data))
            except ConnectionResetError:
                return None
            if not more:
                return None
            data += more
        return data

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

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
