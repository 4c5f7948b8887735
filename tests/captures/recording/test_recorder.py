"""Recordings as tshark, scapy and our own reader see them."""

import base64
import stat
from pathlib import Path

import pytest
from barnabas import decoder
from barnabas.captures import Recorder, open_capture
from barnabas.captures.pcap import pcapng
from barnabas.captures.pcap.packet_comments import MARK
from barnabas.captures.recording.segment import check
from barnabas.decoder import Direction
from barnabas.decoder.connection.exchange import BrokerLeg
from barnabas.decoder.schema import facts
from harness.recordings import metadata_answer, metadata_request
from harness.wire import with_size
from scapy.layers.inet import TCP
from scapy.utils import PcapNgReader

NOW = 1_795_223_022_000_000_000
BROKER = ("10.0.0.9", 9092)


class Session:
    """A recorder with a clock of its own, and its events."""

    def __init__(self, directory: Path, **options) -> None:
        self.directory = directory
        self.events: list[tuple[str, str]] = []
        self.recorder = Recorder(directory, on_event=lambda *event: self.events.append(event), **options)
        self.time = NOW

    def tick(self) -> int:
        self.time += 1_000_000
        return self.time

    def open(self, conn: int, host: str = "10.0.0.1") -> None:
        self.recorder.opened(conn, self.tick(), client=(host, 50000 + conn), broker=BROKER)

    def ask(self, conn: int, data: bytes) -> None:
        self.recorder.data(conn, Direction.REQUEST, self.tick(), data)

    def answer(self, conn: int, data: bytes) -> None:
        self.recorder.data(conn, Direction.RESPONSE, self.tick(), data)

    def files(self) -> list[Path]:
        return sorted(p for p in self.directory.iterdir() if ".pcapng" in p.name)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path / "rec")


def packets_of(path: Path) -> list[pcapng.Packet]:
    with path.open("rb") as file:
        return list(pcapng.CaptureReader(file).packets())


def test_tshark_finds_nothing_wrong(session: Session, complaints, tshark) -> None:
    for conn, host in ((1, "10.0.0.1"), (2, "::1"), (3, "10.0.0.3")):
        session.open(conn, host)
    for i in range(60):
        size = 20_000 if i % 7 == 0 else 0
        for conn in (1, 2, 3):
            session.ask(conn, metadata_request(i, size))
        for conn in (3, 1, 2):
            session.answer(conn, metadata_answer(i, size))
    session.recorder.closed(1, session.tick(), "fin")
    session.recorder.closed(2, session.tick(), "rst")
    session.recorder.close()
    (path,) = session.files()
    assert path.suffix == ".pcapng"
    assert check(path) == []
    assert complaints(path) == []
    kafka = tshark(path, "kafka.correlation_id", "-T", "fields", "-e", "kafka.api_key", "-e", "kafka.correlation_id")
    assert len(kafka) == 360
    assert len(tshark(path, "tcp.flags.fin == 1")) == 2
    assert len(tshark(path, "tcp.flags.reset == 1")) == 1
    assert len(tshark(path, "tcp.flags.syn == 1")) == 6


def test_frames_larger_than_packets(session: Session, complaints) -> None:
    records = {"topic_data": [], "acks": 1, "timeout_ms": 1, "transactional_id": "x" * 30_000}
    big = decoder.encode_request(0, 3, records, correlation_id=1)
    assert len(big) > 30_000
    session.open(1)
    body = {"topics": [{"name": "t" * 30_000} for _ in range(100)]}
    data = with_size(decoder.encode_request(3, 1, body, correlation_id=2))
    assert len(data) > 3_000_000
    session.ask(1, with_size(big))
    for start in range(0, len(data), 70_001):
        session.ask(1, data[start : start + 70_001])
    session.recorder.close()
    (path,) = session.files()
    assert check(path) == []
    assert complaints(path) == []
    with open_capture(path) as capture:
        exchanges = list(capture.exchanges())
    assert [e.request for e in exchanges] == [big, data[4:]]
    assert [e.state for e in exchanges] == ["pending", "pending"]


