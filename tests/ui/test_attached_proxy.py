"""The events of a proxy in another process, as they come to the log: each once, with its own time, also after the proxy was away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from barnabas.proxy.control import ControlError
from barnabas.ui import attached_proxy
from barnabas.ui.attached_proxy import AttachedProxy
from harness.waiting import until


class Away:
    """A control API that sends two events, is gone twice, and then sends the next. `refused`: it wants another token."""

    def __init__(self) -> None:
        self.asked: list[int | None] = []
        self.back = threading.Event()
        self.refused = False

    def status(self) -> dict[str, Any]:
        if self.refused:
            raise ControlError(401, "the token is missing or wrong")
        return {
            "listen": ["127.0.0.1", 1], "upstream": ["127.0.0.1", 2], "counts": {"connections": 0}, "lost": {"observer_bytes": 0}, "recording": None
        }  # fmt: skip

    def follow_events(self, *, since: int | None = None) -> Iterator[dict[str, Any]]:
        self.asked.append(since)
        if len(self.asked) == 1:
            yield {"id": 1, "event": "RuleHit", "text": "one", "warning": False, "time_ns": 10}
            yield {"id": 2, "event": "Counts", "text": "counts", "warning": False, "time_ns": 11}
        if len(self.asked) < 4:
            raise ControlError(0, "it is gone")
        yield {"id": 3, "event": "RuleHit", "text": "two", "warning": True, "time_ns": 12}
        self.back.wait()


def test_the_log_goes_on_after_the_proxy_was_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attached_proxy, "EVERY_SECONDS", 0.001)
    control, lines = Away(), []
    proxy = AttachedProxy(control)  # type: ignore[arg-type]
    proxy.add_to_log = lambda text, warning, time_ns: lines.append((text, warning, time_ns))
    proxy.start()
    try:
        until(lambda: len(lines) == 3)
    finally:
        proxy.stop()
        control.back.set()
    assert lines == [("one", False, 10), ("it is gone", True, None), ("two", True, 12)]
    assert control.asked == [0, 2, 2, 2]


def test_a_proxy_that_was_started_again_has_a_new_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attached_proxy, "EVERY_SECONDS", 0.001)
    control = Away()
    proxy = AttachedProxy(control)  # type: ignore[arg-type]
    proxy.start()
    try:
        assert proxy.status() == "conns 0  lost 0"
        control.refused = True
        until(lambda: "started again" in proxy.status())
        control.refused = False
        until(lambda: proxy.status() == "conns 0  lost 0")
    finally:
        proxy.stop()
        control.back.set()
