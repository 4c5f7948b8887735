"""A proxy whose plugins' file a test writes, as a user saves it, between a broker that answers everything and clients."""

from __future__ import annotations

import socket
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from barnabas import decoder
from barnabas.plugins.hooks import parse
from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import PluginsLoaded
from barnabas.proxy.relay.interception.plugin_host import PluginsConfig
from harness import scripted
from harness.proxies import Proxy
from harness.testbed import E, next_event
from harness.waiting import PATIENCE
from harness.wire import read_frame, with_size

HEARTBEAT = 12


class Broker(scripted.Broker):
    """Answers every request that it can read with nothing wrong; `got`: the frames in their order, `raw`: all bytes."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.raw = bytearray()
        self.changed = threading.Condition()
        super().__init__(self._answer)

    def _answer(self, sock: socket.socket) -> None:
        data = bytearray()
        while part := sock.recv(1 << 16):
            with self.changed:
                self.raw += part
                self.changed.notify_all()
            data += part
            while len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[:4], "big"):
                size = int.from_bytes(data[:4], "big")
                frame = bytes(data[4 : 4 + size])
                del data[: 4 + size]
                with self.changed:
                    self.got.append(frame)
                    self.changed.notify_all()
                key, version, correlation = decoder.peek_request(frame)
                sock.sendall(with_size(decoder.encode_response(key, version, {}, correlation_id=correlation)))

    def wait(self, true: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(true, PATIENCE)

    def groups(self) -> list[str]:
        """The group ids of the heartbeats that came."""
        return [decoder.decode_request(frame)["group_id"] for frame in self.got if frame[1] == HEARTBEAT]


class Client:
    """One connection to the proxy."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.sock = socket.create_connection(address, PATIENCE)
        self.number = 0

    def send(self, group: str = "g") -> int:
        self.number += 1
        fields = {"group_id": group, "generation_id": 1, "member_id": "m"}
        self.sock.sendall(
            with_size(decoder.encode_request(HEARTBEAT, 1, fields, correlation_id=self.number, client_id="c"))
        )
        return self.number

    def read(self) -> dict[str, Any]:
        """The next response's fields, with its correlation id; empty at the end of the stream."""
        frame = read_frame(self.sock)[4:]
        if not frame:
            return {}
        answer = decoder.decode_response(frame, api_key=HEARTBEAT, api_version=1)
        return {"id": int.from_bytes(frame[:4], "big"), **answer.to_dict()}

    def ask(self, group: str = "g") -> dict[str, Any]:
        self.send(group)
        return self.read()


class Stage:
    """Broker, proxy, and the file of its plugins.

    ``plugins`` are options of ``PluginsConfig``, ``settings`` those of ``ProxyConfig``; ``upstream`` is another broker than
    the one here.
    """

    def __init__(
        self,
        folder: Path,
        upstream: tuple[str, int] | None = None,
        plugins: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.path = folder / "plugin.py"
        self.path.write_text("class Nothing:\n    def tick(self, ctx): pass\n")
        self.saved = 0
        self.broker = Broker()
        self.config = PluginsConfig((parse(str(self.path)),), **{"budget": PATIENCE} | (plugins or {}))
        self.proxy = Proxy(
            ProxyConfig(
                upstream=upstream or self.broker.address,
                probe=False,
                drain_seconds=1.0,
                plugins=self.config,
                **settings,
            )
        )
        self.proxy.start()
        self.clients: list[Client] = []
        self.wait_for(PluginsLoaded)

    def load(self, *texts: str) -> PluginsLoaded:
        """Save the file with these classes; the event of this version being loaded."""
        self.saved += 1
        new = self.path.with_suffix(".new")
        new.write_text("\n".join([*map(textwrap.dedent, texts), f"# {self.saved}\n"]))
        new.replace(self.path)
        return self.wait_for(PluginsLoaded)

    def client(self) -> Client:
        client = Client(self.proxy.address)
        self.clients.append(client)
        return client

    def wait_for(self, kind: type[E], so: Callable[[E], bool] = lambda event: True) -> E:
        """The next event of this kind (for which ``so`` holds)."""
        return next_event(self.proxy, kind, so)

    def clean(self) -> None:
        """For the next test: no connections, nothing remembered."""
        for client in self.clients:
            client.sock.close()
        self.clients.clear()
        self.broker.got.clear()
        self.broker.raw.clear()
        while self.proxy.next_event(0):
            pass

    def close(self) -> None:
        self.clean()
        self.proxy.stop()
        self.broker.close()
