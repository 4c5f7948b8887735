"""``barnabas import`` and ``barnabas sniff``, and every command on compressed captures and standard input."""

from __future__ import annotations

import gzip
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import cramjam
import pytest
from barnabas.captures import open_capture
from barnabas.decoder.connection.events import Opened
from harness import commands
from harness.run.slices import only
from harness.waiting import PATIENCE, until
from harness.wire import with_size
from real.brokers.wireshark import tap
from traffic.packets import as_pcap, as_pcapng, traffic

Run = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def barnabas() -> Run:
    """`barnabas(*arguments, input=b"")`: what the command gave."""

    def run(*arguments: object, input: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return commands.run_bytes(*arguments, input=input)

    return run


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "a.pcap"
    path.write_bytes(as_pcap(traffic(21)))
    return path


def count(path: Path) -> int:
    with open_capture(path) as opened:
        return len(opened.rows())


def test_import(tmp_path: Path, capture: Path, barnabas: Run) -> None:
    done = barnabas("import", capture, "-o", tmp_path / "own", "--no-redact")
    assert done.returncode == 0, done.stderr
    assert f"{count(capture)} exchanges on 4 connections in 1 segment".encode() in done.stderr
    assert b"secrets are not masked" in done.stderr
    assert count(tmp_path / "own") == count(capture)
    assert done.stdout == b""


def test_several_in_the_order_of_their_times(tmp_path: Path, barnabas: Run) -> None:
    found = traffic(22)
    half = len(found) // 2
    (tmp_path / "z.pcap").write_bytes(as_pcap(found[:half]))
    (tmp_path / "a.pcap.gz").write_bytes(gzip.compress(as_pcap(found[half:])))
    (tmp_path / "whole.pcap").write_bytes(as_pcap(found))
    done = barnabas("import", tmp_path / "a.pcap.gz", tmp_path / "z.pcap", "-o", tmp_path / "own")
    assert done.returncode == 0, done.stderr
    assert count(tmp_path / "own") == count(tmp_path / "whole.pcap")


@pytest.mark.parametrize("form", only(["gz", "zst", "-", "- gz"], "zst"))
def test_every_command_takes_it(tmp_path: Path, capture: Path, barnabas: Run, form: str) -> None:
    data = as_pcapng(traffic(21))
    packed = {
        "gz": gzip.compress(data),
        "zst": bytes(cramjam.zstd.compress(data)),
        "-": data,
        "- gz": gzip.compress(data),
    }
    path: Path | str = "-"
    if not form.startswith("-"):
        path = tmp_path / f"b.pcapng.{form}"
        path.write_bytes(packed[form])
    given = {"input": packed[form]} if path == "-" else {}
    done = barnabas("decode", path, "--json", "--no-bodies", **given)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == count(capture)
    commands: list[list[str]] = []
    if form in ("gz", "-"):
        commands = [["ui", "--plain"], ["findings", "--json"], ["versions"], ["filter", "try", "--filter", "err != 0"]]
    for command in commands:
        done = barnabas(*command, path, **given)
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout
    done = barnabas("import", path, "-o", tmp_path / "own", **given)
    assert done.returncode == 0, done.stderr
    assert count(tmp_path / "own") == count(capture)


def test_damaged_compression(tmp_path: Path, barnabas: Run) -> None:
    whole = gzip.compress(as_pcap(traffic(21)))
    path = tmp_path / "cut.pcap.gz"
    path.write_bytes(whole[: len(whole) // 2])
    done = barnabas("decode", path)
    assert done.returncode == 0
    assert b"gzip data ends early" in done.stderr
    assert len(done.stdout.splitlines()) > 5
    path.write_bytes(b"\x1f\x8b\x08\0" + bytes(30))
    done = barnabas("decode", path)
    assert done.returncode == 2
    assert b"gzip" in done.stderr


def test_what_can_be_wrong(tmp_path: Path, capture: Path, barnabas: Run) -> None:
    out = tmp_path / "own"
    for arguments, message in (
        ([tmp_path / "nothing"], b"does not exist"),
        ([tmp_path], b"it is a directory"),
        ([__file__], b"not a capture"),
        ([capture, "--keylog", tmp_path / "none"], b"SSLKEYLOGFILE"),
        ([capture, "--filter", "api =="], b"api =="),
    ):
        done = barnabas("import", *arguments, "-o", out)
        assert done.returncode == 2, arguments
        assert message in done.stderr, (arguments, done.stderr)
        assert not out.exists()
    assert barnabas("import", capture, "-o", out).returncode == 0
    segment = next(out.glob("*.pcapng"))
    assert b"is already a recording" in barnabas("import", segment, "-o", tmp_path / "x").stderr
    done = barnabas("sniff", "-i", "nope0", "-o", tmp_path / "sniffed")
    assert done.returncode == 2
    assert b"there is no interface nope0" in done.stderr


def test_a_recording_that_exists_is_not_changed_unless_asked(tmp_path: Path, capture: Path, barnabas: Run) -> None:
    out = tmp_path / "own"
    assert barnabas("import", capture, "-o", out).returncode == 0
    once = [row.time_ns for row in open_capture(out).rows()]

    def times() -> list[int]:
        with open_capture(out) as opened:
            return sorted(row.time_ns for row in opened.rows())

    done = barnabas("import", capture, "-o", out)
    assert done.returncode == 2 and b"already exists" in done.stderr and times() == sorted(once)
    assert barnabas("import", capture, "-o", out, "--force").returncode == 0 and times() == sorted(once)
    assert barnabas("import", capture, "-o", out, "--append").returncode == 0 and times() == sorted(once * 2)
    assert b"give only one" in barnabas("import", capture, "-o", out, "--append", "--force").stderr
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_interrupted(tmp_path: Path, capture: Path) -> None:
    """A pipe that never ends, and Ctrl-C: what came is a valid recording."""
    out = tmp_path / "own"
    command = [sys.executable, "-m", "barnabas", "import", "-", "-o", str(out)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None and process.stderr is not None
    whole = as_pcap([(t + n * 10**9, d) for n in range(60) for t, d in traffic(21)])
    process.stdin.write(whole)
    process.stdin.flush()
    until(lambda: any(file.stat().st_size > 200_000 for file in out.glob("*.part")))
    process.send_signal(signal.SIGINT)
    message = process.stderr.read()
    process.stdin.close()
    assert process.wait(PATIENCE) == 130, message
    assert b"stopped before the end" in message
    with open_capture(out) as opened:
        assert len(opened.rows()) > 100
        assert opened.note is None
        assert opened.verify() == []


@pytest.fixture(scope="module")
def tls_capture(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A TLS conversation in Kafka's protocol as dumpcap writes it, and the client's key log."""
    folder = tmp_path_factory.mktemp("tls")
    if os.geteuid():
        pytest.fail("this test captures on the loopback interface: run it as root")
    return folder, _captured(folder)


def _captured(folder: Path) -> Path:
    import socket
    import threading

    from barnabas.decoder import encode_request, encode_response

    def take(secure: ssl.SSLSocket, left: int) -> None:
        while left:
            came = len(secure.recv(left))
            assert came, "the other side has gone"
            left -= came

    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    answers = [
        with_size(encode_response(12, 4, {"error_code": 27 if i == 5 else 0, "throttle_time_ms": 0}, correlation_id=i))
        for i in range(30)
    ]
    requests = [
        with_size(encode_request(12, 4, {"group_id": "g" * (20_000 if i == 7 else 1)}, correlation_id=i, client_id="tls"))
        for i in range(30)
    ]

    def answer() -> None:
        connection, _ = listening.accept()
        connection.settimeout(PATIENCE)
        with server.wrap_socket(connection, server_side=True) as secure:
            for asked, answered in zip(requests, answers, strict=True):
                take(secure, len(asked))
                secure.sendall(answered)

    capture = folder / "tls.pcap"
    with tap(capture, [port], "-P"):
        threading.Thread(target=answer, daemon=True).start()
        client = ssl.create_default_context(cafile=str(certificate))
        client.keylog_filename = str(folder / "keys.log")
        with (
            socket.create_connection(("127.0.0.1", port), PATIENCE) as connection,
            client.wrap_socket(connection, server_hostname="localhost") as secure,
        ):
            for asked, answered in zip(requests, answers, strict=True):
                secure.sendall(asked)
                take(secure, len(answered))
    return capture


def test_tls_by_key_log(tmp_path: Path, tls_capture: tuple[Path, Path], barnabas: Run) -> None:
    folder, path = tls_capture
    done = barnabas("import", path, "--keylog", folder / "keys.log", "-o", tmp_path / "own")
    assert done.returncode == 0, done.stderr
    with open_capture(tmp_path / "own") as opened:
        rows = list(opened.rows())
        assert [(r.correlation_id, r.state, r.error) for r in rows] == [
            (i, "paired", 27 if i == 5 else 0) for i in range(30)
        ]
        assert opened.exchange(rows[7]).request_message["group_id"] == "g" * 20_000
        assert {row.client_id for row in rows} == {"tls"}
        assert all(abs(row.time_ns / 1e9 - time.time()) < 600 for row in rows)
        (begun,) = (each for each in opened.events() if isinstance(each, Opened))
        assert begun.tls == {"client", "broker"}  # what is in clear here was not on the wire


@pytest.mark.slow
def test_tls_by_embedded_secrets(tmp_path: Path, tls_capture: tuple[Path, Path], barnabas: Run) -> None:
    folder, path = tls_capture
    holding = tmp_path / "holding.pcapng"
    secrets = f"tls,{folder / 'keys.log'}"
    subprocess.run(["editcap", "--inject-secrets", secrets, path, holding], check=True, capture_output=True)
    assert b"contains TLS secrets: barnabas import" in barnabas("decode", holding).stderr
    done = barnabas("import", holding, "-o", tmp_path / "own")
    assert done.returncode == 0, done.stderr
    assert count(tmp_path / "own") == 30


def test_tls_without_the_right_secrets(
    tmp_path: Path, tls_capture: tuple[Path, Path], barnabas: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, path = tls_capture
    message = barnabas("decode", path).stderr
    assert b"of these, 1 uses TLS, which barnabas import --keylog decrypts" in message
    other = tmp_path / "other.log"
    other.write_text("CLIENT_RANDOM " + "ab" * 32 + " " + "cd" * 48 + "\n")
    done = barnabas("import", path, "--keylog", other, "-o", tmp_path / "own")
    assert b"1 of 1 TLS connections could not be decrypted: their secrets are missing" in done.stderr
    monkeypatch.setenv("PATH", "/nonexistent")
    done = barnabas("import", path, "--keylog", other, "-o", tmp_path / "x")
    assert done.returncode == 2
    assert b"--keylog needs tshark" in done.stderr


def test_sniff(tmp_path: Path, barnabas: Run) -> None:
    done = barnabas("sniff", "-i", "lo", "-o", tmp_path / "own", "--port", "1", "--seconds", "0.5")
    assert done.returncode == 0, done.stderr
    assert b"0 exchanges on" in done.stderr
    assert b"packets dropped by the system: 0" in done.stderr
    assert json.loads(barnabas("findings", "--json", tmp_path / "own").stdout)["findings"] == []
