"""The versions that a proxy offers clients: options, rules, events at the start, and brokers that are asked first."""

from __future__ import annotations

import socket
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder.reference import releases
from barnabas.decoder.schema import facts
from barnabas.plugins.rules.rules import Rule, RuleError, parse_rules
from barnabas.plugins.translation.translating_adapter import TranslatingAdapter
from barnabas.plugins.versions.adapter import AdaptedRequest as Asked
from barnabas.plugins.versions.emulated_release import offers
from barnabas.plugins.versions.profile import Profile
from barnabas.proxy.events import ConnectionClosed, Event, NotHonoured, OffersLearned
from barnabas.proxy.relay.io.timers import Timers
from barnabas.proxy.relay.negotiation.security import TlsConfig
from barnabas.proxy.relay.negotiation.version_negotiation import VersionNegotiation, VersionsConfig
from harness import wire
from harness.peers.certificates import client_context
from harness.testbed import Testbed, next_event
from harness.waiting import until
from traffic.recordings import findings

API_VERSIONS, PRODUCE, FETCH, HEARTBEAT, METADATA, JOIN, SYNC = 18, 0, 1, 12, 3, 11, 14
NEWEST = releases.release(releases.releases()[-1])
OLDER = releases.release("1.0")


def asking(version: int = 0, number: int = 1, client_id: str = "t") -> bytes:
    body = {"client_software_name": "x", "client_software_version": "1"} if version >= 3 else {}
    return decoder.encode_request(API_VERSIONS, version, body, correlation_id=number, client_id=client_id)


class Kafka:
    """A broker of the newest release as far as ApiVersions goes; everything else it answers with `answer`."""

    def __init__(self, silent: bool = False, closes: bool = False) -> None:
        self.silent, self.closes, self.stops = silent, closes, False
        self.release = NEWEST
        self.answer = b"ok"
        self.seen: list[tuple[int, int]] = []

    def __call__(self, sock: socket.socket) -> None:
        while frame := wire.read_frame(sock):
            key, version, number = (int.from_bytes(frame[a:b], "big") for a, b in ((4, 6), (6, 8), (8, 12)))
            self.seen.append((key, version))
            if self.stops:
                return
            if key != API_VERSIONS:
                sock.sendall(wire.response(number, self.answer))
            elif self.closes:
                return
            elif not self.silent:
                ranges = [
                    {"api_key": key, "min_version": low, "max_version": high}
                    for key, (low, high) in self.release.offered.items()
                ]
                body = {"api_keys": ranges}
                sock.sendall(
                    wire.with_size(decoder.encode_response(API_VERSIONS, version, body, correlation_id=number))
                )


def ask(client: socket.socket, frame: bytes) -> dict[int, tuple[int, int]]:
    return offers(wire.ask(client, wire.with_size(frame))[4:], int.from_bytes(frame[2:4], "big")) or {}


def test_capped_for_everybody(testbed: Testbed) -> None:
    broker = Kafka()
    versions = VersionsConfig(Profile.of("", {"Heartbeat": 2}))
    proxy = testbed.proxy(testbed.broker(broker).address, versions=versions)
    client = testbed.client(proxy.address)
    for version in range(5):
        assert ask(client, asking(version, version)) == NEWEST.offered | {HEARTBEAT: (0, 2), JOIN: (0, 4), SYNC: (0, 4)}
    beyond = 1 + (facts.api(API_VERSIONS).versions.high or 0)
    client.sendall(wire.request(API_VERSIONS, beyond, 7))
    refusal = decoder.decode_response(wire.read_frame(client)[4:], api_key=API_VERSIONS, api_version=beyond).to_dict()
    known = {"api_key": API_VERSIONS, "min_version": 0, "max_version": beyond - 1}
    assert (refusal["error_code"], refusal["api_keys"]) == (35, [known])
    assert (API_VERSIONS, beyond) not in broker.seen
    assert wire.ask(client, wire.request(HEARTBEAT, 2, 8)) == wire.response(8, b"ok")
    assert wire.ask_or_end(client, wire.request(HEARTBEAT, 3, 9)) == b""
    assert (HEARTBEAT, 3) not in broker.seen
    client = testbed.client(proxy.address)
    assert wire.ask_or_end(client, wire.request(JOIN, 5, 1)) == b""  # static members need Heartbeat 3
    assert (JOIN, 5) not in broker.seen