def test_scapy_sees_the_bytes_of_each_direction(session: Session) -> None:
    session.open(1)
    asked = b"".join(metadata_request(i) for i in range(5))
    answered = b"".join(metadata_answer(i) for i in range(5))
    for i in range(0, len(asked), 7):
        session.ask(1, asked[i : i + 7])
    session.answer(1, answered)
    session.recorder.close()
    streams = {50001: b"", 9092: b""}
    with PcapNgReader(str(session.files()[0])) as reader:
        for packet in reader:
            streams[packet[TCP].sport] += bytes(packet[TCP].payload)
    assert streams == {50001: asked, 9092: answered}


def test_rows_and_exchanges(session: Session) -> None:
    session.open(4)
    for i in range(3):
        session.ask(4, metadata_request(i))
    session.answer(4, metadata_answer(0))
    session.answer(4, metadata_answer(1, error=3))
    session.recorder.close()
    counts = session.recorder.counts
    assert (counts["frames"], counts["exchanges"], counts["undecoded"], counts["segments"]) == (5, 2, 0, 1)
    with open_capture(session.directory) as capture:
        rows = capture.rows()
        assert len(rows) == 3
        first, second, third = rows
        assert (first.api, first.api_version, first.client, first.broker, first.client_id) == (
            "Metadata",
            1,
            "10.0.0.1:50004",
            "10.0.0.9:9092",
            "stock-1",
        )
        assert first.time_ns == NOW + 2_000_000
        assert first.latency_ns == 3_000_000
        assert (first.request_size, first.response_size) == (len(metadata_request(0)) - 4, len(metadata_answer(0)) - 4)
        assert (first.error, second.error) == (0, 3)
        assert (third.state, third.latency_ns, third.response_size) == ("pending", None, None)
        assert rows[-1] == third and rows[1:] == [second, third] and rows[::2] == [first, third]
        with pytest.raises(IndexError, match="row 3 of 3"):
            rows[3]
        exchange = capture.exchange(second)
        assert exchange.request == metadata_request(1)[4:]
        assert exchange.response == metadata_answer(1, error=3)[4:]
        assert (exchange.error, exchange.latency_ns, exchange.state) == (3, second.latency_ns, "paired")
        assert (exchange.client, exchange.connection, exchange.client_id) == ("10.0.0.1:50004", 4, "stock-1")
        assert exchange.marks.request_offset == second.request_offset


def test_files_are_private(session: Session) -> None:
    session.open(1)
    session.recorder.flush()
    assert stat.S_IMODE(session.directory.stat().st_mode) == 0o700
    assert [p.suffix for p in session.files()] == [".part"]
    files = list(session.directory.iterdir())
    assert len(files) == 3
    assert {stat.S_IMODE(p.stat().st_mode) for p in files} == {0o600}


def test_a_directory_that_cannot_be_made_raises_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        Recorder(tmp_path / "file" / "rec")


def test_two_legs(session: Session, complaints, tshark) -> None:
    session.open(1)
    for i in range(3):
        session.ask(1, metadata_request(i))
        if i == 1:
            session.recorder.broker_leg(1, Direction.REQUEST, session.tick(), metadata_request(i, 9), "rule: bigger")
            session.recorder.broker_leg(1, Direction.RESPONSE, session.tick(), metadata_answer(i, 30_000), "rule: cut")
        session.answer(1, metadata_answer(i))
    session.recorder.closed(1, session.tick())
    session.recorder.close()
    (path,) = session.files()
    assert complaints(path) == []
    legs = tshark(path, 'frame.interface_name == "broker leg" && tcp.len > 0', "-T", "fields", "-e", "frame.comment")
    assert legs[0] == "rule: bigger"
    assert len(legs) == 2
    with open_capture(path) as capture:
        assert [row.changed for row in capture.rows()] == [False, True, False]
        marks = [capture.exchange(i).marks for i in range(3)]
    assert marks[1].broker_request == BrokerLeg(metadata_request(1, 9)[4:], notes=["rule: bigger"])
    assert marks[1].broker_response == BrokerLeg(metadata_answer(1, 30_000)[4:], notes=["rule: cut"])
    assert not any(each.notes for each in marks)  # those are of the exchange, and the index flags them
    assert marks[0].broker_request is marks[2].broker_request is None


