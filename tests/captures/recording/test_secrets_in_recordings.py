"""Secrets in places where nobody has to look for them: none is in a recording or an import, and all else stays readable."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.captures import Recorder, open_capture
from barnabas.decoder import Exchange, embedded, records
from barnabas.decoder.codec.metadata_log import TOPIC, TOPIC_ID
from barnabas.decoder.records import Record, encode_batch
from harness import commands
from harness.peers.pcap import as_pcap
from harness.wire import with_size
from traffic.planted_secrets import secret

CLIENT, BROKER = ("127.0.0.1", 50001), ("127.0.0.1", 9092)
HANDSHAKE, INCREMENTAL, ALTER, CREATE_TOPICS, DESCRIBE, FETCH, SNAPSHOT, HEARTBEAT, METADATA = 17, 44, 33, 19, 32, 1, 59, 12, 3
SCRAM = {"name": "alice", "mechanism": 1, "iterations": 4096}
NAMES = (
    "pipelined token", "unknown api", "unknown answer", "unknown version", "surplus", "damaged", "bind password",
    "connection string", "url", "refused value", "quoted value", "shown url", "topic setting",
    "salt 12", "stored 12", "server 12", "setting 12", "salt 17", "stored 17", "server 17", "setting 17",
    "salt s", "stored s", "server s", "setting s", "unfinished batch",
)  # fmt: skip


def setting(name: str, value: str) -> dict[str, Any]:
    return {"resources": [{"resource_type": 4, "resource_name": "1", "configs": [{"name": name, "value": value}]}]}


def metadata_record(name: str, kind: int, fields: dict[str, Any]) -> bytes:
    """The value of a metadata record: frame version 1, its type, version 0 (AbstractApiMessageSerde)."""
    return bytes((1, kind, 0)) + embedded.encode(name, 0, fields)


def metadata_log(of: str) -> bytes:
    """A batch of KRaft's log: a topic, a SCRAM user, two settings of a broker, and an unfinished batch."""
    scram = SCRAM | {f: secret(f"{n} {of}").encode() for f, n in
                     (("salt", "salt"), ("stored_key", "stored"), ("server_key", "server"))}  # fmt: skip
    broker = {"resource_type": 4, "resource_name": "1"}
    values = [
        metadata_record("TopicRecord", 2, {"name": "orders", "topic_id": uuid.UUID(int=9)}),
        metadata_record("UserScramCredentialRecord", 11, scram),
        metadata_record("ConfigRecord", 4, broker | {"name": "ssl.keystore.password", "value": secret(f"setting {of}")}),
        metadata_record("ConfigRecord", 4, broker | {"name": "log.retention.ms", "value": "8640000123"}),
    ]
    whole = encode_batch([Record(n, 0, None, value) for n, value in enumerate(values)])
    cut = encode_batch([Record(0, 0, None, secret("unfinished batch").encode())])[:-1]
    return whole + cut


class Exchanges:
    """Requests and answers of one connection, in order."""

    def __init__(self) -> None:
        self.exchanges: list[tuple[bytes, bytes]] = []

    def exchange(self, key: int, version: int, request: dict[str, Any], response: dict[str, Any], behind: bytes = b"") -> None:
        number = len(self.exchanges)
        frame = decoder.encode_request(key, version, request, correlation_id=number, client_id="app")
        answer = decoder.encode_response(key, version, response, correlation_id=number)
        self.exchanges.append((frame + behind, answer))

    def raw(self, key: int, version: int, body: bytes, answer: bytes) -> None:
        number = len(self.exchanges).to_bytes(4, "big")
        head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + number
        self.exchanges.append((head + b"\0\3app" + body, number + answer))


