"""The bounded walk of an Avro value: whether it fits its schema, to the last byte, at a bounded cost.

A schema becomes nested functions ``(cursor, level)``, each of which moves the cursor over one value or raises `SchemaMismatch`.
"""

from __future__ import annotations

from collections.abc import Callable

from ..wire.varint import VarintCut, VarintTooLong, read_uvarint, zigzag
from .errors import SchemaError, SchemaMismatch
from .plain import MOST_NESTED, Json

MOST_VALUES = 250_000
"""Values, counting every field and item, that one key or value may hold."""

_MOST_DECIMAL = 1024  # bytes of a decimal: converting many more to digits is slow, and no column has them
_FIXED = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_INT, _LONG = 5, 10  # bytes of the longest varint


class Cursor:
    """The position in the bytes, and how many values may still come."""

    __slots__ = ("at", "data", "left")

    def __init__(self, data: bytes):
        self.data, self.at, self.left = data, 0, MOST_VALUES

    def skip(self, size: int, what: str) -> None:
        """Skip `size` bytes. Raises `SchemaMismatch` if they are not there."""
        if size < 0 or size > len(self.data) - self.at:
            raise SchemaMismatch(f"{what} of {size} bytes at byte {self.at}, only {len(self.data) - self.at} left")
        self.at += size

    def number(self, longest: int) -> int:
        """A zig-zag varint of at most `longest` bytes."""
        try:
            value, self.at = read_uvarint(self.data, self.at, None, longest)
        except VarintCut:
            raise SchemaMismatch(f"the data ends inside a number at byte {self.at}") from None
        except VarintTooLong:
            raise SchemaMismatch(f"a number of more than {longest} bytes at byte {self.at}") from None
        return zigzag(value)

    def count(self) -> None:
        """Count one value. Raises `SchemaMismatch` if there are too many."""
        self.left -= 1
        if self.left < 0:
            raise SchemaMismatch(f"more than {MOST_VALUES} values")


Walk = Callable[[Cursor, int], None]


def walk_through(walk: Walk, data: bytes) -> None:
    """Check that `data` is exactly one value. Raises `SchemaMismatch`."""
    cursor = Cursor(data)
    walk(cursor, 0)
    if cursor.at != len(data):
        left = len(data) - cursor.at
        raise SchemaMismatch(f"{left} byte{'s' * (left != 1)} left over at byte {cursor.at}")


def walk_of(schema: Json) -> Walk:
    """The walk of a schema in which each named type is defined where it is first used."""
    return _walk(schema, {})


def _walk(schema: Json, named: dict[str, Walk]) -> Walk:
    if isinstance(schema, list):
        return _union([_walk(each, named) for each in schema])
    if isinstance(schema, str):
        return named[schema] if schema in named else _primitive(schema, False)
    kind = schema["type"]
    if kind in ("record", "error"):
        # Registered before its fields are known, for records that contain themselves.
        fields: list[tuple[str, Walk]] = []
        named[schema["name"]] = walk = _record(fields)
        fields += [(field["name"], _walk(field["type"], named)) for field in schema["fields"]]
        return walk
    if kind in ("array", "map"):
        return _blocks(_walk(schema["items" if kind == "array" else "values"], named), kind)
    if kind in ("enum", "fixed"):
        walk = _enum(len(schema["symbols"])) if kind == "enum" else _fixed(schema["size"], "a fixed")
        named[schema["name"]] = walk
        return walk
    if isinstance(kind, str):
        return _primitive(kind, schema.get("logicalType") == "decimal")
    return _walk(kind, named)


def _primitive(kind: str, decimal: bool) -> Walk:
    if kind in _FIXED:
        return _fixed(_FIXED[kind], f"a {kind}")
    if kind in ("int", "long"):
        return _number(_INT if kind == "int" else _LONG)
    if kind in ("string", "bytes"):
        return _sized(kind, decimal)
    raise SchemaError(f"the Avro schema has an unknown type {kind!r}")


def _fixed(size: int, what: str) -> Walk:
    def walk(cursor: Cursor, level: int) -> None:
        cursor.count()
        cursor.skip(size, what)

    return walk


def _number(longest: int) -> Walk:
    def walk(cursor: Cursor, level: int) -> None:
        cursor.count()
        cursor.number(longest)

    return walk


def _sized(kind: str, decimal: bool) -> Walk:
    def walk(cursor: Cursor, level: int) -> None:
        cursor.count()
        size = cursor.number(_LONG)
        if decimal and size > _MOST_DECIMAL:
            raise SchemaMismatch(f"a decimal of {size} bytes at byte {cursor.at}")
        cursor.skip(size, "a string" if kind == "string" else "a byte string")

    return walk


def _enum(symbols: int) -> Walk:
    def walk(cursor: Cursor, level: int) -> None:
        cursor.count()
        index = cursor.number(_INT)
        if not 0 <= index < symbols:
            raise SchemaMismatch(f"symbol {index} of an enum of {symbols}, before byte {cursor.at}")

    return walk


def _deeper(level: int) -> int:
    if level >= MOST_NESTED:
        raise SchemaMismatch(f"nested more than {MOST_NESTED} levels deep")
    return level + 1


def _union(branches: list[Walk]) -> Walk:
    def walk(cursor: Cursor, level: int) -> None:
        index = cursor.number(_LONG)
        if not 0 <= index < len(branches):
            raise SchemaMismatch(f"branch {index} of a union of {len(branches)}, before byte {cursor.at}")
        branches[index](cursor, _deeper(level))

    return walk


def _record(fields: list[tuple[str, Walk]]) -> Walk:
    def walk(cursor: Cursor, level: int) -> None:
        cursor.count()
        inner = _deeper(level)
        for name, field in fields:
            try:
                field(cursor, inner)
            except SchemaMismatch as error:
                # The path is built on the way out, so that good bytes do not pay for it.
                raise error.inside(name) from None

    return walk


def _blocks(item: Walk, kind: str) -> Walk:
    """Items in blocks; a negative count is followed by the block's size in bytes."""

    def walk(cursor: Cursor, level: int) -> None:
        cursor.count()
        inner = _deeper(level)
        while count := cursor.number(_LONG):
            cursor.count()
            if count < 0:
                count = -count
                size = cursor.number(_LONG)
                if not 0 <= size <= len(cursor.data) - cursor.at:
                    raise SchemaMismatch(f"a block of {size} bytes at byte {cursor.at}")
            for _ in range(count):
                if kind == "map":
                    cursor.skip(cursor.number(_LONG), "a map's key")
                item(cursor, inner)

    return walk
