"""Projection gives what a full decode gives, and names paths that are not there."""

from __future__ import annotations

import random
import re

import pytest
from barnabas import decoder
from barnabas.decoder.codec.decode import FAULTS
from barnabas.decoder.codec.project import _collect, _steps, places, reader
from barnabas.decoder.native import accelerator
from barnabas.decoder.schema.plan import field_paths, plan


def paths_of(struct, prefix=""):
    for field in struct.fields:
        yield prefix + field.name
        if field.struct:
            yield from paths_of(field.struct, f"{prefix}{field.name}{'[*]' if field.array else ''}.")


def expected(found, steps):
    """The values of a path in `to_dict`'s form: all of them, through every array on the way."""
    values = [found]
    for place, step in enumerate(steps):
        values = [v[step.removesuffix("[*]")] for v in values if v is not None]
        if step.endswith("[*]") and place < len(steps):
            values = [item for items in values if items is not None for item in items]
    return values


def test_every_path_of_every_message(every_triple, generator):
    rng = random.Random(1)
    for triple in every_triple:
        _, body = generator.body(*triple)
        whole = decoder.decode_body(*triple, body).to_dict()
        every = list(paths_of(plan(*triple).root))
        for path in rng.sample(every, min(6, len(every))):
            got = decoder.project(*triple, [path])(body)[path]
            want = expected(whole, path.split("."))
            assert got == (want if "[*]" in path else want[0] if want else None), (triple, path)
            assert decoder.project(*triple, [path.replace("[*]", "")])(body)[path.replace("[*]", "")] == got


def test_places_are_those_of_the_byte_map(every_triple, generator):
    for triple in every_triple[::3]:
        _, body = generator.body(*triple)
        message = decoder.decode_body(*triple, body)
        texts = [e for e in field_paths(plan(*triple).root) if e.field.type in ("string", "bytes") and not e.field.array]
        if not texts or any(f.field.tag is not None for f in field_paths(plan(*triple).root)):
            continue
        found = places(message, tuple(each.path for each in texts))
        mapped: dict[str, list[tuple[object, int]]] = {each.path: [] for each in texts}
        for path, _, end in message.map():
            if (whole := re.sub(r"\[\d+\]", "", path)) in mapped:
                mapped[whole].append((message[path], end))
        assert dict(zip(mapped, found, strict=True)) == mapped, triple
    assert places(message, ("no.such_field",)) == ([],)


def test_several_paths_at_once_and_one_inside_another():
    body = decoder.encode_body(
        "response", 3, 12, {"brokers": [{"node_id": 1, "host": "a"}, {"node_id": 2, "host": "b"}], "cluster_id": "c"}
    )
    read = decoder.project("response", 3, 12, ["cluster_id", "brokers[*].host", "controller_id"])
    assert read(body) == {"cluster_id": "c", "brokers[*].host": ["a", "b"], "controller_id": -1}
    nested = decoder.project("response", 3, 12, ["brokers", "brokers[*].node_id"])(body)
    assert nested["brokers[*].node_id"] == [1, 2] and [b["host"] for b in nested["brokers"]] == ["a", "b"]
    assert decoder.project("response", 3, 12, [])(body) == {}


def test_unknown_paths_and_damage_raise_errors():
    with pytest.raises(decoder.EncodeError, match="no field 'hots' there; the fields are node_id, host"):
        decoder.project("response", 3, 12, ["brokers[*].hots"])
    with pytest.raises(decoder.EncodeError, match="no field 'x'"):
        decoder.project("response", 3, 12, ["cluster_id.x"])
    with pytest.raises(decoder.Truncated) as caught:
        decoder.project("response", 3, 12, ["cluster_id"])(b"\x00\x00")
    assert caught.value.path == "throttle_time_ms"


@pytest.mark.skipif(accelerator.native is None, reason="the accelerator is not built here (no compiler)")
def test_accelerator_and_python_project_alike(every_triple, generator):
    from barnabas.decoder.codec.decode import python_decoder

    rng = random.Random(2)
    for triple in every_triple[::3]:
        of = plan(*triple)
        _, body = generator.body(*triple)
        path = rng.choice([*paths_of(of.root), None])
        if path is None:
            continue
        for _ in range(10):
            damaged = bytearray(body)
            for _ in range(rng.randrange(3)):
                if damaged:
                    damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            data = bytes(damaged)
            try:
                slow = _collect(python_decoder(of)(data, 0)[0], _steps(of.root, path.replace("[*]", "")))
            except FAULTS:
                continue  # a string that is not UTF-8 is not noticed where it is passed over
            assert reader(of, (path,))(data, 0)[0][0] == slow, (triple, path, data.hex())
