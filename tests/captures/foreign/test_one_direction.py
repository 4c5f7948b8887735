"""Captures of one direction: `open_capture` says what they cannot show."""

from __future__ import annotations

from pathlib import Path

import pytest
from barnabas.captures import open_capture
from traffic.packets import as_pcap

from .test_not_in_the_capture import exchanges

ANSWERS_ONLY = "only what brokers sent is in it"


@pytest.mark.parametrize("handshake", [True, False])
@pytest.mark.parametrize("direction", [0, 1])
def test_a_capture_of_answers_says_so(direction: int, handshake: bool, tmp_path: Path) -> None:
    wire = exchanges(4)
    wire.close()
    path = tmp_path / "one.pcap"
    path.write_bytes(as_pcap(wire.of(direction) if handshake else wire.of(direction)[1:]))
    with open_capture(path) as capture:
        assert (ANSWERS_ONLY in (capture.note or "")) == (direction == 1)


def test_a_capture_of_both_says_nothing(tmp_path: Path) -> None:
    wire = exchanges(4)
    path = tmp_path / "both.pcap"
    path.write_bytes(as_pcap([*wire.packets]))
    with open_capture(path) as capture:
        assert capture.rows() and ANSWERS_ONLY not in (capture.note or "")
