"""TLS through the relay with scripted peers: the same bytes, the same ends, the same patience as without it."""

from __future__ import annotations

import hashlib
import random
import select
import socket
import ssl
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.proxy import ProxyError
from barnabas.proxy.events import (
    BrokerNameUnknown,
    ConnectionClosed,
    ConnectionOpened,
    Listening,
    NotKafka,
    NotVerified,
    TlsFailed,
)
from barnabas.proxy.relay.limits import Limits
from barnabas.proxy.relay.negotiation.security import TlsConfig
from barnabas.proxy.relay.negotiation.tls import TlsFault, TlsSocket
from harness import scripted, wire
from harness.peers.certificates import Certificate, client_context, make, server_context
from harness.proxies import Proxy
from harness.testbed import Testbed, next_event
from harness.waiting import PATIENCE, until

pytestmark = pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1 is deprecated")
HOSTS = ("127.0.0.1", "localhost")
Secure = Callable[..., tuple[Proxy, ssl.SSLSocket]]
BadCertificates = dict[str, tuple[Certificate, str]]
"""By what is wrong with it: the certificate, and the reason that is reported."""


class Pki:
    """A CA, the broker's certificate, and the folder of the proxy's CA."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = make(folder, "ca", ca=True)
        self.broker = make(folder, "broker", HOSTS, self.ca)
        self.proxy_ca = folder / "proxy"

    def config(self, **options: Any) -> TlsConfig:
        return TlsConfig(**{"ca": self.proxy_ca, "broker_ca": self.ca.path} | options)

    def client(self) -> ssl.SSLContext:
        return client_context(self.proxy_ca / "ca.pem")


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def secure(testbed: Testbed, pki: Pki) -> Secure:
    """A proxy with TLS on both sides in front of a script, and a client that has connected."""

    def start(script: Callable[[ssl.SSLSocket], None], name: str = "localhost", **options: Any) -> tuple[Proxy, ssl.SSLSocket]:
        context = server_context(pki.broker)
        broker = testbed.broker(lambda sock: script(context.wrap_socket(sock, server_side=True)))
        tls = pki.config(**options.pop("tls", {}))
        proxy = testbed.proxy(broker.address, tls=tls, **options)
        return proxy, pki.client().wrap_socket(testbed.client(proxy.address), server_hostname=name)

    return start


def end_writing(sock: ssl.SSLSocket) -> None:
    """close_notify and nothing else: neither FIN, nor waiting for the other's."""
    sock.setblocking(False)
    try:
        sock.unwrap()
    except ssl.SSLWantReadError:
        pass
    sock.settimeout(PATIENCE)


def produce_like(sizes: list[int], seed: int) -> bytes:
    """Frames of these sizes with random content and a request's head, so that they are followed."""
    rng = random.Random(seed)
    return b"".join(
        struct.pack(">ihhi", size, 13, 0, number) + rng.randbytes(size - 8) for number, size in enumerate(sizes)
    )


def everything(sock: socket.socket) -> bytes:
    data = bytearray()
    try:
        while part := sock.recv(1 << 16):
            data += part
    except ssl.SSLZeroReturnError:
        pass  # how Python reports the end after its own side has ended
    return bytes(data)


