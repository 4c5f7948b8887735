"""A broker on a plain socket that runs a script."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

from . import wire


def echo(sock: socket.socket) -> None:
    """A script: every byte comes back."""
    while data := sock.recv(1 << 16):
        sock.sendall(data)


def answering(body: bytes | None) -> Callable[[socket.socket], None]:
    """A script that answers every request with this body; None: with the request itself and its size."""

    def script(sock: socket.socket) -> None:
        while frame := wire.read_frame(sock):
            sock.sendall(wire.response(int.from_bytes(frame[8:12], "big"), frame if body is None else body))

    return script


def each(answer: Callable[[bytes, int], bytes]) -> Callable[[socket.socket], None]:
    """A script that sends `answer(frame, correlation id)` for every request; frames with their sizes."""

    def script(sock: socket.socket) -> None:
        while frame := wire.read_frame(sock):
            sock.sendall(answer(frame, int.from_bytes(frame[8:12], "big")))

    return script


def naming(brokers: Callable[[], list[tuple[int, str, int]]]) -> Callable[[socket.socket], None]:
    """A script whose Metadata responses (v8) name these brokers, and that answers all else with 6 zeros."""
    return each(
        lambda frame, number: wire.metadata_response(number, brokers()) if frame[4:6] == b"\0\3" else wire.response(number, bytes(6))
    )


class Broker:
    """Runs `script(socket)` in a thread for every connection; the socket is closed behind it."""

    def __init__(self, script: Callable[[socket.socket], Any], port: int = 0) -> None:
        self.server = socket.create_server(("127.0.0.1", port), backlog=4096)
        self.address: tuple[str, int] = self.server.getsockname()[:2]
        self.script = script
        self.sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.server.accept()
            except OSError:
                return
            self.sockets.append(sock)
            threading.Thread(target=self._run, args=(sock,), daemon=True).start()

    def _run(self, sock: socket.socket) -> None:
        try:
            self.script(sock)
        except OSError:
            pass
        finally:
            sock.close()

    def close(self) -> None:
        try:
            self.server.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.server.close()
        for sock in self.sockets:
            sock.close()

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
