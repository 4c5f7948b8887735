"""The plan of a message: its definition at one version, with every version question answered.

Decoding, encoding, byte maps and defaults are back ends over the same plan. A struct is a list of fields in wire order,
followed by its tagged fields. The *values* of a struct are a named tuple in that order; a flexible struct has one more item at
the end: its unknown tagged fields, as a tuple of ``(tag, bytes)``.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from ..errors import UnknownApi, UnknownVersion
from . import facts
from .meaning import Meaning, Rule, of_definition
from .notation import Definition, FieldLine, snake_case

Value = Any
"""A decoded value. The schema decides its type: int, float, bool, str, bytes, `uuid.UUID`, None, or a dict or list of these."""
Fields = dict[str, Value]
"""A decoded struct: values by Kafka's field names in snake_case."""
PlanValue = Any
"""A value in plan form: a number, bool, str, bytes (also of UUIDs), None, a tuple of items, or the `Values` of a struct."""
Values = tuple[PlanValue, ...]
"""The values of a struct, in plan order. Of a decoded one, they are also attributes: ``values.topics[0].partitions``."""

ZERO_UUID = bytes(16)
SIZES = {"bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "float64": 8, "uuid": 16}
"""Bytes of the types whose size is fixed."""


@dataclass(frozen=True, slots=True, eq=False)
class FieldPlan:
    """A field at one version. ``type`` is a primitive's name or ``"struct"``. `meaning`, `volatile`: see
    `schema.meaning`; None for structs, and for a field without a rule."""

    name: str
    type: str
    array: bool
    nullable: bool
    compact: bool
    tag: int | None
    default: PlanValue
    struct: StructPlan | None
    entity: str | None
    map_key: bool
    meaning: Meaning | None
    volatile: bool


@dataclass(frozen=True, slots=True, eq=False)
class StructPlan:
    """A struct at one version: ``fields[:untagged]`` in wire order, then the tagged ones."""

    name: str
    flexible: bool
    fields: tuple[FieldPlan, ...]
    untagged: int

    @property
    def tags(self) -> Mapping[int, int]:
        """Tag -> position in ``fields``."""
        return _tags(self)

    def defaults(self) -> Values:
        """The default of every field."""
        made: Values = self.named._make([*(f.default for f in self.fields), *([()] if self.flexible else ())])
        return made

    @property
    def named(self) -> Any:
        """The class of its values, a named tuple."""
        return _named(self)


@cache
def _tags(plan: StructPlan) -> Mapping[int, int]:
    return {f.tag: i for i, f in enumerate(plan.fields) if f.tag is not None}


def _as_tuple(values: Values) -> tuple[type, tuple[Values]]:
    """How values are pickled: no module has their class."""
    return tuple, (tuple(values),)


@cache
def _named(plan: StructPlan) -> Any:
    names = [f.name for f in plan.fields] + ["unknown_tagged_fields"] * plan.flexible
    made = namedtuple(plan.name, names, rename=True)  # type: ignore[misc]
    made.__reduce__ = _as_tuple  # type: ignore[assignment]
    return made


class FieldPath(NamedTuple):
    """A field, its path without indexes, and whether it is an array or in one."""

    path: str
    field: FieldPlan
    many: bool


def field_paths(struct: StructPlan, prefix: str = "", many: bool = False) -> Iterator[FieldPath]:
    """All fields of a struct and of the structs in it."""
    for field in struct.fields:
        yield FieldPath(prefix + field.name, field, many or field.array)
        if field.struct is not None:
            yield from field_paths(field.struct, f"{prefix}{field.name}.", many or field.array)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """One message kind of one API at one version."""

    kind: str
    api_key: int
    version: int
    name: str
    root: StructPlan
    api: str

    @property
    def header_version(self) -> int:
        """Which header goes with it: request 0-2, response 0-1.

        ControlledShutdown v0 has no client id (request header 0). ApiVersions responses keep header 0 so that a
        client can read the answer to a version that the broker does not know (KIP-511).
        """
        if self.kind == "request":
            if self.root.flexible:
                return 2
            return 0 if self.api_key == CONTROLLED_SHUTDOWN and self.version == 0 else 1
        return 1 if self.root.flexible and self.api_key != API_VERSIONS else 0


CONTROLLED_SHUTDOWN = facts.api_key("ControlledShutdown")
API_VERSIONS = facts.api_key("ApiVersions")


@cache
def plan(kind: str, api_key: int, version: int) -> Plan:
    """The plan of a ``"request"`` or ``"response"``. Raises `UnknownApi` or `UnknownVersion`."""
    try:
        api = facts.api(api_key)
    except KeyError:
        raise UnknownApi(f"no known release has api key {api_key}", path="header", offset=0) from None
    definition = api.request if kind == "request" else api.response
    if version not in definition.versions:
        raise UnknownVersion(
            f"version {version} is not known; known versions: {definition.versions}", api=api.name, version=version, path="header"
        )
    return compile_plan(definition, version, api_key)


@cache
def extra_plan(file: str, name: str, version: int) -> Plan:
    """The plan of a header or data definition, e.g. ``extra_plan("headers", "RequestHeader", 2)``."""
    definition = facts.extra(file)[name]
    if version not in definition.versions:
        raise UnknownVersion(f"version {version} is not known; known versions: {definition.versions}", api=name, version=version)
    return compile_plan(definition, version, -1)


def compile_plan(definition: Definition, version: int, api_key: int) -> Plan:
    """The plan of a definition at one of its versions."""
    compiler = _Compiler(definition, version, version in definition.flexible, of_definition(definition))
    root = compiler.struct(definition.name, definition.fields, "")
    api = facts.api_name(api_key) if api_key >= 0 else definition.name
    return Plan(definition.kind, api_key, version, definition.name, root, api)


class _Compiler(NamedTuple):
    """Compiles the structs of a definition at one version. `meanings`: of all fields, by path."""

    of: Definition
    version: int
    flexible: bool
    meanings: Mapping[str, Rule]

    def struct(self, name: str, fields: tuple[FieldLine, ...], prefix: str) -> StructPlan:
        version = self.version
        present = [f for f in fields if version in f.versions or version in f.tagged]
        tagged = sorted((f for f in present if f.tag is not None and version in f.tagged), key=lambda f: f.tag or 0)
        untagged = [f for f in present if f not in tagged]
        plans = tuple(self._field(f, prefix) for f in [*untagged, *tagged])
        return StructPlan(name, self.flexible, plans, len(untagged))

    def _field(self, field: FieldLine, prefix: str) -> FieldPlan:
        name = snake_case(field.name)
        path, struct = f"{prefix}{name}[*]" if field.array else prefix + name, None
        if field.fields:
            struct = self.struct(field.type, field.fields, path + ".")
        elif any(shared == field.type for shared, _ in self.of.structs):
            struct = self.struct(field.type, self.of.struct(field.type), path + ".")
        nullable = self.version in field.nullable
        meaning, volatile = self.meanings.get(path, (None, False))
        return FieldPlan(
            name=name,
            type="struct" if struct else field.type,
            array=field.array,
            nullable=nullable,
            compact=self.flexible and not field.never_flexible,
            tag=field.tag if self.version in field.tagged else None,
            default=_default(field, struct, nullable),
            struct=struct,
            entity=field.entity,
            map_key=field.map_key,
            meaning=meaning,
            volatile=volatile,
        )


def _default(field: FieldLine, struct: StructPlan | None, nullable: bool) -> PlanValue:
    if field.default == "null":
        return None if nullable or field.array or struct else _zero(field.type)
    if field.array:
        return ()
    if struct:
        return struct.defaults()
    if field.default is None:
        return None if field.type == "records" and nullable else _zero(field.type)
    if field.type == "bool":
        return field.default == "true"
    if field.type == "float64":
        return float(field.default)
    if field.type in ("string", "bytes", "records"):
        return field.default if field.type == "string" else field.default.encode()
    return int(field.default, 0)


def _zero(type_name: str) -> PlanValue:
    return {"bool": False, "float64": 0.0, "string": "", "bytes": b"", "records": b"", "uuid": ZERO_UUID}.get(
        type_name, 0
    )
