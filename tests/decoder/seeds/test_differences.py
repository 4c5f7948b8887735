"""Every transcribed grammar against the schema (or against the draft's file), field type by field type, in order.

What differs must stand in ``differences.txt``, line by line with its reason, and nothing else may stand there.
Names are compared in snake_case. Types that have the same bytes but another word are differences too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from barnabas.decoder.codec.decode import decoder
from barnabas.decoder.codec.encode import encode_struct
from barnabas.decoder.reference.definitions import drafts
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.notation import Definition, FieldLine, VersionRange, parse, snake_case
from barnabas.decoder.schema.plan import FieldPlan, Plan, StructPlan, compile_plan, extra_plan, plan
from harness.generator import Generator

TEXTS = Path(__file__).parent / "texts"
DOCUMENT = Path(__file__).parents[3] / "docs" / "seeds.md"

# Messages of texts without api keys, by what they became; a name that is missing here is one that shipped.
BECAME = {"ApiVersion": "ApiVersions", "DescribeGroup": "DescribeGroups"}

# Drafts with a file of their own under decoder/reference/definitions/drafts: (seed, message, version) -> name.
DRAFTS = {
    ("000", "ApiVersion", 0): "kip-35.ApiVersion",
    ("000", "Metadata", 2): "kip-78.Metadata",
    ("000", "DescribeConfigs", 0): "kip-133.DescribeConfigs",
    ("000", "AlterConfigs", 0): "kip-133.AlterConfigs",
    ("000", "ListGroups", 0): "kip-40.ListGroups",
    ("000", "DescribeGroup", 0): "kip-40.DescribeGroup",
    ("001", "CreateTopic", 0): "kip-4.CreateTopic",
    ("001", "AlterTopic", 0): "kip-4.AlterTopic",
    ("001", "DeleteTopic", 0): "kip-4.DeleteTopic",
    ("001", "DescribeTopic", 0): "kip-4.DescribeTopic",
    ("001", "ListTopics", 0): "kip-4.ListTopics",
    ("001", "ReassignPartition", 0): "kip-4.ReassignPartitions",
    ("001", "VerifyReassignPartition", 0): "kip-4.VerifyReassignPartitions",
    ("001", "PreferredReplicaLeaderElection", 0): "kip-4.PreferredReplicaLeaderElection",
    ("004", "Metadata", 1): "kip-35.Metadata",
}
# Of grammars that are cut off in the texts, the files have what the texts' sentences say.
CUT_OFF = {"kip-4.CreateTopic": {("request", 0)}}
# Never shipped under any name: compared with the draft's file alone.
NEVER_SHIPPED = ("001", "004")


class Difference(NamedTuple):
    """``what``: name, type, nesting, added (only the schema has it) or dropped (only the seed has it)."""

    seed: str
    kind: str
    message: str
    version: int
    path: str
    what: str
    theirs: str
    ours: str


class Comparison:
    """Compares one grammar with one plan and collects what differs."""

    def __init__(self, block: Definition, against: Plan):
        self.found: list[tuple[str, str, str, str]] = []
        name = re.sub("(Request|Response)$", "", against.name)
        if name != block.name:
            self.found.append((".", "name", block.name, name))
        ours: StructPlan = against.root
        if block.name == "DescribeGroup" and name == "DescribeGroups" and ours.fields[0].struct:
            # One group where the shipped message has a list: compare with the list's item.
            self.found.append((".", "nesting", "one", "[]groups"))
            ours = ours.fields[0].struct
        self.structs(block.fields, ours.fields, "")

    def structs(self, theirs: tuple[FieldLine, ...], ours: tuple[FieldPlan, ...], path: str) -> None:
        structs = {f.name for f in ours if f.struct}
        flat: list[tuple[str, FieldLine]] = []
        for part in theirs:
            if part.fields and not part.array and snake_case(part.name) not in structs:
                self.found.append((path + part.name, "nesting", "struct", "in-place"))
                flat += [(f"{path}{part.name}.", inner) for inner in part.fields]
            else:
                flat.append((path, part))
        a = c = 0
        for x, y in [*alignment([f for _, f in flat], list(ours)), (len(flat), len(ours))]:
            for prefix, part in flat[a:x]:
                self.found.append((prefix + part.name, "dropped", shown(part), "-"))
            for field in ours[c:y]:
                self.found.append((path + field.name, "added", "-", shown(field)))
            if x < len(flat):
                self.pair(*flat[x], ours[y])
            a, c = x + 1, y + 1

    def pair(self, prefix: str, theirs: FieldLine, ours: FieldPlan) -> None:
        path = prefix + theirs.name
        if snake_case(theirs.name) != ours.name:
            self.found.append((path, "name", snake_case(theirs.name), ours.name))
        inner = theirs.fields and ours.struct
        if (not inner and bool(theirs.fields) != bool(ours.struct)) or shown(theirs) != shown(ours):
            self.found.append((path, "type", shown(theirs, not inner), shown(ours, not inner)))
        if inner and ours.struct:
            self.structs(theirs.fields, ours.struct.fields, path + ("[]." if theirs.array else "."))


def alignment(theirs: list[FieldLine], ours: list[FieldPlan]) -> list[tuple[int, int]]:
    """Which field of one list is which of the other, in order: the pairing with the most likeness in total."""
    best: dict[tuple[int, int], tuple[int, list[tuple[int, int]]]] = {}

    def from_(i: int, j: int) -> tuple[int, list[tuple[int, int]]]:
        if i == len(theirs) or j == len(ours):
            return 0, []
        if (i, j) not in best:
            choices = [from_(i + 1, j), from_(i, j + 1)]
            if score := likeness(theirs[i], ours[j]):
                total, pairs = from_(i + 1, j + 1)
                choices.insert(0, (score + total, [(i, j), *pairs]))
            best[i, j] = max(choices, key=lambda choice: choice[0])
        return best[i, j]

    return from_(0, 0)[1]


def likeness(theirs: FieldLine, ours: FieldPlan) -> int:
    """0 for two fields that cannot be one; the same name counts most, then the same type."""
    name = snake_case(theirs.name)
    if name == ours.name:
        return 7
    same = (theirs.array, theirs.type) == (ours.array, ours.type)
    # Another word for the same bytes, or a list whose items are written otherwise.
    words = {theirs.type, ours.type}
    other = theirs.array == ours.array and (theirs.array or words in ({"bytes", "records"}, {"int8", "bool"}))
    if not same and not other:
        return 0
    return 2 + same + (name in ours.name.split("_") or ours.name.startswith(name))


def shown(field: FieldLine | FieldPlan, inside: bool = False) -> str:
    """``"[]string?"``; with `inside` a struct shows its fields: ``"[]{name:string}"``."""
    inner = field.struct.fields if isinstance(field, FieldPlan) and field.struct else getattr(field, "fields", ())
    name = "{" + ",".join(f"{f.name}:{shown(f)}" for f in inner) + "}" if inner and inside else field.type
    nullable = field.nullable if isinstance(field, FieldPlan) else 0 in field.nullable
    return ("[]" if field.array else "") + name + ("?" if nullable else "")


def blocks() -> Iterator[tuple[str, Definition, int]]:
    for path in sorted(TEXTS.glob("*.kafka")):
        for block in parse(path.read_text("utf-8"), path.name):
            for version in block.versions.every():
                yield path.stem, block, version


def shipped_plan(block: Definition, version: int) -> Plan:
    if block.kind == "header":
        return extra_plan("headers", block.name, version)
    key = facts.api_key(BECAME.get(block.name, block.name)) if block.key is None else block.key
    return plan(block.kind, key, version)


def draft_plan(name: str, block: Definition, version: int) -> Plan:
    return compile_plan(drafts.definition(name, block.kind), version, -1)


def differences() -> Iterator[Difference]:
    """All differences; a comparison with a draft's file names the draft in place of the message."""
    for seed, block, version in blocks():
        if seed not in NEVER_SHIPPED:
            for found in Comparison(block, shipped_plan(block, version)).found:
                yield Difference(seed, block.kind, block.name, version, *found)
        if draft := DRAFTS.get((seed, block.name, version)):
            for found in Comparison(block, draft_plan(draft, block, version)).found:
                yield Difference(seed, block.kind, draft, version, *found)


