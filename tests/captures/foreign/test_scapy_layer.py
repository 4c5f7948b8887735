"""The scapy layer: what scapy dissects is what the decoder reads, and what scapy builds the decoder reads; in TCPSession, data that
is not Kafka ends nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from barnabas import decoder
from barnabas.captures import Recorder, open_capture
from barnabas.captures.foreign.scapy_layer import KafkaRequest, KafkaResponse, bind, body
from harness.recordings import metadata_answer, metadata_request
from harness.wire import with_size
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.sendrecv import sniff
from scapy.sessions import TCPSession
from scapy.utils import PcapNgWriter, rdpcap, wrpcap
from traffic.packets import NOW, as_pcap, one_connection, pcap_file

HEALTHY = Path(__file__).parents[2] / "decoder" / "findings" / "captures"


def test_requests_and_responses(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(
        as_pcap(one_connection((0, metadata_request(1) + metadata_request(2)), (1, metadata_answer(1, error=3))))
    )
    found = rdpcap(str(path))
    first = found[2][KafkaRequest]
    assert (first.api_key, first.api_version, first.correlation_id, first.client_id) == (3, 1, 1, "stock-1")
    assert first.payload.topics[0].name_ == "topic-1"
    second = first.payload.payload
    assert second.correlation_id == 2
    answer = found[3][KafkaResponse]
    assert (answer.api_key, answer.api_version) == (3, 1)
    assert answer.payload.topics[0].error_code == 3
    assert answer.payload.topics[0].partitions[2].partition_index == 2
    assert "topic-1" in answer.show(dump=True)


def test_frames_over_packets(tmp_path: Path) -> None:
    asked, answered = metadata_request(1, 3000), metadata_answer(1, 3000)
    parts = [(0, asked[:1000]), (0, asked[1000:]), (1, answered[:5]), (1, answered[5:])]
    path = pcap_file(tmp_path, one_connection(*parts))
    found = sniff(offline=str(path), session=TCPSession)
    requests = [p[KafkaRequest] for p in found if KafkaRequest in p]
    responses = [p[KafkaResponse] for p in found if KafkaResponse in p]
    assert requests[0].payload.topics[0].name_ == "topic-1" + "x" * 3000
    assert responses[0].payload.topics[0].name_ == "topic-1" + "y" * 3000


def test_every_api(tmp_path: Path) -> None:
    """Each message at its newest version: scapy's packet is built to the bytes it was read from."""
    count = 0
    for key in decoder.facts.api_keys():
        for kind in ("request", "response"):
            version = decoder.facts.api(key).versions.every()[-1]
            data = decoder.encode_body(kind, key, version, {})
            made = body(kind, key, version)
            assert bytes(made(data)) == data
            count += 1
    assert count > 150


def test_building() -> None:
    asked = KafkaRequest(api_key=3, api_version=1, correlation_id=7, client_id="me") / body("request", 3, 1)(
        topics=[{"name": "orders"}]
    )
    data = bytes(asked)
    assert data == with_size(
        decoder.encode_request(3, 1, {"topics": [{"name": "orders"}]}, correlation_id=7, client_id="me")
    )
    answer = KafkaResponse(correlation_id=7) / body("response", 12, 4)(error_code=27)
    expected = decoder.encode_response(12, 4, {"error_code": 27, "throttle_time_ms": 0}, correlation_id=7)
    assert bytes(answer) == with_size(expected)


def test_unknown_apis_and_orphans_stay_bytes(tmp_path: Path) -> None:
    unknown = with_size(b"\x03\xe7\0\0\0\0\0\x01\xff\xffrest")
    path = pcap_file(tmp_path, one_connection((0, unknown), (1, metadata_answer(99))))
    found = rdpcap(str(path))
    assert found[2][KafkaRequest].api_key == 999
    assert found[2][Raw].load == b"rest"
    assert found[3][KafkaResponse].api_key == -1
    assert Raw in found[3]


def test_another_port(tmp_path: Path) -> None:
    path = pcap_file(tmp_path, one_connection((0, metadata_request(1)), port=29_555))
    assert KafkaRequest not in rdpcap(str(path))[2]
    bind(29_555)
    assert KafkaRequest in rdpcap(str(path))[2]


