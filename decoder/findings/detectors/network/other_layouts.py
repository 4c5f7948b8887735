"""Which layout a broken message has: the same bytes are read with another header, in another version, or with one mistake of encoding.

Only for frames that are known to be broken, and only until one layout reads all bytes and gives values that can be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from ....codec.codec import fills, read_header
from ....codec.encode import UNKNOWN_TAGS
from ....codec.walk import Walker
from ....connection.exchange import Exchange
from ....connection.plausible import LONGEST_THROTTLE_MS, PORTS
from ....errors import DecodeError
from ....schema import facts
from ....schema.plan import API_VERSIONS, FieldPlan, Fields, Plan, StructPlan, Value, plan
from ....wire.frame import Direction

LARGEST = 1 << 20
"""Bytes of a frame that is tried; larger ones are not."""
LARGEST_VARIED = 1 << 15
"""The same for layouts that no version has, which are read more slowly."""
MOST_FIELDS = 40
"""Fields whose type is varied."""
_NEAR = {"int8": ("int16", "int32"), "int16": ("int32", "int8"), "int32": ("int16", "int64"), "int64": ("int32",)}
_LEAST_BODY = 8
"""Bytes of a body; a shorter one fits many layouts by chance."""


class OtherLayout(NamedTuple):
    """A layout that fits. `text`: completes "decodes exactly ...". `rule`: what Kafka does instead."""

    text: str
    rule: str


class _Trial(NamedTuple):
    layout: OtherLayout
    plan: Plan
    frame: bytes
    start: int
    standard: bool = True
    """Whether a version has this layout."""


def other_layout(exchange: Exchange, direction: Direction) -> OtherLayout | None:
    """The first other layout that fits the message of that direction; None if none does."""
    frame = exchange.response if direction else exchange.request
    if frame is None or len(frame) > LARGEST or len(frame) - (4 if direction else 8) < _LEAST_BODY:
        return None
    kind = "response" if direction else "request"
    try:
        own = plan(kind, exchange.api_key, exchange.api_version)
    except DecodeError:
        return None
    starts = _starts(kind, frame)
    found = next((trial.layout for trial in _trials(own, frame, starts) if _read(trial) is not None), None)
    if found is not None or own.header_version not in starts:
        return found
    # Often several fields may be the one; the layout with the smallest numbers is the likeliest.
    varied = [(_bits(tree), trial.layout) for trial in _other_fields(own, frame, starts[own.header_version]) if (tree := _read(trial))]
    return min(varied, key=lambda each: each[0])[1] if varied else None


def _bits(value: Value) -> int:
    """The size of the numbers in a tree of values."""
    if isinstance(value, dict):
        return sum(map(_bits, value.values()))
    if isinstance(value, list):
        return sum(map(_bits, value))
    return value.bit_length() if isinstance(value, int) else 0


def _trials(own: Plan, frame: bytes, starts: dict[int, int]) -> Iterator[_Trial]:
    usual = starts.get(own.header_version)
    yield from _other_header(own, frame, starts)
    if usual is not None:
        if own.root.flexible:
            said = OtherLayout(
                "with one more byte 00 at its end: the tag buffer that closes the body is missing",
                "every struct of a flexible version ends with its tagged fields, even if there are none (KIP-482)",
            )
            yield _Trial(said, own, frame + b"\0", usual)
        yield from _wrong_encodings(own, frame, usual)
    yield from _other_versions(own, frame, starts)


def _starts(kind: str, frame: bytes) -> dict[int, int]:
    """Where the body starts, by header version."""
    name = "RequestHeader" if kind == "request" else "ResponseHeader"
    found = {}
    for version in (1, 2) if kind == "request" else (0, 1):
        try:
            found[version] = read_header(name, version, frame)[1]
        except DecodeError:
            continue
    return found


def _other_header(own: Plan, frame: bytes, starts: dict[int, int]) -> Iterator[_Trial]:
    for version, start in starts.items():
        if version == own.header_version:
            continue
        if own.kind == "response" and own.api_key == API_VERSIONS:
            rule = (
                "ApiVersions responses have header v0 in every version, as the client cannot know yet which one the broker "
                "supports (KIP-511)"
            )
        else:
            rule = (
                f"{own.api} v{own.version} is {'' if own.root.flexible else 'not '}a flexible version (KIP-482): its {own.kind} has "
                f"header v{own.header_version}"
            )
        tagged = "which has a tag buffer (one byte 00)" if version > own.header_version else "which has no tag buffer"
        yield _Trial(OtherLayout(f"behind a {own.kind} header v{version}, {tagged}", rule), own, frame, start)


def _other_versions(own: Plan, frame: bytes, starts: dict[int, int]) -> Iterator[_Trial]:
    versions = sorted(facts.api(own.api_key).versions.every(), key=lambda v: (abs(v - own.version), v))
    others = [plan(own.kind, own.api_key, version) for version in versions if version != own.version]
    rule = f"a {own.kind} is in the version of its request" if own.kind == "response" else "the header names the body's version"
    for natural in (True, False):
        for other in others:
            headers = [v for v in starts if (v == other.header_version) is natural]
            for header in headers:
                text = f"as {own.api} v{other.version}" + ("" if natural else f" behind a {own.kind} header v{header}")
                yield _Trial(OtherLayout(text, rule), other, frame, starts[header])


def _wrong_encodings(own: Plan, frame: bytes, start: int) -> Iterator[_Trial]:
    """The same fields, with another encoding of lengths and tag buffers."""
    if own.root.flexible:
        version = f"{own.api} v{own.version} is a flexible version (KIP-482)"
        variants = [
            ("without the tag buffers of the structs inside", _encoded(own.root, inner_tags=False), "each struct ends with a tag buffer"),
            ("without any tag buffer", _encoded(own.root, tags=False, inner_tags=False), "each struct ends with a tag buffer"),
            (
                "with lengths of a fixed size instead of compact ones",
                _encoded(own.root, compact=False),
                "lengths are unsigned varints, of the length plus 1",
            ),
            (
                "with the encoding of versions that are not flexible: no compact lengths, no tag buffers",
                _encoded(own.root, compact=False, tags=False, inner_tags=False),
                "lengths are compact, and each struct ends with a tag buffer",
            ),
        ]
    else:
        version = f"{own.api} v{own.version} is not a flexible version (KIP-482)"
        rule = "lengths are int16 or int32, and there are no tag buffers"
        variants = [
            ("with the encoding of flexible versions: compact lengths and tag buffers", _encoded(own.root, True, True, True), rule),
            ("with compact lengths", _encoded(own.root, compact=True), rule),
            ("with a tag buffer at its end", _encoded(own.root, tags=True), rule),
            ("with a tag buffer after each struct", _encoded(own.root, tags=True, inner_tags=True), rule),
        ]
    for text, root, rule in variants:
        yield _Trial(OtherLayout(text, f"{version}: {rule}"), replace(own, root=root), frame, start, False)


def _encoded(
    struct: StructPlan, compact: bool | None = None, tags: bool | None = None, inner_tags: bool | None = None
) -> StructPlan:
    """The struct with other lengths and tag buffers; None leaves them as they are."""

    def field(each: FieldPlan) -> FieldPlan:
        inner = None if each.struct is None else _encoded(each.struct, compact, inner_tags, inner_tags)
        return replace(each, struct=inner, compact=each.compact if compact is None else compact)

    flexible = struct.flexible if tags is None else tags
    fields = struct.fields if flexible else struct.fields[: struct.untagged]
    return StructPlan(struct.name, flexible, tuple(map(field, fields)), struct.untagged)


def _other_fields(own: Plan, frame: bytes, start: int) -> Iterator[_Trial]:
    """One field has another type, or is not there."""
    rule = f"{own.api} v{own.version} defines it otherwise"
    for number, (path, field) in enumerate(_fields(own.root)):
        if number >= MOST_FIELDS:
            return
        for other in _NEAR.get(field.type, ()) if not field.array else ():
            root = _with(own.root, path.split("."), replace(field, type=other))
            text = f"if {path} is {other} instead of {field.type}"
            yield _Trial(OtherLayout(text, rule), replace(own, root=root), frame, start, False)
        root = _with(own.root, path.split("."), None)
        yield _Trial(OtherLayout(f"without {path}", rule), replace(own, root=root), frame, start, False)


def _fields(struct: StructPlan, prefix: str = "") -> Iterator[tuple[str, FieldPlan]]:
    for field in struct.fields[: struct.untagged]:
        yield prefix + field.name, field
        if field.struct is not None:
            yield from _fields(field.struct, f"{prefix}{field.name}.")


def _with(struct: StructPlan, path: list[str], new: FieldPlan | None) -> StructPlan:
    """The struct with the field at a path replaced, or left out."""
    fields: list[FieldPlan] = []
    for field in struct.fields:
        if field.name != path[0] or field.tag is not None:
            fields.append(field)
        elif len(path) == 1:
            fields += [new] if new is not None else []
        elif field.struct is not None:
            fields.append(replace(field, struct=_with(field.struct, path[1:], new)))
    return StructPlan(struct.name, struct.flexible, tuple(fields), struct.untagged - (len(fields) < len(struct.fields)))


def _read(trial: _Trial) -> Fields | None:
    """What the layout reads, if that is all bytes and the values can be."""
    of = trial.plan
    if trial.standard:
        if not fills(of, trial.frame, trial.start):
            return None
    elif len(trial.frame) > LARGEST_VARIED:
        return None
    walker = Walker(of, trial.frame, trial.start)  # it keeps no code of plans that are made up
    try:
        walker.run()
    except DecodeError:
        return None
    if walker.position != len(trial.frame) or not _sensible(of.root, walker.tree):
        return None
    if of.api_key == API_VERSIONS and of.kind == "response" and not _offers(walker.tree.get("api_keys")):
        return None
    return walker.tree


def _offers(ranges: Value) -> bool:
    """Whether it is an offer, as of ApiVersions."""
    return bool(ranges) and all(
        0 <= each.get("api_key", -1) < 1000 and 0 <= each.get("min_version", -1) <= each.get("max_version", -1) < 100 for each in ranges
    )


def _sensible(struct: StructPlan, tree: Fields) -> bool:
    """Whether no null is forbidden, texts are printable, numbers can be, and nothing is tagged that has no name."""
    if UNKNOWN_TAGS in tree:
        return False
    for field in struct.fields:
        value = tree.get(field.name)
        if value is None:
            if not field.nullable:
                return False
        elif field.struct is not None:
            if not all(item is not None and _sensible(field.struct, item) for item in (value if field.array else (value,))):
                return False
        elif not field.array and not _can_be(field, value):
            return False
    return True


def _can_be(field: FieldPlan, value: Value) -> bool:
    if field.type == "string":
        return bool(value.isprintable())
    if field.type == "int16" and field.name.endswith("error_code"):
        return value in facts.errors()
    if field.name == "throttle_time_ms":
        return bool(0 <= value <= LONGEST_THROTTLE_MS)
    return field.name != "port" or value in PORTS
