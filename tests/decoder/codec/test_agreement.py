"""Two other implementations as judges, kio and kafka-python: they read what is written here, and the other way round.

For every message and version that a judge has, generated values are encoded here and decoded there, and compared field by
field. What the judge then encodes is decoded here to the same values and encoded again to the same bytes. Values that a judge
does not support are not generated; its class has the rules.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import importlib
import io
import pkgutil
import random
import typing
import uuid
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder.codec.encode import encode_struct
from barnabas.decoder.codec.message import shown_value
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.plan import FieldPlan, StructPlan, plan
from harness.run.slices import only

MILLISECOND = datetime.timedelta(milliseconds=1)
EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
Triple = tuple[str, int, int]


def plain(name: str) -> str:
    """A field's name without what the judges spell otherwise: underscores, and kio leaves ``_ms`` off its times."""
    return name.removesuffix("_ms").replace("_", "").lower()


# --- kio ----------------------------------------------------------------------------------------------------


class Kio:
    """kio's dataclasses, one per message and version.

    Left out: unknown tags (its reader raises KeyError), error codes that its enum lacks, and times that Python's
    datetime and timedelta do not hold.
    """

    name = "kio"

    def triples(self) -> list[Triple]:
        from kio.schema.index import api_key_map, schema_name_map

        found = []
        for key, name in api_key_map.items():
            for version, kinds in schema_name_map[name].items():
                found += [(kind.name, int(key), int(version)) for kind in kinds if kind.name in ("request", "response")]
        return sorted(found)

    def load(self, triple: Triple) -> Any:
        from kio.index import load_request_schema, load_response_schema

        kind, key, version = triple
        return (load_request_schema if kind == "request" else load_response_schema)(key, version)

    def decode(self, cls: Any, data: bytes) -> tuple[Any, int]:
        from kio.serial import entity_reader

        return entity_reader(cls)(data, 0)

    def encode(self, cls: Any, entity: Any) -> bytes:
        from kio.serial import entity_writer

        out = io.BytesIO()
        entity_writer(cls)(out, entity)
        return out.getvalue()

    def fields(self, cls: Any) -> dict[str, tuple[str, Any]]:
        """Plain name -> (kio's type, the nested class or None)."""
        hints = typing.get_type_hints(cls)
        return {
            plain(f.name): (f.metadata.get("kafka_type", ""), _nested(hints[f.name])) for f in dataclasses.fields(cls)
        }

    def value(self, triple: Triple, chance: random.Random, field: FieldPlan, given: tuple[str, Any]) -> Any:
        """A value that this judge can hold, or None for any."""
        kind, _ = given
        if kind == "error_code":
            from kio.schema.errors import ErrorCode

            return chance.choice([code.value for code in ErrorCode])
        if kind == "datetime_i64":
            return chance.choice((0, 1_600_000_000_123, 4_102_444_800_001))
        if kind == "timedelta_i64":
            return chance.choice((-1, 0, 1_600_000_000_123))
        return None

    def values(self, of: StructPlan, entity: Any) -> dict[str, Any]:
        """The entity's values by plain names, in our form."""
        return _of_kio(of, entity)


