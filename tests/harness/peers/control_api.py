"""A proxy with its control API, in front of a broker, and answers held against the OpenAPI description."""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from barnabas import decoder
from barnabas.proxy.control import Control, ControlConfig
from barnabas.proxy.control.api.routes import described
from jsonschema import Draft202012Validator

from .. import wire
from ..proxies import Proxy
from ..testbed import Script, Testbed
from ..waiting import PATIENCE

HEARTBEAT = 12


def heartbeat(correlation_id: int, group: str = "g") -> bytes:
    """A Heartbeat v0 request with its size."""
    fields = {"group_id": group, "generation_id": 3, "member_id": "m"}
    frame = decoder.encode_request(HEARTBEAT, 0, fields, correlation_id=correlation_id, client_id="t")
    return wire.with_size(frame)


def answered(correlation_id: int, error_code: int = 0) -> bytes:
    """A Heartbeat v0 response with its size."""
    return wire.response(correlation_id, error_code.to_bytes(2, "big"))


class ControlApi:
    """One proxy, its control client, and a way to make HTTP requests as anybody might."""

    def __init__(self, proxy: Proxy, received: list[bytes]) -> None:
        assert proxy.control is not None
        self.proxy = proxy
        self.received = received
        """The requests that the broker got, with their sizes, unless the test has a broker of its own."""
        self.access = proxy.control.access
        self.control = Control(self.access.url, self.access.token)
        self.description = described()

    @property
    def port(self) -> int:
        return int(self.access.url.rpartition(":")[2])

    @property
    def authorization(self) -> dict[str, str]:
        """The header with the token."""
        return {"Authorization": f"Bearer {self.access.token}"}

    def raw(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
        """(status, JSON or text); no header is sent but these."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            data = response.read()
            if "json" in (response.getheader("Content-Type") or ""):
                return response.status, json.loads(data)
            return response.status, data.decode()
        finally:
            connection.close()

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """With the token; the answer must fit the description, with a status that it names."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        status, answer = self.raw(method, path, data, **self.authorization)
        self.check(method, path.partition("?")[0], status, answer)
        return status, answer

    def check(self, method: str, path: str, status: int, answer: Any) -> None:
        """Hold an answer against the description."""
        content = self.operation(method, path)["responses"][str(status)]["content"]
        if "application/json" in content:
            schema = content["application/json"]["schema"] | {"components": self.description["components"]}
            Draft202012Validator(schema).validate(answer)

    def operation(self, method: str, path: str) -> Any:
        """The description's operation of a path with its parameters filled in."""
        for template, operations in sorted(self.description["paths"].items(), key=lambda each: "{" in each[0]):
            if re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), path) and method.lower() in operations:
                return operations[method.lower()]
        raise AssertionError(f"{method} {path} is not described")

    def clear(self) -> None:
        """For the next test: no rules, no intercepts, no events and requests of the last one."""
        for intercept in self.control.intercepts():
            self.control.remove_intercept(intercept["id"])
        self.control.replace_rules([])
        while self.proxy.next_event(0):
            pass
        self.received.clear()


class StartControlApi(Protocol):
    """Starts a proxy in front of a broker: one that answers every request, a script, or an address."""

    def __call__(
        self,
        upstream: Script | tuple[str, int] | None = None,
        *,
        control: ControlConfig | None = None,
        **options: Any,
    ) -> ControlApi: ...


def control_api_starter(testbed: Testbed, folder: Path) -> StartControlApi:
    """``options`` are those of ``ProxyConfig``; the files of the control API are in ``folder``."""

    def make(
        upstream: Script | tuple[str, int] | None = None, *, control: ControlConfig | None = None, **options: Any
    ) -> ControlApi:
        received: list[bytes] = []
        address = upstream if isinstance(upstream, tuple) else testbed.broker(upstream or answers_all(received)).address
        return ControlApi(testbed.proxy(address, control=control or ControlConfig(directory=folder), **options), received)

    return make


def answers_all(received: list[bytes]) -> Callable[[socket.socket], None]:
    """A broker that answers every request with its correlation id and two zero bytes, and lists it."""

    def script(sock: socket.socket) -> None:
        while frame := wire.read_frame(sock):
            received.append(frame)
            sock.sendall(wire.response(int.from_bytes(frame[8:12], "big"), bytes(2)))

    return script
