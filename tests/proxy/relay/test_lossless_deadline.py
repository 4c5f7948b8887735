"""A reader that must not miss anything holds traffic up, but not for ever."""

from __future__ import annotations

import os
import signal
import socket
import threading
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.proxy.events import ProcessFailed, ProcessStarted, ReaderStuck
from harness import wire
from harness.scripted import echo
from harness.testbed import Testbed, next_event
from harness.waiting import PATIENCE, until

FRAME = wire.request(0, 3, 7, os.urandom(1 << 20))
COUNT = 16


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_reader_that_reads_nothing_is_ended_and_reported(testbed: Testbed, tmp_path: Path, workers: int) -> None:
    """It is stopped, as if one frame kept it busy for hours; traffic waits for it, until it is ended and replaced."""
    proxy = testbed.proxy(
        testbed.broker(echo).address, record=tmp_path, lossless=True, lossless_seconds=2.0, ring_bytes=4 << 20, workers=workers
    )
    observer = proxy._children["observer"].pid
    os.kill(observer, signal.SIGSTOP)
    client = testbed.client(proxy.address)
    threading.Thread(target=client.sendall, args=(FRAME * COUNT,), daemon=True).start()
    stuck = next_event(proxy, ReaderStuck)
    assert stuck.process == "observer" and "--lossless" in stuck.text and stuck.warning
    assert next_event(proxy, ProcessFailed).code == -signal.SIGKILL
    assert next_event(proxy, ProcessStarted).process == "observer"
    for _ in range(COUNT):
        assert wire.with_size(wire.read_frame(client)[4:]) == FRAME
    # What comes from now on is observed, and nothing else is dropped.
    later = testbed.client(proxy.address)
    assert wire.ask(later, wire.request(18, 0, 99))
    proxy.stop()
    assert not [event for event in proxy.events() if isinstance(event, ReaderStuck)]
    with open_capture(tmp_path) as capture:
        assert 99 in [row.correlation_id for row in capture.rows()]


def test_one_that_is_slow_is_waited_for(testbed: Testbed) -> None:
    """As long as it reads at all: stopped again and again, for less than the deadline."""
    proxy = testbed.proxy(testbed.broker(echo).address, lossless=True, lossless_seconds=20.0, ring_bytes=4 << 20)
    observer = proxy._children["observer"].pid
    client = testbed.client(proxy.address)
    got: list[int] = []

    def read(sock: socket.socket) -> None:
        while len(got) < COUNT:
            got.append(len(wire.read_frame(sock)))

    threading.Thread(target=client.sendall, args=(FRAME * COUNT,), daemon=True).start()
    reader = threading.Thread(target=read, args=(client,), daemon=True)
    reader.start()
    while len(got) < COUNT:
        before = len(got)
        os.kill(observer, signal.SIGSTOP)
        reader.join(0.2)
        os.kill(observer, signal.SIGCONT)
        until(lambda before=before: len(got) > before, lambda: f"{len(got)} frames have come")  # type: ignore[misc]
    reader.join(PATIENCE)
    assert proxy._children["observer"].pid == observer
    proxy.stop()
    assert not [event for event in proxy.events() if isinstance(event, ReaderStuck | ProcessFailed)]
