"""Convert Apache Kafka's message definitions (JSON inside Kafka's jars) to the notation, and unite those of releases.

Only facts are kept: names, types, versions, tags, defaults, entities; no sentences. A release has only the versions that it
still serves, so the schema is a union: the newest release that has a version defines it (KIP-896 dropped many).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...errors import DecoderError
from ...schema.notation import ALL_VERSIONS, NO_VERSIONS, PRIMITIVES, Definition, FieldLine, VersionRange, write
from ...schema.plan import StructPlan, compile_plan

# Kafka's definition types -> the notation's kinds. Records are data with a key and the topic's name.
KINDS = {
    "request": "request",
    "response": "response",
    "header": "header",
    "data": "data",
    "metadata": "data",
    "coordinator-key": "data",
    "coordinator-value": "data",
}

# The topic of the records that a jar defines, by the Java package that reads them.
_TOPICS = {
    "org/apache/kafka/coordinator/group/": "__consumer_offsets",
    "org/apache/kafka/coordinator/transaction/": "__transaction_state",
    "org/apache/kafka/coordinator/share/": "__share_group_state",
    "org/apache/kafka/common/metadata/": "__cluster_metadata",
    "org/apache/kafka/server/log/remote/metadata/": "__remote_log_metadata",
}


class ImportProblem(DecoderError):
    """A definition file cannot be understood; the text has the file and the reason."""


def definition_files(entries: Iterable[str]) -> list[str]:
    """Those of a jar's entries that are message definitions."""
    return [name for name in entries if re.fullmatch(r"(common/)?(message|metadata)/\w+\.json", name)]


def topic_of(entries: Iterable[str]) -> str | None:
    """The internal topic whose records a jar with these entries defines, or None."""
    return next((topic for name in entries for package, topic in _TOPICS.items() if name.startswith(package)), None)


def read_definitions(files: Mapping[str, str], topic: str | None = None) -> dict[str, Definition]:
    """Definitions by message name, from file name -> JSON text with Kafka's ``//`` comments.

    `topic`: of definitions with a record type (see `topic_of`); it becomes their ``on`` word.
    """
    found = {}
    for name, text in files.items():
        try:
            raw = _load_json(text)
            if raw.get("type") in KINDS:
                definition = _definition(raw, topic)
                found[definition.name] = definition
        except (ValueError, KeyError, TypeError) as error:
            raise ImportProblem(f"{name}: {error!r}; is this one of Kafka's message definitions?") from error
    return found if topic is None else {d.name: d for d in _with_record_types(found, topic)}


def _with_record_types(found: dict[str, Definition], topic: str) -> Iterator[Definition]:
    """Until 3.9 the record type was the key's version; the leading int16 on the wire is the same number."""
    for name, d in found.items():
        base = name.removesuffix("Key").removesuffix("Value")
        key, value = found.get(base + "Key"), found.get(base + "Value")
        if d.kind != "data" or d.key is not None or key is None or value is None:
            yield d
        elif d is value:
            yield replace(d, key=max(key.versions.every()), listeners=(topic,))
        else:
            fields = tuple(replace(f, versions=ALL_VERSIONS) for f in d.fields)
            yield replace(d, key=max(d.versions.every()), versions=VersionRange(0, 0), listeners=(topic,), fields=fields)


def _load_json(text: str) -> dict[str, Any]:
    # Strings are matched too, so that // and /* inside a string are kept.
    text = re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', lambda found: found[1] or "", text, flags=re.S)
    # Some files have text after the object: take the first value only.
    value, _ = json.JSONDecoder().raw_decode(text.strip())
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _definition(raw: dict[str, Any], topic: str | None = None) -> Definition:
    kind = KINDS[raw["type"]]
    versions = VersionRange.parse(raw["validVersions"])
    return Definition(
        kind=kind,
        name=raw["name"],
        key=raw.get("apiKey"),
        versions=versions,
        flexible=VersionRange.parse(raw.get("flexibleVersions", "none")),
        listeners=(topic,) if topic and kind == "data" and "apiKey" in raw else tuple(raw.get("listeners", ())),
        fields=tuple(_field(f) for f in raw.get("fields", ())),
        structs=tuple((s["name"], tuple(_field(f) for f in s["fields"])) for s in raw.get("commonStructs", ())),
        unstable=bool(raw.get("latestVersionUnstable", False)),
    )