@pytest.mark.parametrize("piece", [1, 7, 1000, 16383, 16384, 16385, 100_000])
def test_bytes_stay_the_same(secure: Secure, piece: int) -> None:
    """Whatever the records' sizes, in both directions at one time, each ended by its own half-close."""
    total = 3000 if piece == 1 else 30 * piece if piece < 1000 else 1_500_000
    up, down = produce_like([total // 3] * 3, 1), produce_like([total // 2] * 2, 2)
    received: list[bytes] = []

    def script(sock: ssl.SSLSocket) -> None:
        received.append(both_ways(sock, down, piece))
        sock.close()

    _, client = secure(script)
    back = both_ways(client, up, piece)
    until(lambda: received)
    assert hashlib.sha256(back).digest() == hashlib.sha256(down).digest()
    assert hashlib.sha256(received[0]).digest() == hashlib.sha256(up).digest()


def both_ways(sock: ssl.SSLSocket, data: bytes, piece: int, slowly: tuple[float, float, int] = (0.0, 0.0, 0)) -> bytes:
    """Send `data` in pieces while taking what comes, until both sides have ended.

    `slowly`: how long to wait before the first read and between reads, in seconds, and what to take at a time.
    By one thread: Python's TLS sockets must not be read and written by two at a time before 3.13.
    """
    late, pause, step = slowly
    received = bytearray()
    readable = time.monotonic() + late
    sock.setblocking(False)
    at, writing, reading = 0, True, True
    while writing or reading:
        waiting = True
        if reading and time.monotonic() >= readable:
            try:
                part = sock.recv(step or piece)
                received += part
                reading, waiting = bool(part), False
                readable = time.monotonic() + pause
            except ssl.SSLZeroReturnError:
                reading = False
            except ssl.SSLWantReadError:
                pass
        if writing:
            try:
                at += sock.send(data[at : at + piece])
                waiting = False
            except ssl.SSLWantWriteError:
                pass
            if at == len(data):
                writing = False
                end_writing_only_sends(sock)
        if waiting:
            late = readable - time.monotonic()
            select.select(
                [sock] if reading and late <= 0 else [], [sock] if writing else [], [], late if late > 0 else PATIENCE
            )
    return bytes(received)


def end_writing_only_sends(sock: ssl.SSLSocket) -> None:
    """The end of what is sent while another thread reads: a FIN, as clients without close_notify do."""
    socket.socket.shutdown(sock, socket.SHUT_WR)


def test_a_half_close_leaves_the_other_direction_open(secure: Secure) -> None:
    """A close_notify without FIN: the end of one direction only."""
    late = produce_like([400_000], 3)
    seen: list[bytes] = []
    has_ended = threading.Event()

    def script(sock: ssl.SSLSocket) -> None:
        seen.append(wire.read_frame(sock))
        sock.sendall(wire.response(1, bytes(50_000)))
        seen.append(sock.recv(10))
        assert has_ended.wait(PATIENCE)  # Python's `unwrap` takes what comes meanwhile for a fault
        sock.sendall(late)
        end_writing(sock)

    _, client = secure(script)
    assert len(wire.ask(client, wire.request(18, 0, 1))) == 50_008
    end_writing(client)
    has_ended.set()
    assert everything(client) == late
    assert seen[1] == b""


def test_the_end_of_data_that_came_in_one_piece(secure: Secure) -> None:
    """Data, close_notify and FIN at once: no edge comes after them."""
    reasons: list[bytes] = []

    def script(sock: ssl.SSLSocket) -> None:
        sock.sendall(wire.response(1, bytes(200_000)))
        sock.unwrap()
        reasons.append(b"done")

    _, client = secure(script)
    assert len(everything(client)) == 200_008


@pytest.mark.parametrize("by", ["client", "broker"])
def test_a_reset_stays_a_reset(testbed: Testbed, pki: Pki, by: str) -> None:
    """The side that resets uses TLS; the other is plain, because Python's TLS sockets report a reset as an end."""

    def reset(sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        socket.socket.close(sock)

    outcome: list[str] = []

    def script(sock: socket.socket) -> None:
        if by == "broker":
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or the reset overtakes what waits
            sock = server_context(pki.broker).wrap_socket(sock, server_side=True)
        sock.sendall(wire.response(1, wire.read_frame(sock)))
        if by == "broker":
            reset(sock)
            return
        try:
            outcome.append(repr(sock.recv(1)))
        except ConnectionResetError:
            outcome.append("reset")

    tls = TlsConfig(ca=pki.proxy_ca) if by == "client" else TlsConfig(broker_ca=pki.ca.path)
    proxy = testbed.proxy(testbed.broker(script).address, tls=tls)
    client = testbed.client(proxy.address)
    if by == "client":
        client = pki.client().wrap_socket(client, server_hostname="localhost")
    assert wire.ask(client, wire.request(18, 0, 1))
    if by == "client":
        reset(client)
    else:
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    closed = next_event(proxy, ConnectionClosed)
    assert (closed.how, closed.by) == ("rst", by)
    if by == "client":
        assert until(lambda: outcome) == ["reset"]


@pytest.mark.slow
def test_slow_readers_and_large_transfers_both_ways(secure: Secure, testbed: Testbed) -> None:
    """Both peers read late and slowly; nothing is lost, and the proxy does not take more than its share."""
    up, down = produce_like([4_000_000] * 3, 4), produce_like([3_000_000] * 4, 5)
    received: list[bytes] = []

    def script(sock: ssl.SSLSocket) -> None:
        received.append(both_ways(sock, down, 1 << 20, (0.5, 0.001, 30_011)))
        sock.close()

    _, client = secure(script)
    back = both_ways(client, up, 1 << 20, (0.5, 0.001, 20_011))
    until(lambda: received)
    assert hashlib.sha256(back).digest() == hashlib.sha256(down).digest()
    assert hashlib.sha256(received[0]).digest() == hashlib.sha256(up).digest()


# --- certificates of brokers ---------------------------------------------------------------------------------------


def bad_certificates(folder: Path, ca: Certificate) -> BadCertificates:
    other = make(folder, "other-ca", ca=True)
    return {
        "expired": (make(folder, "expired", HOSTS, ca, days=(-30, -1)), "has expired (it was valid until "),
        "not valid yet": (make(folder, "early", HOSTS, ca, days=(5, 30)), "is not valid yet"),
        "wrong name": (make(folder, "wrong", ("kafka.example",), ca), "is for another IP address"),
        "self-signed": (make(folder, "alone", HOSTS), "is self-signed"),
        "unknown CA": (make(folder, "unknown", HOSTS, other), "comes from a CA that is not trusted"),
        "TLS 1.0": (make(folder, "old", HOSTS, ca, kind="rsa"), "offers no TLS 1.2 or newer"),
    }


@pytest.fixture(scope="module")
def bad(pki: Pki) -> BadCertificates:
    return bad_certificates(pki.folder, pki.ca)


@pytest.mark.parametrize("which", ["expired", "not valid yet", "wrong name", "self-signed", "unknown CA", "TLS 1.0"])
def test_a_bad_broker_is_refused(testbed: Testbed, pki: Pki, bad: BadCertificates, which: str) -> None:
    """And nothing of the client's has reached it by then."""
    certificate, why = bad[which]
    context = server_context(certificate)
    if which == "TLS 1.0":
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1
    reached: list[bytes] = []

    def script(sock: socket.socket) -> None:
        reached.append(context.wrap_socket(sock, server_side=True).recv(1))

    proxy = testbed.proxy(testbed.broker(script).address, tls=TlsConfig(broker_ca=pki.ca.path))
    client = testbed.client(proxy.address)
    client.sendall(wire.request(18, 0, 1))
    failed = next_event(proxy, TlsFailed)
    assert failed.side == "broker" and why in failed.reason
    try:
        assert client.recv(1) == b""
    except ConnectionResetError:
        pass  # its request was never read
    assert not any(reached)
    proxy.stop()
    assert not [event.text for event in proxy.events() if isinstance(event, TlsFailed)], "reported twice"


def test_verification_can_be_left_out_and_is_reported_then(testbed: Testbed, bad: BadCertificates) -> None:
    context = server_context(bad["expired"][0])
    broker = testbed.broker(lambda sock: context.wrap_socket(sock, server_side=True).sendall(b"\0\0\0\4\0\0\0\1"))
    proxy = testbed.proxy(broker.address, tls=TlsConfig(broker_insecure=True))
    assert "NOT VERIFIED" in next_event(proxy, Listening).text
    assert "NOT verified" in next_event(proxy, NotVerified).text
    assert testbed.client(proxy.address).recv(8) == b"\0\0\0\4\0\0\0\1"


def test_another_name_for_the_broker(testbed: Testbed, pki: Pki, bad: BadCertificates) -> None:
    context = server_context(bad["wrong name"][0])
    broker = testbed.broker(lambda sock: context.wrap_socket(sock, server_side=True).sendall(b"\0\0\0\4\0\0\0\1"))
    proxy = testbed.proxy(broker.address, tls=TlsConfig(broker_ca=pki.ca.path, broker_name="kafka.example"))
    assert testbed.client(proxy.address).recv(8) == b"\0\0\0\4\0\0\0\1"


@pytest.mark.parametrize("own", ["none", "wrong", "right"])
def test_a_broker_that_wants_a_certificate(testbed: Testbed, pki: Pki, bad: BadCertificates, own: str) -> None:
    context = server_context(pki.broker, clients=pki.ca)
    mine = {"none": None, "wrong": bad["unknown CA"][0], "right": make(pki.folder, "proxy-client", (), pki.ca)}[own]
    options = {} if mine is None else {"broker_certificate": mine.path, "broker_key": mine.key_path}
    names: list[Any] = []

    def script(sock: socket.socket) -> None:
        tls = context.wrap_socket(sock, server_side=True)
        names.append(tls.getpeercert()["subject"])
        tls.sendall(b"\0\0\0\4\0\0\0\1")
        tls.recv(1)

    proxy = testbed.proxy(testbed.broker(script).address, tls=TlsConfig(broker_ca=pki.ca.path, **options))
    client = testbed.client(proxy.address)
    if own == "right":
        assert client.recv(8) == b"\0\0\0\4\0\0\0\1"
        assert names == [((("commonName", "proxy-client"),),)]
    else:
        assert "--broker-cert" in next_event(proxy, TlsFailed).reason


def test_a_broker_without_tls(testbed: Testbed, pki: Pki) -> None:
    broker = testbed.broker(lambda sock: sock.sendall(b"\0\0\0\4\0\0\0\1"))
    proxy = testbed.proxy(broker.address, tls=TlsConfig(broker_ca=pki.ca.path))
    testbed.client(proxy.address)
    assert "does not use TLS" in next_event(proxy, TlsFailed).reason


# --- clients -------------------------------------------------------------------------------------------------------


def test_clients_that_cannot_be_served(testbed: Testbed, pki: Pki) -> None:
    proxy = testbed.proxy(testbed.broker(lambda sock: sock.recv(1)).address, tls=TlsConfig(ca=pki.proxy_ca))
    plain = testbed.client(proxy.address)
    plain.sendall(wire.request(18, 0, 1))
    assert "plaintext on the TLS listener" in next_event(proxy, TlsFailed).text
    assert plain.recv(1) == b""

    old = pki.client()
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1
    with pytest.raises(ssl.SSLError):
        old.wrap_socket(testbed.client(proxy.address), server_hostname="localhost")
    assert "no TLS 1.2 or newer" in next_event(proxy, TlsFailed).reason

    distrust = client_context(pki.ca.path)
    with pytest.raises(ssl.SSLCertVerificationError):
        distrust.wrap_socket(testbed.client(proxy.address), server_hostname="localhost")
    reason = next_event(proxy, TlsFailed).reason
    assert "does not trust the proxy's certificate (alert unknown_ca)" in reason

    testbed.client(proxy.address).close()
    assert "closed the connection during the TLS handshake" in next_event(proxy, TlsFailed).reason


def test_peers_that_never_finish_the_handshake(testbed: Testbed, pki: Pki) -> None:
    """They have the time that a connect may take."""
    over = threading.Event()
    silent = testbed.broker(lambda sock: over.wait(PATIENCE))
    soon = Limits(connect_seconds=0.5)
    proxy = testbed.proxy(silent.address, tls=TlsConfig(ca=pki.proxy_ca), limits=soon)
    other = testbed.proxy(silent.address, tls=TlsConfig(broker_ca=pki.ca.path), limits=soon)
    mute, waiting = testbed.client(proxy.address), testbed.client(other.address)
    assert mute.recv(1) == b""
    assert "has not finished the TLS handshake" in next_event(proxy, TlsFailed).reason
    assert waiting.recv(1) == b""
    over.set()


def test_others_are_served_while_a_peer_does_not_finish_the_handshake(testbed: Testbed, pki: Pki) -> None:
    over = threading.Event()
    silent = testbed.broker(lambda sock: over.wait(PATIENCE))
    proxy = testbed.proxy(silent.address, tls=TlsConfig(ca=pki.proxy_ca), limits=Limits(connect_seconds=10 * PATIENCE))
    mute = testbed.client(proxy.address)
    good = pki.client().wrap_socket(testbed.client(proxy.address), server_hostname="localhost")
    assert next_event(proxy, ConnectionOpened) and good.version() == "TLSv1.3"
    assert not wire.readable(mute)
    over.set()


def test_a_tls_hello_on_the_plain_listener_names_the_way_out(testbed: Testbed, pki: Pki) -> None:
    context = server_context(pki.broker)
    broker = testbed.broker(lambda sock: context.wrap_socket(sock, server_side=True).sendall(b"hello"))
    proxy = testbed.proxy(broker.address)
    client = client_context(pki.ca.path).wrap_socket(testbed.client(proxy.address), server_hostname="localhost")
    assert client.recv(5) == b"hello"
    assert "--tls-ca" in next_event(proxy, NotKafka).text


# --- names and certificates ----------------------------------------------------------------------------------------


def test_clients_are_given_the_name_they_came_by(testbed: Testbed, pki: Pki) -> None:
    """It is the one in the certificate; a client that came by address is given the address."""
    broker = testbed.broker(scripted.naming(lambda: [(1, "10.9.9.9", 9092)]))
    proxy = testbed.proxy(broker.address, tls=TlsConfig(ca=pki.proxy_ca))
    for name in ("localhost", "127.0.0.1"):
        client = pki.client().wrap_socket(testbed.client(proxy.address), server_hostname=name)
        message = decoder.decode_response(wire.ask(client, wire.request(3, 8, 1))[4:], api_key=3, api_version=8)
        assert message["brokers[0].host"] == name


def test_one_listener_for_all_brokers(testbed: Testbed, pki: Pki) -> None:
    """Names choose brokers; the bootstrap name, unknown names and no name lead to the bootstrap broker. Brokers that do not exist are
    refused."""
    second, third = (testbed.broker(scripted.answering(name)) for name in (b"second", b"third"))
    brokers: list[tuple[int, str, int]] = [(2, *second.address)]
    first = testbed.broker(scripted.naming(lambda: brokers))
    brokers.insert(0, (1, *first.address))
    proxy = testbed.proxy(first.address, tls=TlsConfig(ca=pki.proxy_ca, sni_suffix="Kafka.Example"))

    def connect(name: str) -> ssl.SSLSocket:
        return pki.client().wrap_socket(testbed.client(proxy.address), server_hostname=name)

    def who(name: str) -> bytes:
        client = connect(name)
        return bytes(wire.ask(client, wire.request(13, 0, 7))[8:])

    assert who("broker-2.kafka.example") == bytes(6)  # no response has named it yet
    client = connect("kafka.example")
    message = decoder.decode_response(wire.ask(client, wire.request(3, 8, 1))[4:], api_key=3, api_version=8)
    port = proxy.address[1]
    assert [(b["host"], b["port"]) for b in message.to_dict()["brokers"]] == [
        ("broker-1.kafka.example", port),
        ("broker-2.kafka.example", port),
    ]
    assert who("broker-2.kafka.example") == b"second"
    assert who("BROKER-2.kafka.example") == b"second"
    assert who("broker-1.kafka.example") == who("127.0.0.1") == who("elsewhere.example") == bytes(6)
    with suppress(OSError):
        assert not connect("broker-99.kafka.example").recv(1)
    refused = next_event(proxy, BrokerNameUnknown)
    assert refused.text.endswith(
        "is refused: it asks for broker-99.kafka.example, but the cluster's brokers are broker-1.kafka.example, broker-2.kafka.example"
    )
    brokers[1] = (2, *third.address)
    assert wire.ask(client, wire.request(3, 8, 2))
    assert who("broker-2.kafka.example") == b"third"


def test_a_certificate_of_ones_own_and_its_mistakes(testbed: Testbed, pki: Pki, bad: BadCertificates) -> None:
    broker = testbed.broker(lambda sock: sock.sendall(b"\0\0\0\4\0\0\0\1"))
    own = TlsConfig(certificate=pki.broker.path, key=pki.broker.key_path)
    proxy = testbed.proxy(broker.address, tls=own)
    client = client_context(pki.ca.path).wrap_socket(testbed.client(proxy.address), server_hostname="localhost")
    assert client.recv(8) == b"\0\0\0\4\0\0\0\1"
    missing = pki.folder / "missing.pem"
    for tls, words in (
        (TlsConfig(certificate=pki.broker.path), "--tls-key"),
        (TlsConfig(certificate=pki.broker.path, key=pki.ca.key_path), "is not the key of"),
        (TlsConfig(certificate=missing, key=pki.broker.key_path), "does not exist"),
        (TlsConfig(certificate=pki.broker.key_path, key=pki.broker.key_path), "cannot be used"),
        (TlsConfig(ca=pki.proxy_ca, certificate=pki.broker.path, key=pki.broker.key_path), "use only one"),
        (TlsConfig(sni_suffix="kafka.example"), "--tls-ca"),
        (TlsConfig(ca=pki.proxy_ca, sni_suffix="no domain"), "not a domain name"),
        (TlsConfig(broker_ca=missing), "--broker-ca"),
        (TlsConfig(broker_ca=pki.broker.key_path), "no PEM certificate"),
        (TlsConfig(broker_insecure=True, broker_ca=pki.ca.path), "--broker-insecure"),
        (TlsConfig(broker_certificate=pki.broker.path), "--broker-key"),
        (TlsConfig(broker=True, keylog=missing / "keys"), "--tls-keylog"),
    ):
        with pytest.raises(ProxyError) as refused:
            testbed.proxy(broker.address, tls=tls)
        assert words in str(refused.value) and "\n" not in str(refused.value)


def test_keys_are_logged_for_wireshark_on_request_only(secure: Secure, tmp_path: Path) -> None:
    log = tmp_path / "keys.log"
    _, client = secure(lambda sock: sock.sendall(b"\0\0\0\4\0\0\0\1"), tls={"keylog": log})
    assert client.recv(8) == b"\0\0\0\4\0\0\0\1"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    labels = [line.split()[0] for line in log.read_text().splitlines() if not line.startswith("#")]
    assert labels.count("CLIENT_TRAFFIC_SECRET_0") == 2  # both legs


# --- the socket itself ---------------------------------------------------------------------------------------------


class Lane:
    hangup = False


Pair = tuple[TlsSocket, TlsSocket, Lane, Lane]


@pytest.fixture
def pair(pki: Pki) -> Iterator[Pair]:
    """A client and a server over a socket pair with buffers as small as they can be, hands shaken."""
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    lanes = Lane(), Lane()
    client = TlsSocket(ends[0], client_context(pki.ca.path), lanes[0], server_side=False, server_hostname="localhost")
    server = TlsSocket(ends[1], server_context(pki.broker), lanes[1], server_side=True)
    done = [False, False]
    for _ in range(50):
        done = [client.shake(), server.shake()]
        if all(done):
            break
    assert all(done)
    yield client, server, *lanes
    client.close()
    server.close()


def send_all(sock: TlsSocket, data: bytes, while_waiting: Callable[[], None]) -> None:
    """As lanes do: what was not taken comes again, with more behind it."""
    pending = bytearray(data[: len(data) // 3])
    rest = data[len(pending) :]
    while pending or rest:
        try:
            del pending[: sock.send(bytes(pending))]
        except BlockingIOError:
            while_waiting()
        pending += rest[:5000]
        rest = rest[5000:]


@pytest.mark.parametrize("view_size", [1, 100, 16384, 70_000])
def test_short_writes_and_reads_of_any_size(pair: Pair, view_size: int) -> None:
    client, server, _, reads = pair
    data = random.Random(view_size).randbytes(3_000 if view_size == 1 else 300_000)
    got = bytearray()
    room = bytearray(view_size)

    def read() -> None:
        try:
            while True:
                count = server.recv_into(memoryview(room))
                got.extend(room[:count])
                if not count:
                    return
        except BlockingIOError:
            pass

    send_all(client, data, read)
    client.shutdown(socket.SHUT_WR)
    for _ in range(1000):
        if client.waits:
            client.finish_sending()
        read()
        if reads.hangup and not client.waits:
            break
    assert bytes(got) == data
    assert reads.hangup  # the end was there without an edge of its own
    assert server.recv_into(memoryview(room)) == 0
    server.send(b"still open")
    assert client.recv_into(memoryview(bytearray(20))) == 10


def test_closing_for_writing_keeps_what_was_decrypted_in_part(pair: Pair) -> None:
    client, server, *_ = pair
    data = b"x" * 10_000
    room = memoryview(bytearray(4_000))
    while True:  # the record comes through a buffer that is smaller than it is
        try:
            client.send(data)
        except BlockingIOError:
            pass
        try:
            assert server.recv_into(room) == 4_000
            break
        except BlockingIOError:
            pass
    server.shutdown(socket.SHUT_WR)
    assert [server.recv_into(room), server.recv_into(room)] == [4_000, 2_000]
    client.send(b"and more")
    assert server.recv_into(room) == 8 and bytes(room[:8]) == b"and more"
    assert client.recv_into(room) == 0


def test_both_sides_end(pair: Pair) -> None:
    """The peer's close_notify that comes after one's own is an end, too, and no fault."""
    client, server, *_ = pair
    room = memoryview(bytearray(100))
    server.shutdown(socket.SHUT_WR)
    client.shutdown(socket.SHUT_WR)
    assert server.recv_into(room) == client.recv_into(room) == 0


def test_a_broken_record_breaks_the_connection_with_a_word(pair: Pair) -> None:
    client, server, *_ = pair
    reasons: list[str] = []
    server.broken = reasons.append
    client._sock.send(b"\x17\x03\x03\x00\x20" + bytes(32))
    with pytest.raises(TlsFault):
        server.recv_into(memoryview(bytearray(100)))
    with pytest.raises(OSError):
        server.recv_into(memoryview(bytearray(100)))
    assert len(reasons) == 1 and "TLS with the client failed" in reasons[0]


def test_a_broken_record_behind_the_end_is_not_reported(pair: Pair) -> None:
    client, server, *_ = pair
    reasons: list[str] = []
    server.broken = reasons.append
    server.shutdown(socket.SHUT_WR)
    client._sock.send(b"\x17\x03\x03\x00\x20" + bytes(32))
    with pytest.raises(TlsFault):
        server.recv_into(memoryview(bytearray(100)))
    assert not reasons
