"""Ends of connections: ends that only one side shows, requests lost after silence, and TLS handshakes that fail."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
from barnabas.captures import Recorder, open_capture
from barnabas.captures.pcap.packets import build, endpoint, parse
from barnabas.captures.pcap.pcapng import CaptureReader
from barnabas.captures.tables.columns import Table
from barnabas.captures.tables.connections import CONNECTIONS
from barnabas.captures.tables.event_tables import HAPPENINGS
from barnabas.captures.tables.index_tables import EXCHANGES
from barnabas.captures.tables.rows import Options, Rows
from barnabas.decoder.connection.events import Closed
from barnabas.decoder.findings import Finding, Inspector, Severity
from barnabas.decoder.wire.frame import Direction
from barnabas.decoder.wire.tls_handshake import Refusal, TlsHandshake
from harness.run.slices import thin
from harness.wire import with_size
from traffic.conversations import Conversations
from traffic.packets import Packet, pcap_file, snapped
from traffic.recordings import CAPTURES

SECOND = 1_000_000_000
SYN, ACK, FIN, RST = 2, 16, 1, 4


def inspected(path: Path) -> list[Finding]:
    inspector = Inspector()
    with open_capture(path) as capture:
        for event in capture.events():
            inspector.feed(event)
    return inspector.findings()


def cause(found: list[Finding]) -> Finding:
    """The first finding above info."""
    return next(finding for finding in found if finding.severity is not Severity.INFO)


# --- only the broker's FIN ------------------------------------------------------------------------------------


def as_tcpdump_sees_it(path: Path, half_open: bool) -> list[Packet]:
    """The client legs of a recording, without its comments. The FIN of whoever ended a connection comes first, and after a broker's
    the client's is left out if `half_open`."""
    with open_capture(path) as capture:
        ends = {event.connection: event for event in capture.events() if isinstance(event, Closed)}
    with path.open("rb") as file:
        return list(_packets(file, ends, half_open))


def _packets(file: BinaryIO, ends: dict[int, Closed], half_open: bool) -> Iterator[Packet]:
    next_: dict[tuple[bytes, bytes], int] = {}
    numbers: dict[frozenset[bytes], tuple[int, bytes]] = {}
    ended: dict[frozenset[bytes], bytes] = {}
    for packet in CaptureReader(file).packets():
        if packet.interface:
            continue
        segment = parse(packet.linktype, packet.data, packet.size)
        assert segment is not None
        key = frozenset((segment.source, segment.target))
        if segment.flags & SYN and not segment.flags & ACK:
            named = [int(c.split()[2].rstrip(",:")) for c in packet.comments if c.startswith("barnabas: connection ")]
            numbers[key] = named[0] if named else 0, segment.source
        if not segment.flags & (FIN | RST):
            next_[segment.source, segment.target] = segment.sequence + len(segment.payload) + bool(segment.flags & SYN)
            yield packet.time_ns, packet.data
            continue
        number, client = numbers[key]
        if not number:  # captured by another tool: its packets are real
            brokers = ended.setdefault(key, segment.source) != client
            if not (half_open and brokers and segment.source == client):
                yield packet.time_ns, packet.data
            continue
        end = ends.pop(number, None)
        if end is None:
            continue
        broker = next(iter(key - {client}))
        order = (broker, client) if end.by == "broker" else (client, broker)
        for source in order[: 1 if half_open and end.by == "broker" and end.how == "fin" else 2]:
            target = broker if source == client else client
            flags = (RST if end.how == "rst" else FIN) | ACK
            addresses = endpoint(source), endpoint(target)
            sequence, acknowledged = next_.get((source, target), 1), next_.get((target, source), 1)
            yield packet.time_ns, build(*addresses, sequence, acknowledged, flags, b"", int(source == broker))


def high(found: list[Finding]) -> list[tuple[str, int]]:
    return sorted((f.id, f.count) for f in found if f.severity is Severity.HIGH)


ENDED_BY_BROKERS = [
    path.stem for path in sorted(CAPTURES.glob("*.pcapng"))
    if any(isinstance(e, Closed) and e.by == "broker" and e.how == "fin" for e in open_capture(path).events())
]  # fmt: skip


@pytest.mark.parametrize("name", ENDED_BY_BROKERS)
def test_an_end_that_only_the_broker_shows_is_an_end(name: str, tmp_path: Path) -> None:
    path = CAPTURES / f"{name}.pcapng"
    both, one = as_tcpdump_sees_it(path, False), as_tcpdump_sees_it(path, True)
    (tmp_path / "both").mkdir(), (tmp_path / "one").mkdir()
    whole, half = pcap_file(tmp_path / "both", both), pcap_file(tmp_path / "one", one)
    assert high(inspected(half)) == high(inspected(whole))


