"""Passive recording from the loopback interface; needs root, as the capture tools do."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from barnabas.captures import Recorder, open_capture
from barnabas.captures.foreign import sniff as sniff_module
from barnabas.captures.foreign.importer import Importer
from barnabas.captures.foreign.sniff import SniffError, Tap, sniff
from barnabas.captures.recording import recording
from barnabas.captures.recording.segment import SegmentWriter
from harness.recordings import metadata_answer, metadata_request
from harness.waiting import PATIENCE, until


def exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def conversation(count: int) -> int:
    """A client and a server on loopback; returns the server's port."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]

    def answer() -> None:
        connection, _ = listening.accept()
        with connection, listening:
            for i in range(count):
                exactly(connection, len(metadata_request(i, 50)))
                connection.sendall(metadata_answer(i, 20_000 if i == 3 else 0))

    threading.Thread(target=answer, daemon=True).start()

    def ask() -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            for i in range(count):
                connection.sendall(metadata_request(i, 50))
                exactly(connection, len(metadata_answer(i, 20_000 if i == 3 else 0)))

    conversation.ask = ask  # type: ignore[attr-defined]
    return port


def recorded(tmp_path: Path, port: int, by: str, talk: Callable[[], None]) -> tuple[Tap, Importer, int]:
    tap = Tap("lo", (port,), by)
    importer = Importer(tmp_path / "own", (port,))
    ended = threading.Event()
    listener = threading.Thread(target=sniff, args=(tap, importer, ended.is_set))
    listener.start()
    talk()
    with open_capture(tmp_path / "own") as capture:  # live, while it is recorded

        def all_are_there() -> bool:
            capture.refresh()
            return len(capture.rows()) >= 20

        until(all_are_there, lambda: f"{len(capture.rows())} rows while it is recorded")
        seen = len(capture.rows())
    ended.set()
    listener.join(PATIENCE)
    assert not listener.is_alive()
    return tap, importer, seen


@pytest.mark.parametrize("by", ["dumpcap", "socket"])
def test_loopback(tmp_path: Path, by: str) -> None:
    if os.geteuid():
        pytest.fail("these tests listen to the loopback interface: run them as root")
    port = conversation(20)
    began = time.time_ns()
    tap, importer, seen = recorded(tmp_path, port, by, conversation.ask)  # type: ignore[attr-defined]
    assert seen == 20  # the rows were there while it was running
    assert importer.counts["exchanges"] == 20
    assert tap.dropped == 0
    assert tap.packets is not None and tap.packets >= 40
    with open_capture(tmp_path / "own") as capture:
        exchanges = list(capture.exchanges())
        assert [e.request for e in exchanges] == [metadata_request(i, 50)[4:] for i in range(20)]
        assert [e.response for e in exchanges] == [metadata_answer(i, 20_000 if i == 3 else 0)[4:] for i in range(20)]
        assert {e.broker for e in exchanges} == {f"127.0.0.1:{port}"}
        second = 10**9  # the kernel's clock of packets may be a little off
        assert all(began - second <= (e.request_time_ns or 0) <= time.time_ns() + second for e in exchanges)
        assert capture.note is None


def test_errors_of_sniffing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SniffError, match=r"there is no interface nope0; there are: .*lo"):
        Tap("nope0")
    with pytest.raises(SniffError, match="needs dumpcap or tcpdump"):
        Tap("any", by="socket")
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SniffError, match="tcpdump is not installed"):
        Tap("lo", by="tcpdump")

    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(sniff_module.socket, "socket", refused)
    with pytest.raises(SniffError, match="root or CAP_NET_RAW"):
        Tap("lo")


def test_output_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "dumpcap"
    program.write_text("#!/bin/sh\necho 'You do not have permission to capture on device lo.' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(SniffError, match="dumpcap cannot listen on lo: You do not have permission"):
        Tap("lo")


def test_read_packets_give_their_disk_space_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sniff_module, "_KEEP_BEHIND", 1 << 20)
    growing = sniff_module._Growing("lo")
    for _ in range(40):
        growing.add(os.urandom(1 << 18))
    size = os.fstat(growing.file.fileno())
    assert size.st_size == 10 << 20
    assert size.st_blocks * 512 < 4 << 20
    growing.close()