def _field(raw: dict[str, Any]) -> FieldLine:
    type_name = raw["type"]
    array = type_name.startswith("[]")
    # Kafka's FieldSpec: a field with tagged versions only exists in those.
    versions = VersionRange.parse(raw.get("versions") or raw.get("taggedVersions", "0+"))
    tag = raw.get("tag")
    # Kafka's FieldSpec: the word "null" is a default, JSON's null is none.
    default = raw.get("default")
    if default is None:
        default = ""
    elif isinstance(default, bool):
        default = str(default).lower()
    return FieldLine(
        name=raw["name"],
        type=type_name[2:] if array else type_name,
        array=array,
        versions=versions,
        nullable=VersionRange.parse(raw.get("nullableVersions", "none")),
        tag=None if tag is None else int(tag),
        tagged=VersionRange.parse(raw.get("taggedVersions", "none")),
        default=str(default) if default != "" else None,
        ignorable=str(raw.get("ignorable", False)).lower() == "true",
        map_key=bool(raw.get("mapKey", False)),
        entity=raw.get("entityType"),
        never_flexible=raw.get("flexibleVersions") == "none",
        fields=tuple(_field(f) for f in raw.get("fields", ())),
    )


# --- union of releases -------------------------------------------------------------------------------------


def union(old: Mapping[str, Definition], new: Mapping[str, Definition]) -> dict[str, Definition]:
    """All versions of both: `new` defines those that it has, `old` the rest."""
    merged = {}
    old = renamed(old, new)
    for name in sorted({*old, *new}):
        if name not in new or not new[name].versions.every():
            merged[name] = old[name] if name in old else new[name]
        elif name not in old:
            merged[name] = new[name]
        else:
            merged[name] = _union_definition(old[name], new[name])
    return merged


def since_release(
    merged: Mapping[str, Definition], known: Mapping[str, Definition], release: str
) -> dict[str, Definition]:
    """`merged` with the versions that `known` lacks marked as new in `release`, such as ``"4.4"``."""
    known = renamed(known, merged)
    marked = {}
    for name, definition in merged.items():
        before = set(known[name].versions.every()) if name in known else set()
        fresh = {v: release for v in definition.versions.every() if v not in before}
        if definition.kind in ("request", "response") and fresh:
            definition = replace(definition, since=tuple(sorted({**fresh, **dict(definition.since)}.items())))
        marked[name] = definition
    return marked


def renamed(old: Mapping[str, Definition], new: Mapping[str, Definition]) -> dict[str, Definition]:
    """`old` under the names of `new`: an API may be renamed and keep its key (74 was in 4.1)."""
    # Record types count per topic, for keys and values alike: they identify no definition.
    names: dict[tuple[str, int | None], str] = {
        (d.kind, d.key): d.name for d in new.values() if d.key is not None and d.kind != "data"
    }
    return {names.get((d.kind, d.key), d.name): d for d in old.values()}


@dataclass(frozen=True, slots=True)
class _Scope:
    """Which versions each side defines, and the whole range that results."""

    old: frozenset[int]
    new: frozenset[int]

    @property
    def top(self) -> int:
        return max(self.old | self.new)

    def join(self, old: VersionRange, new: VersionRange) -> VersionRange:
        wanted = {v for v in self.old if v in old} | {v for v in self.new if v in new}
        return self.as_range(wanted)

    def as_range(self, wanted: set[int]) -> VersionRange:
        if not wanted:
            return NO_VERSIONS
        low, high = min(wanted), max(wanted)
        missing = [v for v in range(low, high + 1) if v in (self.old | self.new) and v not in wanted]
        if missing:
            raise ImportProblem(f"versions {sorted(wanted)} have a gap at {missing}")
        if low == min(self.old | self.new):
            low = 0
        return VersionRange(low, None if high == self.top else high)


