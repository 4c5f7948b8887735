"""Keys and values without a schema: what they are taken for, and that nothing makes `view` raise."""

from __future__ import annotations

import json
import sys

import pytest
from barnabas.decoder.values import SchemaError, SchemaFiles, View, json_schema, unframe, view, wire
from barnabas.decoder.values.errors import SchemaMismatch
from barnabas.decoder.values.plain import MOST_NESTED, plain
from harness.run.steps import assert_linear, steps
from hypothesis import given
from hypothesis import strategies as st
from torture.decoder.worst_cases import VALUES


@pytest.mark.parametrize(
    ("data", "kind", "text", "value"),
    [
        (None, "null", "", None),
        (b"", "empty", "", None),
        (b"order-1", "text", "order-1", None),
        ("café ☕ \x1b[31m\x07".encode(), "text", "café ☕ \x1b[31m\x07", None),
        (b"42", "text", "42", None),  # one number or word is more use as it stands
        (b'{"a": [1, 2.5, null, "\\u00e9"]}', "json", '{"a": [1, 2.5, null, "\\u00e9"]}', {"a": [1, 2.5, None, "é"]}),
        (b" [1]\n", "json", " [1]\n", [1]),
        (b'{"a": ', "text", '{"a": ', None),
        (b'{"a": NaN}', "text", '{"a": NaN}', None),
        (b"\xff\xfe", "hex", "fffe", None),
        (b"caf\xc3", "hex", "636166c3", None),
        ((42).to_bytes(8, "big"), "hex", "000000000000002a", None),
        (b"ab\0cd", "hex", "6162006364", None),
    ],
)
def test_kinds_of_bytes(data, kind, text, value):
    assert view(data) == View(kind, text, value)


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        (b"\0\0\0\0\x07abc", (7, b"abc")),
        (b"\0\x7f\xff\xff\xff", (2**31 - 1, b"")),
        (b"\0\0\0\0\0abc", None),  # ids count from 1
        (b"\0\x80\0\0\1abc", None),
        (b"\1\0\0\0\7abc", None),
        (b"\0\0\0\7", None),
        (b"", None),
    ],
)
def test_the_wire_format(data, parts):
    assert unframe(data) == parts


def test_a_schema_id_is_recognised_without_a_schema():
    assert view(b"\0\0\0\1\2\x02hi") == View(
        "confluent", "00000001020268 69".replace(" ", ""), None, 258, "schema 258, no schema was given"
    )
    assert view(b'\0\0\0\0\x09{"a": 1}') == View("confluent-json", '{"a": 1}', {"a": 1}, 9)
    assert view(b'\0\0\0\0\x09{"a": 1', registry=SchemaFiles()).note == "schema 9, which is not known"


@pytest.mark.parametrize(
    ("payload", "indexes", "behind"),
    [
        (b"\0abc", (0,), 1),
        (b"\x02\0abc", (0,), 2),
        (b"\x04\x02\x06abc", (1, 3), 3),
        (b"\x02\x80\x02", (128,), 3),
    ],
)
def test_message_indexes(payload, indexes, behind):
    assert wire.message_indexes(payload) == (indexes, behind)


@pytest.mark.parametrize("payload", [b"", b"\x02", b"\x01", b"\xfe\xff\xff\xff\x0f", b"\xff" * 9, b"\x04\x02"])
def test_damaged_message_indexes(payload):
    with pytest.raises(SchemaMismatch):
        wire.message_indexes(payload)


@pytest.mark.parametrize("nested", [b"[" * 200 + b"]" * 200, b"[" * 500_000, b'{"a":' * 5000 + b"1" + b"}" * 5000])
def test_nesting_is_bounded(nested):
    found = view(nested)
    assert (found.kind, found.text, found.value) == ("text", nested.decode(), None)
    assert f"nested more than {MOST_NESTED} levels" in found.note


def test_nesting_up_to_the_bound_is_read():
    data = b"[" * MOST_NESTED + b"]" * MOST_NESTED
    assert view(data).kind == "json"
    assert view(b"[" + data + b"]").kind == "text"


def test_a_long_number_is_no_fault():
    data = b"[" + b"9" * (sys.get_int_max_str_digits() + 1) + b"]"
    assert view(data).kind == "text"


@pytest.mark.parametrize(
    ("data", "limit", "kind", "text"),
    [
        (b"abcdef", 4, "text", "abcd"),
        ("aé☕".encode(), 5, "text", "aé"),  # the limit parts the last character
        (b"\xff" * 9, 2, "hex", "ffff"),
        (b"ab\xffcdef", 4, "hex", "6162ff63"),
        (b"\0\0\0\0\7" + b"x" * 9, 6, "confluent", "000000000778"),
        (b'{"a": 1}', 7, "text", '{"a": 1'),
    ],
)
def test_only_the_beginning_of_long_values_is_shown(data, limit, kind, text):
    found = view(data, limit=limit)
    assert (found.kind, found.text, found.value) == (kind, text, None)
    assert found.note == f"only the first {limit} of {len(data)} bytes are shown"
    assert found.schema_id == (7 if kind == "confluent" else None)


def test_the_json_schema_of_a_topic():
    files = SchemaFiles()
    files.add(json_schema(), "orders")
    assert view(b"7", registry=files, topic="orders") == View("json", "7", 7)
    assert view(b"7", registry=files, topic="other") == View("text", "7")
    assert view(b"{", registry=files, topic="orders").kind == "hex"


def test_an_error_of_a_source_becomes_the_note():
    class Failing(SchemaFiles):
        def for_topic(self, topic, is_key):
            raise SchemaError("no schema today")

    assert view(b"abc", registry=Failing()) == View("text", "abc", None, None, "no schema today")


def test_values_become_jsons_types():
    value = {1: [float("nan"), float("-inf"), 1.5], "b": b"\xff", "t": (1, True, None), "o": object}
    assert json.loads(json.dumps(plain(value), allow_nan=False))["1"] == ["nan", "-inf", 1.5]
    assert plain(value)["b"] == {"hex": "ff"} and plain(value)["t"] == [1, True, None]


@given(st.none() | st.binary(max_size=300) | st.binary(max_size=60).map(lambda tail: b"\0\0\0\0\1" + tail))
def test_any_bytes(data):
    found = view(data)
    json.dumps(found.value, allow_nan=False)
    assert found.text or not data


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_any_json(value):
    data = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    found = view(data)
    if found.kind == "json":
        assert found.value == value


@pytest.mark.parametrize("value", VALUES[1:])
def test_a_mebibyte_takes_no_more_steps_than_a_byte(value):
    data = value(1 << 20)
    assert steps(lambda: view(data)) < 200


def test_a_long_document_takes_steps_for_each_of_its_values():
    assert_linear(lambda size: lambda: view(VALUES[0](size)), 15_000)
