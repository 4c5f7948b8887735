"""Payloads that Kafka's own classes wrote, and frames around payloads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder.codec.message import Message
from barnabas.decoder.schema import facts

HERE = Path(__file__).parent


def lines(file: str) -> list[tuple[str, int, bytes]]:
    words = [line.split() for line in (HERE / file).read_text().splitlines() if not line.startswith("#")]
    return [(name, int(number), bytes.fromhex(data)) for name, number, data in words]


@pytest.fixture(scope="session")
def group_payloads() -> dict[tuple[str, int], bytes]:
    """(name, version) -> bytes; the java folder has the program that wrote them."""
    return {(name, version): data for name, version, data in lines("group_payloads.txt")}


@pytest.fixture(scope="session")
def telemetry_payloads() -> dict[int, bytes]:
    """Compression type -> the same metrics."""
    return {number: data for _, number, data in lines("telemetry_payloads.txt")}


@pytest.fixture(scope="session")
def body() -> Callable[..., Message]:
    """``body("request", "JoinGroup", 9, {...})`` -> the decoded message."""

    def make(kind: str, api: str, version: int, fields: dict[str, Any]) -> Message:
        key = facts.api_key(api)
        return decoder.decode_body(kind, key, version, decoder.encode_body(kind, key, version, fields))

    return make
