"""Edits keep the bytes of everything that they do not touch."""

from __future__ import annotations

import random

import pytest
from barnabas import decoder
from barnabas.decoder.codec.encode import encode_struct
from barnabas.decoder.schema.plan import plan
from barnabas.decoder.wire.varint import write_uvarint


def leaves(of, values, prefix=""):
    """(path, field, value) of every single value that can be edited."""
    for field, value in zip(of.fields, values, strict=False):
        path = prefix + field.name
        if value is None:
            continue
        if field.struct:
            for i, item in enumerate(value if field.array else (value,)):
                yield from leaves(field.struct, item, f"{path}[{i}]." if field.array else f"{path}.")
        elif field.array:
            for i, item in enumerate(value):
                yield f"{path}[{i}]", field, item
        else:
            yield path, field, value


def other(field, value, rng):
    if field.type == "string":
        return value + rng.choice(("x", "y" * 200, "")) or "z"
    if field.type in ("bytes", "records"):
        return value + b"abc"
    if field.type == "uuid":
        return rng.randbytes(16)
    if field.type == "bool":
        return not value
    return 1.5 if field.type == "float64" else (1 if value != 1 else 2)


def test_an_edit_equals_encoding_the_edited_values(every_triple, generator):
    rng = random.Random(5)
    for kind, key, version in every_triple:
        _, body = generator.body(kind, key, version)
        message = decoder.decode_body(kind, key, version, body)
        every = list(leaves(message.plan.root, message.values))
        for path, field, value in rng.sample(every, min(4, len(every))):
            edited = message.replace({path: other(field, value, rng)})
            canonical = bytearray()
            encode_struct(edited.plan.root, edited.values, canonical)
            again = decoder.decode_body(kind, key, version, edited.encode())
            assert again.values == edited.values, (kind, key, version, path)
            assert edited.encode() == bytes(canonical), (kind, key, version, path)
            assert edited.replace({path: value}).encode() == body, (kind, key, version, path)


def long_varint(value: int) -> bytes:
    return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, 0))


def test_edits_keep_lengths_that_are_longer_than_needed():
    # Metadata v12 request: topics (compact array), each with an id, a name, tags; then two booleans and tags
    body = long_varint(3)
    for name in (b"one", b"two"):
        body += bytes(16) + long_varint(len(name) + 1) + name + long_varint(1) + b"\x63" + long_varint(2) + b"zz"
    body += b"\x01\x00" + b"\x00"
    message = decoder.decode_body("request", 3, 12, body)
    edited = message.replace({"topics[1].name": "second"})
    assert edited.encode() == body.replace(long_varint(4) + b"two", b"\x07second")
    flag = message.replace({"allow_auto_topic_creation": False})
    assert flag.encode() == body[:-3] + b"\x00\x00\x00"


def test_an_edit_inside_a_tag_changes_only_the_sizes_around_it():
    partition = {"diverging_epoch": {"epoch": 3, "end_offset": 4}, "_unknown_tagged_fields": {77: b"keep"}}
    fields = {"responses": [{"topic": "t", "partitions": [partition]}]}
    message = decoder.decode_body("response", 1, 12, decoder.encode_body("response", 1, 12, fields))
    inner = message.replace({"responses[0].partitions[0].diverging_epoch.epoch": 9})
    assert len(inner.encode()) == len(message.encode())
    assert inner["responses[0].partitions[0].diverging_epoch.epoch"] == 9 and b"keep" in inner.encode()
    path = "responses[0].partitions[0].current_leader.leader_id"
    assert message[path] == -1
    added = message.replace({path: 2})
    again = decoder.decode_body("response", 1, 12, added.encode())
    assert again[path] == 2 and again["responses[0].partitions[0].diverging_epoch.epoch"] == 3
    assert b"keep" in added.encode()


def test_tags_out_of_order_keep_their_places():
    of = plan("response", 18, 3)
    body = bytearray(b"\x00\x00" + b"\x01" + bytes(4))
    write_uvarint(body, 3)
    for tag, data in ((200, b"later"), (1, (5).to_bytes(8, "big")), (3, b"\x01")):
        write_uvarint(body, tag)
        write_uvarint(body, len(data))
        body += data
    message = decoder.decode_body("response", 18, 3, bytes(body))
    assert message["finalized_features_epoch"] == 5 and message["zk_migration_ready"] is True
    edited = message.replace({"finalized_features_epoch": 6})
    assert edited.encode() == bytes(body).replace((5).to_bytes(8, "big"), (6).to_bytes(8, "big"))
    assert of.root.flexible


def test_whole_arrays_and_nulls_can_be_replaced():
    message = decoder.decode_body("request", 3, 12, decoder.encode_body("request", 3, 12, {"topics": [{"name": "a"}]}))
    assert message.replace({"topics": None})["topics"] is None
    three = message.replace({"topics": [{"name": "a"}, {"name": "b"}, {"name": None}]})
    assert [t["name"] for t in three["topics"]] == ["a", "b", None]
    assert decoder.decode_body("request", 3, 12, three.encode()).to_dict() == three.to_dict()


def test_surplus_bytes_are_kept():
    frame = decoder.encode_response(3, 12, {}, correlation_id=4) + b"\x00"
    with pytest.raises(decoder.TrailingBytes) as caught:
        decoder.decode_response(frame, api_key=3, api_version=12)
    edited = caught.value.message.replace({"cluster_id": "c"})
    assert edited.encode().endswith(b"\x00") and len(edited.encode()) == len(frame) + 1


def test_the_last_of_repeated_tags_counts():
    # ApiVersions v3, finalized_features_epoch (tag 1) once as 5 and once as 6
    body = bytes.fromhex("0000 01 00000000 02 01 08 0000000000000005 01 08 0000000000000006")
    path = "finalized_features_epoch"
    message = decoder.decode_body("response", 18, 3, body)
    assert message[path] == 6
    assert decoder.project("response", 18, 3, [path])(body) == {path: 6}
    for new in (7, -1):  # -1 is the default: the tag goes, in both places
        edited = message.replace({path: new})
        again = decoder.decode_body("response", 18, 3, edited.encode())
        assert again[path] == edited[path] == new
        assert again.encode().count(b"\x01\x08") == (new == 7)