@pytest.mark.parametrize("name", thin(ENDED_BY_BROKERS, 3))
def test_tables_have_the_same_rows(name: str, tmp_path: Path) -> None:
    (tmp_path / "both").mkdir(), (tmp_path / "one").mkdir()
    whole, half = (pcap_file(tmp_path / where, _both(name, where == "one")) for where in ("both", "one"))
    for table in (CONNECTIONS, EXCHANGES, HAPPENINGS):
        assert rows(half, table) == rows(whole, table)


def rows(path: Path, table: Table) -> list[str]:
    """The rows of a table, in an order of their own: what ends with the capture comes last in it."""
    columns = [column for column in table.columns if column.name != "number"]
    with open_capture(path) as capture:
        return sorted(str([row[column.name] for column in columns]) for row in Rows(capture, Options(table, columns)))


def test_recordings_that_brokers_end_are_among_them() -> None:
    found = {each for name in ENDED_BY_BROKERS for each, _ in high(inspected(CAPTURES / f"{name}.pcapng"))}
    assert {"closed-on-first-request", "closed-on-version"} & found and len(ENDED_BY_BROKERS) > 8
    fewer = [name for name in ENDED_BY_BROKERS if len(_both(name, True)) < len(_both(name, False))]
    assert len(fewer) >= len(ENDED_BY_BROKERS) - 2  # of two the client never sent a FIN


def _both(name: str, half_open: bool) -> list[Packet]:
    return as_tcpdump_sees_it(CAPTURES / f"{name}.pcapng", half_open)


# --- requests that get no answer --------------------------------------------------------------------------------


def lost_after(talk: Conversations, silence: float) -> None:
    """A connection that works, is silent, and then loses a request."""
    at = talk.open()
    talk.ask(at, "ListGroups", 0, {}, {"groups": []})
    talk.wait(silence)
    talk.ask(at, "Heartbeat", 0, {"group_id": "g", "generation_id": 1, "member_id": "m"}, None)
    talk.wait(60)
    talk.close(at)


def test_requests_lost_after_silence_point_at_the_network() -> None:
    """librdkafka#3109: Azure drops connections that were idle for 4 minutes."""
    talk = Conversations()
    for _ in range(3):
        lost_after(talk, 245)
    found = cause(talk.findings())
    assert (found.id, found.severity) == ("unanswered-request", Severity.HIGH)
    assert "each came after at least 4 min without traffic" in found.seen
    assert "Azure" in found.why and "connections.max.idle.ms" in found.remedy


def test_a_request_lost_without_silence_does_not() -> None:
    talk = Conversations()
    lost_after(talk, 245)
    lost_after(talk, 1)
    found = cause(talk.findings())
    assert found.id == "unanswered-request" and "without traffic" not in found.seen + found.why


def test_an_api_that_a_broker_never_answers_is_named() -> None:
    """nisshi#668: Fetch has no answer, everything else has."""
    talk = Conversations()
    for _ in range(3):
        lost_after(talk, 1)
    found = cause(talk.findings())
    assert "this broker never answered Heartbeat, but it answered other requests" in found.seen
    at = talk.open()
    talk.ask(at, "Heartbeat", 0, {"group_id": "g", "generation_id": 1, "member_id": "m"}, {"error_code": 0})
    assert "never answered" not in cause(talk.findings()).seen


# --- TLS ---------------------------------------------------------------------------------------------------------


def record(kind: int, length: int, content: bytes = b"") -> bytes:
    return struct.pack(">BHH", kind, 0x0303, length) + content.ljust(length, b"\x5a")


HELLO, SERVER_HELLO, CHANGE = record(22, 200, b"\x01"), record(22, 122, b"\x02"), record(20, 1, b"\x01")
SERVER_FLIGHT = SERVER_HELLO + CHANGE + record(23, 27) + record(23, 900) + record(23, 281) + record(23, 53)
UNKNOWN_CA = record(21, 2, b"\x02\x30")
FINISHED, ENCRYPTED_ALERT, NO_CERTIFICATE = record(23, 53), record(23, 19), record(23, 25)
TICKET, DATA = record(23, 233), record(23, 80)
JAVA_ALERT, JAVA_FINISHED, JAVA_NO_CERTIFICATE = record(23, 35), record(23, 85), record(23, 93)  # padded; the latter with Finished

