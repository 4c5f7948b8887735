"""TLS and SASL through the proxy to a real broker: clients' TLS and the brokers', SNI, logins of both kinds."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from barnabas.captures import open_capture
from barnabas.plugins.hooks import parse
from barnabas.proxy.events import (
    BrokerFound,
    ConnectionClosed,
    ConnectionOpened,
    LoggedIn,
    LoginFailed,
    PluginFault,
    PluginSaid,
    TlsFailed,
    UpstreamFailed,
)
from barnabas.proxy.relay.interception.plugin_host import PluginsConfig
from barnabas.proxy.relay.negotiation.sasl import SaslConfig, unsecured_token
from barnabas.proxy.relay.negotiation.security import TlsConfig
from barnabas.proxy.relay.negotiation.version_negotiation import VersionsConfig
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from harness.run.slices import only
from harness.waiting import PATIENCE, attempts, until
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition
from real.brokers.secured import MECHANISMS, PASSWORD, USER, Running, Secured
from real.clients import kafka_python_client
from real.clients.confluent_client import flush, read
from real.clients.raw_client import RawClient

# --- each client writes a record and reads it back ------------------------------------------------------------------


def confluent(bootstrap: str, partition: int, **security: Any) -> None:
    common = {"bootstrap.servers": bootstrap, "log_level": 0} | security
    producer = Producer(common)
    sent: list[Any] = []
    producer.produce("t", b"confluent", partition=partition, on_delivery=lambda *outcome: sent.append(outcome))
    flush(producer)
    ((error, record),) = sent
    assert error is None
    consumer = Consumer(common | {"group.id": "g"})
    consumer.assign([TopicPartition("t", partition, record.offset())])
    assert [record.value() for record in read(consumer, 1)] == [b"confluent"]
    consumer.close()


def kafka_python(bootstrap: str, partition: int, **security: Any) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, **security)
    sent = producer.send("t", b"kafka-python", partition=partition).get(PATIENCE)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, **security)
    consumer.assign([KafkaTopicPartition("t", partition)])
    consumer.seek(KafkaTopicPartition("t", partition), sent.offset)
    (record,) = kafka_python_client.read(consumer, 1)
    consumer.close()
    assert record.value == b"kafka-python"


def aiokafka(bootstrap: str, partition: int, **security: Any) -> None:
    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, **security) as producer:
            sent = await producer.send_and_wait("t", b"aiokafka", partition=partition)
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, **security) as consumer:
            from aiokafka import TopicPartition as Place

            consumer.assign([Place("t", partition)])
            consumer.seek(Place("t", partition), sent.offset)
            record = await asyncio.wait_for(consumer.getone(), PATIENCE)
            assert record.value == b"aiokafka"

    asyncio.run(run())


def trusting(ca: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca)


def test_tls_on_both_sides(secured: Secured, tmp_path: Path) -> None:
    tls = TlsConfig(ca=secured.proxy_ca, broker_ca=secured.ca.path)
    with secured.proxy("TLS", tls=tls, record=tmp_path) as running:
        for partition in range(4):  # both brokers lead some
            confluent(running.bootstrap, partition, **{"security.protocol": "SSL", "ssl.ca.location": running.ca})
        kafka_python(running.bootstrap, 0, security_protocol="SSL", ssl_cafile=running.ca)
        aiokafka(running.bootstrap, 1, security_protocol="SSL", ssl_context=trusting(running.ca))
    assert len(running.events(BrokerFound)) == 1
    assert not running.warnings()
    with open_capture(tmp_path) as capture:
        exchanges = list(capture.exchanges())
    assert {0, 1, 3, 18} <= {exchange.api_key for exchange in exchanges}
    assert not [exchange for exchange in exchanges if exchange.undecoded]


@pytest.mark.slow
def test_clients_that_disconnect_at_once(secured: Secured) -> None:
    """Java's TLS 1.3 server answers many of them with a record that cannot be read, with and without a proxy."""
    with secured.proxy("TLS", tls=TlsConfig(broker=True, broker_ca=secured.ca.path)) as running:
        address = running.proxy.address
        for _ in range(100):
            with socket.create_connection(address, timeout=PATIENCE) as plain:
                plain.shutdown(socket.SHUT_WR)
                try:
                    assert not plain.recv(100)
                except ConnectionResetError:
                    pass
        running.wait_for(ConnectionClosed, 100)
    assert not running.warnings()


