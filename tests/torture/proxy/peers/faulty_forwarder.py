"""A TCP forwarder to a broker that breaks on request: resets, half-closes, silence, refusal, segments of one byte, bursts."""

from __future__ import annotations

import select
import socket
import threading
import time

from torture.proxy.peers.plain_clients import RESET


class FaultyForwarder:
    """Forwards from its own port to `target`. Each of the faults counts in `faults`."""

    def __init__(self, port: int, target: tuple[str, int]) -> None:
        self.target = target
        self.port = port
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        self.faults = 0
        self.mode = "plain"
        self.lost: set[socket.socket] = set()
        """Near sides of connections that are carried no more, as behind a firewall that has forgotten them."""
        self.server: socket.socket | None = None
        self._lock = threading.Lock()
        self.open()

    def open(self) -> None:
        self.server = socket.create_server(("127.0.0.1", self.port), backlog=512)
        threading.Thread(target=self._accept, args=(self.server,), daemon=True).start()

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                near, _ = server.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self.target, 5)
            except OSError:
                self._end(near, True)
                continue
            for sock in (near, far):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self.pairs.append((near, far))
            threading.Thread(target=self._carry, args=(near, far), daemon=True).start()

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        other = {near: far, far: near}
        try:
            while other:
                if self.mode == "silent" or near in self.lost:
                    time.sleep(0.02)
                    continue
                ready, _, _ = select.select(list(other), [], [], 0.1)
                for sock in ready:
                    if self.mode == "bursts":
                        time.sleep(0.03)
                    data = sock.recv(1 << 18)
                    if not data:
                        other.pop(sock).shutdown(socket.SHUT_WR)
                        continue
                    if self.mode == "bytes":
                        for at in range(min(len(data), 200)):
                            other[sock].sendall(data[at : at + 1])
                        data = data[200:]
                    other[sock].sendall(data)
        except (OSError, ValueError):
            pass
        finally:
            self._end(near, False)
            self._end(far, False)
            with self._lock:
                self.lost.discard(near)
                if (near, far) in self.pairs:
                    self.pairs.remove((near, far))

    @staticmethod
    def _end(sock: socket.socket, hard: bool) -> None:
        try:
            if hard:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            sock.close()
        except OSError:
            pass

    # -- faults ----------------------------------------------------------------------------------------------

    def break_all(self, how: str, most: int = 100) -> None:
        """`how`: "near" or "far" resets that side (and then the other), "half" ends what goes to the near side."""
        with self._lock:
            chosen = self.pairs[:most]
        for near, far in chosen:
            self.faults += 1
            try:
                if how == "half":
                    near.shutdown(socket.SHUT_WR)
                else:
                    sock = near if how == "near" else far
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    sock.shutdown(socket.SHUT_RD)
                    sock.close()
            except OSError:
                pass

    def lose(self) -> None:
        """Carry nothing any more on what stands now; new connections are carried."""
        with self._lock:
            self.lost |= {near for near, _ in self.pairs}
            self.faults += len(self.pairs)

    def find(self) -> None:
        """The firewall answers at last, by resets, where connections were lost."""
        with self._lock:
            chosen = [pair for pair in self.pairs if pair[0] in self.lost]
            self.lost.clear()
        for near, far in chosen:
            self._end(near, True)
            self._end(far, True)

    def refuse(self, seconds: float) -> None:
        """Nobody listens for a while, and what stands is reset."""
        self.faults += 1
        assert self.server is not None
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        self.break_all("near")
        time.sleep(seconds)
        self.open()

    def be(self, mode: str, seconds: float) -> None:
        """`mode`: "silent", "bytes" or "bursts" for a while."""
        self.faults += 1
        self.mode = mode
        time.sleep(seconds)
        self.mode = "plain"

    def close(self) -> None:
        if self.server is not None:
            try:
                self.server.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            self.server.close()
        self.break_all("near")
