"""``barnabas versions``: of recordings, of a foreign pcap, and asked of brokers."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from barnabas import decoder
from barnabas.decoder.reference import releases
from barnabas.decoder.schema import facts
from harness.wire import with_size
from scapy.utils import rdpcap, wrpcap


def test_a_recording(run, recording):
    done = run("versions", recording)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line]
    assert lines[0][0] == "'shop'" and "never sends ApiVersions" in done.stdout
    assert ["0", "Produce", "v9", "(2)", "?", "0-13"] in lines
    assert "\x1b" not in done.stdout


def test_as_json(run, recording):
    found = json.loads(run("versions", recording, "--json").stdout)
    (client,) = found["clients"]
    assert client["client_id"] == "shop" and client["address"] == "127.0.0.1" and client["negotiation"] == "never"
    assert found["brokers"] == []
    produce = client["apis"][0]
    assert produce == {
        "api": "Produce", "api_key": 0, "versions": {"9": 2}, "refused": {}, "unanswered": {}, "offered": [],
        "known": [0, 13], "highest": None, "limit": "unknown",
    }  # fmt: skip


def test_a_foreign_pcap(run, recording, tmp_path):
    (segment,) = recording.glob("*.pcapng")
    pcap = tmp_path / "from-tcpdump.pcap"
    wrpcap(str(pcap), rdpcap(str(segment)), nano=True)
    own, foreign = (json.loads(run("versions", path, "--json").stdout) for path in (recording, pcap))
    assert foreign == own


GROUPS = Path(__file__).parents[3] / "decoder" / "findings" / "captures" / "groups-stopped.pcapng"


def test_a_filter_selects_exchanges_and_what_their_connections_negotiated(run):
    """``compat`` judges by them, too."""
    everything, selected = (
        json.loads(run("versions", GROUPS, *more, "--json").stdout)["clients"]
        for more in ((), ("--filter", "api == JoinGroup"))
    )
    (client,) = selected
    assert client["client_id"] == "billing-frozen" and len(everything) > 1
    assert {api["api"]: sum(api["versions"].values()) for api in client["apis"]} == {"JoinGroup": 5, "ApiVersions": 1}
    assert client["negotiation"] == "asks" and client["software"] == everything[0]["software"]
    report = json.loads(run("compat", GROUPS, "--against", "4.0", "--filter", "api == JoinGroup", "--json").stdout)
    assert [each["client_id"] for each in report["clients"]] == ["billing-frozen"]


def test_a_filter_and_a_broker(run):
    done = run("versions", "127.0.0.1:9092", "--filter", "api == JoinGroup")
    assert done.returncode == 2 and "127.0.0.1:9092 is a broker" in done.stderr


# --- brokers -----------------------------------------------------------------------------------------------

Answer = Callable[[int, int, bytes], bytes | None]


class FakeBroker:
    """Answers each connection's requests with `answer(api key, version, frame)`; None closes the connection."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()[:2]
        self.name = f"127.0.0.1:{self.address[1]}"
        self.answer: Answer = lambda *_: None
        self.requests: list[tuple[int, int]] = []
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                with connection, suppress(OSError):
                    while head := connection.recv(4, socket.MSG_WAITALL):
                        if int.from_bytes(head, "big") > 1 << 20:
                            break  # as Kafka does; a TLS hello looks like that
                        frame = connection.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
                        key, version, _ = decoder.peek_request(frame)
                        self.requests.append((key, version))
                        answer = self.answer(key, version, frame)
                        if answer is None:
                            break
                        connection.sendall(with_size(answer))

    def like(self, release: str, nodes: list[FakeBroker]) -> None:
        """Answer as a broker of a release does, one of `nodes`."""
        table = releases.release(release).offered
        ranges = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in table.items()]
        brokers = [{"node_id": i, "host": "127.0.0.1", "port": n.address[1]} for i, n in enumerate(nodes, 1)]

        def answer(key: int, version: int, frame: bytes) -> bytes | None:
            correlation_id = decoder.peek_request(frame)[2]
            if key == 18 and version > table[18][1]:
                only = {"error_code": 35, "api_keys": [entry for entry in ranges if entry["api_key"] == 18]}
                return decoder.encode_response(18, 0, only, correlation_id=correlation_id)
            if key == 18:
                return decoder.encode_response(18, version, {"api_keys": ranges}, correlation_id=correlation_id)
            return decoder.encode_response(3, version, {"brokers": brokers}, correlation_id=correlation_id)

        self.answer = answer