def test_a_certificate_for_the_broker(secured: Secured) -> None:
    client = {"broker_certificate": secured.client.path, "broker_key": secured.client.key_path}
    tls = TlsConfig(broker_ca=secured.ca.path, **client)
    with secured.proxy("MTLS", tls=tls) as running:
        confluent(running.bootstrap, 0)
    with secured.proxy("MTLS", tls=TlsConfig(broker_ca=secured.ca.path)) as running:
        finds_no_broker(running.bootstrap)
        assert "--broker-cert" in running.wait_for(TlsFailed)[0].reason


def test_brokers_by_name_on_one_listener(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names under the suffix lead to the proxy as a wildcard in the DNS would."""
    look_up = socket.getaddrinfo
    asked: set[str] = set()

    def resolve(host: Any, *args: Any, **options: Any) -> Any:
        if isinstance(host, str) and host.endswith("kafka.example"):
            asked.add(host)
            host = "127.0.0.1"
        return look_up(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    tls = TlsConfig(ca=secured.proxy_ca, broker_ca=secured.ca.path, sni_suffix="kafka.example")
    with secured.proxy("TLS", tls=tls) as running:
        bootstrap = f"kafka.example:{running.proxy.address[1]}"
        for partition in range(4):
            kafka_python(bootstrap, partition, security_protocol="SSL", ssl_cafile=running.ca)
        aiokafka(bootstrap, 2, security_protocol="SSL", ssl_context=trusting(running.ca))
        assert asked >= {"kafka.example", "broker-1.kafka.example", "broker-2.kafka.example"}
    reached = {event.broker[1] for event in running.events(ConnectionOpened)}
    assert reached == {node.listeners["TLS"] for node in secured.cluster.nodes}
    assert not running.warnings()


# --- clients log in themselves --------------------------------------------------------------------------------------


def librdkafka_login(mechanism: str) -> dict[str, Any]:
    login = {"sasl.username": USER, "sasl.password": PASSWORD}
    if mechanism == "OAUTHBEARER":
        login = {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"principal={USER}"}
    return {"sasl.mechanism": mechanism, **login}


def no_canary(folder: Path) -> None:
    for file in folder.rglob("*"):
        if file.is_file():
            assert PASSWORD.encode() not in file.read_bytes(), file


def test_logins_of_old_clients_pass_through_a_translation(secured: Secured) -> None:
    """Their tokens travel without requests around them (SaslHandshake 0), and the broker speaks TLS."""
    tls = TlsConfig(broker=True, broker_ca=secured.ca.path)
    with secured.proxy("TLSLOGIN", tls=tls, versions=VersionsConfig(translate=True)) as running:
        security = {"security_protocol": "SASL_PLAINTEXT", "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
        for partition, mechanism in enumerate(("PLAIN", "SCRAM-SHA-256")):
            kafka_python(running.bootstrap, partition, **security, sasl_mechanism=mechanism, api_version=(0, 10, 2))
    assert not running.warnings()
    assert not [event for event in running.events(ConnectionClosed) if event.by == "broker"]


def test_the_first_login_through_a_translation_succeeds(secured: Secured) -> None:
    """What the broker serves can only be asked on the client's connection, and before a login it takes one ApiVersions."""
    tls = TlsConfig(broker=True, broker_ca=secured.ca.path)
    security = {"security.protocol": "SASL_PLAINTEXT", **librdkafka_login("PLAIN")}
    with secured.proxy("TLSLOGIN", tls=tls, versions=VersionsConfig(translate=True)) as running:
        client = RawClient(running.proxy.address)
        offered = {each["api_key"] for each in client.ask("ApiVersions", 3, {"client_software_name": "x"})["api_keys"]}
        assert {0, 1, 3, 17, 18} <= offered
        assert client.ask("SaslHandshake", 0, {"mechanism": "PLAIN"})["error_code"] == 0
        assert client.frame(f"\0{USER}\0{PASSWORD}".encode()) == b""
        assert client.ask("Metadata", 8, {"topics": None})["brokers"]
        assert len(running.events(ConnectionOpened)) == 1
    with secured.proxy("TLSLOGIN", tls=tls, versions=VersionsConfig(translate=True)) as running:
        confluent(running.bootstrap, 0, **security)
    assert not running.warnings()
    assert not [event for event in running.events(ConnectionClosed) if event.by == "broker"]


@pytest.mark.parametrize("over_tls", [pytest.param(False, marks=pytest.mark.slow), True])
def test_logins_pass_through(secured: Secured, tmp_path: Path, over_tls: bool) -> None:
    tls = TlsConfig(ca=secured.proxy_ca, broker_ca=secured.ca.path) if over_tls else None
    with secured.proxy("TLSLOGIN" if over_tls else "LOGIN", tls=tls, record=tmp_path) as running:
        protocol: dict[str, Any] = {"security.protocol": "SASL_PLAINTEXT"}
        if over_tls:
            protocol = {"security.protocol": "SASL_SSL", "ssl.ca.location": running.ca}
        for partition, mechanism in enumerate(MECHANISMS):
            confluent(running.bootstrap, partition, **protocol, **librdkafka_login(mechanism))
        security = {"security_protocol": protocol["security.protocol"], "sasl_mechanism": "SCRAM-SHA-512"}
        security |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
        kafka_python(running.bootstrap, 0, **security, **({"ssl_cafile": running.ca} if over_tls else {}))
        aiokafka(running.bootstrap, 1, **security, **({"ssl_context": trusting(running.ca)} if over_tls else {}))
    assert not running.warnings()
    no_canary(tmp_path)


def test_raw_tokens_pass_through(secured: Secured, tmp_path: Path) -> None:
    """SaslHandshake v0: what follows are no Kafka requests; behind them are."""
    with secured.proxy("LOGIN", record=tmp_path) as running:
        client = RawClient(running.proxy.address)
        assert client.ask("SaslHandshake", 0, {"mechanism": "PLAIN"})["error_code"] == 0
        assert client.frame(f"\0{USER}\0{PASSWORD}".encode()) == b""
        brokers = client.ask("Metadata", 8, {"topics": None})["brokers"]
        assert running.proxy.address[1] in {broker["port"] for broker in brokers}
    assert not running.warnings()
    no_canary(tmp_path)


def session_ended(client: RawClient) -> bool:
    """Whether the broker closes the connection instead of an answer."""
    try:
        client.ask("Metadata", 8, {"topics": None})
    except OSError:
        return True
    return False


@pytest.mark.slow  # it waits for the end of a session
def test_a_client_logs_in_again_on_its_connection(secured: Secured) -> None:
    """KIP-368: twice within the broker's 6 s, and then not again until the broker closes the connection."""
    with secured.proxy("SHORT") as running:
        client = RawClient(running.proxy.address)
        for _ in range(2):
            assert client.ask("SaslHandshake", 1, {"mechanism": "PLAIN"})["error_code"] == 0
            granted = client.ask("SaslAuthenticate", 2, {"auth_bytes": f"\0{USER}\0{PASSWORD}".encode()})
            assert granted["error_code"] == 0 and 0 < granted["session_lifetime_ms"] <= 6000
            assert client.ask("Metadata", 8, {"topics": None})["brokers"]
            time.sleep(1.2)  # the broker takes no second login within one second
        until(lambda: session_ended(client))
        client.sock.close()


# --- the proxy logs in ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", only(MECHANISMS, "SCRAM-SHA-512"))
def test_the_proxy_logs_in(secured: Secured, tmp_path: Path, mechanism: str) -> None:
    """For clients that know nothing of it. The recording shows the login without its secrets."""
    secret = PASSWORD if mechanism != "OAUTHBEARER" else unsecured_token(USER)
    sasl = SaslConfig(mechanism, USER, secret)
    tls = TlsConfig(broker_ca=secured.ca.path)
    with secured.proxy("TLSLOGIN", tls=tls, sasl=sasl, record=tmp_path) as running:
        confluent(running.bootstrap, 0)
        kafka_python(running.bootstrap, 1)
    assert running.events(LoggedIn)[0].text.split(",")[0].endswith(f"as {USER} with {mechanism}")
    assert not running.warnings()
    assert secret not in repr([*running.events(), running.proxy.config])
    with open_capture(tmp_path) as capture:
        assert not capture.verify()
        assert not [exchange for exchange in capture.exchanges() if exchange.undecoded]
    recorded = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"the proxy logs in" in recorded and mechanism.encode() in recorded
    assert secret.encode() not in recorded


def finds_no_broker(bootstrap: str) -> None:
    """A client that tries for as long as it lives, until it reports that no broker is left."""
    errors: list[int] = []
    callback = {"error_cb": lambda error: errors.append(error.code())}
    client = Producer({"bootstrap.servers": bootstrap, "log_level": 0} | callback)
    until(lambda: client.poll(0.05) or KafkaError._ALL_BROKERS_DOWN in errors, lambda: errors)


def refused(running: Running) -> str:
    """The reason why the proxy could not log in."""
    finds_no_broker(running.bootstrap)
    return running.wait_for(LoginFailed)[0].reason


@pytest.mark.parametrize("mechanism", only(["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"], "SCRAM-SHA-256"))
def test_a_login_that_is_refused(secured: Secured, mechanism: str) -> None:
    with secured.proxy("LOGIN", sasl=SaslConfig(mechanism, USER, "wrong")) as running:
        why = refused(running)
    assert "SASL_AUTHENTICATION_FAILED" in why or "the token" in why
    assert "wrong" not in why


def test_a_login_at_a_listener_without_sasl(secured: Secured) -> None:
    """Listeners without SASL, and without the TLS that the proxy would need."""
    with secured.proxy("TLS", tls=TlsConfig(broker_ca=secured.ca.path), sasl=SaslConfig("PLAIN", USER, "x")) as running:
        assert "SASL" in refused(running)
    with secured.proxy("TLSLOGIN", sasl=SaslConfig("PLAIN", USER, "x")) as running:
        assert "SASL listener" in refused(running)


@pytest.mark.slow  # it waits for the ends of sessions
def test_sessions_are_renewed_between_frames(secured: Secured, tmp_path: Path) -> None:
    """The broker ends sessions after 6 s; the traffic sees none end, and no error."""

    def logins() -> int:
        """Requests SaslHandshake, of first logins and of those that followed, as far as they are recorded."""
        recorded = b"".join(file.read_bytes() for file in tmp_path.glob("*.pcapng*"))
        return recorded.count(b"\0\x08barnabas\0\x0dSCRAM-SHA-256")

    with secured.proxy("SHORT", sasl=SaslConfig("SCRAM-SHA-256", USER, PASSWORD), record=tmp_path) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap, "linger.ms": 0, "log_level": 0})
        failed: list[Any] = []
        for count, _ in enumerate(attempts()):
            if logins() >= 3 + 3:  # each of the three connections twice
                break
            producer.produce("t", b"x" * 100, partition=count % 4, on_delivery=lambda e, _: e and failed.append(e))
            producer.poll(0)
        flush(producer)
        assert not failed and logins() >= 6
    assert len(running.events(ConnectionOpened)) <= 3  # bootstrap and the two brokers
    assert not running.warnings()
    no_canary(tmp_path)