def test_secrets_of_a_leg_with_another_version(session: Session) -> None:
    """The broker's leg has a version of its own, and requests of the proxy's own have no exchange: their secrets are
    hidden all the same, and nothing else is."""
    key = facts.api_key("CreateDelegationToken")
    frames = {}
    for version, number in ((1, 5), (2, 5), (3, 0x7F000001)):
        fields = {"token_id": "kept", "hmac": b"canary"}
        frames[version] = (
            decoder.encode_request(key, version, {"max_lifetime_ms": 1}, correlation_id=number, client_id="t"),
            decoder.encode_response(key, version, fields, correlation_id=number),
        )
    session.open(1)
    session.ask(1, with_size(frames[1][0]))
    for version in (3, 2):
        for direction in Direction:
            session.recorder.broker_leg(
                1, direction, session.tick(), with_size(frames[version][direction]), "another version"
            )
    session.answer(1, with_size(frames[1][1]))
    session.recorder.closed(1, session.tick())
    session.recorder.close()
    (path,) = session.files()
    data = path.read_bytes()
    assert b"canary" not in data and data.count(b"kept") == 3


def test_legs_of_two_connections_never_share_their_addresses(session: Session, complaints) -> None:
    broker, first, second = ("127.0.0.1", 9092), ("127.0.0.1", 40001), ("127.0.0.1", 40002)
    recorder = session.recorder
    # the proxy reaches the broker from the port that another client has towards the proxy, and the other way round
    for number, client, upstream in ((1, first, second), (2, second, first)):
        recorder.opened(number, session.tick(), client, broker, upstream)
        session.ask(number, metadata_request(1))
        recorder.broker_leg(number, Direction.REQUEST, session.tick(), metadata_request(1, 9), "rule: bigger")
        session.answer(number, metadata_answer(1))
    recorder.close()
    (path,) = session.files()
    assert complaints(path) == []
    with open_capture(path) as capture:
        assert [(row.client, row.changed) for row in capture.rows()] == [
            ("127.0.0.1:40001", True),
            ("127.0.0.1:40002", True),
        ]


def test_notes_become_comments(session: Session) -> None:
    session.open(1)
    session.ask(1, metadata_request(5))
    session.recorder.note(1, 5, "answered by\n\x1b[31m'leader moved'")
    session.recorder.note(1, 5, MARK + "opaque, forged")
    session.answer(1, metadata_answer(5))
    session.recorder.close()
    (path,) = session.files()
    comments = [p.comments for p in packets_of(path) if p.comments]
    assert comments[1:] == [("answered by  [31m'leader moved'", " " + MARK + "opaque, forged")]
    with open_capture(path) as capture:
        assert capture.rows()[0].noted
        assert capture.exchange(0).marks.notes[0].startswith("answered by")


def test_lost_bytes_are_reported(session: Session, tshark) -> None:
    session.open(1)
    session.ask(1, metadata_request(0) + metadata_request(1)[:9])
    session.recorder.lost(1, Direction.REQUEST, 5000)
    session.ask(1, metadata_request(7))
    session.answer(1, metadata_answer(0) + metadata_answer(7))
    session.recorder.close()
    (path,) = session.files()
    assert session.recorder.counts["lost_bytes"] == 5000
    assert len(tshark(path, "tcp.analysis.lost_segment")) == 1
    assert "5000 bytes lost" in str([p.comments for p in packets_of(path)])
    with open_capture(path) as capture:
        assert capture.lost == [(1, 0, 5000)]
        assert [(r.correlation_id, r.state) for r in capture.rows()] == [(0, "paired"), (7, "paired")]