REFUSED = {
    "alert in clear": ([UNKNOWN_CA], [], "client", "the client sends unknown_ca"),
    "alert encrypted": ([CHANGE + ENCRYPTED_ALERT], [], "client", "the client ends the handshake with an encrypted alert"),
    "no certificate": ([CHANGE + NO_CERTIFICATE + FINISHED], [ENCRYPTED_ALERT], "broker", "the client sends none"),
    "no certificate, data at once": ([CHANGE + NO_CERTIFICATE + FINISHED + DATA], [ENCRYPTED_ALERT], "broker", "the client sends none"),
    "certificate refused": ([CHANGE + record(23, 700) + FINISHED], [ENCRYPTED_ALERT], "broker", "right after the client's Finished"),
    # What real clients and Kafka's broker send to each other: Java pads its records.
    "Java's alert": ([CHANGE + JAVA_ALERT], [], "client", "the client ends the handshake with an encrypted alert"),
    "Java has no certificate": ([CHANGE + JAVA_NO_CERTIFICATE], [JAVA_ALERT], "broker", "the client sends none"),
    "librdkafka has no certificate": ([CHANGE + NO_CERTIFICATE + record(23, 69), DATA], [JAVA_ALERT], "broker", "the client sends none"),
    "the client ends it after the alert": ([CHANGE + NO_CERTIFICATE + FINISHED, DATA], [JAVA_ALERT], "client", "the client sends none"),
    "Go says goodbye after the alert": (
        [CHANGE + NO_CERTIFICATE + FINISHED, record(23, 53) + ENCRYPTED_ALERT], [JAVA_ALERT], "broker", "the client sends none",
    ),
    "kafka-python has a strange one": (
        [CHANGE + record(23, 342) + record(23, 95) + record(23, 69), DATA], [JAVA_ALERT], "broker", "right after the client's Finished",
    ),
}
HEALTHY = {
    "data": ([CHANGE + FINISHED, DATA], [TICKET + TICKET, DATA], "client"),
    "data, ended by the broker": ([CHANGE + FINISHED, DATA], [TICKET, DATA, ENCRYPTED_ALERT], "broker"),
    "a probe that says goodbye": ([CHANGE + FINISHED, ENCRYPTED_ALERT], [TICKET], "client"),
    "Java": ([CHANGE + JAVA_FINISHED, DATA], [record(23, 955), DATA, JAVA_ALERT], "client"),
    "Go, without tickets": ([CHANGE + FINISHED + record(23, 53), ENCRYPTED_ALERT], [record(23, 53), JAVA_ALERT], "client"),
    "a probe without tickets": ([CHANGE + FINISHED + ENCRYPTED_ALERT], [JAVA_ALERT], "client"),
    "TLS 1.2": ([record(22, 70) + CHANGE + record(22, 40), DATA], [CHANGE + record(22, 40), DATA, record(21, 26)], "client"),
}


def handshakes(path: Path, port: int, client: list[bytes], broker: list[bytes], by: str, whole: bool = False) -> Path:
    """Five connections with TLS on a port: as another tool captures them, or as a recording."""
    made = Recorder(path / "recording") if whole else None
    packets: list[Packet] = []
    time_ns = 1_795_223_022 * SECOND
    for number in range(1, 6):
        ends = [("10.0.0.5", 40000 + number), ("10.0.0.1", port)]
        next_ = [1000, 5000]

        def put(side: int, data: bytes, flags: int = ACK, ends: list[tuple[str, int]] = ends, next_: list[int] = next_) -> None:
            nonlocal time_ns
            time_ns += 1_000_000
            packets.append((time_ns, build(ends[side], ends[1 - side], next_[side], next_[1 - side], flags, data, side)))
            next_[side] += len(data) + (flags & 3 != 0)

        put(0, b"", SYN), put(1, b"", SYN | ACK), put(0, b"")
        if made is not None:
            made.opened(number, time_ns, client=ends[0], broker=ends[1])
        sent = [(0, HELLO), (1, SERVER_FLIGHT), *((0, each) for each in client[:1]), *((1, each) for each in broker[:1])]
        sent += [*((0, each) for each in client[1:]), *((1, each) for each in broker[1:])]
        for side, data in sent:
            put(side, data)
            if made is not None:
                made.data(number, side, time_ns, data)
        put(int(by == "broker"), b"", FIN | ACK), put(int(by != "broker"), b"", FIN | ACK)
        if made is not None:
            made.closed(number, time_ns, "fin", by)
        time_ns += SECOND
    if made is not None:
        made.close()
        return path / "recording"
    return pcap_file(path, packets)


@pytest.mark.parametrize("whole", [False, True], ids=["pcap", "recording"])
@pytest.mark.parametrize("port", [9092, 9093])
@pytest.mark.parametrize("name", REFUSED)
def test_a_tls_handshake_that_fails(name: str, port: int, whole: bool, tmp_path: Path) -> None:
    client, broker, by, text = REFUSED[name]
    found = cause(inspected(handshakes(tmp_path, port, client, broker, by, whole)))
    assert (found.id, found.severity, found.count) == ("tls-handshake-failed", Severity.HIGH, 5)
    assert text in found.seen


