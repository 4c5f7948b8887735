"""Desks for the tests that need no sockets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from barnabas.plugins.rules.rules import Rule
from torture.proxy.peers.stepped_relay import Desk


@pytest.fixture(scope="module")
def desks() -> Iterator[Callable[..., Desk]]:
    """Gives the desk with these rules; each stands for a whole module."""
    made: dict[tuple[tuple[str, ...], bool], Desk] = {}

    def give(rules: list[Rule] | None = None, lossless: bool = False) -> Desk:
        key = tuple(rule.name for rule in rules or ()), lossless
        if key not in made:
            made[key] = Desk(rules, lossless)
        made[key].read()
        return made[key]

    yield give
    for desk in made.values():
        desk.shut()


@pytest.fixture(scope="session")
def scale() -> float:
    """How much larger than every day: BARNABAS_TORTURE=20 makes twenty times the rounds."""
    return float(os.environ.get("BARNABAS_TORTURE", "1"))
