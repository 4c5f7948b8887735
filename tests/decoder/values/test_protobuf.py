"""Protobuf values: the protobuf library as the encoder, with descriptors made here instead of by protoc."""

from __future__ import annotations

import json
import sys

import pytest
from barnabas.decoder.values import MissingLibrary, SchemaError, SchemaFiles, read_schema, view
from barnabas.decoder.values.protobuf import descriptor_set, file_descriptors
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st

MESSAGE, STRING, INT64, BYTES, DOUBLE, INT32, OPTIONAL, REPEATED = 11, 9, 3, 12, 1, 5, 1, 3


def files() -> list[descriptor_pb2.FileDescriptorProto]:
    line = descriptor_pb2.FileDescriptorProto(name="shop/line.proto", package="shop", syntax="proto3")
    line.message_type.add(name="Line").field.add(name="sku", number=1, type=BYTES, label=OPTIONAL)
    order = descriptor_pb2.FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    order.dependency.extend(["shop/line.proto", "google/protobuf/timestamp.proto", "google/protobuf/any.proto"])
    order.message_type.add(name="Empty")
    message = order.message_type.add(name="Order")
    for number, (name, kind, label, of) in enumerate(
        [
            ("id", INT64, OPTIONAL, ""),
            ("customer_name", STRING, OPTIONAL, ""),
            ("lines", MESSAGE, REPEATED, ".shop.Line"),
            ("placed_at", MESSAGE, OPTIONAL, ".google.protobuf.Timestamp"),
            ("extra", MESSAGE, OPTIONAL, ".google.protobuf.Any"),
            ("weight", DOUBLE, OPTIONAL, ""),
            ("next", MESSAGE, OPTIONAL, ".shop.Order"),
            ("counts", INT32, REPEATED, ""),
        ],
        1,
    ):
        message.field.add(name=name, number=number, type=kind, label=label, type_name=of or None)
    message.nested_type.add(name="Note").field.add(name="text", number=1, type=STRING, label=OPTIONAL)
    return [line, order]


def a_set(*more: descriptor_pb2.FileDescriptorProto) -> bytes:
    return descriptor_pb2.FileDescriptorSet(file=[*more, *files()]).SerializeToString()


def message(name: str, **fields):
    pool = descriptor_pool.DescriptorPool()
    for file in (timestamp_pb2.DESCRIPTOR.serialized_pb, any_pb2.DESCRIPTOR.serialized_pb):
        pool.AddSerializedFile(file)
    for file in files():
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))(**fields)


def source(name: str | None = "shop.Order"):
    schemas = SchemaFiles()
    schemas.add(read_schema("orders.desc", a_set(), name), "orders")
    return schemas


def order():
    made = message("shop.Order", id=2**40, customer_name="é", lines=[{"sku": b"\xff"}, {}], counts=[1, -1])
    made.placed_at.FromSeconds(0)
    return made


def test_a_bare_value():
    found = view(order().SerializeToString(), registry=source(), topic="orders")
    assert (found.kind, found.schema_id, found.note) == ("protobuf", None, "shop.Order")
    assert found.value == {
        "id": str(2**40),  # protobuf's own JSON has 64-bit integers as strings, and bytes in base64
        "customer_name": "é",
        "lines": [{"sku": "/w=="}, {}],
        "placed_at": "1970-01-01T00:00:00Z",
        "counts": [1, -1],
    }
    assert json.loads(found.text) == found.value


@pytest.mark.parametrize(
    ("indexes", "name", "fields"),
    [
        (b"\0", "shop.Empty", {}),
        (b"\x02\x02", "shop.Order", {"customer_name": "x"}),
        (b"\x04\x02\0", "shop.Order.Note", {"text": "x"}),
    ],
)
def test_indexes_after_a_schema_id_choose_the_message(indexes, name, fields):
    data = b"\0\0\0\0\x05" + indexes + message(name, **fields).SerializeToString()
    found = view(data, registry=source(), topic="orders")
    assert (found.kind, found.schema_id, found.note, found.value) == ("confluent-protobuf", 5, name, fields)


@pytest.mark.parametrize("indexes", [b"\x02\x04", b"\x02\x01", b"\x04\x02\x02", b"\x06\x02\0\0"])
def test_indexes_that_lead_nowhere(indexes):
    found = view(b"\0\0\0\0\x05" + indexes, registry=source(), topic="orders")
    assert found.kind == "hex" and "shop/order.proto has no message at" in found.note


