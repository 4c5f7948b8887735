"""Foreign captures as recordings of our own: the same exchanges, whatever segments they fall into."""

from __future__ import annotations

import gzip
import signal
import stat
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import open_capture, rebuild
from barnabas.captures.foreign.importer import Importer, OwnRecording
from barnabas.captures.pcap.sources import CaptureSource
from barnabas.decoder import encode_request, encode_response
from barnabas.decoder.connection.events import NonKafkaData
from barnabas.decoder.filter import compile as compiled
from harness.recordings import metadata_answer, metadata_request
from harness.wire import with_size
from traffic.packets import as_pcap, as_pcapng, one_connection, pcap_file, snapped, traffic

from ..event_words import import_captures

KEYS = (
    "time_ns", "latency_ns", "client", "broker", "api_key", "api_version", "correlation_id", "client_id",
    "request_size", "response_size", "error", "state", "undecoded", "surplus",
)  # fmt: skip


def rows(path: Path) -> list[tuple]:
    with open_capture(path) as capture:
        return sorted((tuple(getattr(row, key) for key in KEYS) for row in capture.rows()), key=repr)


def frames(path: Path) -> list[tuple]:
    with open_capture(path) as capture:
        return sorted(
            (e.client, e.request_time_ns or 0, e.request or b"", e.response or b"") for e in capture.exchanges()
        )


@pytest.mark.parametrize("how", ["as sent", "reordered", "doubled", "lost", "late"])
def test_the_same_exchanges(tmp_path: Path, how: str) -> None:
    path = pcap_file(tmp_path, traffic(11, how))
    out = tmp_path / "own"
    importer = import_captures(out, path, segment_bytes=6_000, redact=False)
    assert importer.counts["segments"] > 2
    assert rows(out) == rows(path)
    assert frames(out) == frames(path)
    with open_capture(out) as capture:
        assert capture.note is None
        assert capture.verify() == []
        assert not any(segment.rebuilt for segment in capture.segments)
        assert sum(size for *_, size in capture.lost) == importer.counts["lost_bytes"]
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in out.iterdir()} == {0o600}


def test_the_index_is_that_of_the_segments(tmp_path: Path) -> None:
    path, out = tmp_path / "foreign.pcap", tmp_path / "own"
    path.write_bytes(as_pcap(traffic(12)))
    import_captures(out, path, segment_bytes=20_000)
    for segment in sorted(out.glob("*.pcapng")):
        index = segment.with_suffix(".index")
        written = index.read_bytes()
        rebuild(segment)
        assert index.read_bytes()[64:] == written[64:]


