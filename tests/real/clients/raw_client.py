"""A client on one connection that sends exactly the requests that a test gives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.decoder import Message, decode_response, encode_request
from barnabas.decoder.schema import facts
from harness.wire import connect, read_frame, with_size


class RawClient:
    """A context manager; its correlation ids count from 1."""

    def __init__(self, address: tuple[str, int], client_id: str | None = "raw") -> None:
        self.sock = connect(address)
        self.client_id, self._correlation_id = client_id, 0

    def frame(self, frame: bytes) -> bytes:
        """The frame that answers this one, both without their sizes. Raises ConnectionError if the connection is closed instead."""
        self.sock.sendall(with_size(frame))
        answer = read_frame(self.sock)
        if not answer:
            raise ConnectionResetError("closed instead of an answer")
        return answer[4:]

    def ask(self, api: str, version: int, fields: Mapping[str, Any]) -> Message:
        """The response to a request of the client's own."""
        return decode_response(self.frame(self.request(api, version, fields)), api_key=facts.api_key(api), api_version=version)

    def request(self, api: str, version: int, fields: Mapping[str, Any], correlation_id: int | None = None, client_id: str = "") -> bytes:
        """The frame of the next request, without its size; with these ids instead of its own."""
        self._correlation_id = self._correlation_id + 1 if correlation_id is None else correlation_id
        name = client_id or self.client_id
        return encode_request(facts.api_key(api), version, fields, correlation_id=self._correlation_id, client_id=name)

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
