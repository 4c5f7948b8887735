"""``barnabas crosscheck`` as a program."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from barnabas import decoder
from harness import commands
from scapy.layers.inet import IP, TCP
from scapy.utils import wrpcap

RECORDED = Path(__file__).parents[3] / "decoder" / "findings" / "captures" / "ages-old-broker.pcapng"


def test_each_difference_names_who_is_wrong() -> None:
    done = commands.run("crosscheck", RECORDED)
    output = done.stdout
    assert done.returncode == 0, done.stderr
    assert "Wireshark 4" in output and "fields compared" in output
    assert "11 agreed" in output
    assert "Barnabas is wrong" not in output
    rows = [json.loads(line) for line in commands.run("crosscheck", RECORDED, "--json").stdout.splitlines()]
    assert len(rows) == 14
    assert rows[0]["api"] == "ApiVersions" and rows[0]["direction"] == "request" and rows[0]["outcome"] == "agreed"


def test_a_secret_is_not_shown(tmp_path: Path) -> None:
    """A SASL token whose frame Wireshark stumbles over, in a capture of others, which masks nothing."""
    secret = b"\0alice\0open sesame"
    frames = [decoder.encode_request(36, 2, {"auth_bytes": secret}, correlation_id=3, client_id="c")]
    frames.append(decoder.encode_request(36, 1, {"auth_bytes": secret}, correlation_id=4, client_id="c"))
    payload = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    ends = IP(src="10.0.0.1", dst="10.0.0.2")
    wrpcap(
        str(tmp_path / "sasl.pcap"),
        [
            ends / TCP(sport=4000, dport=9092, flags="S", seq=9),
            ends / TCP(sport=4000, dport=9092, flags="PA", seq=10) / payload,
        ],
    )
    for options in ([], ["--json"]):
        done = commands.run("crosscheck", tmp_path / "sasl.pcap", *options)
        assert done.stdout, done.stderr
        for part in ("sesame", secret.hex(":"), secret.hex()):
            assert part not in done.stdout + done.stderr


def test_the_current_folder_names_no_program(tmp_path: Path) -> None:
    """pyshark looks for a config.ini there first."""
    left = tmp_path / "was-run"
    (tmp_path / "evil").write_text(f"#!/bin/sh\ntouch {left}\n")
    (tmp_path / "evil").chmod(0o755)
    (tmp_path / "config.ini").write_text(
        f"[tshark]\ntshark_path = {tmp_path / 'evil'}\ndumpcap_path = {tmp_path / 'evil'}\n"
    )
    words = [sys.executable, "-m", "barnabas", "crosscheck", str(RECORDED)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not left.exists()


def test_without_tshark_the_message_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    done = commands.run("crosscheck", RECORDED)
    assert done.returncode == 2
    assert done.stderr.startswith("barnabas: tshark is not installed: apt-get install tshark")


def test_what_is_no_capture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "not.pcap").write_text("no capture at all")
    done = commands.run("crosscheck", tmp_path / "not.pcap")
    assert done.returncode == 2 and "Traceback" not in done.stderr


def test_a_capture_that_tshark_cannot_read_to_its_end(tmp_path: Path) -> None:
    shutil.copy(RECORDED, tmp_path / "cut.pcapng")
    data = (tmp_path / "cut.pcapng").read_bytes()
    (tmp_path / "cut.pcapng").write_bytes(data[:-7])
    done = commands.run("crosscheck", tmp_path / "cut.pcapng")
    assert done.returncode in (0, 2) and "Traceback" not in done.stderr
    if done.returncode:
        assert "tshark could not read cut.pcapng" in done.stderr