def no_space(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_pauses_the_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scapy.utils import rdpcap, wrpcap

    recorder = Recorder(tmp_path / "rec")
    recorder.opened(1, 10**18, ("10.0.0.1", 5000), ("10.0.0.2", 9092))
    for i in range(90):
        recorder.data(1, 0, 10**18 + i * 10**6, metadata_request(i, 50))
        recorder.data(1, 1, 10**18 + i * 10**6 + 1000, metadata_answer(i, 50))
    recorder.close()
    wrpcap(str(tmp_path / "all.pcap"), rdpcap(str(next((tmp_path / "rec").glob("*.pcapng")))))
    data = (tmp_path / "all.pcap").read_bytes()
    monkeypatch.setattr(recording, "_RETRY_SECONDS", 0.0)

    reported: list[str] = []
    growing = sniff_module._Growing("lo")
    importer = Importer(tmp_path / "own", on_trouble=reported.append)
    for part in range(3):
        growing.add(data[len(data) * part // 3 : len(data) * (part + 1) // 3])
        if not part:
            importer.begin(growing)
        with monkeypatch.context() as full:
            if part == 1:
                full.setattr(SegmentWriter, "flush", no_space)
            while importer.advance():
                pass
            importer.recorder.flush()
            assert importer.counts["exchanges"] >= 28 * (part + 1)  # counted, even while the disk fails
    importer.close()
    growing.close()
    assert [text.split("; ")[0].split(": ")[0] for text in reported] == [
        f"cannot write to {tmp_path / 'own'}",
        f"recording continues in {max((tmp_path / 'own').glob('*.pcapng'))}",
    ]
    assert importer.counts["exchanges"] == 90
    with open_capture(tmp_path / "own") as capture:
        exchanges = list(capture.exchanges())
    numbers = {e.correlation_id for e in exchanges if e.request and e.response}
    assert {*range(29), *range(61, 90)} <= numbers and 45 not in numbers
    missing = 180 - len(
        {(e.correlation_id, side) for e in exchanges for side in (0, 1) if (e.response if side else e.request)}
    )
    assert 0 < missing <= importer.counts["unrecorded"] + 2


def test_packets_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    growing = sniff_module._Growing("lo")
    growing.add(b"first")
    with monkeypatch.context() as full:
        full.setattr(sniff_module.os, "pwrite", no_space)
        growing.add(b"second")
        assert not growing.retry() and "No space left" in growing.trouble and growing.read == 5
    assert growing.retry() and not growing.trouble
    assert os.pread(growing.file.fileno(), 100, 0) == b"firstsecond"
    growing.close()


def times(tap: Tap) -> list[int]:
    """When the packets came that the tap took so far, in nanoseconds."""
    data = os.pread(tap.source.file.fileno(), tap.source.read, 0)
    found, at = [], 24
    while at < len(data):
        seconds, fraction, size, _ = sniff_module._RECORD.unpack_from(data, at)
        found.append(seconds * 10**9 + fraction)
        at += sniff_module._RECORD.size + size
    return found


def test_the_first_packets_have_no_later_times_than_those_behind_them() -> None:
    if os.geteuid():
        pytest.fail("these tests listen to the loopback interface: run them as root")
    for _ in range(5):  # the kernel begins to note arrivals somewhere in the middle
        tap = Tap("lo", by="socket")
        with socket.create_server(("127.0.0.1", 0)) as server:
            for _ in range(20):
                socket.create_connection(server.getsockname()).close()
                time.sleep(0.001)
        until(lambda tap=tap: tap.poll() and len(times(tap)) >= 20, lambda tap=tap: times(tap), pause=0)  # type: ignore[misc]
        tap.close()
        assert times(tap) == sorted(times(tap))
        tap.source.close()


def test_times_of_reading_give_way_to_times_of_arrival() -> None:
    taken = [(30, False, b"a"), (31, False, b"b"), (12, True, b"c"), (14, True, b"d"), (40, False, b"e")]
    assert sniff_module._in_order(taken) == [(12, b"a"), (12, b"b"), (12, b"c"), (14, b"d"), (40, b"e")]
