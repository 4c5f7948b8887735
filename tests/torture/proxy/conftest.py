"""Relays for the tests that need no sockets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from barnabas.plugins.rules.rules import Rule
from torture.proxy.peers.stepped_relay import SteppedRelay


@pytest.fixture(scope="module")
def relays() -> Iterator[Callable[..., SteppedRelay]]:
    """Gives the relay with these rules; each serves a whole module."""
    made: dict[tuple[tuple[str, ...], bool], SteppedRelay] = {}

    def give(rules: list[Rule] | None = None, lossless: bool = False) -> SteppedRelay:
        key = tuple(rule.name for rule in rules or ()), lossless
        if key not in made:
            made[key] = SteppedRelay(rules, lossless)
        made[key].read()
        return made[key]

    yield give
    for relay in made.values():
        relay.shut()


@pytest.fixture(scope="session")
def scale() -> float:
    """How much larger than every day: BARNABAS_TORTURE=20 makes twenty times the rounds."""
    return float(os.environ.get("BARNABAS_TORTURE", "1"))
