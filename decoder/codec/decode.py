"""Decode: a plan becomes a Python function ``(data, position) -> (values, position)``, compiled on first use.

The functions only *detect* that bytes are wrong, by raising one of `FAULTS`. `walk` then reads the same bytes again and finds
where and why, so that good bytes do not pay for it. Tracebacks show the generated source (`linecache`). Counts are
checked against the bytes that are left before memory is allocated for them.
"""

from __future__ import annotations

import linecache
import struct as _struct
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from ..native.accelerator import description, native
from ..schema.plan import FieldPlan, Fields, Plan, StructPlan, Values
from ..wire.varint import VarintError, read_uvarint

Decode = Callable[[bytes, int], tuple[Values, int]]


class Bad(Exception):
    """Bytes do not fit. Raised and caught inside the decoder only."""


FAULTS: tuple[type[Exception], ...] = (Bad, VarintError, _struct.error, IndexError, UnicodeDecodeError)
if native is not None:
    FAULTS = (*FAULTS, native.Bad)

FREE_ITEMS = 24_576
"""How many structs, strings and byte strings in arrays, and tagged fields, any message may have. A larger message may have
one more per 8 bytes. Real messages have fewer, as such items hold names, ids or offsets; hostile bytes take at most 20
times their size and 3 MiB of memory (30 times if all texts are single letters beyond Latin-1). Numbers are not counted."""

FIXED = {
    "bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "float64": "d",
    "uuid": "16s",
}  # fmt: skip
LENGTH_FORMAT = {"string": ("h", 2), "bytes": ("i", 4), "records": ("i", 4)}


def most_items(size: int) -> int:
    """How many of these items are read from `size` bytes at most."""
    return FREE_ITEMS + size // 8


@cache
def decoder(plan: Plan) -> Decode:
    """The decode function of a plan's body: the accelerator's if it is available."""
    if native is None:
        return python_decoder(plan)
    reader: Decode = native.Reader(description(plan.root))
    return reader


@cache
def python_decoder(plan: Plan) -> Decode:
    """The decode function in pure Python, the reference."""
    return compile_struct(plan.root, f"{plan.name} v{plan.version}")


@cache
def field_skipper(field: FieldPlan) -> Callable[[bytes, int], int]:
    """A function ``(data, position) -> position after`` for one field. Raises one of `FAULTS`."""
    alone = StructPlan(f"pass_{field.name}", False, (field,), 1)
    if native is not None:
        reader = native.Reader(description(alone), 0)
        return lambda data, position: reader(data, position)[1]
    read = compile_struct(alone, f"pass {field.name}")
    return lambda data, position: read(data, position)[1]


@cache
def item_skipper(field: FieldPlan) -> Callable[[bytes, int], int]:
    """As `field_skipper`, for one item of an array."""
    return field_skipper(item_of(field))


def item_of(field: FieldPlan) -> FieldPlan:
    """The field that stands for one item of an array."""
    return replace(field, array=False, nullable=False, tag=None, default=None)


def compile_struct(plan: StructPlan, title: str) -> Decode:
    """The Python function for a struct; `title` names it in tracebacks."""

    @cache
    def counting() -> Callable[..., tuple[Values, int]]:
        source = _Source(f"{title}, counting", counts=True)
        return source.compile(source.struct_function(plan))

    def large(data: bytes, position: int) -> tuple[Values, int]:
        return counting()(data, position, [most_items(len(data))])

    source = _Source(title)
    source.names["large"] = large
    return source.compile(source.struct_function(plan, outermost=True))