def _union_definition(old: Definition, new: Definition) -> Definition:
    new_versions = frozenset(new.versions.every())
    scope = _Scope(frozenset(old.versions.every()) - new_versions, new_versions)
    since = tuple(sorted({**dict(new.since), **dict(old.since)}.items()))
    if not scope.old:
        return replace(new, since=since)
    every = scope.old | scope.new
    try:
        return replace(
            new,
            versions=VersionRange(min(every), max(every)),
            flexible=scope.join(old.flexible, new.flexible),
            fields=_union_fields(old.fields, new.fields, scope),
            structs=_union_structs(dict(old.structs), dict(new.structs), scope),
            since=since,
        )
    except ImportProblem as error:
        raise ImportProblem(f"{new.name}: {error}") from None


def _union_structs(
    old: dict[str, tuple[FieldLine, ...]], new: dict[str, tuple[FieldLine, ...]], scope: _Scope
) -> tuple[tuple[str, tuple[FieldLine, ...]], ...]:
    names = list(dict.fromkeys([*new, *old]))
    return tuple((n, _union_fields(old.get(n, ()), new.get(n, ()), scope)) for n in names)


def _union_fields(old: Iterable[FieldLine], new: Iterable[FieldLine], scope: _Scope) -> tuple[FieldLine, ...]:
    new_fields = {_identity(f): f for f in new}
    merged: list[FieldLine] = []
    placed: set[tuple[str, str, bool]] = set()
    pending = list(new_fields)
    for field in old:
        identity = _identity(field)
        if identity in new_fields:
            # What the newer file has before this field comes first.
            while pending and identity in pending:
                first = pending.pop(0)
                partner = field if first == identity else None
                merged.append(_union_field(partner, new_fields[first], scope))
                placed.add(first)
        else:
            merged.append(_union_field(field, None, scope))
    merged.extend(_union_field(None, new_fields[i], scope) for i in pending if i not in placed)
    return tuple(f for f in merged if f.versions != NO_VERSIONS)


def _identity(field: FieldLine) -> tuple[str, str, bool]:
    # A struct may be renamed between releases without a change on the wire, but a primitive's type may not change.
    return field.name, field.type if field.type in PRIMITIVES else "struct", field.array


def _union_field(old: FieldLine | None, new: FieldLine | None, scope: _Scope) -> FieldLine:
    base = new or old
    assert base is not None
    none = replace(base, versions=NO_VERSIONS, nullable=NO_VERSIONS, tagged=NO_VERSIONS, fields=())
    was, now = old or none, new or none
    # Nullable ranges are often wider than the field's own; only the part inside counts.
    versions = scope.join(was.versions, now.versions)

    def narrowed(a: VersionRange, b: VersionRange) -> VersionRange:
        inside = {v for v in scope.old if v in a and v in was.versions} | {
            v for v in scope.new if v in b and v in now.versions
        }
        return scope.as_range(inside)

    nullable, tagged = narrowed(was.nullable, now.nullable), narrowed(was.tagged, now.tagged)
    return replace(
        base,
        versions=ALL_VERSIONS if versions == VersionRange(0, None) else versions,
        nullable=nullable,
        tagged=tagged,
        tag=base.tag if tagged != NO_VERSIONS else None,
        fields=_union_fields(was.fields, now.fields, scope),
    )


# --- schema files ------------------------------------------------------------------------------------------


