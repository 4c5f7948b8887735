"""A proxy with its control API between scripted peers, and answers held against the OpenAPI description."""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.proxy.control import Control, ControlConfig
from barnabas.proxy.control.routes import described
from harness import wire
from harness.testbed import Testbed
from harness.wire import with_size
from jsonschema import Draft202012Validator

HEARTBEAT = 12


class Desk:
    """One proxy, its control client, and a way to make HTTP requests as anybody might."""

    def __init__(self, proxy: Any) -> None:
        self.proxy = proxy
        self.access = proxy.control.access
        self.control = Control(self.access.url, self.access.token)
        self.description = described()

    @property
    def port(self) -> int:
        return int(self.access.url.rpartition(":")[2])

    def raw(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
        """(status, JSON or text); no header is sent but these."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
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
        """With the token; what comes must be as the description says, and the status one that it names."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        status, answer = self.raw(method, path, data, Authorization=f"Bearer {self.access.token}")
        self.check(method, path.partition("?")[0], status, answer)
        return status, answer

    def check(self, method: str, path: str, status: int, answer: Any) -> None:
        operation = self.operation(method, path)
        content = operation["responses"][str(status)]["content"]
        if "application/json" in content:
            schema = content["application/json"]["schema"] | {"components": self.description["components"]}
            Draft202012Validator(schema).validate(answer)

    def operation(self, method: str, path: str) -> Any:
        for template, operations in sorted(self.description["paths"].items(), key=lambda each: "{" in each[0]):
            if re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), path) and method.lower() in operations:
                return operations[method.lower()]
        raise AssertionError(f"{method} {path} is not described")


def heartbeat(number: int, group: str = "g") -> bytes:
    """A Heartbeat v0 request with its size."""
    fields = {"group_id": group, "generation_id": 3, "member_id": "m"}
    frame = decoder.encode_request(HEARTBEAT, 0, fields, correlation_id=number, client_id="t")
    return with_size(frame)


def beats() -> Callable[[socket.socket], None]:
    """A broker that answers every request with its correlation id and six zero bytes."""

    def script(sock: socket.socket) -> None:
        while frame := wire.read_frame(sock):
            sock.sendall(wire.response(int.from_bytes(frame[8:12], "big"), bytes(2)))

    return script


@pytest.fixture
def make_desk(testbed: Testbed, tmp_path: Path) -> Callable[..., Desk]:
    """A proxy with a control API in front of a broker (a script, or its address)."""

    def make(script: Any = None, control: ControlConfig | None = None, **options: Any) -> Desk:
        upstream = script if isinstance(script, tuple) else testbed.broker(script or beats()).address
        config = control or ControlConfig(directory=tmp_path / "control")
        return Desk(testbed.proxy(upstream, control=config, **options))

    return make


@pytest.fixture
def desk(make_desk: Callable[..., Desk]) -> Desk:
    return make_desk()


@pytest.fixture
def beat() -> Callable[..., bytes]:
    return heartbeat
