"""A broker on a plain socket that does what a script says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any


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