def _nested(hint: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return hint
    return next((found for arg in typing.get_args(hint) if (found := _nested(arg)) is not None), None)


def _of_kio(of: StructPlan, entity: Any) -> dict[str, Any]:
    names = {plain(f.name): f.name for f in dataclasses.fields(entity)}
    assert names.keys() == {plain(f.name) for f in of.fields}
    return {plain(f.name): _value_of_kio(f, getattr(entity, names[plain(f.name)])) for f in of.fields}


def _value_of_kio(field: FieldPlan, value: Any) -> Any:
    if isinstance(value, tuple):
        return [_value_of_kio(replace(field, array=False, nullable=False), item) for item in value]
    if value is None:
        return uuid.UUID(int=0) if field.type == "uuid" and not field.nullable else None
    if field.struct:
        return _of_kio(field.struct, value)
    if isinstance(value, datetime.timedelta):
        return value // MILLISECOND
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // MILLISECOND
    return value.value if isinstance(value, enum.Enum) else value


# --- kafka-python -------------------------------------------------------------------------------------------


class KafkaPython:
    """kafka-python's message classes, which hold all versions.

    Left out: unknown tags (it does not write them again), and ApiVersions responses with an error (it takes every one
    of them for version 0).
    """

    name = "kafka-python"

    def triples(self) -> list[Triple]:
        found = []
        for (kind, key), cls in self.classes().items():
            low, high = cls.valid_versions
            found += [(kind, key, version) for version in range(low, high + 1)]
        return sorted(found)

    @staticmethod
    @cache
    def classes() -> dict[tuple[str, int], Any]:
        import kafka.protocol
        from kafka.protocol.api_message import ApiMessage

        for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
            if ".old" not in module.name and not module.name.endswith("stubs"):
                importlib.import_module(module.name)
        return {
            (cls.type, cls.API_KEY): cls
            for cls in ApiMessage.__subclasses__()
            if cls.API_KEY is not None and cls.__name__ == facts.api_name(cls.API_KEY) + cls.type.capitalize()
        }

    def load(self, triple: Triple) -> Any:
        kind, key, version = triple
        return self.classes()[kind, key][version]

    def decode(self, cls: Any, data: bytes) -> tuple[Any, int]:
        return cls.decode(data), len(data)  # it does not return where it stopped

    def encode(self, cls: Any, entity: Any) -> bytes:
        entity._header = None  # decoding leaves it out, and the encoders of some classes look at it
        return entity.encode()

    def fields(self, cls: Any) -> dict[str, tuple[str, Any]]:
        of = getattr(cls, "_struct", cls)
        return {plain(f.name): (f.type_str, f) for f in of.fields.values()}

    def value(self, triple: Triple, chance: random.Random, field: FieldPlan, given: tuple[str, Any]) -> Any:
        """A value that this judge can hold, or None for any."""
        return 0 if triple[:2] == ("response", 18) and field.name == "error_code" else None

    def values(self, of: StructPlan, entity: Any) -> dict[str, Any]:
        return _of_kafka_python(of, entity)


def _of_kafka_python(of: StructPlan, entity: Any) -> dict[str, Any]:
    names = {plain(name): name for name in entity.fields}
    found = {}
    for field in of.fields:
        name = plain(field.name)
        if field.type == "int32" and name.endswith("authorizedoperations"):  # a set of bits in most, by another name
            bits = getattr(entity, names.get(name, "authorized_operations"))
            value = bits if isinstance(bits, int) else sum(1 << bit for bit in ({31} if bits is None else bits))
            found[name] = value - (1 << 32) if value >> 31 == 1 else value
        else:
            found[name] = _value_of_kafka_python(field, getattr(entity, names[name]))
    return found


def _value_of_kafka_python(field: FieldPlan, value: Any) -> Any:
    if isinstance(value, list):
        return [_value_of_kafka_python(replace(field, array=False, nullable=False), item) for item in value]
    if value is None:
        return uuid.UUID(int=0) if field.type == "uuid" and not field.nullable else None
    return _of_kafka_python(field.struct, value) if field.struct else value


# --- values for a judge -------------------------------------------------------------------------------------


class Maker:
    """Values for a plan that a judge supports."""

    def __init__(self, judge: Any, triple: Triple, chance: random.Random):
        self.judge, self.triple, self.chance = judge, triple, chance

    def struct(self, of: StructPlan, cls: Any, depth: int = 0) -> tuple[Any, ...]:
        known = self.judge.fields(cls)
        values = tuple(self.value(f, self._given(known, f), depth) for f in of.fields)
        return (*values, ()) if of.flexible else values

    @staticmethod
    def _given(known: dict[str, tuple[str, Any]], field: FieldPlan) -> tuple[str, Any]:
        name = plain(field.name)
        return known["authorizedoperations" if name not in known and name.endswith("authorizedoperations") else name]

    def value(self, field: FieldPlan, given: tuple[str, Any], depth: int) -> Any:
        chance = self.chance
        if field.nullable and chance.random() < 0.2:
            return None
        if field.array:
            return tuple(
                self.one(field, given, depth + 1) for _ in range(chance.choice((0, 1, 3) if depth < 2 else (0, 1)))
            )
        return self.one(field, given, depth)

    def one(self, field: FieldPlan, given: tuple[str, Any], depth: int) -> Any:
        chance = self.chance
        if field.struct:
            return self.struct(field.struct, given[1], depth + 1)
        special = self.judge.value(self.triple, chance, field, given)
        if special is not None:
            return special
        if field.type == "bool":
            return chance.random() < 0.5
        if field.type == "float64":
            return chance.uniform(-1e9, 1e9)
        if field.type == "uuid":
            return chance.choice((bytes(16), chance.randbytes(16)))
        if field.type == "string":
            return "".join(chance.choices("abcXYZäß€𝄞", k=chance.choice((0, 3, 200))))
        if field.type in ("bytes", "records"):
            return chance.randbytes(chance.choice((0, 20, 300)))
        bits = int(field.type.lstrip("uint"))
        low, high = (0, 1 << bits) if field.type[0] == "u" else (-(1 << bits - 1), 1 << bits - 1)
        return chance.choice((low, high - 1, 0, chance.randrange(low, high)))


def ours(of: StructPlan, values: tuple[Any, ...]) -> dict[str, Any]:
    """Our values by plain names, as the judges show them."""
    return {plain(f.name): _shown(f, v) for f, v in zip(of.fields, values)}


def _shown(field: FieldPlan, value: Any, item: bool = False) -> Any:
    if value is None:
        return None
    if field.array and not item:
        return [_shown(field, v, True) for v in value]
    return ours(field.struct, value) if field.struct else shown_value(field, value, whole=False)


def differences(expected: Any, found: Any, path: str = "") -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(found, dict):
        for name in expected.keys() | found.keys():
            if name not in expected or name not in found:
                yield f"{path}.{name}: only {'here' if name in expected else 'there'}"
            else:
                yield from differences(expected[name], found[name], f"{path}.{name}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for i, (a, b) in enumerate(zip(expected, found)):
            yield from differences(a, b, f"{path}[{i}]")
    elif expected != found:
        yield f"{path}: {expected!r} here, {found!r} there"


JUDGES = {"kio": (Kio(), 604), "kafka-python": (KafkaPython(), 478)}


@pytest.mark.parametrize("rounds", only((1, 10), 1))
@pytest.mark.parametrize("name", only(JUDGES, "kio"))
def test_both_read_what_the_other_writes(name, rounds):
    judge, count = JUDGES[name]
    covered = judge.triples()
    assert len(covered) == len(set(covered)) == count
    chance = random.Random(20260101)
    for triple in covered:
        of = plan(*triple)
        cls = judge.load(triple)
        maker = Maker(judge, triple, chance)
        for _ in range(rounds):
            values = maker.struct(of.root, cls)
            body = bytearray()
            encode_struct(of.root, values, body)
            entity, end = judge.decode(cls, bytes(body))
            assert end == len(body), triple
            assert not list(differences(ours(of.root, values), judge.values(of.root, entity))), triple
            theirs = judge.encode(cls, entity)
            message = decoder.decode_body(*triple, theirs)
            assert message.values == values, triple
            assert decoder.encode_body(*triple, message.to_dict()) == theirs == body, triple


@pytest.mark.parametrize("name", JUDGES)
def test_a_difference_is_seen(name):
    judge, _ = JUDGES[name]
    triple = ("response", 3, 12)
    of = plan(*triple).root
    body = decoder.encode_body(*triple, {"brokers": [{"node_id": 7, "host": "a", "port": 1}], "controller_id": 7})
    values = decoder.decode_body(*triple, body).values
    entity, _ = judge.decode(judge.load(triple), body.replace(b"\2a\0\0\0\1", b"\2b\0\0\0\2"))
    assert sorted(differences(ours(of, values), judge.values(of, entity))) == [
        ".brokers[0].host: 'a' here, 'b' there",
        ".brokers[0].port: 1 here, 2 there",
    ]