# --- the list ----------------------------------------------------------------------------------------------


class Listed(NamedTuple):
    seed: str
    kind: str
    message: str
    versions: str
    path: str
    what: str
    theirs: str
    ours: str
    reasons: tuple[str, ...]


def listed() -> tuple[dict[str, str], list[Listed]]:
    """The reasons by their short names, and the lines of the list."""
    reasons: dict[str, str] = {}
    lines: list[Listed] = []
    for text in (TEXTS / "differences.txt").read_text("utf-8").splitlines():
        if text.startswith("reason "):
            name, why = text.removeprefix("reason ").split(": ", 1)
            assert name not in reasons
            reasons[name] = why
        elif text and not text.startswith("#"):
            seed, kind, message, versions, path, what, theirs, arrow, ours, colon, why = text.split()
            assert (arrow, colon) == ("->", ":"), text
            lines.append(Listed(seed, kind, message, versions, path, what, theirs, ours, tuple(why.split("+"))))
    return reasons, lines


def versions_of(text: str) -> range:
    low, _, high = text.partition("-")
    return range(int(low), int(high or low) + 1)


def test_every_difference_is_listed_and_nothing_else() -> None:
    found = list(differences())
    expected = [
        Difference(x.seed, x.kind, x.message, version, x.path, x.what, x.theirs, x.ours)
        for x in listed()[1]
        for version in versions_of(x.versions)
    ]
    assert len(set(found)) == len(found)
    assert len(set(expected)) == len(expected), "a line stands twice"
    assert sorted(set(found) - set(expected)) == [], "differs, and is not listed"
    assert sorted(set(expected) - set(found)) == [], "is listed, and does not differ"