def test_versions_that_the_broker_lacks_are_reported_at_the_start(testbed: Testbed) -> None:
    broker = testbed.broker(Kafka())
    versions = VersionsConfig(Profile.of("2.0", {"Fetch": 3}))
    proxy = testbed.proxy(broker.address, versions=versions, probe=True)
    event = next_event(proxy, NotHonoured)
    assert f"Fetch 0-3 (the broker serves 4-{NEWEST.offered[1][1]})" in event.missing
    assert "OffsetForLeaderEpoch 0-1 (the broker serves 2-4)" in event.missing and len(event.missing) == 3
    assert "offered Kafka 2.0, Fetch up to v3" in event.text and "--translate" in event.text
    # with a translator behind it, it can
    proxy = testbed.proxy(broker.address, versions=VersionsConfig(versions.profile, translate=True), probe=True)
    assert ask(testbed.client(proxy.address), asking())[1] == (0, 3)
    proxy.stop()
    assert not [event for event in proxy.events() if isinstance(event, NotHonoured)]


def test_findings_name_the_cap_and_not_the_broker(testbed: Testbed, tmp_path: Path) -> None:
    """A client that sends a version that it is not offered, again and again."""
    versions = VersionsConfig(Profile.of("", {"Metadata": 9}))
    proxy = testbed.proxy(testbed.broker(Kafka()).address, versions=versions, record=tmp_path)
    for _ in range(5):
        client = testbed.client(proxy.address)
        assert ask(client, asking(3))[PRODUCE] == (0, 12)
        produce = {"acks": 1, "timeout_ms": 1, "topic_data": [{"topic_id": uuid.UUID(int=1), "partition_data": []}]}
        frame = decoder.encode_request(PRODUCE, 13, produce, correlation_id=2, client_id="t")
        assert wire.ask_or_end(client, wire.with_size(frame)) == b""
    proxy.stop()
    found = findings(tmp_path)
    assert found and all(each.rules == ["versions offered: Metadata up to v9"] and each.injected for each in found)


def test_a_rule_gives_some_clients_other_versions(testbed: Testbed) -> None:
    rules = [
        Rule.of("api == ApiVersions and client ~ '^old'", {"pretend": "0.11", "cap": {"Heartbeat": 0}}, name="old"),
        Rule.of("client == capped", {"cap": {"Heartbeat": 1}}, name="capped"),
    ]
    proxy = testbed.proxy(testbed.broker(Kafka()).address, rules=rules)
    found = {}
    for name in ("old-1", "capped", "other"):
        client = testbed.client(proxy.address)
        found[name] = ask(client, asking(client_id=name))
        assert wire.ask_or_end(client, wire.request(HEARTBEAT, 1, 2)) == (b"" if name == "old-1" else wire.response(2, b"ok"))
    assert found["other"] == NEWEST.offered
    assert found["capped"] == NEWEST.offered | {HEARTBEAT: (0, 1), JOIN: (0, 4), SYNC: (0, 4)}
    assert found["old-1"][HEARTBEAT] == (0, 0) and found["old-1"][METADATA] == (0, 4)
    assert max(found["old-1"]) <= 33


def test_a_rule_over_translation(testbed: Testbed) -> None:
    """What translation serves below the broker's own versions is part of what the pretended release has."""
    rule = Rule.of("api == ApiVersions and client == old", {"pretend": "0.11"})
    broker = testbed.broker(Kafka()).address
    plain = testbed.proxy(broker, rules=[rule])
    translating = testbed.proxy(broker, rules=[rule], versions=VersionsConfig(translate=True))
    asked = asking(client_id="old")
    assert ask(testbed.client(plain.address), asked)[FETCH] == (4, 5)
    assert ask(testbed.client(translating.address), asked)[FETCH] == (0, 5)
    assert ask(testbed.client(translating.address), asking())[FETCH] == (0, NEWEST.offered[FETCH][1])


def test_old_brokers_do_not_know_api_versions(testbed: Testbed) -> None:
    broker = testbed.broker(Kafka())
    client = testbed.client(testbed.proxy(broker.address, versions=VersionsConfig(Profile.of("0.9"))).address)
    client.sendall(wire.with_size(asking()) + wire.request(HEARTBEAT, 0, 2))
    assert wire.read_frame(client) == wire.response(2, b"ok")  # 0.9 goes on with the next one
    client = testbed.client(testbed.proxy(broker.address, versions=VersionsConfig(Profile.of("0.8.2"))).address)
    assert wire.ask(client, wire.request(METADATA, 0, 1) + wire.with_size(asking())) == wire.response(1, b"ok")
    assert wire.read_frame(client) == b""