@pytest.mark.parametrize("port", [9092, 9093])
@pytest.mark.parametrize("name", HEALTHY)
def test_a_tls_session_that_works(name: str, port: int, tmp_path: Path) -> None:
    found = inspected(handshakes(tmp_path, port, *HEALTHY[name]))
    assert {(f.id, f.severity) for f in found} <= {("tls-traffic", Severity.INFO), ("unused-connections", Severity.INFO)}


def test_an_idle_session_that_the_broker_ends_is_no_refusal() -> None:
    """connections.max.idle.ms: without tickets, the broker's close_notify is all that it sent."""
    for waited, expected in ((SECOND, Refusal.BY_BROKER), (600 * SECOND, Refusal.NONE)):
        seen = TlsHandshake()
        seen.feed(Direction.REQUEST, HELLO, 0)
        seen.feed(Direction.RESPONSE, SERVER_HELLO + CHANGE + record(23, 900), 1)
        seen.feed(Direction.REQUEST, CHANGE + FINISHED, 2)
        assert seen.refusal("broker", 2 + waited) is expected
        seen.feed(Direction.RESPONSE, JAVA_ALERT, 2 + waited)
        assert seen.refusal("broker", 3 + waited) is expected


def test_in_tls_1_2_the_first_encrypted_record_of_a_client_is_a_request() -> None:
    seen = TlsHandshake()
    seen.feed(Direction.REQUEST, HELLO, 0)
    seen.feed(Direction.RESPONSE, SERVER_HELLO + record(22, 900), 1)
    seen.feed(Direction.REQUEST, record(22, 70) + CHANGE + record(22, 40), 2)
    seen.feed(Direction.RESPONSE, CHANGE + record(22, 40), 3)
    seen.feed(Direction.REQUEST, DATA, 4)
    assert seen.refusal("broker", 5) is Refusal.NONE


def test_recordings_keep_no_more_of_tls_than_heads_and_alerts(tmp_path: Path) -> None:
    client, broker, by, _ = REFUSED["alert in clear"]
    folder = handshakes(tmp_path, 9092, client, broker, by, whole=True)
    data = b"".join(path.read_bytes() for path in folder.glob("*.pcapng"))
    assert UNKNOWN_CA in data and b"\x5a" * 4 not in data


# --- packets that were cut when they were captured ------------------------------------------------------------


def as_packets(talk: Conversations) -> list[Packet]:
    """The exchanges of a single connection as the packets of a capture, its beginning included."""
    ends = ("10.0.0.5", 40001), ("10.0.0.1", 9092)
    next_, found = [1000, 2000], []

    def put(time_ns: int | None, side: int, flags: int, data: bytes = b"") -> None:
        found.append((time_ns or 0, build(ends[side], ends[1 - side], next_[side], next_[1 - side], flags, data, side)))
        next_[side] += len(data) + (flags & SYN != 0)

    start = (talk.exchanges[0].request_time_ns or 0) - 3000
    put(start, 0, SYN)
    put(start + 1000, 1, SYN | ACK)
    put(start + 2000, 0, ACK)
    for exchange in talk.exchanges:
        put(exchange.request_time_ns, 0, ACK, with_size(exchange.request or b""))
        put(exchange.response_time_ns, 1, ACK, with_size(exchange.response or b""))
    return found


def fetches(code: int) -> Conversations:
    """A consumer whose fetches of two partitions are answered with an error, or well (0), every second for a minute."""
    talk = Conversations()
    link = talk.open()
    partitions = [{"partition": n, "current_leader_epoch": 9, "fetch_offset": 100, "partition_max_bytes": 1 << 20} for n in range(2)]
    asked = {"max_wait_ms": 500, "min_bytes": 1, "session_epoch": -1, "topics": [{"topic": "meter", "partitions": partitions}]}
    rows = [{"partition_index": n, "error_code": code, "high_watermark": 100 if not code else -1, "records": b""} for n in range(2)]
    for _ in range(60):
        talk.ask(link, "Fetch", 11, asked, {"responses": [{"topic": "meter", "partitions": rows}]}, took=0.002)
        talk.wait(1)
    return talk


def test_packets_that_were_cut_still_show_errors_and_both_directions(tmp_path: Path) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(snapped(as_packets(fetches(75)), 96))  # UNKNOWN_LEADER_EPOCH
    found = inspected(path)
    assert (cause(found).id, cause(found).severity, cause(found).count) == ("fetch-error-loop", Severity.HIGH, 60)
    assert "UNKNOWN_LEADER_EPOCH" in cause(found).seen and "the capture cuts off" in cause(found).seen
    with open_capture(path) as capture:
        assert [str(row.state) for row in capture.rows()] == ["paired"] * 60 and all(row.cut for row in capture.rows())
        assert "120 packets were cut when captured" in str(capture.note) and "only what" not in str(capture.note)
    path.write_bytes(snapped(as_packets(fetches(0)), 96))
    assert [(each.id, each.seen) for each in inspected(path) if each.severity.rank > Severity.LOW.rank] == []