def test_an_interruption_waits_until_what_was_read_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out = tmp_path / "foreign.pcap", tmp_path / "own"
    path.write_bytes(as_pcap(traffic(12)))
    importer = Importer(out)
    opened, handler = importer.recorder.opened, signal.getsignal(signal.SIGINT)

    def interrupted(*arguments: Any, **options: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        opened(*arguments, **options)

    monkeypatch.setattr(importer.recorder, "opened", interrupted)
    source = CaptureSource(path)
    importer.begin(source)
    with pytest.raises(KeyboardInterrupt):
        importer.advance()
    assert not importer.advance()
    importer.close()
    source.close()
    assert signal.getsignal(signal.SIGINT) is handler
    assert rows(out) == rows(path)


def test_tshark_finds_no_fault(tmp_path: Path, complaints) -> None:
    path, out = tmp_path / "foreign.pcap", tmp_path / "own"
    path.write_bytes(as_pcap(traffic(13)))
    import_captures(out, path)
    (segment,) = out.glob("*.pcapng")
    assert [line for line in complaints(segment) if "Malformed" not in line and "KAFKA" not in line.upper()] == []


def test_parts_of_one_capture(tmp_path: Path) -> None:
    found = traffic(14)
    whole, out = tmp_path / "whole.pcap", tmp_path / "own"
    whole.write_bytes(as_pcap(found))
    parts = []
    for number, start in enumerate(range(0, len(found), 100)):
        part = tmp_path / f"part{number}.pcapng.gz"
        part.write_bytes(gzip.compress(as_pcapng(found[start : start + 100])))
        parts.append(part)
    assert len(parts) > 2
    import_captures(out, *parts)
    assert rows(out) == rows(whole)


def test_only_what_a_filter_picks(tmp_path: Path) -> None:
    path, out = tmp_path / "foreign.pcap", tmp_path / "own"
    path.write_bytes(as_pcap(traffic(15)))
    import_captures(out, path, wanted=compiled("err != 0 and client == 'c-1'"), segment_bytes=4000)
    picked = [row for row in rows(path) if row[10] and row[7] == "c-1"]
    assert picked
    assert rows(out) == picked


@pytest.mark.parametrize("size", [60, 96, 200, 600])
def test_the_beginnings_of_cut_frames(tmp_path: Path, size: int) -> None:
    path, out = tmp_path / "cut.pcap", tmp_path / "own"
    path.write_bytes(snapped(traffic(17), size))
    importer = import_captures(out, path, redact=False, segment_bytes=20_000)
    assert rows(out) == rows(path)
    assert frames(out) == frames(path)
    with open_capture(path) as capture, open_capture(out) as copy:
        cut = sorted((row.time_ns, row.cut) for row in capture.rows())
        assert sorted((row.time_ns, row.cut) for row in copy.rows()) == cut
        assert copy.verify() == []
    assert any(was_cut for _, was_cut in cut) == (size > 60)
    assert "were cut when captured" in importer.notes[-1]


@pytest.mark.parametrize("size", range(72, 140, 4))
def test_secrets_of_cut_frames_are_masked(tmp_path: Path, size: int) -> None:
    asked = with_size(encode_request(36, 1, {"auth_bytes": b"\0alice\0planted-secret" * 9}, correlation_id=1, client_id="c"))
    path, out = tmp_path / "cut.pcap", tmp_path / "own"
    path.write_bytes(snapped(one_connection((0, asked), (0, metadata_request(2)), (1, metadata_answer(2))), size))
    import_captures(out, path)
    assert len(rows(out)) == len(rows(path)) >= 1
    assert all(b"planted"[:4] not in file.read_bytes() for file in out.iterdir())


def test_secrets_are_masked(tmp_path: Path) -> None:
    token = b"\0alice\0planted-secret"
    asked = with_size(encode_request(36, 1, {"auth_bytes": token}, correlation_id=1, client_id="c"))
    answered = with_size(
        encode_response(
            36,
            1,
            {"error_code": 0, "error_message": None, "auth_bytes": b"", "session_lifetime_ms": 0},
            correlation_id=1,
        )
    )
    path = pcap_file(tmp_path, one_connection((0, asked), (1, answered)))
    import_captures(tmp_path / "masked", path)
    import_captures(tmp_path / "open", path, redact=False)
    assert all(b"planted" not in file.read_bytes() for file in (tmp_path / "masked").iterdir())
    assert any(b"planted" in file.read_bytes() for file in (tmp_path / "open").iterdir())
    assert len(rows(tmp_path / "masked")) == 1


def test_raw_sasl_tokens(tmp_path: Path) -> None:
    shake = with_size(encode_request(17, 0, {"mechanism": "PLAIN"}, correlation_id=1, client_id="c"))
    shaken = with_size(encode_response(17, 0, {"error_code": 0, "mechanisms": ["PLAIN"]}, correlation_id=1))
    found = one_connection(
        (0, shake), (1, shaken), (0, with_size(b"\0alice\0planted-secret")), (1, with_size(b"")), (0, metadata_request(2)),
        (1, metadata_answer(2)),
    )  # fmt: skip
    path, out = tmp_path / "foreign.pcap", tmp_path / "own"
    path.write_bytes(as_pcap(found))
    import_captures(out, path, redact=False)
    assert all(b"planted" not in file.read_bytes() for file in out.iterdir())
    assert rows(out) == rows(path)
    assert len(rows(out)) == 2
    with open_capture(out) as capture:
        strays = [h.opaque.reason for h in capture.events() if isinstance(h, NonKafkaData)]
    assert strays == ["SASL token", "SASL token"]


def test_another_protocol_on_the_port(tmp_path: Path) -> None:
    hello = bytes.fromhex("1603010200010001fc0303") + b"x" * 500
    path, out = tmp_path / "foreign.pcap", tmp_path / "own"
    path.write_bytes(as_pcap(one_connection((0, hello))))
    import_captures(out, path)
    with open_capture(path) as capture:
        assert "of these, 1 uses TLS" not in str(capture.note)  # it is on the broker's port: a finding reports it
    with open_capture(out) as capture:
        strays = [h.opaque for h in capture.events() if isinstance(h, NonKafkaData)]
    assert "a TLS hello" in strays[0].reason
    assert strays[0].data == hello[:8] + b"*" * 503
    path.write_bytes(as_pcap(one_connection((0, hello), port=4433)))
    with open_capture(path) as capture:
        assert "of these, 1 uses TLS, which barnabas import --keylog decrypts" in str(capture.note)


def test_a_recording_cannot_be_imported(tmp_path: Path) -> None:
    path, out = tmp_path / "foreign.pcap", tmp_path / "own"
    path.write_bytes(as_pcap(traffic(16)))
    import_captures(out, path)
    with pytest.raises(OwnRecording, match="open it directly"):
        Importer(tmp_path / "again").begin(CaptureSource(next(out.glob("*.pcapng"))))


def test_stopped_in_the_middle(tmp_path: Path) -> None:
    path, out = tmp_path / "foreign.pcap", tmp_path / "own"
    path.write_bytes(as_pcap(one_connection((0, metadata_request(1)), (0, metadata_request(2)))))
    importer = Importer(out)
    importer.begin(CaptureSource(path))
    importer.advance()
    importer.close(finished=False)
    assert [row[11] for row in rows(out)] == ["pending", "pending"]
    with open_capture(out) as capture:
        assert capture.note is None
