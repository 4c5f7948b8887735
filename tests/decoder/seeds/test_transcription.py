"""The committed transcriptions equal the seed texts, grammar by grammar, with none missing.

The reader below knows the pages' own grammar notation: a production ``a => b [c]``, and behind it the definitions of
its parts, each followed at once by the definitions of *its* parts. Indentation is lost in most of the texts, so the
nesting is found by name: a definition belongs to the innermost open production that still waits for that name.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from barnabas.decoder.schema.notation import ALL_VERSIONS, Definition, FieldLine, parse

HERE = Path(__file__).parent
TEXTS = HERE.parents[3] / "shared" / "reference" / "seeds"
SEEDS = ("000", "001", "002", "003", "004")

PRIMITIVES = {
    "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64", "boolean": "bool", "string": "string",
    "nullable_string": "string?", "bytes": "bytes", "records": "records",
}  # fmt: skip

# The page names the part one way and defines it another way.
ALIASES = {"TopicPartitionsDetails": "TopicPartitionDetails"}

# Which version a grammar without a version on its line is of: the heading above it, the released header it equals,
# or, for a draft of a new message, 0.
UNVERSIONED = {("000", "Metadata"): 1, ("004", "Metadata"): 1, ("002", "RequestHeader"): 1, ("003", "RequestHeader"): 1}

HEAD = re.compile(
    r"(?:\w+:)?(?!RequestOrResponse)([A-Z]\w*?)\s?(Request|Response|Header)\s?(?:\(Version: (\d+)\)\s)?=>(.*)"
)
LINE = re.compile(r"(\w+)\s*=>?(.*)")
API = re.compile(r"(\w+) API \(Key: (\d+)\):")


@dataclass
class Part:
    """One word of a production's right side; ``parts`` for a bracket that lists several words itself."""

    name: str
    array: bool = False
    optional: bool = False
    parts: list[Part] = field(default_factory=list)


def right_side(text: str) -> list[Part]:
    """``"a [b] ?(c) [d [e]]"`` as parts."""
    words = re.findall(r"\?\(|[\[\])]|\w+", text)
    at = 0

    def until(closing: str | None) -> list[Part]:
        nonlocal at
        parts: list[Part] = []
        while at < len(words):
            word = words[at]
            at += 1
            if word == closing:
                break
            if word not in ("[", "?("):
                parts.append(Part(word))
                continue
            inner = until("]" if word == "[" else ")")
            if word == "?(":
                assert len(inner) == 1
                parts.append(replace(inner[0], optional=True))
            else:
                parts.append(replace(inner[0], array=True) if len(inner) == 1 else Part("_", True, parts=inner))
        return parts

    parsed = until(None)
    assert at == len(words), text
    return parsed


class Grammar:
    """One grammar: its head and the definitions behind it, resolved into fields."""

    def __init__(self, seed: str, kind: str, name: str, key: int | None, version: int, right: str):
        self.seed, self.kind, self.name, self.key, self.version, self.right = seed, kind, name, key, version, right
        self.lines: list[tuple[str, str]] = []
        self.at = 0

    def resolve(self) -> tuple[FieldLine, ...]:
        """The fields, in wire order; every definition must have found its place."""
        first: list[FieldLine] = []
        parts = right_side(self.right)
        while self.lines and not self.waits(parts, self.lines[self.at][0]):
            # Defined ahead of the production's own parts without standing in it: KIP-35's ErrorCode.
            name, right = self.lines[self.at]
            first.append(FieldLine(name, PRIMITIVES[right.strip().lower()]))
            self.at += 1
        fields = (*first, *self.struct(parts))
        assert self.at == len(self.lines), (self.seed, self.name, self.lines[self.at :])
        return fields

    def waits(self, parts: list[Part], name: str) -> bool:
        return any(part.name == name or self.waits(part.parts, name) for part in parts)

    def struct(self, parts: list[Part]) -> tuple[FieldLine, ...]:
        found: dict[str, FieldLine] = {}
        while self.at < len(self.lines):
            name, right = self.lines[self.at]
            if name in found or not self.waits(parts, name):
                break
            self.at += 1
            found[name] = self.definition(name, right.strip())
        return tuple(self.placed(part, found) for part in parts)

    def definition(self, name: str, right: str) -> FieldLine:
        if not right:  # "configs =>": all that follows are its parts
            right = " ".join(name for name, _ in self.lines[self.at :])
        parts = right_side(right)
        if all(part.name.lower() in PRIMITIVES for part in parts):
            types = [PRIMITIVES[part.name.lower()] for part in parts]
            if len(types) == 1:
                return typed(name, types[0], parts[0].array)
            return FieldLine(name, "struct", fields=tuple(typed("_", t, False) for t in types))
        if len(parts) == 1 and parts[0].array:  # "x => [y]" or "x => [y z]"
            inner = self.struct(parts[0].parts or [Part(parts[0].name)])
            if parts[0].parts:
                return FieldLine(name, "struct", True, fields=inner)
            return replace(inner[0], name=name, array=True)
        return FieldLine(name, "struct", fields=self.struct(parts))

    def placed(self, part: Part, found: dict[str, FieldLine]) -> FieldLine:
        if part.parts:
            return FieldLine("_", "struct", part.array, fields=tuple(self.placed(inner, found) for inner in part.parts))
        known = found.get(part.name)
        if known is None:  # defined once for two places (KIP-133's error_code), or nowhere
            same = [right for name, right in self.lines if name == part.name]
            known = self.definition(part.name, same[0].strip()) if same else FieldLine(part.name, "unknown")
        nullable = ALL_VERSIONS if part.optional else known.nullable
        return replace(known, array=known.array or part.array, nullable=nullable)