def test_secrets_are_masked_by_default(tmp_path: Path) -> None:
    canary = b"canary-7f3a9c"

    def record(directory: Path, redact: bool) -> bytes:
        session = Session(directory, redact=redact)
        session.open(1)
        auth = {"auth_bytes": b"\0user\0" + canary}
        session.ask(1, with_size(decoder.encode_request(36, 1, auth, correlation_id=1)))
        reply = {"error_code": 0, "error_message": None, "auth_bytes": canary, "session_lifetime_ms": 0}
        session.answer(1, with_size(decoder.encode_response(36, 1, reply, correlation_id=1)))
        session.ask(
            1, with_size(decoder.encode_request(36, 1, auth, correlation_id=2) + b"tail")[:-1]
        )  # cut by the end
        session.recorder.broker_leg(
            1, 0, session.tick(), with_size(decoder.encode_request(36, 1, auth, correlation_id=3))
        )
        session.recorder.closed(1, session.tick())
        session.open(2)
        # Version 0: the token follows without any header (KIP-43).
        session.ask(2, with_size(decoder.encode_request(17, 0, {"mechanism": "PLAIN"}, correlation_id=1)))
        done = {"error_code": 0, "mechanisms": ["PLAIN"]}
        session.answer(2, with_size(decoder.encode_response(17, 0, done, correlation_id=1)))
        session.ask(2, with_size(b"\0user\0" + canary))
        session.answer(2, with_size(b""))
        session.answer(2, with_size((99).to_bytes(4, "big") + canary))  # to a request that nobody saw
        session.open(3)
        session.ask(3, b"GET / HTTP/1.1\r\nAuthorization: " + canary)
        session.ask(3, canary)
        session.recorder.close()
        return b"".join(p.read_bytes() for p in sorted(directory.iterdir()))

    masked, plain = record(tmp_path / "masked", True), record(tmp_path / "plain", False)
    assert plain.count(canary) == 7  # all but the token: the decoder itself never hands that out
    for form in (canary, base64.b64encode(canary), canary.hex().encode(), canary.decode().encode("utf-16-le")):
        assert form not in masked
    assert len(masked) == len(plain)
    with open_capture(tmp_path / "masked") as capture:
        states = [(r.connection, r.api, r.state, r.undecoded) for r in capture.rows()]
        assert states == [
            (1, "SaslAuthenticate", "paired", False),
            (2, "SaslHandshake", "paired", False),
            (2, "", "orphan", False),
        ]
        message = capture.exchange(0).request_message
        assert message is not None
        assert message["auth_bytes"] == b"*" * 19


def test_data_that_is_not_kafka_is_kept_and_reported(session: Session, complaints) -> None:
    session.open(1)
    session.ask(1, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100_000))
    session.answer(1, b"\x15\x03\x01\x00\x02\x02\x46")
    session.recorder.closed(1, session.tick())
    session.recorder.close()
    assert any(kind == "undecoded" and "TLS" in text for kind, text in session.events)
    assert session.recorder.counts["opaque_bytes"] == 100_018
    assert complaints(session.files()[0]) == []
    with open_capture(session.directory) as capture:
        assert len(capture.rows()) == 0
        assert capture.segments[0].index.connections[1].client == "10.0.0.1:50001"


def test_undecodable_frames_are_recorded_and_reported(session: Session) -> None:
    session.open(1)
    session.ask(1, with_size(b"\x00\x03\x00\x01\x00\x00\x00\x01\x00\x00\xff\xff"))
    session.answer(1, metadata_answer(1))
    session.ask(1, with_size(b"\x7f\xff\x00\x01\x00\x00\x00\x02\x00\x00data of an unknown API"))
    session.answer(1, with_size(b"\x00\x00\x00\x02what"))
    session.ask(1, metadata_request(3))
    session.answer(1, with_size(b"\x00\x00\x00\x03"))
    session.ask(1, metadata_request(4) + with_size(b"\x00"))
    session.answer(1, metadata_answer(4))
    session.recorder.close()
    with open_capture(session.directory) as capture:
        rows = capture.rows()
        assert [r.undecoded for r in rows] == [True, True, True, False, True]
        assert [capture.exchange(r).undecoded is not None for r in rows] == [r.undecoded for r in rows]
    assert session.recorder.counts["undecoded"] == 3  # the last one is still open
    assert [kind for kind, _ in session.events].count("undecoded") == 3


