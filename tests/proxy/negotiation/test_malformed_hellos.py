"""What is no HTTP, and names in a TLS hello that are no text: reported in a line, if at all, and never as a traceback."""

from __future__ import annotations

import random
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.waiting import PATIENCE, until

NO_HTTP = (
    b"\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET http://[::1 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /\x01\xff HTTP/1.1\r\nHost: \xff\r\n\r\n",
    b"POST /v1/rules HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /v1/rules HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 4000 + b"\r\n",
    b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00" + bytes(500),
    b"CONNECT a:99999999 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET http://a:b/ HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
)
NAMES = (b"\xff\xfe\xfd", b"xn--\xff\xff", b"a" * 63 + b"." + b"b" * 70, b"\0\0\0", b"xn--a", "é".encode(), b"a..b")


class Running:
    """A proxy as a user starts it, with all that it writes in a file."""

    def __init__(self, process: subprocess.Popen[bytes], written: Path) -> None:
        self.process, self.written = process, written

    @property
    def text(self) -> str:
        return self.written.read_text(errors="replace")

    def port(self, before: str) -> int:
        found = until(lambda: re.search(rf"{before}127\.0\.0\.1:(\d+)", self.text), lambda: self.text)
        return int(found[1])


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    pytest.importorskip("cryptography")
    broker = socket.create_server(("127.0.0.1", 0))
    at = f"127.0.0.1:{broker.getsockname()[1]}"
    options = ["--tls-ca", str(tmp_path / "ca"), "--sni-suffix", "kafka.example", "--control", "127.0.0.1:0"]
    options += ["--metrics", "127.0.0.1:0", "--broker", at, "--listen", "127.0.0.1:0"]
    written = tmp_path / "written"
    with written.open("wb") as out, broker:
        process = subprocess.Popen(
            [sys.executable, "-m", "barnabas", "proxy", *options], stdout=out, stderr=out, stdin=subprocess.DEVNULL
        )
        try:
            yield Running(process, written)
        finally:
            process.terminate()
            process.wait(PATIENCE)


def send(port: int, data: bytes) -> bytes:
    """What comes back until the other side ends."""
    got = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while part := sock.recv(4096):
                got += part
    except OSError:
        pass
    return got


def hello(name: bytes) -> bytes:
    """A TLS hello that asks for a name which no library would ask for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    usual = "".join("." if n % 50 == 49 else "x" for n in range(len(name) - 1)) + "x"
    session = context.wrap_bio(into, out, server_hostname=usual)
    with pytest.raises(ssl.SSLWantReadError):
        session.do_handshake()
    return out.read().replace(usual.encode(), name)


def test_nothing_of_it_is_a_traceback(running: Running) -> None:
    listen, metrics, control = (running.port(before) for before in ("listening on ", "metrics at http://", "API at http://"))
    chance = random.Random(1)
    for data in NO_HTTP:
        for port in (control, metrics):
            send(port, data)
            changed = bytearray(data[:600])
            for _ in range(3):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            send(port, bytes(changed))
    for name in NAMES:
        send(listen, hello(name))
    assert b"GET" not in send(control, NO_HTTP[0])
    until(lambda: running.text.count("no TLS with client") >= len(NAMES), lambda: running.text)
    assert "a server name that is not text" in running.text
    assert not re.search(r"Traceback|Exception ignored|Error handling|\.py\"", running.text), running.text
    assert send(metrics, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").startswith(b"HTTP/1.1 200")