def typed(name: str, type_word: str, array: bool) -> FieldLine:
    if type_word.endswith("?"):
        return FieldLine(name, type_word[:-1], array, nullable=ALL_VERSIONS)
    return FieldLine(name, type_word, array)


def grammars(seed: str, text: str) -> list[Grammar]:
    """Every grammar of a seed text."""
    found: list[Grammar] = []
    current: Grammar | None = None
    key: int | None = None
    for raw in text.splitlines():
        line = re.sub(r"<[^>]*>", "", raw).removesuffix("| |").strip()
        if api := API.search(line):
            key = int(api[2])
        if head := HEAD.fullmatch(line):
            kind = head[2].lower()
            name = head[1] + "Header" if kind == "header" else head[1]
            version = int(head[3]) if head[3] else UNVERSIONED.get((seed, name), 0)
            current = Grammar(seed, kind, name, None if kind == "header" else key, version, head[4])
            found.append(current)
        elif current is not None and (defined := LINE.fullmatch(line)):
            current.lines.append((ALIASES.get(defined[1], defined[1]), defined[2]))
        else:
            current = None
    return found


def transcribed(seed: str) -> dict[tuple[str, str, int], Definition]:
    """(kind, name, version) -> block of the committed transcription."""
    blocks = parse((HERE / "texts" / f"{seed}.kafka").read_text("utf-8"), f"{seed}.kafka")
    table = {(b.kind, b.name, version): b for b in blocks for version in b.versions.every()}
    assert len(table) == sum(len(b.versions.every()) for b in blocks)
    return table


def text_of(seed: str) -> str:
    if not TEXTS.is_dir():
        pytest.skip("the seed texts are not on this machine")
    (path,) = TEXTS.glob(f"{seed}_*.txt")
    return path.read_text("utf-8")


@pytest.mark.parametrize("seed", SEEDS)
def test_every_grammar_of_the_text_is_transcribed(seed: str) -> None:
    committed = transcribed(seed)
    seen = []
    for grammar in grammars(seed, text_of(seed)):
        at = (grammar.kind, grammar.name, grammar.version)
        seen.append(at)
        assert at in committed, f"{at} is missing"
        assert committed[at].fields == grammar.resolve(), at
        assert committed[at].key == grammar.key, at
    assert len(seen) == len(set(seen))
    assert set(committed) == set(seen), "transcribed, but not in the text"


# Counted by a pattern of its own: lines that open a grammar, whatever stands around it.
OPENS = re.compile(r"(?:Request|Response|Header) ?(?:\(Version: \d+\) ?)?=>")
COUNTS = {"000": 18, "001": 15, "002": 52, "003": 140, "004": 2}


@pytest.mark.parametrize("seed", SEEDS)
def test_no_grammar_is_overlooked(seed: str) -> None:
    assert len(transcribed(seed)) == COUNTS[seed]
    text = text_of(seed).replace("\N{NO-BREAK SPACE}", " ")
    # The one opening that is no message: size, then request or response, which is the framing (decoder/wire/frame.py).
    opened = len(OPENS.findall(text)) - text.count("RequestOrResponse =>")
    assert opened == COUNTS[seed]
    assert len(grammars(seed, text)) == COUNTS[seed]


@pytest.mark.parametrize("seed", ["002", "003"])
def test_every_api_is_transcribed_in_both_directions(seed: str) -> None:
    blocks = transcribed(seed).values()
    kinds = Counter((b.key, b.kind) for b in {id(b): b for b in blocks}.values() if b.key is not None)
    keys = range(17 if seed == "002" else 34)
    assert {key for key, _ in kinds} == set(keys)
    for key in keys:
        assert kinds[key, "request"] >= 1 and kinds[key, "response"] >= 1


EXAMPLES = [
    ("a => b [c] ?(d)\nb => INT8\nc => INT32\nd => STRING", "a=b:int8,c:[]int32,d:string?"),
    ("a => [b] c\nb => c d\nd => BYTES\nc => STRING\nc => INT64", "a=b:[]struct{c:string d:bytes},c:int64"),
    ("a => [b]\nb => c\nc => d e\nd => BOOLEAN\ne => RECORDS", "a=b:[]struct{c:struct{d:bool e:records}}"),
    ("a => [b c]\nb => string\nc => [d]\nd => int16", "a=_:[]struct{b:string c:[]int16}"),
    ("a => b\nb =>\nc => INT8\nd => INT8", "a=b:struct{c:int8 d:int8}"),
    ("a => [b]", "a=b:[]unknown"),
]


@pytest.mark.parametrize(("text", "expected"), EXAMPLES)
def test_the_reader_nests_by_name(text: str, expected: str) -> None:
    """The reader on grammars small enough to see that it is right."""
    first, *rest = text.splitlines()
    grammar = Grammar("example", "request", "a", None, 0, first.split("=>")[1])
    grammar.lines = [match.groups() for match in map(LINE.fullmatch, rest) if match]  # type: ignore[misc]
    assert "a=" + ",".join(map(shown, grammar.resolve())) == expected


def shown(field: FieldLine) -> str:
    inner = "{" + " ".join(map(shown, field.fields)) + "}" if field.fields else ""
    return f"{field.name}:{'[]' if field.array else ''}{field.type}{'?' if 0 in field.nullable else ''}{inner}"


def test_a_definition_without_a_place_is_refused() -> None:
    grammar = Grammar("example", "request", "a", None, 0, "b")
    grammar.lines = [("b", "INT8"), ("z", "INT8")]
    with pytest.raises(AssertionError):
        grammar.resolve()
