"""Paths into bodies: ``resp.topics[*].partitions[*].error_code``. The schema decides which APIs and versions have them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache

from ...codec.message import is_error_code
from ...schema import facts
from ...schema.plan import FieldPlan, field_paths, plan
from .fields import Known, Need, Scope, ValueKind

SIDES = {"req": "request", "resp": "response"}
_INDEX = re.compile(r"\[[*\d]*\]")


@dataclass(frozen=True, slots=True)
class Path:
    """All values at `steps` (joined by dots, without ``[*]``) of the request or response (`side`).

    `many`: in some version it goes through an array, or ends at one (`array`). `plans`: the (API key, version) that have it.
    """

    side: str
    steps: str
    kind: ValueKind = field(compare=False)
    many: bool = field(compare=False)
    array: bool = field(compare=False)
    plans: frozenset[tuple[int, int]] = field(compare=False, repr=False)

    def joined(self, other: Path) -> Path:
        """The same path in more versions. If its kind differs, the first one that is no struct counts, as it can be compared."""
        kind = other.kind if self.kind is ValueKind.STRUCT else self.kind
        many, array, plans = self.many or other.many, self.array or other.array, self.plans | other.plans
        return Path(self.side, self.steps, kind, many, array, plans)

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
    def known(self) -> Known:
        """Records, and tags after the last ones, are not in a header prefix; of responses it has errors and throttle times."""
        prefix = self.kind is ValueKind.ERROR or self.steps == "throttle_time_ms"
        if self.side == "request":
            prefix = self.kind not in (ValueKind.BYTES, ValueKind.STRUCT)
        return Known.HEADER_PREFIX if prefix else Known.MESSAGE

    @property
    def cost(self) -> int:
        return 10 if self.side == "request" else 20

    @property
    def apis(self) -> frozenset[int]:
        return frozenset(key for key, _ in self.plans)


def kind_of(field_plan: FieldPlan) -> ValueKind:
    """The kind of a schema field's values."""
    if field_plan.struct is not None:
        return ValueKind.STRUCT
    if is_error_code(field_plan):
        return ValueKind.ERROR
    name, type_name = field_plan.name, field_plan.type
    if name == "api_key" and type_name == "int16":
        return ValueKind.API
    if type_name in ("string", "bytes", "records", "uuid", "bool", "float64"):
        return {
            "string": ValueKind.TEXT, "uuid": ValueKind.UUID, "bool": ValueKind.FLAG, "float64": ValueKind.FLOAT,
        }.get(type_name, ValueKind.BYTES)  # fmt: skip
    return ValueKind.MILLISECONDS if name.endswith("_ms") else ValueKind.INTEGER


def is_path(name: str) -> bool:
    """Whether a name looks like a path."""
    return name.partition(".")[0].lower() in SIDES and "." in name


@cache
def _all(side: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for key in facts.api_keys():
        for version in facts.api(key).versions.every():
            for steps, field_plan, many in field_paths(plan(side, key, version).root):
                here = Path(side, steps, kind_of(field_plan), many, field_plan.array, frozenset({(key, version)}))
                known = found.get(steps)
                found[steps] = here if known is None else known.joined(here)
    return found


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
