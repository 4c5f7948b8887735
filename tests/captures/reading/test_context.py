"""What a capture says about brokers and topics is the same whether exchanges are read back for it or only their responses' bytes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import open_capture
from barnabas.captures.native.accelerator import native
from barnabas.captures.reading import context
from barnabas.captures.reading.capture import Capture
from harness.peers.pcap import as_pcap
from traffic.fleets.rotated import CLUSTER_ID, TOPICS, record, steps

pytest.importorskip("numpy")
pytestmark = pytest.mark.skipif(native is None, reason="needs the accelerator")

ALL = sorted(path for path in Path(__file__).parents[2].rglob("*.pcapng") if path.is_file())


def said(path: Path, monkeypatch: pytest.MonkeyPatch, bulk: bool) -> tuple[list[Any], int]:
    """By recording, its brokers and topics; and how many exchanges were read back."""
    read: list[int] = []
    before = Capture.exchange
    with monkeypatch.context() as patched:
        if not bulk:
            patched.setattr(context, "native", None)
        patched.setattr(Capture, "exchange", lambda self, row: read.append(1) or before(self, row))
        with open_capture(path) as capture:
            found = context.contexts_of(capture)
    return [(name, each.brokers, dict(each.topics.names), each.cluster_id) for name, each in found.items()], len(read)


@pytest.mark.parametrize("size", [64 << 20, 3_400])
def test_of_recordings_and_packet_captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    recording = record(tmp_path / "recording", steps(600), size)
    places = [recording, *recording.glob("*.pcapng")]
    if size > 3_400:
        places.append(as_pcap(next(recording.glob("*.pcapng")), tmp_path / "traffic.pcap"))
    for place in places:
        assert said(place, monkeypatch, True)[0] == said(place, monkeypatch, False)[0]
    ((_, brokers, topics, cluster_id),), read = said(recording, monkeypatch, True)
    assert (cluster_id, {*topics.values()}, len(brokers)) == (CLUSTER_ID, {*TOPICS}, 3)
    assert 0 < read < said(recording, monkeypatch, False)[1]


def test_of_real_clients_and_a_proxy_that_replaces_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = 0
    for number, path in enumerate(ALL):
        copy = tmp_path / f"{number}.pcapng"
        shutil.copy(path, copy)
        found, _ = said(copy, monkeypatch, True)
        assert found == said(copy, monkeypatch, False)[0], path
        known += any(brokers for _, brokers, _, _ in found)
    assert known > 20
