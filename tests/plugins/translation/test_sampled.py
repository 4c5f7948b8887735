"""Sampled messages of every API at every version: each gives an answer, a request that the broker serves, or the
unchanged frame; fields of both versions keep their values; responses can be read."""

from __future__ import annotations

import random
from typing import Any

import pytest
from barnabas import decoder
from barnabas.decoder import records
from barnabas.decoder.reference import releases
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.plan import FieldPlan, StructPlan, plan
from barnabas.plugins.translation import Answered, Translated, Translator, served_by
from barnabas.plugins.translation.steps import boundaries, has_step

RECORD = records.Record(0, 1, b"k", b"v")
AREAS = (records.encode_batch([RECORD]), records.encode_messages([RECORD], magic=1), b"junk", b"")


def sample(chance: random.Random, struct: StructPlan) -> dict[str, Any]:
    return {field.name: _value(chance, field) for field in struct.fields if field.tag is None or chance.random() < 0.3}


def _value(chance: random.Random, field: FieldPlan) -> Any:
    if field.nullable and chance.random() < 0.2:
        return None
    return [_one(chance, field) for _ in range(chance.choice((0, 1, 2)))] if field.array else _one(chance, field)


def _one(chance: random.Random, field: FieldPlan) -> Any:
    if field.struct is not None:
        return sample(chance, field.struct)
    return {
        "string": chance.choice(("", "a", "topic")), "bytes": b"xy", "records": chance.choice(AREAS), "float64": 1.5,
        "uuid": chance.choice((bytes(16), bytes(range(16)))), "bool": chance.random() < 0.5,
    }.get(field.type, chance.choice((0 if field.type.startswith("uint") else -1, 0, 1, 2, 3)))


def same(one: Any, other: Any) -> bool:
    """Whether all fields that both have are equal."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(same(one[name], other[name]) for name in one.keys() & other.keys())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def plain(kind: str, key: int, source: int, target: int) -> bool:
    """Whether there is no step between two versions."""
    way = "up" if target > source else "down"
    return not any(has_step(kind, way, key, boundary) for boundary in boundaries(source, target))


@pytest.mark.parametrize("release", ["4.3", "2.1", "0.10.2", "0.8.2"])
def test_sampled(release: str) -> None:
    chance = random.Random(release)
    table = releases.release(release)
    between = Translator(served_by(table.offered))
    compared = 0
    for key in facts.api_keys():
        for version in facts.api(key).versions.every():
            for _ in range(4):
                fields = sample(chance, plan("request", key, version).root)
                frame = decoder.encode_request(key, version, fields, correlation_id=1, client_id="c")
                between.request(frame[: chance.randrange(len(frame))])
                found = between.request(frame)
                if isinstance(found, Answered) and found.frame:
                    decoder.decode_response(found.frame, api_key=key, api_version=version)
                if not isinstance(found, Translated):
                    continue
                for part in found.frames:
                    assert table.serves(*decoder.peek_request(part)[:2])
                target = found.whole.served
                if plain("request", key, version, target):
                    sent = decoder.decode_request(found.frames[0]).to_dict()
                    assert same(decoder.decode_request(frame).to_dict(), sent), (facts.api_name(key), version)
                    compared += 1
                answers = [sample(chance, plan("response", key, target).root) for _ in found.frames]
                made = [decoder.encode_response(key, target, answer, correlation_id=1) for answer in answers]
                try:
                    got = between.response(found, made)
                except (decoder.EncodeError, records.RecordsError, decoder.DecodeError):
                    continue  # nonsense in the answer is an error
                decoder.decode_response(got, api_key=key, api_version=version)
    assert compared > 30