def test_the_broker_is_asked_before_the_first_request(testbed: Testbed) -> None:
    broker = Kafka()
    proxy = testbed.proxy(testbed.broker(broker).address, versions=VersionsConfig(translate=True))
    for number in range(2):  # on the first connection only
        client = testbed.client(proxy.address)
        client.sendall(wire.request(HEARTBEAT, 1, 1) + wire.request(HEARTBEAT, 1, 2))
        assert [wire.read_frame(client) for _ in range(2)] == [wire.response(1, b"ok"), wire.response(2, b"ok")]
        assert broker.seen.count((API_VERSIONS, 0)) == 1, number


@pytest.mark.parametrize("profile", [None, Profile.of("3.0")], ids=["", "pretend"])
def test_a_broker_is_replaced_by_one_of_another_release(testbed: Testbed, profile: Profile | None) -> None:
    """Its offers hold for the connection on which it was asked: the next one gets the new range, as behind a proxy that starts now."""
    broker = Kafka()
    address, versions = testbed.broker(broker).address, VersionsConfig(profile, translate=True)
    proxy = testbed.proxy(address, versions=versions)
    for release in (NEWEST, OLDER, NEWEST):
        broker.release = release
        expected = ask(testbed.client(testbed.proxy(address, versions=versions).address), asking())
        client = testbed.client(proxy.address)
        assert [ask(client, asking(number=number)) for number in range(2)] == [expected] * 2
        wire.ask_or_end(client, heartbeat(2))
        assert broker.seen[-1] == (HEARTBEAT, min(2, release.offered[HEARTBEAT][1]))


@pytest.mark.parametrize("ends", ["broker", "client"])
@pytest.mark.parametrize("how", ["plain", "TLS", "workers"])
def test_clients_that_do_not_ask_meet_another_release(testbed: Testbed, tmp_path: Path, how: str, ends: str) -> None:
    """A broker that is replaced ends its connections, or has none: the next client waits until it is asked again.
    Behind TLS it is asked on that client's connection; of several workers each finds out by itself."""
    options: dict[str, Any] = {"plain": {}, "TLS": {"tls": TlsConfig(ca=tmp_path)}, "workers": {"workers": 2}}
    broker = Kafka()
    broker.answer = bytes(6)  # of Heartbeat 1 and newer
    proxy = testbed.proxy(testbed.broker(broker).address, versions=VersionsConfig(translate=True), **options[how])

    def connect() -> socket.socket:
        client = testbed.client(proxy.address)
        if how == "TLS":
            client = client_context(tmp_path / "ca.pem").wrap_socket(client, server_hostname="localhost")
        assert wire.ask(client, heartbeat(2)) == wire.response(9, broker.answer)
        return client

    clients = [connect() for _ in range(2)]  # workers have one each
    assert broker.seen[-1] == (HEARTBEAT, 2)
    for client in clients:
        if ends == "broker":
            broker.closes = True
            assert wire.ask_or_end(client, wire.with_size(asking())) == b""  # and it is still in CLOSE_WAIT
        else:
            client.close()
            next_event(proxy, ConnectionClosed)
    broker.closes, broker.release = False, OLDER
    broker.seen.clear()
    clients += [connect() for _ in range(2)]
    assert set(broker.seen) == {(API_VERSIONS, 0), (HEARTBEAT, 1)}


def test_a_broker_is_replaced_before_the_first_client_comes(testbed: Testbed) -> None:
    """It was asked when the proxy started."""
    broker = Kafka()
    broker.answer = bytes(6)
    proxy = testbed.proxy(testbed.broker(broker).address, versions=VersionsConfig(translate=True), probe=True)
    until(lambda: broker.seen == [(API_VERSIONS, 0)])
    broker.release = OLDER
    assert wire.ask(testbed.client(proxy.address), heartbeat(2)) == wire.response(9, broker.answer)
    assert broker.seen == [(API_VERSIONS, 0), (API_VERSIONS, 0), (HEARTBEAT, 1)]


