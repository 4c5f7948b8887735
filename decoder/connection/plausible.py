"""Whether a message can be what its sender meant: its layout is kept, and no field holds an impossible value.

A message that is shifted by a byte often decodes, into nonsense. The inspector of findings asks once per exchange, so that detectors
draw no conclusions from such a response (`Exchange.distrust`).
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from typing import NamedTuple

from ..codec.message import Message
from ..schema.plan import Plan

LONGEST_THROTTLE_MS = 24 * 3600 * 1000
"""Brokers throttle for a quota window at most: 11 samples of 1 s by default, and hardly an hour with other settings."""
PORTS = range(-1, 1 << 16)
"""-1 comes with errors, and 0 with a broker that is misconfigured: `broken-broker-address` has it."""
_NUMBERS = {"throttle_time_ms": range(LONGEST_THROTTLE_MS + 1), "port": PORTS}
_NODES = frozenset({"brokers", "coordinators", "nodes"})
"""Arrays of structs that may have a port."""


class FlawKind(Enum):
    """What is wrong with a message that can be decoded."""

    SURPLUS = "bytes after its end"
    NULL = "a null that its version forbids"
    VALUE = "a value that cannot be"


class Flaw(NamedTuple):
    """`path`: the field, empty for surplus bytes. `value`: of the field, or how many bytes."""

    kind: FlawKind
    path: str = ""
    value: int = 0


def flaw(message: Message) -> Flaw | None:
    """The first flaw of a message; None for nearly all."""
    if message.trailing:
        return Flaw(FlawKind.SURPLUS, "", len(message.trailing))
    if not message.known_sound and (path := next(message.forbidden_nulls(), None)) is not None:
        return Flaw(FlawKind.NULL, path)
    numbers, nodes = _checked(message.plan)
    for name, allowed in numbers:
        if (value := message[name]) not in allowed:  # reads this field alone
            return Flaw(FlawKind.VALUE, name, value)
    for name, at, place in nodes:
        for i, node in enumerate(message.values[at] or ()):
            if node[place] not in PORTS:
                return Flaw(FlawKind.VALUE, f"{name}[{i}].port", node[place])
    return None


class _Checked(NamedTuple):
    """The numbers of a message that are checked, with their values, and which arrays have ports, as (name, place, place in it)."""

    numbers: tuple[tuple[str, range], ...] = ()
    nodes: tuple[tuple[str, int, int], ...] = ()


@cache
def _checked(plan: Plan) -> _Checked:
    if plan.kind != "response":
        return _Checked()
    known = {f.name: i for i, f in enumerate(plan.root.fields) if f.tag is None}
    nodes = [
        (f.name, i, [inner.name for inner in f.struct.fields].index("port"))
        for i, f in enumerate(plan.root.fields)
        if f.array and f.tag is None and f.struct is not None and f.name in _NODES and any(g.name == "port" for g in f.struct.fields)
    ]
    return _Checked(tuple((name, allowed) for name, allowed in _NUMBERS.items() if name in known), tuple(nodes))