@pytest.fixture
def brokers() -> Iterator[list[FakeBroker]]:
    found = [FakeBroker(), FakeBroker()]
    yield found
    for broker in found:
        broker.listener.close()


def test_a_cluster_of_two_releases(run, brokers):
    one, two = brokers
    one.like("3.9", brokers)
    two.like("4.1", brokers)
    done = run("versions", one.name)
    assert done.returncode == 0, done.stderr
    assert f"{one.name}  node 1  Kafka 3.9, inferred from what it offers" in done.stdout
    assert f"{two.name}  node 2  Kafka 4.1, inferred from what it offers" in done.stdout
    assert "brokers of different releases" in done.stdout
    assert ["0", "Produce", "0-11", "0-13", "0-13"] in [line.split() for line in done.stdout.splitlines()]
    # newest first, then what the refusal names
    newest = facts.api(18).versions.every()[-1]
    assert one.requests[:3] == [(18, newest), (18, 4), (3, 12)]
    found = json.loads(run("versions", one.name, "--json").stdout)
    assert found["mixed"] is True and [b["releases"] for b in found["brokers"]] == [["3.9"], ["4.1"]]
    assert [b["node_id"] for b in found["brokers"]] == [1, 2] and all(b["exact"] for b in found["brokers"])


def test_an_old_broker_and_one_that_is_gone(run, brokers):
    one, two = brokers
    one.like("0.10.2", brokers)
    two.listener.close()
    done = run("versions", one.name)
    assert done.returncode == 0 and "Kafka 0.10.2" in done.stdout
    assert two.name in done.stderr and "is a broker listening there?" in done.stderr


def test_a_listener_with_sasl(run, brokers):
    one, _ = brokers
    one.like("4.0", [one])
    open_to_all = one.answer
    one.answer = lambda key, version, frame: open_to_all(key, version, frame) if key == 18 else None
    done = run("versions", one.name)
    assert done.returncode == 0 and "Kafka 4.0" in done.stdout and "SASL" in done.stderr


def test_a_broker_before_api_versions(run, brokers):
    one, _ = brokers
    one.answer = lambda key, version, frame: decoder.encode_response(3, 0, {}, correlation_id=1) if key == 3 else None
    done = run("versions", one.name)
    assert done.returncode == 2 and "is a Kafka broker older than 0.10.0" in done.stderr


def test_what_is_no_broker(run, brokers):
    one, two = brokers
    one.answer = lambda *_: None
    done = run("versions", one.name)
    assert done.returncode == 2 and "closes the connection on ApiVersions" in done.stderr
    two.answer = lambda *_: b"\x00" * 40
    assert run("versions", two.name).returncode == 2
    two.listener.close()
    refused = run("versions", two.name)
    assert refused.returncode == 2 and "is a broker listening there?" in refused.stderr


def test_a_port_that_speaks_tls(run):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # without a certificate: it answers with an alert
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, suppress(OSError):
                        context.wrap_socket(connection, server_side=True).close()

        threading.Thread(target=serve, daemon=True).start()
        done = run("versions", f"127.0.0.1:{listener.getsockname()[1]}")
    assert done.returncode == 2 and "uses TLS" in done.stderr and "plain text" in done.stderr


def test_a_file_whose_name_looks_like_an_address(run, recording):
    odd = recording.parent / "host:9092"
    recording.rename(odd)
    assert "'shop'" in run("versions", Path(odd.name)).stdout