def test_every_reason_is_known_and_used() -> None:
    reasons, lines = listed()
    used = {name for line in lines for name in line.reasons}
    assert used == set(reasons)


def item(line: Listed) -> str:
    """A line of the list as the document shows it; a renamed field's old name is the end of its path."""
    reasons = "" if line.reasons == ("definition",) else f" ({', '.join(line.reasons)})"
    if line.what == "name":
        assert line.path == "." or line.theirs == snake_case(line.path.rpartition(".")[2].removesuffix("[]")), line
        return f"`{line.theirs if line.path == '.' else line.path}→{line.ours}`{reasons}"
    if line.what in ("added", "dropped"):
        return f"`{line.path}`: {line.what} `{line.ours if line.what == 'added' else line.theirs}`{reasons}"
    return f"`{line.path}`: `{line.theirs}→{line.ours}`{reasons}"


def rows(lines: list[Listed]) -> list[str]:
    """The document's list: a line for what the same seeds have in the same versions of a message."""
    places: dict[Listed, list[str]] = {}
    for line in lines:
        places.setdefault(line._replace(seed="", versions=""), []).append(f"{line.seed}:{line.versions}")
    items: dict[tuple[str, str], list[str]] = {}
    for line, seeds in places.items():
        items.setdefault((f"{line.kind} {line.message}", ", ".join(seeds)), []).append(item(line))
    return [f"- {message}, {seeds}: {', '.join(of)}" for (message, seeds), of in items.items()]


def test_the_document_shows_every_difference_and_reason() -> None:
    text = DOCUMENT.read_text("utf-8")
    reasons, lines = listed()
    shown_rows = [x for x in text.splitlines() if re.match(r"- (request|response|header) ", x)]
    assert shown_rows == rows(lines)
    for name, why in reasons.items():
        assert f"- **{name}**: {why}" in text, name


@pytest.mark.parametrize("name", drafts.names())
def test_every_draft_file_stands_for_a_grammar(name: str) -> None:
    """Each kind and version of a draft's file has its transcription (ListGroups' empty request included)."""
    kinds = {(b.kind, v) for seed, b, v in blocks() if DRAFTS.get((seed, b.name, v)) == name}
    held = {
        (kind, version)
        for kind in ("request", "response")
        for version in drafts.definition(name, kind).versions.every()
    }
    assert held - CUT_OFF.get(name, set()) == kinds


# Drafts in seed 000 whose bytes are not those of what shipped: dropped, added or moved fields.
OTHER_BYTES = {
    ("request", "ApiVersion"),
    ("response", "Metadata"),
    ("response", "DescribeConfigs"),
    ("response", "AlterConfigs"),
    ("response", "ListGroups"),
    ("request", "DescribeGroup"),
    ("response", "DescribeGroup"),
}


