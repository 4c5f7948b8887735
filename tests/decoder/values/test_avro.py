"""Avro values: fastavro as the encoder, and bytes that would hurt a reader that trusts them."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import struct
import sys
import uuid

import fastavro
import pytest
from barnabas.decoder.values import MissingLibrary, SchemaError, SchemaFiles, Target, read_schema, view, walk_avro
from barnabas.decoder.values.avro import avro_schema
from barnabas.decoder.values.walk_avro import MOST_VALUES
from harness.run.steps import steps
from hypothesis import given
from hypothesis import strategies as st

ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "paid", "type": "boolean"},
        {"name": "weight", "type": ["null", "float", "double"], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "SENT"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Md5", "size": 4}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "sku", "type": "bytes"}, {"name": "was", "type": ["null", "State"]}],
                },
            },
        },
        {"name": "next", "type": ["null", "Order"]},
    ],
}


def encoded(schema, value) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def source(schema, topic=None):
    files = SchemaFiles()
    files.add(read_schema("schema.avsc", json.dumps(schema).encode()), topic)
    return files


def order(**changed):
    return {
        "id": -7, "paid": True, "weight": None, "state": "SENT", "hash": b"\1\2\3\4", "tags": {"a": "é", "b": ""},
        "lines": [{"sku": b"\xff", "was": "OPEN"}, {"sku": b"", "was": None}], "next": None, **changed,
    }  # fmt: skip


def test_every_kind_of_type():
    value = order(next=order(id=2**62, lines=[]))
    found = view(encoded(ORDER, value), registry=source(ORDER))
    assert (found.kind, found.schema_id, found.note) == ("avro", None, "")
    assert found.value["lines"] == [{"sku": {"hex": "ff"}, "was": "OPEN"}, {"sku": {"hex": ""}, "was": None}]
    assert found.value["next"]["id"] == 2**62 and found.value["hash"] == {"hex": "01020304"}
    assert json.loads(found.text) == found.value


def test_after_a_schema_id():
    found = view(b"\0\0\0\0\x2a" + encoded(ORDER, order()), registry=source(ORDER, "orders"), topic="orders")
    assert (found.kind, found.schema_id, found.value["id"]) == ("confluent-avro", 42, -7)


def test_bare_bytes_that_begin_like_a_schema_id():
    schema = {"type": "array", "items": "int"}
    longs = {"type": "record", "name": "R", "fields": [{"name": f"f{i}", "type": "int"} for i in range(5)]}
    data = encoded(longs, {"f0": 0, "f1": 0, "f2": 0, "f3": 0, "f4": 1})
    assert data == b"\0\0\0\0\2"
    assert view(data, registry=source(longs)).kind == "avro"
    assert view(data, registry=source(schema)).kind == "hex"


def test_topics_and_keys_have_their_own_schemas():
    files = source("long", "orders")
    files.add(avro_schema('"string"'), "orders", is_key=True)
    files.add(avro_schema('"boolean"'))
    assert view(b"\x08", registry=files, topic="orders").value == 4
    assert view(b"\x04hi", registry=files, topic="orders", is_key=True).value == "hi"
    assert view(b"\x01", registry=files, topic="other").value is True
    assert view(b"\x04hi", registry=files, topic="other", is_key=True).kind == "text"


def logical(base, name, **more):
    return {"type": base, "logicalType": name, **more}


@pytest.mark.parametrize(
    ("schema", "value", "shown"),
    [
        (logical("int", "date"), datetime.date(2024, 2, 29), "2024-02-29"),
        (logical("long", "timestamp-millis"), 1_700_000_000_123, "2023-11-14T22:13:20.123000+00:00"),
        (logical("bytes", "decimal", precision=9, scale=2), decimal.Decimal("-12.50"), "-12.50"),
        (logical("string", "uuid"), uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (logical("int", "time-millis"), 61_000, "00:01:01"),
    ],
)
def test_logical_types(schema, value, shown):
    plain = {key: item for key, item in schema.items() if key != "logicalType"} if isinstance(value, int) else schema
    assert view(encoded(plain, value), registry=source(schema)).value == shown


@pytest.mark.parametrize(
    ("schema", "plain", "value"),
    [
        (logical("long", "timestamp-millis"), "long", 2**60),
        (logical("int", "date"), "int", 2**30),
        (logical("string", "uuid"), "string", "no uuid"),
    ],
)
def test_logical_types_that_do_not_fit(schema, plain, value):
    record = {"type": "record", "name": "R", "fields": [{"name": "at", "type": ["null", schema]}]}
    data = b"\x02" + encoded(plain, value)
    found = view(data, registry=source(record))
    assert (found.kind, found.value) == ("avro", {"at": value})
    assert "plain types" in found.note


@pytest.mark.parametrize(
    ("schema", "data", "message"),
    [
        ("long", b"\x02\x02", "1 byte left over at byte 1"),
        ("long", b"\x80", "ends inside a number at byte 0"),
        ("int", b"\xff" * 5 + b"\1", "a number of more than 5 bytes"),
        ("double", b"\1\2\3", "a double of 8 bytes at byte 0, only 3 left"),
        ("string", b"\x08abc", "a string of 4 bytes at byte 1, only 3 left"),
        ("bytes", b"\x01", "a byte string of -1 bytes"),
        ("string", b"\x04\xff\xff", "utf-8"),
        (["null", "long"], b"\x04", "branch 2 of a union of 2"),
        (["null", "long"], b"\x01", "branch -1"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "symbol 1 of an enum of 1"),
        ({"type": "map", "values": "int"}, b"\x02\x7fab", "a map's key of -64 bytes"),
        ({"type": "array", "items": "long"}, b"\x03\x80\x01\x02\x04\x00", "a block of 64 bytes"),
        (ORDER, encoded(ORDER, order())[:-8], "does not match shop.Order: lines.sku: "),
    ],
)
def test_values_that_do_not_fit_have_a_place(schema, data, message):
    found = view(data, registry=source(schema))
    assert (found.kind, found.text, found.value) == ("hex", data.hex(), None)
    assert message in found.note


RING = {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}
LIST = {"type": "array", "items": "null"}
EMPTY = {"type": "array", "items": {"type": "record", "name": "E", "fields": []}}
WIDE = {
    "type": "array",
    "items": {"type": "record", "name": "W", "fields": [{"name": f"n{i}", "type": "null"} for i in range(1000)]},
}
HUGE = b"\xfe" + b"\xff" * 8 + b"\x01"  # 2**63 - 1


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        (RING, b"\x02" * (1 << 20)),
        (LIST, HUGE + b"\0"),
        (EMPTY, HUGE + b"\0"),
        (WIDE, b"\xd0\x0f\0"),  # 1000 items of 1000 fields in 3 bytes
        (LIST, (b"\x02" * (1 << 20))[:-1] + b"\0"),
        ({"type": "array", "items": "long"}, struct.pack("B", 0x02) * (1 << 20)),
        (logical("bytes", "decimal", precision=9, scale=2), b"\x80\x80\x7e" + b"\x7f" * (1032192)),
        ("string", HUGE + b"x"),
        ({"type": "map", "values": LIST}, b"\x02\x02a" + HUGE + b"\0\0"),
    ],
)
def test_bombs(schema, data, monkeypatch):
    """A few bytes, or a mebibyte, that announce or hold very many values: no more of them are read than are allowed."""
    most = 10_000
    monkeypatch.setattr(walk_avro, "MOST_VALUES", most)
    registry, found = source(schema), []
    assert steps(lambda: found.append(view(data, registry=registry))) < 20 * most
    assert found[0].kind == "hex" and found[0].note


def test_many_values_are_allowed_up_to_the_bound():
    schema = {"type": "array", "items": "boolean"}
    count = MOST_VALUES - 2  # the array and its block count, too
    assert view(encoded(schema, [True] * count), registry=source(schema)).kind == "avro"
    assert (
        f"more than {MOST_VALUES} values" in view(encoded(schema, [True] * (count + 1)), registry=source(schema)).note
    )


@given(
    st.binary(max_size=200),
    st.sampled_from([ORDER, RING, WIDE, "string", ["null", logical("long", "timestamp-micros")]]),
)
def test_any_bytes(data, schema):
    for each in (data, b"\0\0\0\0\1" + data):
        found = view(each, registry=source(schema))
        json.dumps(found.value, allow_nan=False)
        assert found.kind in ("avro", "confluent-avro", "hex", "empty")


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=3))
def test_any_change_of_good_bytes(flips):
    data = bytearray(encoded(ORDER, order(next=order())))
    for at, value in flips:
        data[at % len(data)] = value
    assert view(bytes(data), registry=source(ORDER)).kind in ("avro", "confluent-avro", "hex")


WORDS = ["size", "items", "fields", "symbols", "type", "name", "Md5", "long", "null", "record", "enum", "1", "[]", "{}"]


@given(st.sampled_from(WORDS), st.sampled_from(WORDS), st.integers(1, 9))
def test_strange_schemas(word, other, how_many):
    text = json.dumps(ORDER).replace(word, other, how_many)
    try:
        schema = read_schema("a.avsc", text.encode())
    except SchemaError:
        return
    files = SchemaFiles()
    files.add(schema)
    for data in (encoded(ORDER, order()), b"\x02" * 40):
        assert view(data, registry=files).kind in ("avro", "hex")


VALUES = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "paid": st.booleans(),
        "weight": st.none() | st.floats(width=32),
        "state": st.sampled_from(["OPEN", "SENT"]),
        "hash": st.binary(min_size=4, max_size=4),
        "tags": st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
        "lines": st.lists(
            st.fixed_dictionaries({"sku": st.binary(max_size=4), "was": st.none() | st.just("OPEN")}), max_size=3
        ),
        "next": st.none(),
    }
)


@given(VALUES)
def test_values_encoded_by_fastavro(value):
    found = view(encoded(ORDER, value), registry=source(ORDER))
    assert found.kind == "avro" and found.note == ""
    assert found.value["id"] == value["id"] and found.value["tags"] == value["tags"]
    assert len(found.value["lines"]) == len(value["lines"])


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.avsc", b"{", "a.avsc: not an Avro schema"),
        ("a.avsc", b'{"type": "strin"}', "a.avsc: not an Avro schema"),
        ("a.avsc", b'{"type": "record", "fields": []}', "a.avsc: not an Avro schema"),
        ("a.avsc", b'{"type": "array"}', "a.avsc: not an Avro schema"),
        ("a.avsc", b"\xff", "a.avsc: not UTF-8"),
        ("a.avsc", b"[" * 5000, "a.avsc: "),
        ("a.avsc", b'"R"', "a.avsc: not an Avro schema"),
        ("a.proto", b"syntax", "protoc --include_imports --descriptor_set_out=a.desc a.proto"),
    ],
)
def test_bad_schema_files(name, data, message):
    with pytest.raises(SchemaError) as caught:
        read_schema(name, data)
    assert message in str(caught.value)


def test_without_the_library_the_error_has_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(MissingLibrary, match=r"pip install '.\[values\]'"):
        read_schema("a.avsc", b'"string"')


@pytest.mark.parametrize(
    ("argument", "file", "target"),
    [
        ("a.avsc", "a.avsc", Target()),
        ("a.avsc=orders", "a.avsc", Target("orders")),
        ("a.avsc=orders:key", "a.avsc", Target("orders", True)),
        ("dir=1/a.desc=orders#shop.Order", "dir=1/a.desc", Target("orders", False, "shop.Order")),
        ("a.desc#shop.Order", "a.desc", Target(None, False, "shop.Order")),
        ("a.desc=:key#shop.Order", "a.desc", Target(None, True, "shop.Order")),
    ],
)
def test_targets_of_schema_files(argument, file, target):
    assert Target.parse(argument) == (file, target)


@pytest.mark.parametrize("argument", ["", "=orders", "a.avsc=orders:keys"])
def test_bad_arguments(argument):
    with pytest.raises(SchemaError, match=r"FILE\[=TOPIC"):
        Target.parse(argument)