@pytest.mark.parametrize("how", ["plain", "TLS"])
def test_a_broker_is_replaced_by_one_that_closes(testbed: Testbed, tmp_path: Path, how: str) -> None:
    """Kafka 0.8 answers what it knows, and closes at ApiVersions; a broker that stops answers nothing. The proxy asks
    on connections of its own, behind TLS on those of clients, which then come again."""
    options: dict[str, Any] = {"tls": TlsConfig(ca=tmp_path)} if how == "TLS" else {}
    broker = Kafka()
    broker.answer = bytes(6)  # of Heartbeat 1 and newer
    proxy = testbed.proxy(testbed.broker(broker).address, versions=VersionsConfig(translate=True), **options)

    seen: list[Event] = []

    def ask_once(frame: bytes) -> bytes:
        """The answer on a connection of its own, when none stands."""
        client = testbed.client(proxy.address)
        if how == "TLS":
            client = client_context(tmp_path / "ca.pem").wrap_socket(client, server_hostname="localhost")
        with client:
            answer = wire.ask_or_end(client, frame)
        seen.append(next_event(proxy, Event))
        while not isinstance(seen[-1], ConnectionClosed):
            seen.append(next_event(proxy, Event))
        return answer

    beat, beaten = heartbeat(2), wire.response(9, broker.answer)
    metadata, answered = wire.request(METADATA, 0, 1), wire.response(1, broker.answer)
    assert ask_once(beat) == beaten
    broker.stops = True
    assert [ask_once(beat) for _ in range(3)] == [b""] * 3
    broker.stops = False
    assert ask_once(beat) == beaten and broker.seen[-1] == (HEARTBEAT, 2)
    broker.closes = True
    lost = 3 if how == "TLS" else 0
    assert [ask_once(metadata) for _ in range(lost + 1)] == [b""] * lost + [answered]
    assert [event.release for event in seen if isinstance(event, OffersLearned)] == ["0.8.2"]
    if how == "TLS":  # what 0.8 offers holds until a connection ends
        broker.stops = True
        assert ask_once(metadata) == b""
    broker.closes = broker.stops = False
    assert ask_once(beat) == beaten and broker.seen[-1] == (HEARTBEAT, 2)


def test_a_silent_broker_is_asked_again_beside_the_next_client(testbed: Testbed) -> None:
    """Lone clients of 0.9 would each wait for 3 s otherwise. Another release's range is used when it has answered."""
    broker = Kafka(silent=True)
    proxy = testbed.proxy(testbed.broker(broker).address, versions=VersionsConfig(translate=True))
    metadata = wire.request(METADATA, 0, 1)
    for _ in range(2):  # the first one waits for 3 s
        with testbed.client(proxy.address) as client:
            assert wire.ask(client, metadata) == wire.response(1, b"ok")
        next_event(proxy, ConnectionClosed)
    until(lambda: broker.seen.count((API_VERSIONS, 0)) == 2)
    broker.silent, broker.answer = False, bytes(6)

    def answered() -> bool:
        with testbed.client(proxy.address) as client:
            return wire.ask_or_end(client, heartbeat(2)) == wire.response(9, broker.answer)

    until(answered)
    assert broker.seen[-1] == (HEARTBEAT, 2)


@pytest.mark.parametrize("possible", [True, False], ids=["aside", "on the client's connection"])
def test_a_broker_that_only_stops_is_not_taken_for_an_old_one(possible: bool) -> None:
    """It ends connections, and those on which it is asked, too: what it has answered before holds."""
    relay: Any = Relay()
    if possible:
        relay.security = None
    negotiation = VersionNegotiation(relay, VersionsConfig(translate=True))
    negotiation.learned(("kafka", 9092), NEWEST.offered)
    first: Any = AdaptedRequest(relay)
    negotiation.begin(first)
    negotiation.broker_ended(("kafka", 9092))
    for control in (None, None, False, None):
        negotiation.closed_connection(("kafka", 9092), control)
    assert relay.events == []
    connection: Any = AdaptedRequest(relay)
    negotiation.begin(connection)
    assert connection.adapter.translator.target(HEARTBEAT, 4) == 4


def heartbeat(version: int) -> bytes:
    body = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    return wire.with_size(decoder.encode_request(HEARTBEAT, version, body, correlation_id=9, client_id="t"))


@pytest.mark.parametrize(("silent", "release"), [(True, "0.9.0"), (False, "0.8.2")])
def test_a_broker_without_api_versions(testbed: Testbed, silent: bool, release: str) -> None:
    broker = Kafka(silent=silent, closes=not silent)
    proxy = testbed.proxy(testbed.broker(broker).address, versions=VersionsConfig(translate=True))
    client = testbed.client(proxy.address)
    assert wire.ask(client, wire.request(METADATA, 0, 1)) == wire.response(1, b"ok")  # it waits, and loses nothing
    assert broker.seen.count((API_VERSIONS, 0)) == (1 if silent else 2)  # what hangs up once may have had other reasons
    event = next_event(proxy, OffersLearned)
    assert event.release == release and f"treated as Kafka {release}" in event.text
    client = testbed.client(proxy.address)
    assert wire.ask(client, wire.request(METADATA, 0, 1)) == wire.response(1, b"ok")