def exchanges_with_secrets() -> Exchanges:
    found = Exchanges()
    exchange = found.exchange
    found.raw(999, 0, secret("unknown api").encode(), secret("unknown answer").encode())
    found.raw(HEARTBEAT, 77, b"\xff" * 9 + secret("unknown version").encode(), b"\0\0")
    exchange(HEARTBEAT, 3, {"group_id": "g", "member_id": "m"}, {}, b"12345678" + secret("surplus").encode())
    number = len(found.exchanges).to_bytes(4, "big")
    damaged = b"\0\3\0\1" + number + b"\0\3app" + b"\0\0\0\2\0\6orders\x7f\xff" + b"......." + secret("damaged").encode()
    found.exchanges.append((damaged, decoder.encode_response(METADATA, 1, {}, correlation_id=len(found.exchanges))))
    answer = {"responses": [{"error_code": 40, "resource_type": 4, "resource_name": "1",
              "error_message": f"Invalid value {secret('refused value')} for configuration ldap.bind.pwd: too short"}]}  # fmt: skip
    exchange(INCREMENTAL, 1, setting("ldap.bind.pwd", secret("bind password")), answer)
    exchange(ALTER, 2, setting("store.connection", f"Endpoint=x;Key={secret('connection string')}"), {})
    quoted = {"responses": [{"error_code": 40, "resource_type": 4, "resource_name": "1",
              "error_message": f"cannot reach u at {secret('quoted value')}"}]}  # fmt: skip
    exchange(INCREMENTAL, 1, setting("store.place", secret("quoted value")), quoted)
    exchange(ALTER, 1, setting("sasl.oauthbearer.token.endpoint.url", f"https://me:{secret('url')}@login:8443/token"), {})
    exchange(INCREMENTAL, 1, setting("log.retention.ms", "8640000123"), {})
    shown = [{"name": "plain.url", "value": f"jdbc:postgresql://me:{secret('shown url')}@db/x"},
             {"name": "retention.ms", "value": "8640000123"}]  # fmt: skip
    exchange(DESCRIBE, 2, {"resources": []}, {"results": [{"resource_type": 2, "resource_name": "t", "configs": shown}]})
    topic = {"name": "t", "num_partitions": 1, "configs": [{"name": "vendor.setting", "value": secret("topic setting")},
             {"name": "retention.ms", "value": "8640000123"}]}  # fmt: skip
    exchange(CREATE_TOPICS, 5, {"topics": [topic]}, {})
    request = {"topics": [{"topic": TOPIC, "partitions": [{"partition": 0}]}]}
    exchange(FETCH, 12, request, {"responses": [{"topic": TOPIC, "partitions": [{"records": metadata_log("12")}]}]})
    request = {"topics": [{"topic_id": TOPIC_ID, "partitions": [{"partition": 0}]}]}
    exchange(FETCH, 17, request, {"responses": [{"topic_id": TOPIC_ID, "partitions": [{"records": metadata_log("17")}]}]})
    part = {"topics": [{"name": TOPIC, "partitions": [{"position": 0, "unaligned_records": metadata_log("s")}]}]}
    exchange(SNAPSHOT, 1, {"topics": [{"name": TOPIC, "partitions": [{"partition": 0}]}]}, part)
    return found


def record(directory: Path, redact: bool) -> Path:
    recorder = Recorder(directory, redact=redact)
    recorder.opened(1, 10, CLIENT, BROKER)
    # A first request and answer that are plain, so that the accelerator has the connection.
    plain = Exchanges()
    plain.exchange(HEARTBEAT, 3, {"group_id": "g", "member_id": "m"}, {})
    for at, (request, answer) in enumerate([*plain.exchanges * 3, *exchanges_with_secrets().exchanges]):
        recorder.data(1, 0, 1000 + 10 * at, with_size(request))
        recorder.data(1, 1, 1005 + 10 * at, with_size(answer))
    recorder.closed(1, 5000)
    recorder.opened(2, 6000, ("127.0.0.1", 50002), BROKER)
    handshake = decoder.encode_request(HANDSHAKE, 0, {"mechanism": "PLAIN"}, correlation_id=0, client_id="app")
    # Both at once: the client does not wait for the broker's answer to the handshake.
    recorder.data(2, 0, 6001, with_size(handshake) + with_size(b"\0user\0" + secret("pipelined token").encode()))
    answer = decoder.encode_response(HANDSHAKE, 0, {"mechanisms": ["PLAIN"]}, correlation_id=0)
    recorder.data(2, 1, 6002, with_size(answer) + with_size(b""))
    recorder.close()
    return directory


