"""Generated messages: values for any plan, from a seeded generator."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from barnabas.decoder.codec.encode import encode_struct
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.plan import FieldPlan, Plan, StructPlan, plan

LETTERS = "abcXYZ-_.09äß€𝄞"


def _value(random_: random.Random, field: FieldPlan, depth: int, item: bool = False) -> Any:
    if field.nullable and not item and random_.random() < 0.2:
        return None
    if field.array and not item:
        return tuple(
            _value(random_, field, depth + 1, True) for _ in range(random_.choice((0, 1, 3) if depth < 2 else (0, 1)))
        )
    if field.struct:
        return _struct(random_, field.struct, depth + 1)
    if field.type == "bool":
        return random_.random() < 0.5
    if field.type == "float64":
        return random_.uniform(-1e9, 1e9)
    if field.type == "uuid":
        return random_.randbytes(16)
    if field.type == "string":
        return "".join(random_.choices(LETTERS, k=random_.choice((0, 1, 5, 40, 130))))
    if field.type in ("bytes", "records"):
        return random_.randbytes(random_.choice((0, 1, 17, 200)))
    bits = int(field.type.lstrip("uint"))
    low, high = (0, 1 << bits) if field.type.startswith("u") else (-(1 << bits - 1), 1 << bits - 1)
    return random_.choice((low, high - 1, random_.randrange(low, high)))


def _struct(random_: random.Random, of: StructPlan, depth: int = 0) -> tuple[Any, ...]:
    values = tuple(
        f.default if f.tag is not None and random_.random() < 0.3 else _value(random_, f, depth) for f in of.fields
    )
    if not of.flexible:
        return values
    unknown = sorted(random_.sample(range(50, 400), 2)) if random_.random() < 0.3 else []
    return (*values, tuple((tag, random_.randbytes(random_.randrange(150))) for tag in unknown))


def triples() -> Iterator[tuple[str, int, int]]:
    """Every kind of message ("request", "response"), API key and version."""
    for key in facts.api_keys():
        for version in facts.api(key).versions.every():
            yield "request", key, version
            yield "response", key, version


class Generator:
    """Bodies for any plan."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def values(self, of: Plan) -> tuple[Any, ...]:
        return _struct(self.random, of.root)

    def body(self, kind: str, key: int, version: int) -> tuple[tuple[Any, ...], bytes]:
        of = plan(kind, key, version)
        values = self.values(of)
        out = bytearray()
        encode_struct(of.root, values, out)
        return values, bytes(out)