def test_nothing_secret_on_command_lines(secured: Secured) -> None:
    with secured.proxy("LOGIN", sasl=SaslConfig("PLAIN", USER, PASSWORD)) as running:
        lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _readable(path)]
    assert not running.events(UpstreamFailed)
    assert not any(PASSWORD.encode() in line for line in lines)


def _readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True


@pytest.mark.slow
def test_a_plugins_request_uses_the_clients_login(secured: Secured, tmp_path: Path) -> None:
    """Clients log in themselves, under TLS on both sides; the plugin asks as the client that it asks for."""
    (tmp_path / "asks.py").write_text(
        "class Asks:\n"
        "    apis = {'Metadata'}\n"
        "    async def request(self, message, ctx):\n"
        f"        answer = await ctx.request('DescribeCluster', {{}}, timeout={PATIENCE})\n"
        '        ctx.log(f\'error {answer["error_code"]}, brokers {len(answer["brokers"])}\')\n'
    )
    tls = TlsConfig(ca=secured.proxy_ca, broker_ca=secured.ca.path)
    plugins = PluginsConfig((parse(str(tmp_path / "asks.py")),), budget=PATIENCE)
    with secured.proxy("TLSLOGIN", tls=tls, plugins=plugins) as running:
        security = {"security.protocol": "SASL_SSL", "ssl.ca.location": running.ca}
        confluent(running.bootstrap, 0, **security, **librdkafka_login("PLAIN"))
    assert running.events(PluginSaid)[0].line == "error 0, brokers 2"
    assert not running.events(PluginFault)  # also where the client closes its connection while the plugin asks