class _Source:
    """Collects the functions of one plan: one per struct.

    Up to `FREE_ITEMS` bytes cannot hold too many items, so only the functions for larger data count them down (``room``).
    """

    def __init__(self, title: str, counts: bool = False):
        self.title = title
        self.counts = counts
        self.arguments = "b, p, room" if counts else "b, p"
        self.lines: list[str] = [f"# decode {title}; made from decoder/schema by {__name__}"]
        self.names: Fields = {"Bad": Bad, "uvarint": read_uvarint}
        self.count = 0

    def compile(self, name: str) -> Callable[..., tuple[Values, int]]:
        text = "\n".join(self.lines) + "\n"
        file = f"<decode {self.title}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        exec(compile(text, file, "exec"), self.names)  # the text is made from the schema alone, never from traffic
        function: Callable[..., tuple[Values, int]] = self.names[name]
        return function

    def constant(self, prefix: str, value: object) -> str:
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name

    def struct_function(self, plan: StructPlan, outermost: bool = False) -> str:
        body: list[str] = []
        names = [f"v{i}" for i in range(len(plan.fields))]
        run: list[int] = []
        for i, field in enumerate(plan.fields[: plan.untagged]):
            if field.type in FIXED and not field.array:
                run.append(i)
                continue
            self.fixed_run(plan, run, body)
            run = []
            self.field(field, names[i], body, "    ")
        self.fixed_run(plan, run, body)
        if plan.flexible:
            self.tags(plan, names, body)
            names.append("unknown")
        self.count += 1
        name = f"read_{self.count}_{plan.name}"
        self.lines.append(f"def {name}({self.arguments}):")
        self.lines.append("    e = len(b)")
        if outermost:
            self.lines.append(f"    if e > {FREE_ITEMS}: return large(b, p)")
        self.lines.extend(body)
        made, named = self.constant("made", tuple.__new__), self.constant("named", plan.named)
        self.lines.append(f"    return {made}({named}, ({', '.join(names)}{',' if len(names) == 1 else ''})), p")
        return name

    def fixed_run(self, plan: StructPlan, run: list[int], body: list[str]) -> None:
        if run:
            layout = _struct.Struct(">" + "".join(FIXED[plan.fields[i].type] for i in run))
            unpack = self.constant("unpack", layout.unpack_from)
            body.append(f"    {', '.join(f'v{i}' for i in run)}, = {unpack}(b, p); p += {layout.size}")

    def field(self, field: FieldPlan, target: str, body: list[str], indent: str) -> None:
        if field.array:
            self.array(field, target, body, indent)
        elif field.type == "struct":
            assert field.struct
            read = self.struct_function(field.struct)
            if field.nullable:
                # A nullable struct is led by one byte: 1 for present, for null -1, or 0 in a tagged field.
                body.append(f"{indent}n = b[p]; p += 1")
                body.append(f"{indent}if n == {255 if field.tag is None else 0}: {target} = None")
                body.append(f"{indent}elif n == 1: {target}, p = {read}({self.arguments})")
                body.append(f"{indent}else: raise Bad")
            else:
                body.append(f"{indent}{target}, p = {read}({self.arguments})")
        elif field.type in FIXED:
            layout = _struct.Struct(">" + FIXED[field.type])
            unpack = self.constant("unpack", layout.unpack_from)
            body.append(f"{indent}{target}, = {unpack}(b, p); p += {layout.size}")
        else:
            self.length(field.compact, LENGTH_FORMAT[field.type], body, indent)
            value = "b[p:q].decode()" if field.type == "string" else "b[p:q]"
            body.append(f"{indent}if n < 0: {target} = None")
            body.append(f"{indent}else:")
            body.append(f"{indent}    q = p + n")
            body.append(f"{indent}    if q > e: raise Bad")
            body.append(f"{indent}    {target} = {value}; p = q")

    def array(self, field: FieldPlan, target: str, body: list[str], indent: str) -> None:
        self.length(field.compact, ("i", 4), body, indent)
        inner = indent + "    "
        body.append(f"{indent}if n < 0: {target} = None")
        body.append(f"{indent}elif n > e - p: raise Bad")
        body.append(f"{indent}else:")
        if field.type not in FIXED:
            self.counted("n", body, inner)
        if field.type in FIXED and field.type != "uuid":
            size = _struct.calcsize(">" + FIXED[field.type])
            unpack = self.constant("unpack", _struct.unpack_from)
            body.append(f"{inner}if n * {size} > e - p: raise Bad")
            body.append(f"{inner}{target} = {unpack}('>%d{FIXED[field.type]}' % n, b, p); p += n * {size}")
            return
        items = f"a{len(indent)}"
        body.append(f"{inner}{items} = []")
        body.append(f"{inner}for _ in range(n):")
        self.field(item_of(field), "x", body, inner + "    ")
        body.append(f"{inner}    {items}.append(x)")
        body.append(f"{inner}{target} = tuple({items})")

    def counted(self, count: str, body: list[str], indent: str) -> None:
        if self.counts:
            body.append(f"{indent}room[0] -= {count}")
            body.append(f"{indent}if room[0] < 0: raise Bad")

    def length(self, compact: bool, fixed: tuple[str, int], body: list[str], indent: str) -> None:
        """Leave the length in ``n``, negative for null.

        Null is read even if the definition does not allow it, as some brokers write it: 0.8 and 0.9 for records,
        librdkafka's mock for the assignment of a failed SyncGroup. A finding reports it.
        """
        if compact:
            body.append(f"{indent}n = b[p]; p += 1")
            body.append(f"{indent}if n > 127: n, p = uvarint(b, p - 1)")
            body.append(f"{indent}n -= 1")
        else:
            unpack = self.constant("unpack", _struct.Struct(">" + fixed[0]).unpack_from)
            body.append(f"{indent}n, = {unpack}(b, p); p += {fixed[1]}")
            body.append(f"{indent}if n < -1: raise Bad")

    def tags(self, plan: StructPlan, names: list[str], body: list[str]) -> None:
        known = plan.tags
        for position in known.values():
            default = self.constant("default", plan.fields[position].default)
            body.append(f"    {names[position]} = {default}")
        body.append("    unknown = ()")
        body.append("    c = b[p]; p += 1")
        body.append("    if c:")
        body.append("        if c > 127: c, p = uvarint(b, p - 1)")
        body.append("        if c * 2 > e - p: raise Bad")
        self.counted("c", body, "        ")
        body.append("        others = []")
        body.append("        for _ in range(c):")
        body.append("            k, p = uvarint(b, p)")
        body.append("            n, p = uvarint(b, p)")
        body.append("            z = p + n")
        body.append("            if z > e: raise Bad")
        for tag, position in known.items():
            body.append(f"            if k == {tag}:")
            self.field(plan.fields[position], names[position], body, " " * 16)
            body.append("                if p != z: raise Bad")
            body.append("                continue")
        body.append("            others.append((k, b[p:z])); p = z")
        body.append("        unknown = tuple(others)")
