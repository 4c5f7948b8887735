"""The relay between scripted peers: bytes stay the same, ends stay ends, nobody waits for nobody."""

from __future__ import annotations

import hashlib
import os
import socket
import struct
import threading

import pytest
from barnabas.proxy import Proxy
from barnabas.proxy.events import ConnectionClosed, NotKafka, UpstreamFailed
from harness import scripted, wire
from harness.scripted import answering, echo
from harness.testbed import Testbed, next_event
from harness.waiting import PATIENCE, until


def conversation() -> bytes:
    return wire.request(18, 0, 1) + wire.request(3, 0, 2, bytes(4)) + wire.request(1, 4, 3, os.urandom(40))


def test_bytes_are_identical_at_every_split_position(testbed: Testbed) -> None:
    """`other` asks between the two parts of what `client` sends: the relay has looked at the first by then."""
    asked = conversation()
    answer = wire.response(1, b"x" * 20) + wire.response(2, b"not metadata") + wire.response(3, b"z" * 30)
    seen: list[bytes] = []

    def script(sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := wire.exactly(sock, len(asked)):
            seen.append(data)
            cut = len(seen) // 2 % len(answer)  # every second one is of `other`
            sock.sendall(answer[:cut])
            sock.sendall(answer[cut:])

    proxy = testbed.proxy(testbed.broker(script).address)
    other = testbed.client(proxy.address)
    for cut in range(len(asked) + 1):
        client = testbed.client(proxy.address)
        client.sendall(asked[:cut])
        other.sendall(asked)
        assert wire.exactly(other, len(answer)) == answer
        client.sendall(asked[cut:])
        assert wire.exactly(client, len(answer)) == answer
        client.close()
    assert set(seen) == {asked}


def test_one_byte_segments(testbed: Testbed) -> None:
    proxy = testbed.proxy(testbed.broker(answering(None)).address)
    client = testbed.client(proxy.address)
    asked = conversation()
    for index in range(len(asked)):
        client.sendall(asked[index : index + 1])
    for number, size in enumerate((15, 19, 55), 1):
        frame = wire.read_frame(client)
        assert frame[4:8] == struct.pack(">i", number)
        assert len(frame) == 8 + size


def test_pipelining_of_a_thousand(testbed: Testbed) -> None:
    proxy = testbed.proxy(testbed.broker(answering(None)).address)
    client = testbed.client(proxy.address)
    asked = [wire.request(number % 50, 0, number, os.urandom(number % 300)) for number in range(1000)]
    threading.Thread(target=client.sendall, args=(b"".join(asked),), daemon=True).start()
    for number, frame in enumerate(asked):
        assert wire.read_frame(client) == wire.response(number, frame)


def test_big_frames_both_ways(testbed: Testbed) -> None:
    proxy = testbed.proxy(testbed.broker(answering(None)).address)
    client = testbed.client(proxy.address)
    for size in (1 << 20, 5_000_001, 40 << 20):
        frame = wire.request(0, 3, size, os.urandom(1 << 16) * (size >> 16) + b"end")
        threading.Thread(target=client.sendall, args=(frame,), daemon=True).start()
        got = wire.read_frame(client)
        assert hashlib.sha256(got).digest() == hashlib.sha256(wire.response(size, frame)).digest()


def test_half_close_keeps_the_other_direction(testbed: Testbed) -> None:
    first_is_there = threading.Event()

    def script(sock: socket.socket) -> None:
        data = b""
        while part := sock.recv(65536):
            data += part
        sock.sendall(wire.response(1, data))
        first_is_there.wait(PATIENCE)
        sock.sendall(wire.response(2, b"late"))
        sock.shutdown(socket.SHUT_WR)

    proxy = testbed.proxy(testbed.broker(script).address)
    client = testbed.client(proxy.address)
    asked = wire.request(18, 0, 1)
    client.sendall(asked)
    client.shutdown(socket.SHUT_WR)
    assert wire.read_frame(client) == wire.response(1, asked)
    first_is_there.set()
    assert wire.read_frame(client) == wire.response(2, b"late")
    assert client.recv(1) == b""
    closed = next_event(proxy, ConnectionClosed)
    assert (closed.how, closed.sent) == ("fin", len(asked))


def test_a_name_with_several_addresses_is_tried_through(testbed: Testbed) -> None:
    """`localhost` is ::1 first on many machines; the broker listens on 127.0.0.1 only."""
    broker = testbed.broker(answering(None))
    proxy = testbed.proxy(("localhost", broker.address[1]))
    client = testbed.client(proxy.address)
    asked = wire.request(18, 0, 1)
    assert wire.ask(client, asked) == wire.response(1, asked)


def test_an_unreachable_broker_is_reported_at_the_start(testbed: Testbed) -> None:
    proxy = testbed.proxy(testbed.closed_port(), probe=True)
    assert next_event(proxy, UpstreamFailed).connection == 0


def test_unknown_host_name_is_an_event(testbed: Testbed) -> None:
    proxy = testbed.proxy(("no-such-host.invalid", 9092), probe=True)
    assert "no-such-host.invalid" in next_event(proxy, UpstreamFailed).text


def relay_memory(proxy: Proxy) -> int:
    """Private memory of the relay process in KiB (the ring is shared and does not count)."""
    with open(f"/proc/{proxy._children['relay'].pid}/smaps_rollup") as file:
        fields = dict(line.split(":", 1) for line in file if ":" in line)
    return int(fields["Private_Dirty"].split()[0])


def test_a_reader_that_stalls_costs_no_memory_and_gets_everything(testbed: Testbed) -> None:
    total = 48 << 20
    block = os.urandom(1 << 16)

    sent = [0]

    def script(sock: socket.socket) -> None:
        asked = wire.read_frame(sock)
        if asked[4:6] == b"\0\x12":
            answering(None)(sock)
            return
        sock.sendall(struct.pack(">ii", total + 4, 1))
        for _ in range(total >> 16):
            sock.sendall(block)
            sent[0] += 1

    proxy = testbed.proxy(testbed.broker(script).address)
    other = testbed.client(proxy.address)
    other.sendall(wire.request(18, 0, 0))
    client = testbed.client(proxy.address, SO_RCVBUF=65536)
    client.sendall(wire.request(1, 4, 1))
    assert len(wire.exactly(client, 8)) == 8
    before = relay_memory(proxy)

    def broker_is_stalled() -> bool:
        """Whether it has sent nothing more while the relay has served somebody else."""
        known = sent[0]
        for number in range(50):
            assert wire.ask(other, wire.request(18, 0, number))
        return sent[0] == known

    until(broker_is_stalled)
    assert sent[0] < total >> 16
    assert relay_memory(proxy) - before < 2048
    digest = hashlib.sha256()
    got = 0
    while got < total:
        part = client.recv(1 << 20)
        assert part
        digest.update(part)
        got += len(part)
    assert digest.digest() == hashlib.sha256(block * (total >> 16)).digest()


def test_what_is_no_kafka_passes_and_is_reported_once(testbed: Testbed) -> None:
    def script(sock: socket.socket) -> None:
        while data := sock.recv(65536):
            sock.sendall(data.upper())

    proxy = testbed.proxy(testbed.broker(script).address)
    client = testbed.client(proxy.address)
    for text in (b"GET / HTTP/1.1\r\n", b"host: x\r\n\r\n", b"z"):
        client.sendall(text)
        assert wire.exactly(client, len(text)) == text.upper()
    assert "HTTP" in next_event(proxy, NotKafka).text
    client.close()
    proxy.stop()
    rest = list(proxy.events())
    assert [type(event) for event in rest if isinstance(event, (NotKafka, ConnectionClosed))] == [ConnectionClosed]


@pytest.mark.parametrize("piecewise", [False, True])
def test_tls_hello_on_the_plain_listener_is_named(testbed: Testbed, piecewise: bool) -> None:
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(600)

    def script(sock: socket.socket) -> None:
        sock.sendall(wire.exactly(sock, len(hello))[::-1])

    proxy = testbed.proxy(testbed.broker(script).address)
    client = testbed.client(proxy.address)
    for at in range(0, len(hello), 1 if piecewise else len(hello)):
        client.sendall(hello[at : at + (1 if piecewise else len(hello))])
    assert wire.exactly(client, len(hello)) == hello[::-1]
    text = next_event(proxy, NotKafka).text
    assert "TLS hello on the plain listener" in text and "security.protocol" in text


@pytest.mark.parametrize("size", [-1, -(2**31), 512 * 1024 * 1024 + 1])
def test_an_impossible_size_falls_back_to_bytes(testbed: Testbed, size: int) -> None:
    proxy = testbed.proxy(testbed.broker(echo).address)
    client = testbed.client(proxy.address)
    sent = wire.request(18, 0, 1) + struct.pack(">i", size) + os.urandom(5000)
    client.sendall(sent)
    assert wire.exactly(client, len(sent)) == sent
    assert str(size) in next_event(proxy, NotKafka).text


def test_raw_sasl_tokens_pass(testbed: Testbed) -> None:
    """SaslHandshake v0 is followed by frames without any header."""
    tokens = [b"", b"\0<user\0secret", b"n", b"\0\x03\0\x01\0\0\0\x07\0\x01t"]

    proxy = testbed.proxy(testbed.broker(scripted.each(lambda frame, _: frame)).address)
    client = testbed.client(proxy.address)
    for sent in [wire.request(17, 0, 1), *map(wire.with_size, tokens), wire.request(18, 0, 2)]:
        client.sendall(sent)
        assert wire.exactly(client, len(sent)) == sent
