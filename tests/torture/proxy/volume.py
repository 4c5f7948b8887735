"""Many gigabytes through a proxy: what comes out is what went in, per connection and direction, also when peers break off.

    PYTHONPATH=tests python -m torture.proxy.volume --gigabytes 20 [--record] [--lossless]

Connections follow one another, several at a time, each a conversation of every API with large batches in it. One in eight
is reset somewhere in the middle by its client, one in eight by its broker: what arrived until then is a prefix.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnabas.proxy import Proxy, ProxyConfig
from barnabas.proxy.events import NotInspected
from barnabas.proxy.observers.settings import RecordingConfig
from harness.scripted import Broker
from harness.wire import connect
from torture.proxy.peers.plain_clients import reset
from torture.proxy.peers.traffic import TrafficGenerator

AT_ONCE = 4
"""Connections at a time."""
CONVERSATIONS = 8
EXCHANGES = 1500
LARGEST = 1 << 20


@dataclass
class Sides:
    """What one connection's ends have received; `cut`: who breaks off (""), and after how many bytes of its own."""

    conversation: int
    cut: str
    after: int
    got: dict[str, tuple[int, str]] = field(default_factory=dict)
    done: threading.Event = field(default_factory=threading.Event)


def push(sock: socket.socket, data: bytes, chance: random.Random) -> None:
    """Send all, in pieces of any size, with pauses now and then."""
    at, view = 0, memoryview(data)
    while at < len(data):
        size = chance.choice((1, 2, 3, 17, 1460, 5000, 65536, *[1 << 20] * 8))
        sock.sendall(view[at : at + size])
        at += size
        if chance.random() < 0.01:
            time.sleep(0.002)


def pull(sock: socket.socket, chance: random.Random) -> tuple[int, str]:
    """(bytes, SHA-256) of all that comes, sometimes read slowly."""
    found, count, space = hashlib.sha256(), 0, bytearray(1 << 20)
    view = memoryview(space)
    try:
        while size := sock.recv_into(space, chance.choice((1, 100, 4096, *[1 << 20] * 20))):
            found.update(view[:size])
            count += size
            if chance.random() < 0.005:
                time.sleep(0.005)
    except OSError:
        pass
    return count, found.hexdigest()


class Volume:
    """The conversations, and the connections that speak them. `cuts`: peers break off; `exchanges` of each conversation."""

    def __init__(self, seed: int, cuts: bool = True, exchanges: int = EXCHANGES) -> None:
        self.chance = random.Random(seed)
        self.endings = ("", "", "", "", "", "", "client", "broker") if cuts else ("",)
        self.warnings: list[str] = []
        self.conversations = []
        for number in range(CONVERSATIONS):
            talk = TrafficGenerator(seed + number).conversation(exchanges, first=number << 20, most=LARGEST)
            self.conversations.append((b"".join(e.request for e in talk), b"".join(e.expected for e in talk)))
        self.waiting: dict[int, Sides] = {}
        self.moved = self.connections = self.cuts = 0
        self._lock = threading.Lock()

    def exchange(self, sock: socket.socket, sides: Sides, who: str) -> None:
        """One end: speaks and listens at once, to the end or until it breaks off."""
        data = self.conversations[sides.conversation][0 if who == "client" else 1]
        chance = random.Random(sides.after)

        def speak() -> None:
            try:
                if sides.cut == who:
                    push(sock, data[: sides.after], chance)
                    time.sleep(0.01)
                    sock.shutdown(socket.SHUT_RD)  # as long as a read waited, the reset would, too
                    reset(sock)
                else:
                    push(sock, data, chance)
                    sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass

        speaker = threading.Thread(target=speak)
        speaker.start()
        sides.got[who] = pull(sock, random.Random(sides.after + 1))
        speaker.join()

    def broker(self, sock: socket.socket) -> None:
        """The script of the broker's end. The first correlation id is that of the conversation."""
        sock.settimeout(60)
        number = int.from_bytes(sock.recv(12, socket.MSG_PEEK | socket.MSG_WAITALL)[8:12], "big") >> 20
        with self._lock:
            sides = self.waiting[number]
        self.exchange(sock, sides, "broker")
        sides.done.set()

    def one(self, address: tuple[str, int], conversation: int) -> None:
        """One connection. Raises AssertionError when something arrived that was not sent."""
        up, down = self.conversations[conversation]
        cut = self.chance.choice(self.endings)
        sides = Sides(conversation, cut, self.chance.randrange(64, len(up if cut == "client" else down)))
        with self._lock:
            self.waiting[conversation] = sides
        with connect(address) as sock:
            sock.settimeout(60)
            self.exchange(sock, sides, "client")
        assert sides.done.wait(60), "the broker's end does not end"
        for who, data in (("broker", up), ("client", down)):
            count, found = sides.got[who]
            assert cut or count == len(data), f"{who}: {count} of {len(data)} bytes"
            assert found == hashlib.sha256(memoryview(data)[:count]).hexdigest(), f"{who}: other bytes"
            with self._lock:
                self.moved += count
        with self._lock:
            self.connections += 1
            self.cuts += bool(cut)


def run(volume: Volume, gigabytes: float, report: Callable[[str], Any], **options: Any) -> Volume:
    """Until so many bytes have come out on either side. Raises AssertionError at the first that is wrong."""
    wrong: list[BaseException] = []

    def half(address: tuple[str, int], conversations: list[int]) -> None:
        number = 0
        while volume.moved < gigabytes * 1e9 and not wrong:
            try:
                volume.one(address, conversations[number % len(conversations)])
            except BaseException as error:
                wrong.append(error)
            number += 1

    with Broker(volume.broker) as broker, Proxy(ProxyConfig(upstream=broker.address, probe=False, **options)) as proxy:
        halves = [
            threading.Thread(target=half, args=(proxy.address, list(range(CONVERSATIONS))[n::AT_ONCE])) for n in range(AT_ONCE)
        ]
        for each in halves:
            each.start()
        while alive := [each for each in halves if each.is_alive()]:
            alive[0].join(5)
            while (event := proxy.next_event(0)) is not None:
                if event.warning and not isinstance(event, NotInspected):
                    volume.warnings.append(event.text)
            report(f"{volume.moved / 1e9:.1f} GB, {volume.connections} connections, {volume.cuts} broken off")
        for each in halves:
            each.join()
    if wrong:
        raise wrong[0]
    return volume


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="torture.proxy.volume", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true", help="record into a folder that keeps 64 MiB")
    parser.add_argument("--lossless", action="store_true")
    given = parser.parse_args()
    options: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        if given.record or given.lossless:
            kept = RecordingConfig(keep_bytes=64 << 20)
            options = {"record": Path(folder), "lossless": given.lossless, "recording": kept}
        found = run(Volume(given.seed), given.gigabytes, lambda text: print(text, file=sys.stderr, flush=True), **options)
    print(f"{found.moved / 1e9:.1f} GB on {found.connections} connections, {found.cuts} broken off: identical")


if __name__ == "__main__":
    main()