@pytest.mark.parametrize(
    ("do", "message"),
    [
        ("{pretend: '0.10.9'}", "unknown Kafka release '0.10.9', did you mean 0.10.2?"),
        ("{pretend: 2.8}", "a release is text: write it in quotes"),
        ("{cap: 3}", "'cap' must contain APIs and their highest versions"),
        ("{cap: {Fecht: 3}}", "there is no API 'Fecht', did you mean Fetch?"),
        ("{cap: {Fetch: 99}}", "a cap of 99 removes nothing"),
        ("{cap: {Fetch: 5}, pretend: '0.10.2'}", "Kafka 0.10.2 serves Fetch 0-3"),
        ("[{cap: {Fetch: 5}}, {pretend: '3.9'}]", "pretend and cap are one action here"),
    ],
)
def test_rules_that_cannot_be(do: str, message: str) -> None:
    with pytest.raises(RuleError) as raised:
        parse_rules(f"- match: api == ApiVersions\n  do: {do}\n", "r.yaml")
    assert message in str(raised.value) and str(raised.value).startswith("r.yaml:2:")


def test_a_rule_as_data() -> None:
    rule = Rule.of("client == x", {"pretend": "0.10.2", "cap": {"Fetch": 2}})
    assert rule.to_dict()["do"] == {"pretend": "0.10.2", "cap": {"Fetch": 2}}
    assert Rule.from_dict(rule.to_dict()) == rule


@dataclass
class Relay:
    """As much of a relay with logins as versions need. Everything is held while it asks."""

    timers: Timers = field(default_factory=Timers)
    events: list[Event] = field(default_factory=list)
    security: object = "a login"
    interception: None = None

    @property
    def intercepts(self) -> Relay:
        return self

    def holds(self, what: object) -> bool:
        return True

    def wake(self, connection: object) -> None: ...

    def emit(self, event: Event) -> None:
        self.events.append(event)

    emit_once = emit


@dataclass
class Half:
    """The direction from the client."""

    connection: AdaptedRequest
    paused: bool = False
    waits: int = 0
    open: bool = True
    direction: int = 0


class AdaptedRequest:
    """A connection whose broker is asked for its versions; `ends`: how it was closed."""

    def __init__(self, relay: Relay) -> None:
        self.relay, self.broker, self.adapter, self.closed = relay, ("kafka", 9092), None, False
        self.request = Half(self)
        self.ends: list[str] = []

    def close(self, how: str) -> None:
        self.ends.append(how)


@pytest.mark.parametrize(("end", "lost", "release"), [("_overdue", 1, "0.9.0"), ("ended", 2, "0.8.2")])
def test_behind_a_login_the_client_asks_itself(end: str, lost: int, release: str) -> None:
    """Where only the client's connection can ask, one that cannot say takes that connection with it; what is heard on it
    lets the client go on."""
    relay: Any = Relay()
    negotiation = VersionNegotiation(relay, VersionsConfig(translate=True))

    def begin() -> Any:
        connection: Any = AdaptedRequest(relay)
        negotiation.begin(connection)
        return connection

    went: list[int] = []
    for _ in range(lost):
        connection = begin()
        assert connection.adapter.begin(went.append, API_VERSIONS) and connection.request.paused
        getattr(connection.adapter, end)()
        assert connection.ends == ["fin"] and went == []
    assert [event.release for event in relay.events] == [release]
    assert isinstance(begin().adapter, TranslatingAdapter)

    negotiation = VersionNegotiation(relay, VersionsConfig(translate=True))
    connection = begin()
    assert connection.adapter.begin(went.append, API_VERSIONS)
    ranges = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in NEWEST.offered.items()]
    answer = decoder.encode_response(API_VERSIONS, 0, {"api_keys": ranges}, correlation_id=1)
    connection.adapter.response_before(Asked(API_VERSIONS, 0, 0), 0, answer)
    assert len(went) == 1 and isinstance(connection.adapter, TranslatingAdapter) and connection.request.waits == 0