def test_a_fault_of_the_decoder_costs_one_connection(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    session.open(1)
    session.open(2)
    original = decoder.Connection.receive_from_client

    def fault(self, data, time_ns=0):
        if self.number == 1:
            raise RuntimeError("a bug")
        return original(self, data, time_ns)

    monkeypatch.setattr(decoder.Connection, "receive_from_client", fault)
    for conn in (1, 2):
        session.ask(conn, metadata_request(1))
        session.answer(conn, metadata_answer(1))
    session.recorder.closed(1, session.tick())
    session.recorder.close()
    assert [text for kind, text in session.events if kind == "error"] == [
        "connection 1, its frames are no longer decoded: RuntimeError: a bug"
    ]
    with open_capture(session.directory) as capture:
        assert [(r.connection, r.state) for r in capture.rows()] == [(2, "paired")]


def test_a_listener_that_raises_changes_nothing(tmp_path: Path) -> None:
    def listener(kind: str, text: str) -> None:
        raise RuntimeError(kind)

    recorder = Recorder(tmp_path, on_event=listener)
    recorder.data(1, 0, NOW, with_size(b"\x00"))
    recorder.data(1, 0, NOW, metadata_request(1))
    recorder.closed(1, NOW)
    recorder.close()
    with open_capture(tmp_path) as capture:
        assert len(capture.rows()) == 2


def test_acks_0_and_the_end_of_a_connection(session: Session) -> None:
    body = {"transactional_id": None, "acks": 0, "timeout_ms": 1, "topic_data": []}
    session.open(1)
    session.ask(1, with_size(decoder.encode_request(0, 3, body, correlation_id=1)) + metadata_request(2))
    session.recorder.closed(1, session.tick(), "rst")
    session.recorder.close()
    with open_capture(session.directory) as capture:
        assert [(r.api, r.state) for r in capture.rows()] == [("Produce", "no_response"), ("Metadata", "no_response")]


def test_a_number_used_again(session: Session, complaints) -> None:
    for _ in range(2):
        session.open(1)
        session.ask(1, metadata_request(1))
    session.answer(1, metadata_answer(1))
    session.recorder.close()
    with open_capture(session.directory) as capture:
        assert [r.state for r in capture.rows()] == ["no_response", "paired"]


def test_sync_blocks_list_the_requests_in_flight_and_show_damage(session: Session) -> None:
    from barnabas.captures.recording.segment import parse_sync

    session.open(1)
    session.ask(1, metadata_request(0))
    for i in range(1, 80):
        session.ask(1, metadata_request(i, 30_000))
    session.recorder.close()
    (path,) = session.files()
    with path.open("rb") as file:
        blocks = [b for b in pcapng.CaptureReader(file).blocks() if b.kind == pcapng.CUSTOM_NO_COPY]
    syncs = [parse_sync(block.body) for block in blocks]
    assert len(syncs) == 3
    assert all(sync is not None for sync in syncs)
    assert [len(sync.in_flight) for sync in syncs][-1] == 80
    assert [entry.correlation_id for entry in syncs[0].in_flight] == list(range(len(syncs[0].in_flight)))
    assert blocks[0].offset <= (1 << 20) + 40_000
    data = bytearray(path.read_bytes())
    data[500_000] ^= 1
    path.write_bytes(data)
    (damage,) = check(path)
    assert "bytes 0 to" in damage
    with open_capture(path) as capture:
        assert capture.verify() == [damage]