def schema_files(definitions: Mapping[str, Definition]) -> dict[str, str]:
    """File name -> text for ``decoder/schema/``: a file per API, ``headers.kafka``, ``data.kafka``, and under ``embedded/`` a
    file per topic or group protocol."""
    apis: dict[int, dict[str, Definition]] = {}
    other: dict[str, list[Definition]] = {"header": [], "data": []}
    embedded: dict[str, list[Definition]] = {}
    for definition in definitions.values():
        if definition.kind == "data" and definition.listeners:
            embedded.setdefault(definition.listeners[0].strip("_"), []).append(definition)
        elif definition.kind in other:
            other[definition.kind].append(definition)
        else:
            assert definition.key is not None
            apis.setdefault(definition.key, {})[definition.kind] = definition
    files = {}
    for key, pair in sorted(apis.items()):
        name = pair["request"].name.removesuffix("Request")
        files[f"{key:03d}-{name}.kafka"] = write([pair["request"], pair["response"]])
    files["headers.kafka"] = write(sorted(other["header"], key=lambda d: d.name))
    files["data.kafka"] = write(sorted(other["data"], key=lambda d: d.name))
    for owner, found in sorted(embedded.items()):
        files[f"embedded/{owner}.kafka"] = write(sorted(found, key=lambda d: (-1 if d.key is None else d.key, d.name)))
    return files


# --- differences -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """What a release changes. ``alarm``: it changes the bytes of a version that was known already."""

    message: str
    text: str
    alarm: bool = False

    def __str__(self) -> str:
        return f"{'ALARM ' if self.alarm else ''}{self.message}: {self.text}"


def differences(old: Mapping[str, Definition], new: Mapping[str, Definition]) -> list[SchemaChange]:
    """What `new` adds, drops and changes against `old`, version by version."""
    found: list[SchemaChange] = []
    old = renamed(old, new)
    for name in sorted({*old, *new}):
        if name not in old:
            found.append(SchemaChange(name, f"new, versions {new[name].versions}"))
        elif name not in new:
            found.append(SchemaChange(name, f"not in this release (had versions {old[name].versions})"))
        else:
            before, after = set(old[name].versions.every()), set(new[name].versions.every())
            if after - before:
                found.append(SchemaChange(name, f"adds versions {_listed(after - before)}"))
            if before - after:
                found.append(SchemaChange(name, f"no longer has versions {_listed(before - after)}"))
            for version in sorted(before & after):
                found.extend(
                    SchemaChange(name, f"version {version} {text}", alarm)
                    for text, alarm in _layout_changes(old[name], new[name], version)
                )
    return found


def _listed(versions: set[int]) -> str:
    return ", ".join(map(str, sorted(versions)))


def _layout_changes(old: Definition, new: Definition, version: int) -> Iterable[tuple[str, bool]]:
    # A plan has every version question answered: equal layouts are equal bytes.
    before, after = layout(old, version), layout(new, version)
    if before == after:
        return []
    if layout(old, version, names=False) == layout(new, version, names=False):
        return [(f"has different names: {_renames(before, after)}", False)]
    gone, come = [x for x in before if x not in after], [x for x in after if x not in before]
    tags = tuple(f"{line.split()[0]}." for line in come if " tag" in line)
    only_tags = not gone and all(" tag" in line or line.startswith(tags) for line in come)
    text = "; ".join([f"- {x}" for x in gone] + [f"+ {x}" for x in come]) or "has its fields in a different order"
    return [(text, not only_tags)]


def _renames(before: list[str], after: list[str]) -> str:
    return ", ".join(f"{a.split()[0]} -> {b.split()[0]}" for a, b in zip(before, after, strict=True) if a != b)


def layout(definition: Definition, version: int, names: bool = True) -> list[str]:
    """The wire layout of one version, a line per field. `names`: with the names of fields; those of structs never count."""
    return list(_layout(compile_plan(definition, version, -1).root, "", names))


def _layout(struct: StructPlan, prefix: str, names: bool) -> Iterable[str]:
    for field in struct.fields:
        name = prefix + (field.name if names else "_")
        words = [name, ("[]" if field.array else "") + field.type]
        words += ["nullable"] * field.nullable + ["compact"] * field.compact
        words += [f"tag{field.tag}"] if field.tag is not None else []
        yield " ".join(words)
        if field.struct:
            yield from _layout(field.struct, f"{name}.", names)
    yield f"{prefix}{'tags' if struct.flexible else 'end'}"