def test_the_first_message_is_the_default():
    found = view(b"", registry=source(None), topic="orders")
    assert found.kind == "empty"
    found = view(order().SerializeToString(), registry=source(None), topic="orders")
    assert found.note == "shop.Empty, which does not know 6 fields of this value"


@pytest.mark.parametrize(
    "data",
    [
        b"\x12\x05abc",  # cut
        b"\x12\x02\xff\xff",  # a string that is not UTF-8
        b"\xff" * 20,
        b"\x07",  # a wire type that does not exist
        b"".join(b"\x3a" + bytes([2 * i & 0x7F]) for i in range(64)),
        b"\x22\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # a timestamp out of range
        b"\x2a\x04\x0a\x02/x",  # an Any of a type that is not there
    ],
)
def test_values_that_do_not_fit(data):
    found = view(data, registry=source(), topic="orders")
    assert (found.kind, found.text) == ("hex", data.hex())
    assert found.note.startswith("does not match shop.Order: ")


def test_nesting_is_bounded():
    data = b""
    for _ in range(120):
        size = len(data)
        data = b"\x3a" + (bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])) + data
    assert view(data, registry=source(), topic="orders").kind == "hex"


@given(st.binary(max_size=200))
def test_any_bytes(data):
    for each in (data, b"\0\0\0\0\1" + data):
        found = view(each, registry=source(), topic="orders")
        json.dumps(found.value, allow_nan=False)
        assert found.kind in ("protobuf", "confluent-protobuf", "hex", "empty")


@given(st.integers(-(2**63), 2**63 - 1), st.text(max_size=9), st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5))
def test_values_encoded_by_protobuf(number, text, counts):
    data = message("shop.Order", id=number, customer_name=text, counts=counts, weight=float("inf")).SerializeToString()
    found = view(data, registry=source(), topic="orders").value
    assert int(found.get("id", 0)) == number and found.get("customer_name", "") == text
    assert found.get("counts", []) == counts and found["weight"] == "Infinity"


def test_files_in_any_order():
    line, own = files()
    schema = descriptor_set(descriptor_pb2.FileDescriptorSet(file=[own, line]).SerializeToString(), "shop.Order")
    assert schema.name == "shop.Order"
    assert file_descriptors([f.SerializeToString() for f in files()]).name == "shop/order.proto"


def test_a_descriptor_set_is_recognised_by_its_content():
    assert read_schema("orders.bin", a_set()).kind == "protobuf"


def test_two_schemas_may_define_the_same_name():
    one = descriptor_pb2.FileDescriptorProto(name="a.proto", package="shop")
    one.message_type.add(name="Order").field.add(name="other", number=1, type=STRING, label=OPTIONAL)
    descriptor_set(descriptor_pb2.FileDescriptorSet(file=[one]).SerializeToString(), "shop.Order")
    assert source().for_topic("orders", False).name == "shop.Order"


@pytest.mark.parametrize(
    ("data", "message", "text"),
    [
        (b"\xff\xff", None, "orders.desc: not a descriptor set"),
        (b"", None, "orders.desc: it does not define any messages"),
        (a_set(), "shop.Ordre", "there is no message shop.Ordre; shop/order.proto has shop.Empty, shop.Order"),
        (
            descriptor_pb2.FileDescriptorSet(file=files()[1:]).SerializeToString(),
            None,
            "shop/line.proto is imported but missing; create the set with protoc --include_imports",
        ),
        (
            a_set(descriptor_pb2.FileDescriptorProto(name="x.proto", dependency=["google/protobuf/../os.proto"])),
            None,
            "google/protobuf/../os.proto is imported but missing",
        ),
        (a_set(descriptor_pb2.FileDescriptorProto(name="x.proto", dependency=["x.proto"])), None, "orders.desc: "),
    ],
)
def test_bad_descriptor_sets(data, message, text):
    with pytest.raises(SchemaError) as caught:
        read_schema("orders.desc", data, message)
    assert text in str(caught.value)


def test_a_message_is_chosen_in_protobuf_only():
    with pytest.raises(SchemaError, match="only Protobuf schemas"):
        read_schema("a.avsc", b'"string"', "shop.Order")


def test_without_the_library_the_error_has_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pb2", None)
    with pytest.raises(MissingLibrary, match=r"protobuf: run pip install '.\[values\]'"):
        read_schema("orders.desc", b"\x0a\x00")
