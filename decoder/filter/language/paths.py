"""Paths into bodies: ``resp.topics[*].partitions[*].error_code``. The schema decides which APIs and versions have them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from ...codec.message import is_error_code
from ...codec.plan import FieldPlan, StructPlan, plan
from ...schema import facts
from .fields import Kind, Need, Scope

SIDES = {"req": "request", "resp": "response"}
_INDEX = re.compile(r"\[[*\d]*\]")


@dataclass(frozen=True, slots=True)
class Path:
    """All values at `steps` (joined by dots, without ``[*]``) of the request or response (`side`).

    `many`: in some version it goes through an array, or ends at one (`array`). `plans`: the (API key, version) that have it.
    """

    side: str
    steps: str
    kind: Kind = field(compare=False)
    many: bool = field(compare=False)
    array: bool = field(compare=False)
    plans: frozenset[tuple[int, int]] = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        return f"{'req' if self.side == 'request' else 'resp'}.{self.steps}"

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({Need(self.side)})

    @property
    def known_at_request(self) -> bool:
        return self.side == "request"

    @property
    def scope(self) -> Scope:
        return Scope.EXCHANGE

    @property
    def cost(self) -> int:
        return 10 if self.side == "request" else 20

    @property
    def apis(self) -> frozenset[int]:
        return frozenset(key for key, _ in self.plans)


def kind_of(field_plan: FieldPlan) -> Kind:
    """The kind of a schema field's values."""
    if field_plan.struct is not None:
        return Kind.STRUCT
    if is_error_code(field_plan):
        return Kind.ERROR
    name, type_name = field_plan.name, field_plan.type
    if name == "api_key" and type_name == "int16":
        return Kind.API
    if type_name in ("string", "bytes", "records", "uuid", "bool", "float64"):
        return {
            "string": Kind.TEXT, "uuid": Kind.UUID, "bool": Kind.FLAG, "float64": Kind.FLOAT,
        }.get(type_name, Kind.BYTES)  # fmt: skip
    return Kind.MILLISECONDS if name.endswith("_ms") else Kind.INTEGER


def is_path(name: str) -> bool:
    """Whether a name looks like a path."""
    return name.partition(".")[0].lower() in SIDES and "." in name


@cache
def _all(side: str) -> dict[str, Path]:
    found: dict[str, tuple[list[Kind], set[tuple[int, int]], list[bool], list[bool]]] = {}
    for key in facts.api_keys():
        for version in facts.api(key).versions.every():
            for steps, field_plan, many in _walk(plan(side, key, version).root, "", False):
                kinds, plans, through, array = found.setdefault(steps, ([], set(), [], []))
                kinds.append(kind_of(field_plan))
                plans.add((key, version))
                through.append(many)
                array.append(field_plan.array)
    # Where the type changes from one API or version to another, a structure gives way to what can be compared.
    return {
        steps: Path(side, steps, min(set(kinds), key=lambda k: (k is Kind.STRUCT, kinds.index(k))), any(through),
                    any(array), frozenset(plans))
        for steps, (kinds, plans, through, array) in found.items()
    }  # fmt: skip


def _walk(struct: StructPlan, prefix: str, many: bool) -> Iterator[tuple[str, FieldPlan, bool]]:
    for field_plan in struct.fields:
        steps = prefix + field_plan.name
        yield steps, field_plan, many or field_plan.array
        if field_plan.struct is not None:
            yield from _walk(field_plan.struct, steps + ".", many or field_plan.array)


def lookup(name: str) -> Path | None:
    """The path of a name such as ``resp.topics[*].name``; None if no version of any API has it."""
    side, _, steps = _INDEX.sub("", name).partition(".")
    return _all(SIDES[side.lower()]).get(steps)


def known(side: str, apis: frozenset[int] | None = None) -> list[Path]:
    """All paths of ``"request"`` or ``"response"``, of these APIs only if given."""
    return [path for path in _all(side).values() if apis is None or path.apis & apis]


def names() -> list[str]:
    """Every path that there is."""
    return [path.name for side in SIDES.values() for path in _all(side).values()]