def test_scapy_reads_recordings(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.opened(1, NOW, client=("10.0.0.1", 50001), broker=("10.0.0.9", 9092))
    for i in range(20):
        recorder.data(1, 0, NOW + i * 1000, metadata_request(i))
        recorder.data(1, 1, NOW + i * 1000 + 500, metadata_answer(i))
    recorder.close()
    (segment,) = tmp_path.glob("*.pcapng")
    found = rdpcap(str(segment))
    assert [p[KafkaRequest].correlation_id for p in found if KafkaRequest in p] == list(range(20))
    assert {p[KafkaResponse].api_key for p in found if KafkaResponse in p} == {3}


def test_responses_of_the_broker_leg_are_known_by_the_clients_requests(tmp_path: Path) -> None:
    """The broker leg has only what differs: responses with the broker's own addresses, whose requests are on the client leg."""
    recorder = Recorder(tmp_path)
    for conn in (1, 2, 3):
        recorder.opened(conn, NOW, client=("10.0.0.1", 50000 + conn), broker=("10.0.0.9", 9092), upstream=("10.0.0.5", 40000 + conn))
    for i in range(10):  # the same correlation ids on all connections, of two APIs
        recorder.data(1, 0, NOW + i * 1000, metadata_request(i))
        recorder.data(2, 0, NOW + i * 1000 + 1, metadata_request(i))
        recorder.data(3, 0, NOW + i * 1000 + 2, with_size(decoder.encode_request(18, 0, {}, correlation_id=i, client_id="v")))
        for conn in (1, 2):
            recorder.broker_leg(conn, 1, NOW + i * 1000 + 500 + conn, metadata_answer(i))
            recorder.data(conn, 1, NOW + i * 1000 + 600 + conn, metadata_answer(i))
        recorder.data(3, 1, NOW + i * 1000 + 700, with_size(i.to_bytes(4, "big") + bytes(6)))
    recorder.broker_leg(1, 1, NOW + 20_000, metadata_answer(99))  # nobody asked
    recorder.close()
    (segment,) = tmp_path.glob("*.pcapng")
    found = rdpcap(str(segment))
    legs = [p[KafkaResponse] for p in found if KafkaResponse in p and p[TCP].dport in (40001, 40002)]
    assert len(legs) == 21 and [each.api_key for each in legs] == [3] * 20 + [-1]
    assert all(each.payload.brokers[0].port for each in legs[:-1]) and legs[-1].haslayer(Raw)
    assert {p[KafkaResponse].api_key for p in found if KafkaResponse in p and p[TCP].dport == 50003} == {18}


@pytest.mark.parametrize("form", ["pcap", "nano", "pcapng"])
def test_we_read_what_scapy_writes(tmp_path: Path, form: str) -> None:
    path = tmp_path / "scapy.cap"
    packets, next_ = [], [100, 200]
    for i in range(10):
        asked = KafkaRequest(api_key=12, api_version=4, correlation_id=i, client_id="scapy") / body("request", 12, 4)(
            group_id="g", member_id="m"
        )
        answer = KafkaResponse(correlation_id=i) / body("response", 12, 4)()
        for side, data in ((0, bytes(asked)), (1, bytes(answer))):
            ends = ("10.0.0.1", "10.0.0.2"), (40000, 9092)
            source, target = (0, 1) if side == 0 else (1, 0)
            packet = Ether() / IP(src=ends[0][source], dst=ends[0][target])
            packet /= TCP(
                sport=ends[1][source], dport=ends[1][target], seq=next_[side], ack=next_[1 - side], flags="PA"
            )
            packet /= data
            packet.time = 1_700_000_000 + len(packets)
            packets.append(packet)
            next_[side] += len(data)
    if form == "pcapng":
        with PcapNgWriter(str(path)) as writer:
            for packet in packets:
                writer.write(packet)
    else:
        wrpcap(str(path), packets, nano=form == "nano")
    with open_capture(path) as capture:
        rows = list(capture.rows())
        assert [(r.correlation_id, r.state, r.client_id, r.latency_ns) for r in rows] == [
            (i, "paired", "scapy", 10**9) for i in range(10)
        ]
        assert not any(row.undecoded or row.surplus for row in rows)


def test_scapy_missing() -> None:
    code = "import sys; sys.modules['scapy.fields'] = None; import barnabas.captures.foreign.scapy_layer"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install '.[scapy]'" in done.stderr


# --- streams

METADATA = {"topics": [{"name": "orders"}]}
ASKED = with_size(decoder.encode_request(3, 1, METADATA, correlation_id=7, client_id="me"))
HANDSHAKE = with_size(decoder.encode_request(17, 0, {"mechanism": "PLAIN"}, correlation_id=6, client_id="me"))


def test_a_body_names_its_api() -> None:
    """The line that the documentation shows."""
    built = KafkaRequest(correlation_id=7, client_id="me") / body("request", 3, 1)(topics=[{"name": "orders"}])
    assert (built.api_key, built.api_version) == (3, 1)
    assert bytes(built) == ASKED
    header, _ = decoder.decode_request_header(bytes(built)[4:])
    assert (header["request_api_key"], header["request_api_version"]) == (3, 1)


def test_the_api_of_a_body_stays() -> None:
    """For frames that are wrong on purpose."""
    built = KafkaRequest(api_key=18, api_version=0, correlation_id=7, client_id="me") / body("request", 3, 1)()
    assert bytes(built)[4:8] == b"\0\x12\0\0"


def test_a_response_knows_the_header_of_its_api() -> None:
    built = KafkaResponse(correlation_id=7) / body("response", 3, 9)()
    assert (built.api_key, built.api_version) == (3, 9)
    assert bytes(built) == with_size(decoder.encode_response(3, 9, {}, correlation_id=7))


@pytest.mark.parametrize(
    "between",
    [
        with_size(b"\0alice\0open sesame"),  # a raw SASL token, as after SaslHandshake v0
        with_size(b"\0"),
        with_size(b""),
        b"\x7f\xff\xff\xff" + b"x" * 100,  # a frame of two gigabytes
        b"\xff\xff\xff\xff" + b"x" * 100,
        b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),  # the beginning of a TLS handshake
    ],
    ids=["token", "one byte", "empty", "oversize", "negative", "http", "tls"],
)
def test_data_that_is_not_kafka_stays_bytes(tmp_path: Path, between: bytes) -> None:
    path = pcap_file(tmp_path, one_connection((0, HANDSHAKE), (0, between), (0, ASKED)))
    found = sniff(offline=str(path), session=TCPSession)
    apis = [packet[KafkaRequest].api_key for packet in found if KafkaRequest in packet]
    assert apis[0] == 17
    assert 3 in apis
    assert any(Raw in packet and between[-5:] in bytes(packet[Raw]) for packet in found) or len(between) < 6
