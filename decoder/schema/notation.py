"""The schema notation: the text form of the protocol's definitions, with its nodes, parser and writer.

One file per API holds a request and a response. A line is

    Name type[?versions] [versions] [tagN[:versions]] [=default] [~] [*] [@entity] [flex:none]

``?`` marks nullable (in all the field's versions if none follow), ``~`` a field that a writer may drop if the version lacks it
(Kafka's *ignorable*), ``*`` a map key, ``@`` the entity type. Without versions, the field is in all. Fields of a struct are
indented by two spaces; ``struct Name`` opens a struct that several fields share. The header line of a block is

    request MetadataRequest key 3 versions 0-13 flex 9+ on broker,controller [since 13:4.0] [unstable]

where ``since`` has the release of each version that is newer than the schema's baseline.

Source of the vocabulary: the README of Apache Kafka's ``common/message`` definitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from ..errors import DecoderError

PRIMITIVES = frozenset(
    {"bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "uuid", "string", "bytes", "records"}
)


class NotationError(DecoderError):
    """A line of a schema file cannot be read; ``line`` is its 1-based number."""

    def __init__(self, source: str, line: int, text: str):
        super().__init__(f"{source}:{line}: {text}")
        self.source, self.line = source, line


@dataclass(frozen=True, slots=True)
class VersionRange:
    """An inclusive range of versions. ``high`` None means open-ended, ``low`` > ``high`` means none."""

    low: int = 0
    high: int | None = None

    def __contains__(self, version: int) -> bool:
        return self.low <= version and (self.high is None or version <= self.high)

    def __str__(self) -> str:
        if self.high is None:
            return f"{self.low}+"
        if self.low > self.high:
            return "none"
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """From ``"3"``, ``"0-13"``, ``"9+"`` or ``"none"``. Raises ValueError."""
        if text == "none":
            return NO_VERSIONS
        match = re.fullmatch(r"(\d+)(?:(\+)|-(\d+))?", text)
        if not match:
            raise ValueError(f"not a version range: {text!r}")
        low = int(match[1])
        return cls(low, None if match[2] else int(match[3] or low))

    def within(self, valid: VersionRange) -> frozenset[int]:
        """The versions of this range that are in the bounded range `valid`."""
        return frozenset(v for v in valid.every() if v in self)

    def every(self) -> range:
        """All versions of a bounded range."""
        if self.high is None:
            raise ValueError("an open-ended range has no last version")
        return range(self.low, self.high + 1)


ALL_VERSIONS = VersionRange(0, None)
NO_VERSIONS = VersionRange(0, -1)


@dataclass(frozen=True, slots=True)
class FieldLine:
    """One field line. ``type`` is a primitive or the name of a struct, ``fields`` those of an inline struct."""

    name: str
    type: str
    array: bool = False
    versions: VersionRange = ALL_VERSIONS
    nullable: VersionRange = NO_VERSIONS
    tag: int | None = None
    tagged: VersionRange = NO_VERSIONS
    default: str | None = None
    ignorable: bool = False
    map_key: bool = False
    entity: str | None = None
    never_flexible: bool = False
    fields: tuple[FieldLine, ...] = ()


@dataclass(frozen=True, slots=True)
class Definition:
    """One block: a request, response, header or data schema over all its versions."""

    kind: str
    name: str
    key: int | None
    versions: VersionRange
    flexible: VersionRange
    listeners: tuple[str, ...]
    fields: tuple[FieldLine, ...]
    structs: tuple[tuple[str, tuple[FieldLine, ...]], ...] = ()
    unstable: bool = False
    since: tuple[tuple[int, str], ...] = ()

    def __hash__(self) -> int:  # not of all fields: plans look definitions up
        return hash((self.kind, self.name, self.key))

    def struct(self, name: str) -> tuple[FieldLine, ...]:
        """The fields of the shared struct `name`. Raises KeyError if there is none."""
        return dict(self.structs)[name]


@cache
def snake_case(name: str) -> str:
    """``KRaftVersion`` -> ``kraft_version``, ``TopicId`` -> ``topic_id``, as Kafka's message generator does."""
    out = []
    after_capital = True
    for letter in name:
        if letter.isupper():
            if not after_capital:
                out.append("_")
            out.append(letter.lower())
            after_capital = True
        else:
            out.append(letter)
            after_capital = False
    return "".join(out)


# --- writing -----------------------------------------------------------------------------------------------


def write(definitions: Iterable[Definition]) -> str:
    """The text of a schema file with these blocks."""
    return "\n".join("\n".join(_write_block(d)) + "\n" for d in definitions)


def _write_block(d: Definition) -> Iterator[str]:
    head = f"{d.kind} {d.name}"
    if d.key is not None:
        head += f" key {d.key}"
    head += f" versions {d.versions} flex {d.flexible}"
    if d.listeners:
        head += " on " + ",".join(d.listeners)
    if d.since:
        head += " since " + ",".join(f"{version}:{release}" for version, release in d.since)
    yield head + (" unstable" if d.unstable else "")
    for field in d.fields:
        yield from write_field(field, 1)
    for name, fields in d.structs:
        yield f"  struct {name}"
        for field in fields:
            yield from write_field(field, 2)


