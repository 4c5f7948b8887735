"""Which versions of APIs need versions of others, and what a cap therefore takes away besides.

The facts are in ``dependencies.txt``; its head says how to read them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import NamedTuple

from ...decoder.schema import facts

_LINE = re.compile(r"([\w,]+) (\d+) {2,}(\w+ \d+(?:, \w+ \d+)*) {2,}(KIP-\d+) (.+)")


class Dependency(NamedTuple):
    """From `version` on, an API needs another one at least at `needed`. `kip` is the source, `why` what for."""

    api_key: int
    version: int
    other: int
    needed: int
    kip: str
    why: str


class Consequence(NamedTuple):
    """An API's highest version that a cap leaves, -1 if none, and the fact behind it."""

    version: int
    because: Dependency

    @property
    def text(self) -> str:
        name = facts.api_name(self.because.api_key)
        return f"no {name}" if self.version < 0 else f"{name} up to v{self.version}"

    @property
    def reason(self) -> str:
        """As in ``v13 needs Metadata v12, names topics by id (KIP-516)``."""
        _, version, other, needed, kip, why = self.because
        return f"{f'v{version}' if version else 'it'} needs {facts.api_name(other)} v{needed}, {why} ({kip})"


def consequences(caps: Mapping[int, int]) -> dict[int, Consequence]:
    """What caps (highest version by api key) take away from other APIs, by api key."""
    found: dict[int, Consequence] = {}
    highest = dict(caps)
    missing = True
    while missing:
        missing = False
        for each in table():
            lacks = each.other in highest and highest[each.other] < each.needed
            if lacks and highest.get(each.api_key, each.version) >= each.version:
                highest[each.api_key] = each.version - 1
                found[each.api_key] = Consequence(each.version - 1, each)
                missing = True
    return found


@cache
def table() -> tuple[Dependency, ...]:
    """All facts."""
    return tuple(read(resources.files(__package__).joinpath("dependencies.txt").read_text("utf-8")))


def read(text: str) -> list[Dependency]:
    """The facts of a text; ValueError names the line that is wrong."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"dependencies.txt line {number}: expected 'API 1  API 2  KIP-3 reason', not {line!r}")
        names, version, needs, kip, why = match.groups()
        for name in names.split(","):
            for need in needs.split(", "):
                other, _, needed = need.partition(" ")
                found.append(Dependency(facts.api_key(name), int(version), facts.api_key(other), int(needed), kip, why))
    return found
