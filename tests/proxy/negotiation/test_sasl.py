"""Logging in upstream: what is sent, mechanism by mechanism, and in the relay with a scripted broker."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.captures import open_capture
from barnabas.decoder.schema import facts
from barnabas.proxy import ProxyError
from barnabas.proxy.events import ConnectionClosed, Event, Listening, LoggedIn, LoginFailed, TlsFailed
from barnabas.proxy.relay.negotiation.sasl import LoginRefused, SaslConfig, Work, conversation, unsecured_token
from barnabas.proxy.relay.negotiation.security import TlsConfig
from harness import wire
from harness.testbed import Testbed, next_event
from harness.waiting import attempts

VERSIONS, HANDSHAKE, AUTHENTICATE = (facts.api_key(n) for n in ("ApiVersions", "SaslHandshake", "SaslAuthenticate"))
CANARY = "canary-9Qx-password"
Answer = Callable[[bytes], dict[str, Any]]


class Talk:
    """Drives a conversation as a broker that answers by `answer(token)`."""

    def __init__(self, config: SaslConfig, answer: Answer, offers: dict[int, int] | None = None) -> None:
        self.config = config
        self.answer = answer
        self.offers = {HANDSHAKE: 1, AUTHENTICATE: 2} if offers is None else offers
        self.mechanisms = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
        self.tokens: list[bytes] = []
        self.asked: list[tuple[int, int]] = []
        self.salted: dict[Any, bytes] = {}

    def run(self) -> int:
        dialogue = conversation(self.config, self.salted)
        step: Any = next(dialogue)
        raw = False
        try:
            while True:
                if isinstance(step, Work):
                    step = dialogue.send(step.run())
                    continue
                assert int.from_bytes(step[:4], "big") == len(step) - 4
                frame = step[4:]
                if raw:
                    self.tokens.append(frame)
                    step = dialogue.send(self.answer(frame)["auth_bytes"])
                    continue
                key, version, correlation = struct.unpack_from(">hhi", frame)
                self.asked.append((key, version))
                if key == AUTHENTICATE:
                    self.tokens.append(decoder.decode_request(frame)["auth_bytes"])
                    fields = self.answer(self.tokens[-1])
                elif key == HANDSHAKE:
                    known = self.config.mechanism in self.mechanisms
                    fields = {"error_code": 0 if known else 33, "mechanisms": self.mechanisms}
                    raw = not version
                else:
                    offered = [{"api_key": k, "min_version": 0, "max_version": v} for k, v in self.offers.items()]
                    fields = {"api_keys": offered}
                step = dialogue.send(decoder.encode_response(key, version, fields, correlation_id=correlation))
        except StopIteration as done:
            lifetime: int = done.value
            return lifetime


def test_plain_and_the_sessions_lifetime() -> None:
    talk = Talk(SaslConfig("PLAIN", "alice", CANARY), lambda _: {"auth_bytes": b"", "session_lifetime_ms": 5000})
    assert talk.run() == 5000
    assert talk.tokens == [b"\0alice\0" + CANARY.encode()]
    assert talk.asked == [(VERSIONS, 0), (HANDSHAKE, 1), (AUTHENTICATE, 2)]


@pytest.mark.parametrize(
    ("offers", "used"),
    [
        ({HANDSHAKE: 1, AUTHENTICATE: 0}, [(VERSIONS, 0), (HANDSHAKE, 1), (AUTHENTICATE, 0)]),
        ({HANDSHAKE: 1, AUTHENTICATE: 99}, [(VERSIONS, 0), (HANDSHAKE, 1), (AUTHENTICATE, 2)]),
        ({HANDSHAKE: 0}, [(VERSIONS, 0), (HANDSHAKE, 0)]),
    ],
)
def test_versions_that_the_broker_has_are_used(offers: dict[int, int], used: list[tuple[int, int]]) -> None:
    talk = Talk(SaslConfig("PLAIN", "alice", CANARY), lambda _: {"auth_bytes": b""}, offers)
    assert talk.run() == 0
    assert talk.asked == used and len(talk.tokens) == 1


RFC_7677 = (  # section 3
    "SCRAM-SHA-256", "rOprNGfwEbeRWgbNEkqO", "pencil",
    b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)  # fmt: skip


def scram(server_first: bytes, server_final: bytes, monkeypatch: pytest.MonkeyPatch) -> Talk:
    monkeypatch.setattr(secrets, "token_urlsafe", lambda _: RFC_7677[1])
    answers = iter([server_first, server_final])
    return Talk(SaslConfig("SCRAM-SHA-256", "user", RFC_7677[2]), lambda _: {"auth_bytes": next(answers)})


def test_scram_is_that_of_the_rfc(monkeypatch: pytest.MonkeyPatch) -> None:
    talk = scram(RFC_7677[4], RFC_7677[6], monkeypatch)
    talk.run()
    assert talk.tokens == [RFC_7677[3], RFC_7677[5]]
    assert len(talk.salted) == 1  # computed once for all connections


@pytest.mark.parametrize(
    ("first", "final", "words"),
    [
        (RFC_7677[4], b"v=AAAATRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "could not prove"),
        (RFC_7677[4], b"", "could not prove"),
        (RFC_7677[4], b"e=invalid-proof", "invalid-proof"),
        (RFC_7677[4].replace(b"i=4096", b"i=100001"), b"", "100001 SCRAM iterations"),
        (RFC_7677[4].replace(b"i=4096", b"i=2147483647"), b"", "SCRAM iterations"),
        (RFC_7677[4].replace(b"i=4096", b"i=" + b"9" * 5000), b"", "SCRAM iterations"),
        (RFC_7677[4].replace(b"i=4096", b"i=1"), b"", "1 SCRAM iterations"),
        (RFC_7677[4].replace(b"i=4096", b"i=-4096"), b"", "malformed"),
        (RFC_7677[4].replace(b"r=rOpr", b"r=xOpr"), b"", "malformed"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", b"", "malformed"),
        (RFC_7677[4].replace(b"s=W22Z", b"s=!!"), b"", "malformed"),
        (b"\xff\xfe", b"", "malformed"),
    ],
)
def test_scram_refuses(first: bytes, final: bytes, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.proxy.relay.negotiation.sasl.hashlib.pbkdf2_hmac", lightly)
    with pytest.raises(LoginRefused) as refused:
        scram(first, final, monkeypatch).run()
    assert words in str(refused.value) and "pencil" not in str(refused.value)
    assert len(str(refused.value)) < 300


def lightly(name: str, password: bytes, salt: bytes, iterations: int, *, of: Any = hashlib.pbkdf2_hmac) -> bytes:
    """PBKDF2, but never as often as a hostile broker may ask."""
    assert iterations <= 100_000
    return of(name, password, salt, iterations)


def test_scram_sha_512_with_a_name_that_needs_care() -> None:
    """Against a server written from the RFC."""
    password, salt, stored = b"p\xc3\xa4ss", b"salt-salt", {}

    def answer(token: bytes) -> dict[str, Any]:
        text = token.decode()
        if "first" not in stored:
            bare = text.removeprefix("n,,")
            assert bare.startswith("n=a=2Cb=3Dc,r=")
            nonce = bare.rpartition("r=")[2] + "server"
            stored["first"] = f"r={nonce},s={base64.b64encode(salt).decode()},i=8192"
            stored["bare"] = bare
            return {"auth_bytes": stored["first"].encode()}
        without, _, proof = text.rpartition(",p=")
        salted = hashlib.pbkdf2_hmac("sha512", password, salt, 8192)
        message = f"{stored['bare']},{stored['first']},{without}".encode()
        key = hmac.digest(salted, b"Client Key", "sha512")
        signature = hmac.digest(hashlib.sha512(key).digest(), message, "sha512")
        assert base64.b64decode(proof) == bytes(a ^ b for a, b in zip(key, signature))
        server = hmac.digest(hmac.digest(salted, b"Server Key", "sha512"), message, "sha512")
        return {"auth_bytes": b"v=" + base64.b64encode(server)}

    assert Talk(SaslConfig("SCRAM-SHA-512", "a,b=c", "päss"), answer).run() == 0


def test_oauthbearer() -> None:
    talk = Talk(SaslConfig("OAUTHBEARER", secret="a.b.c"), lambda _: {"auth_bytes": b""})
    talk.run()
    assert talk.tokens == [b"n,,\x01auth=Bearer a.b.c\x01\x01"]
    header, claims, signature = unsecured_token("alice").split(".")
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"} and not signature
    assert json.loads(base64.urlsafe_b64decode(claims + "=="))["sub"] == "alice"
    talk = Talk(SaslConfig("OAUTHBEARER", secret=CANARY), lambda _: {"auth_bytes": b'{"status":"invalid_token"}'})
    with pytest.raises(LoginRefused, match="invalid_token"):
        talk.run()


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
def test_a_refusal_that_quotes_what_was_sent_does_not_show_it(mechanism: str) -> None:
    def refused(sent: bytes) -> dict[str, Any]:
        quoted = sent.rpartition(b"\0")[2].decode().replace("\x01", " ")
        return {"error_code": 58, "error_message": f"I do not know {quoted!r}", "auth_bytes": b""}

    with pytest.raises(LoginRefused, match="I do not know") as failed:
        Talk(SaslConfig(mechanism, "alice", CANARY), refused).run()
    assert CANARY not in str(failed.value)


def test_refusals_carry_the_brokers_words() -> None:
    refused = {"error_code": 58, "error_message": "Authentication failed: bad", "auth_bytes": b""}
    with pytest.raises(LoginRefused, match=r"Authentication failed: bad \(SASL_AUTHENTICATION_FAILED\)"):
        Talk(SaslConfig("PLAIN", "alice", CANARY), lambda _: refused).run()
    talk = Talk(SaslConfig("PLAIN", "alice", CANARY), lambda _: refused)
    talk.mechanisms = ["GSSAPI"]
    with pytest.raises(LoginRefused, match="it offers GSSAPI"):
        talk.run()
    with pytest.raises(LoginRefused, match="no SASL login"):
        Talk(SaslConfig("PLAIN", "alice", CANARY), lambda _: refused, {}).run()


def test_settings_that_cannot_work(testbed: Testbed) -> None:
    for sasl, words in (
        (SaslConfig("GSSAPI", "a", "b"), "not one of"),
        (SaslConfig("PLAIN", "", CANARY), "--sasl-username"),
        (SaslConfig("PLAIN", "a"), "--sasl-password-file"),
        (SaslConfig("PLAIN", "a\0b", CANARY), "NUL"),
        (SaslConfig("OAUTHBEARER"), "token"),
        (SaslConfig("OAUTHBEARER", secret=f"{CANARY} x"), "characters"),
    ):
        with pytest.raises(ProxyError) as refused:
            testbed.proxy(("127.0.0.1", 1), sasl=sasl)
        assert words in str(refused.value) and CANARY not in str(refused.value)
        assert CANARY not in repr(sasl)


# --- in the relay ---------------------------------------------------------------------------------------------------


class LoginBroker:
    """A scripted broker: takes any PLAIN login; then echoes requests as responses. `seen`: (api key, raw frame)."""

    def __init__(self, lifetime_ms: int = 0, refuse: str = "") -> None:
        self.lifetime_ms = lifetime_ms
        self.refuse = refuse
        self.seen: list[tuple[int, bytes]] = []

    def __call__(self, sock: socket.socket) -> None:
        while data := wire.read_frame(sock):
            key, version, correlation = struct.unpack_from(">hhi", data, 4)
            self.seen.append((key, data))
            if key == HANDSHAKE:
                fields: dict[str, Any] = {"mechanisms": ["PLAIN"]}
            elif key == AUTHENTICATE:
                fields = {"auth_bytes": b"", "session_lifetime_ms": self.lifetime_ms}
                if self.refuse:
                    fields |= {"error_code": 58, "error_message": self.refuse}
            elif key == VERSIONS and correlation < 0:
                offers = {HANDSHAKE: 1, AUTHENTICATE: 2}
                fields = {"api_keys": [{"api_key": k, "min_version": 0, "max_version": v} for k, v in offers.items()]}
            elif key == 0:
                continue  # acks=0
            else:
                sock.sendall(wire.response(correlation, data[12:]))
                continue
            answer = decoder.encode_response(key, version, fields, correlation_id=correlation)
            sock.sendall(wire.with_size(answer))


PLAIN = SaslConfig("PLAIN", "alice", CANARY)


def test_the_login_comes_first_and_is_recorded_without_its_secret(testbed: Testbed, tmp_path: Path) -> None:
    script = LoginBroker()
    proxy = testbed.proxy(testbed.broker(script).address, sasl=PLAIN, record=tmp_path)
    assert "alice with PLAIN" in next_event(proxy, Listening).text
    client = testbed.client(proxy.address)
    asked = b"".join(wire.request(13, 0, number, bytes(100)) for number in range(5))
    client.sendall(asked)
    for number in range(5):
        assert wire.read_frame(client)[4:8] == struct.pack(">i", number)
    assert next_event(proxy, LoggedIn).username == "alice"
    client.close()
    next_event(proxy, ConnectionClosed)
    assert [key for key, _ in script.seen[:3]] == [VERSIONS, HANDSHAKE, AUTHENTICATE]
    assert b"".join(data for _, data in script.seen[3:]) == asked
    proxy.stop()
    recorded = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert CANARY.encode() not in recorded
    assert recorded.count(b"the proxy logs in") >= 6
    assert b"SaslHandshake" in recorded or b"PLAIN" in recorded
    with open_capture(tmp_path) as capture:
        assert not capture.verify()
        assert [exchange.api_key for exchange in capture.exchanges()] == [13] * 5


def test_a_refused_login_closes_the_client_with_the_brokers_words(testbed: Testbed, tmp_path: Path) -> None:
    script = LoginBroker(refuse="no such user")
    proxy = testbed.proxy(testbed.broker(script).address, sasl=PLAIN, record=tmp_path)
    assert testbed.client(proxy.address).recv(1) == b""
    failed = next_event(proxy, LoginFailed)
    assert "no such user" in failed.text and CANARY not in failed.text


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "closed the connection"),
        (b"HTTP/1.1 400 Bad Request", "not a Kafka frame"),
        (b"\0\0\0\2xx", "cannot be read"),
    ],
)
def test_brokers_that_answer_anything_else(testbed: Testbed, answer: bytes, words: str) -> None:
    def script(sock: socket.socket) -> None:
        wire.read_frame(sock)
        sock.sendall(answer)
        if answer:
            sock.recv(1)

    proxy = testbed.proxy(testbed.broker(script).address, sasl=PLAIN)
    testbed.client(proxy.address)
    assert words in next_event(proxy, LoginFailed).reason


def test_logging_in_again_between_frames(testbed: Testbed) -> None:
    """The client sees its own responses alone and in order, the broker never a request within the login."""
    script = LoginBroker(lifetime_ms=1000)
    proxy = testbed.proxy(testbed.broker(script).address, sasl=PLAIN)
    client = testbed.client(proxy.address)
    number = 0
    for _ in attempts():
        asked = b"".join(wire.request(13, 0, number + i, bytes(300)) for i in range(20))
        client.sendall(asked)
        for i in range(20):
            assert wire.read_frame(client)[4:8] == struct.pack(">i", number + i)
        number += 20
        if [key for key, _ in script.seen].count(AUTHENTICATE) >= 3:
            break
    keys = [key for key, _ in script.seen]
    logins = [at for at, key in enumerate(keys) if key == HANDSHAKE]
    assert len(logins) == 3
    assert all(keys[at - 1 : at + 2] == [VERSIONS, HANDSHAKE, AUTHENTICATE] for at in logins)
    assert keys.count(13) == number


@pytest.mark.slow  # for 10 s the proxy waits for a moment without requests in flight
def test_a_client_that_is_never_answered_is_closed_in_order(testbed: Testbed) -> None:
    """acks=0 alone shows no moment for a login; 10 s are waited for one."""
    script = LoginBroker(lifetime_ms=1500)
    proxy = testbed.proxy(testbed.broker(script).address, sasl=PLAIN)
    client = testbed.client(proxy.address)
    produce = wire.request(0, 3, 1, struct.pack(">hhii", -1, 0, 1000, 0))
    client.sendall(produce)
    closed = next_event(proxy, ConnectionClosed)
    assert closed.how == "fin" and closed.sent == len(produce)
    assert client.recv(1) == b""


def test_no_secret_on_command_lines_or_in_events(testbed: Testbed, tmp_path: Path) -> None:
    from harness.peers.certificates import make

    ca = make(tmp_path, "ca", ca=True)
    own = make(tmp_path, "own", ("127.0.0.1",), ca)
    tls = TlsConfig(certificate=own.path, key=own.key_path)
    proxy = testbed.proxy(testbed.broker(LoginBroker()).address, sasl=PLAIN, tls=tls, record=tmp_path / "rec")
    testbed.client(proxy.address).sendall(b"plain")
    events: list[Event] = [next_event(proxy, Listening), next_event(proxy, TlsFailed)]
    lines = b"".join(_cmdline(path) for path in Path("/proc").glob("[0-9]*/cmdline"))
    proxy.stop()
    events += proxy.events()
    canaries = [CANARY.encode(), base64.b64encode(CANARY.encode()), own.key_bytes]
    for canary in canaries:
        assert canary not in lines
        assert canary.decode() not in repr(events) + repr(proxy.config)
        assert not any(canary in file.read_bytes() for file in (tmp_path / "rec").rglob("*") if file.is_file())


def _cmdline(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