def write_field(field: FieldLine, depth: int) -> Iterator[str]:
    """The lines of one field and its struct's fields."""
    words = [field.name, ("[]" if field.array else "") + field.type]
    if field.nullable != NO_VERSIONS:
        words[1] += "?" if field.nullable == field.versions else f"?{field.nullable}"
    if field.versions != ALL_VERSIONS:
        words.append(str(field.versions))
    if field.tag is not None:
        words.append(f"tag{field.tag}" + ("" if field.tagged == field.versions else f":{field.tagged}"))
    if field.default is not None:
        words.append(f"={field.default}")
    if field.ignorable:
        words.append("~")
    if field.map_key:
        words.append("*")
    if field.entity:
        words.append(f"@{field.entity}")
    if field.never_flexible:
        words.append("flex:none")
    yield "  " * depth + " ".join(words)
    for inner in field.fields:
        yield from write_field(inner, depth + 1)


# --- parsing -----------------------------------------------------------------------------------------------

_HEAD = re.compile(
    r"(?P<kind>request|response|header|data) (?P<name>\w+)(?: key (?P<key>-?\d+))? versions (?P<versions>\S+)"
    r" flex (?P<flex>\S+)(?: on (?P<on>[\w,]+))?(?: since (?P<since>[\d:.,]+))?(?P<unstable> unstable)?"
)
_TYPE = re.compile(r"(\[\])?(\w+)(?:(\?)([\d+-]+)?)?")


@dataclass(slots=True)
class _Line:
    number: int
    depth: int
    words: list[str]


def parse(text: str, source: str = "<schema>") -> list[Definition]:
    """The blocks of a schema file. Raises `NotationError` with file and line."""
    blocks: list[Definition] = []
    lines: list[_Line] = []
    for number, raw in enumerate(text.splitlines(), 1):
        content = raw.split("#", 1)[0].rstrip()
        if not content:
            continue
        indent = len(content) - len(content.lstrip(" "))
        if indent % 2:
            raise NotationError(source, number, "indentation is not a multiple of two spaces")
        lines.append(_Line(number, indent // 2, content.split()))
    at = 0
    while at < len(lines):
        end = at + 1
        while end < len(lines) and lines[end].depth > 0:
            end += 1
        blocks.append(_parse_block(lines[at:end], source))
        at = end
    return blocks


def _parse_block(lines: list[_Line], source: str) -> Definition:
    head = lines[0]
    match = _HEAD.fullmatch(" ".join(head.words)) if head.depth == 0 else None
    if not match:
        raise NotationError(
            source, head.number, "expected 'request|response|header|data Name ... versions ... flex ...'"
        )
    fields: list[FieldLine] = []
    structs: list[tuple[str, tuple[FieldLine, ...]]] = []
    at = 1
    while at < len(lines):
        line = lines[at]
        if line.depth != 1:
            raise NotationError(source, line.number, "indented too deeply")
        if line.words[0] == "struct" and len(line.words) == 2:
            inner, at = _parse_fields(lines, at + 1, 2, source)
            structs.append((line.words[1], inner))
        else:
            field, at = _parse_field(lines, at, 1, source)
            fields.append(field)
    try:
        versions, flexible = VersionRange.parse(match["versions"]), VersionRange.parse(match["flex"])
    except ValueError as error:
        raise NotationError(source, head.number, str(error)) from None
    return Definition(
        kind=match["kind"],
        name=match["name"],
        key=int(match["key"]) if match["key"] else None,
        versions=versions,
        flexible=flexible,
        listeners=tuple(match["on"].split(",")) if match["on"] else (),
        fields=tuple(fields),
        structs=tuple(structs),
        unstable=bool(match["unstable"]),
        since=_since(match["since"]),
    )


def _since(text: str | None) -> tuple[tuple[int, str], ...]:
    pairs = (entry.split(":", 1) for entry in text.split(",")) if text else ()
    return tuple((int(version), release) for version, release in pairs)


def _parse_fields(lines: list[_Line], at: int, depth: int, source: str) -> tuple[tuple[FieldLine, ...], int]:
    fields: list[FieldLine] = []
    while at < len(lines) and lines[at].depth >= depth:
        field, at = _parse_field(lines, at, depth, source)
        fields.append(field)
    return tuple(fields), at


def _parse_field(lines: list[_Line], at: int, depth: int, source: str) -> tuple[FieldLine, int]:
    line = lines[at]
    if line.depth != depth:
        raise NotationError(source, line.number, "indented too deeply")
    try:
        field = _field(line.words)
    except (ValueError, IndexError) as error:
        raise NotationError(source, line.number, str(error) or "expected 'Name type ...'") from None
    inner, after = _parse_fields(lines, at + 1, depth + 1, source)
    return replace(field, fields=inner) if inner else field, after


def _field(words: list[str]) -> FieldLine:
    """The field of a line, without the fields of its struct."""
    name, type_word, *rest = words[0], words[1], *words[2:]
    match = _TYPE.fullmatch(type_word)
    if not match:
        raise ValueError(f"not a type: {type_word!r}")
    versions, tag, tagged, default, entity = ALL_VERSIONS, None, None, None, None
    for word in rest:
        if word[0] == "=":
            default = word[1:]
        elif word[0] == "@":
            entity = word[1:]
        elif found := re.fullmatch(r"tag(\d+)(?::(\S+))?", word):
            tag, tagged = int(found[1]), VersionRange.parse(found[2]) if found[2] else None
        elif word not in ("~", "*", "flex:none"):
            versions = VersionRange.parse(word)
    return FieldLine(
        name,
        type=match[2],
        array=bool(match[1]),
        versions=versions,
        nullable=NO_VERSIONS if not match[3] else VersionRange.parse(match[4]) if match[4] else versions,
        tag=tag,
        tagged=NO_VERSIONS if tag is None else tagged or versions,
        default=default,
        ignorable="~" in rest,
        map_key="*" in rest,
        entity=entity,
        never_flexible="flex:none" in rest,
    )
