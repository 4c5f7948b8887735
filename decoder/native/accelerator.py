"""The optional C accelerator: whether it is there, and plans in the form that it takes.

It is built when the package is installed where a compiler is, and does the same as the pure Python code, which stays
the reference: every test of the decoder runs with both. ``BARNABAS_PURE=1`` leaves it out. There are three extensions, layered as
the packages are: of the decoder (bytes and plans), of captures (packets, framing, recording) and of the proxy (ring and relay).
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from types import ModuleType

from ..schema.plan import FieldPlan, StructPlan


def extension(package: str) -> ModuleType | None:
    """The extension module of a top-level package, or None."""
    if os.environ.get("BARNABAS_PURE"):
        return None
    try:
        return importlib.import_module(f"barnabas.{package}.native._native")
    except ImportError:
        return None


native = extension("decoder")

_TYPES = {
    name: number
    for number, name in enumerate(
        (
            "bool",
            "int8",
            "int16",
            "uint16",
            "int32",
            "uint32",
            "int64",
            "float64",
            "uuid",
            "string",
            "bytes",
            "records",
            "struct",
        )
    )
}


def description(plan: StructPlan, sinks: Mapping[str, int] | None = None, prefix: str = "") -> tuple[object, ...]:
    """A struct as `Reader` takes it. `sinks`: path (without indexes) -> number of the list for its values."""
    return (
        int(plan.flexible),
        plan.untagged,
        tuple(_field(field, sinks, prefix + field.name) for field in plan.fields),
        plan.named if sinks is None else None,
    )


def _field(field: FieldPlan, sinks: Mapping[str, int] | None, path: str) -> tuple[object, ...]:
    known = sinks or {}
    return (
        _TYPES[field.type],
        int(field.array),
        int(field.nullable),
        int(field.compact),
        -1 if field.tag is None else field.tag,
        known.get(path, -1),
        int(any(wanted == path or wanted.startswith(path + ".") for wanted in known)),
        field.default,
        description(field.struct, sinks, path + ".") if field.struct else None,
    )
