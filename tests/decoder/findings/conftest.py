"""Recorded traffic of this folder, told to the detectors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.decoder.findings import Finding, Inspector

CAPTURES = Path(__file__).parent / "captures"


@pytest.fixture
def replay() -> Callable[..., list[Finding]]:
    """``replay("groups-storm", only=["rebalance-storm"])``: the findings of that recording, the worst first."""

    def run(name: str, only: list[str] | None = None) -> list[Finding]:
        inspector = Inspector(only)
        with open_capture(CAPTURES / f"{name}.pcapng") as capture:
            for happening in capture.happenings():
                inspector.feed(happening)
        return inspector.findings()

    return run