def completed(block: Definition, against: Plan) -> Definition:
    """The grammar with the item types that the text leaves out, and with bool for its one int8 that means it."""
    types = {
        path: theirs_to[1].removeprefix("[]").rstrip("?")
        for path, what, *theirs_to in Comparison(block, against).found
        if what == "type" and ("unknown" in theirs_to[0] or theirs_to == ["int8", "bool"])
    }

    def fill(fields: tuple[FieldLine, ...], path: str) -> tuple[FieldLine, ...]:
        out = []
        for part in fields:
            known = types.get(path + part.name, part.type).removeprefix("{name:").removesuffix("}")
            inner = fill(part.fields, f"{path}{part.name}{'[]' if part.array else ''}.")
            out.append(replace(part, type=known, fields=inner))
        return tuple(out)

    return replace(block, fields=fill(block.fields, ""))


def leaves(values: Any) -> list[Any]:
    """Values in wire order, without the structure around them."""
    if isinstance(values, tuple):
        return [leaf for value in values for leaf in leaves(value)]
    return [values]


def test_bytes_made_by_a_grammar_are_read_by_the_schema(generator: Generator) -> None:
    """The proof behind the list: what the seed's layout writes, the schema reads to the same values and writes again."""
    tried = 0
    for seed, block, version in blocks():
        if seed in NEVER_SHIPPED:
            continue
        other = seed == "000" and (block.kind, block.name) in OTHER_BYTES and (block.name, version) != ("Metadata", 1)
        ours = shipped_plan(block, version)
        assert other == any(what in ("dropped", "added") for _, what, *_ in Comparison(block, ours).found)
        if other:
            continue
        theirs = compile_plan(completed(block, ours), version, -1)
        for _ in range(10):
            values = generator.values(theirs)
            data, again = bytearray(), bytearray()
            encode_struct(theirs.root, values, data)
            read, end = decoder(ours)(bytes(data), 0)
            assert end == len(data), (seed, block.name, version)
            assert leaves(read) == leaves(values), (seed, block.name, version)
            encode_struct(ours.root, read, again)
            assert again == data, (seed, block.name, version)
        tried += 1
    assert tried == 203


def field(name: str, type_word: str, *fields: FieldLine, array: bool = False) -> FieldLine:
    return FieldLine(name, type_word, array, fields=fields)


def compared(theirs: list[FieldLine], ours: list[FieldLine]) -> list[tuple[str, str, str, str]]:
    none = VersionRange.parse("none")
    made = Definition("request", "XRequest", None, VersionRange(0, 0), none, (), tuple(ours))
    block = Definition("request", "X", None, VersionRange(0, 0), none, (), tuple(theirs))
    return Comparison(block, compile_plan(made, 0, -1)).found


A, B, C = field("a", "int32"), field("b", "string"), field("c", "int64")


@pytest.mark.parametrize(
    ("theirs", "ours", "expected"),
    [
        ([A, B], [A, B], []),
        ([A, B], [A], [("b", "dropped", "string", "-")]),
        ([A], [A, B], [("b", "added", "-", "string")]),
        ([A], [field("a", "int64")], [("a", "type", "int32", "int64")]),
        ([A], [C], [("a", "dropped", "int32", "-"), ("c", "added", "-", "int64")]),
        ([A], [field("z", "int32")], [("a", "name", "a", "z")]),
        ([A, B], [B, A], [("a", "dropped", "int32", "-"), ("a", "added", "-", "int32")]),
        ([field("s", "struct", A, B)], [A, B], [("s", "nesting", "struct", "in-place")]),
        ([field("s", "struct", A, array=True)], [field("s", "int32", array=True)], [("s", "type", "[]{a:int32}", "[]int32")]),
        ([field("s", "struct", A, array=True)], [field("s", "T", B, array=True)],
         [("s[].a", "dropped", "int32", "-"), ("s[].b", "added", "-", "string")]),
    ],
)  # fmt: skip
def test_the_comparison_sees(theirs: list[FieldLine], ours: list[FieldLine], expected: list[tuple[str, str, str, str]]) -> None:
    """A comparison that overlooked something would pass above; here it has something to find."""
    assert compared(theirs, ours) == expected