def leaks(data: bytes) -> set[str]:
    return {name for name in NAMES if secret(name).encode() in data}


def files(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.iterdir()))


@pytest.fixture(params=["accelerated", "pure"])
def pure(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "pure":
        for module in ("captures.recording.native_recorder", "captures.foreign.importer"):
            monkeypatch.setattr(f"barnabas.{module}.native", None)


def test_an_unredacted_recording_holds_every_secret(tmp_path: Path) -> None:
    assert leaks(files(record(tmp_path / "r", redact=False))) == {*NAMES} - {"pipelined token"}  # masked in any case


@pytest.mark.usefixtures("pure")
def test_a_redacted_recording_holds_no_secret(tmp_path: Path) -> None:
    assert leaks(files(record(tmp_path / "r", redact=True))) == set()


@pytest.mark.usefixtures("pure")
@pytest.mark.parametrize("words", [(), ("--filter", "corr >= 0")], ids=["all", "filtered"])
def test_an_import_holds_no_secret(tmp_path: Path, words: tuple[str, ...]) -> None:
    (source,) = record(tmp_path / "clear", redact=False).glob("*.pcapng")
    foreign = as_pcap(source, tmp_path / "foreign.pcap")
    done = commands.here("import", foreign, "-o", tmp_path / "r", *words)
    assert done.exit_code == 0, done.output
    data = files(tmp_path / "r")
    assert len(data) > 5000 and leaks(data) == set()


def by_api(directory: Path) -> Callable[[str, int], Exchange]:
    with open_capture(directory) as capture:
        found = list(capture.exchanges())
    return lambda api, version: [e for e in found if (e.api, e.api_version) == (api, version)][-1]


def test_everything_but_secrets_is_unchanged(tmp_path: Path) -> None:
    before, after = (by_api(record(tmp_path / str(redact), redact)) for redact in (False, True))
    for api, version in (("Fetch", 12), ("Fetch", 17)):
        path = "responses[0].partitions[0].records"
        old, new = (exchange(api, version).response_message[path] for exchange in (before, after))  # type: ignore[index]
        whole, cut = records.batches(new)
        assert whole.crc_ok and not isinstance(cut, records.Batch)
        kinds = [embedded.of_record(TOPIC, None, r.value) for area in (old, new) for r in next(records.batches(area)).records()]
        assert kinds[:4] == kinds[4:]  # shown alike: credentials are hidden in both
        assert kinds[7]["value"]["value"] == "8640000123"  # type: ignore[index]
    for api, version in (("Metadata", 1), ("Heartbeat", 3)):
        old, new = before(api, version), after(api, version)
        assert (old.undecoded, old.surplus) == (new.undecoded, new.surplus)
    assert after("Metadata", 1).undecoded and after("Heartbeat", 3).surplus[0] == 32
    configs = after("DescribeConfigs", 2).response_message["results[0].configs"]  # type: ignore[index]
    assert configs[1]["value"] == "8640000123" and set(configs[0]["value"]) == {"*"}
    message = after("IncrementalAlterConfigs", 1).request_message
    assert message is not None and message["resources[0].configs[0].value"] == "8640000123"


def test_decode_shows_no_secret_of_an_unredacted_capture(tmp_path: Path) -> None:
    directory = record(tmp_path / "r", redact=False)
    for words in (("--json", "--show-values"), ("--json",), ()):
        done = commands.here("decode", directory, *words)
        assert done.exit_code == 0 and len(done.output) > 1000
        assert leaks(done.output.encode()) <= {"surplus", "quoted value"}, words
