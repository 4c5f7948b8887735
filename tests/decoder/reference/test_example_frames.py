"""Example frames: read back, written again, and every byte of them in one field."""

from __future__ import annotations

import re
import struct

import pytest
from barnabas import decoder
from barnabas.decoder import Message
from barnabas.decoder.codec.message import is_error_code
from barnabas.decoder.reference import version_history
from barnabas.decoder.reference.example_frames import (
    CLIENT_ID,
    CORRELATION_ID,
    HEADER,
    TAGGED_FIELDS,
    PartRole,
    example,
    frame_parts,
)
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.plan import SIZES

KINDS = ("request", "response")
LAYOUTS = {"int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q", "uint16": ">H", "uint32": ">I"}


def examples(key: int) -> list[Message]:
    return [example(kind, key, version) for version in facts.api(key).versions.every() for kind in KINDS]


def without_indexes(path: str) -> str:
    return re.sub(r"\[\d+\]", "", path)


def assert_complete(message: Message) -> None:
    """Each byte is in exactly one part."""
    ends = [0]
    for part in frame_parts(message):
        assert part.start == ends[-1] < part.end, (message, part)
        ends.append(part.end)
    assert ends[-1] == len(message.frame), message


@pytest.mark.parametrize("key", facts.api_keys())
def test_an_example_is_what_the_encoder_writes(key: int) -> None:
    for message in examples(key):
        fields, version = message.to_dict(), message.api_version
        if message.plan.kind == "request":
            written = decoder.encode_request(key, version, fields, correlation_id=CORRELATION_ID, client_id=CLIENT_ID)
            assert decoder.decode_request(written).to_dict() == fields
        else:
            written = decoder.encode_response(key, version, fields, correlation_id=CORRELATION_ID)
            assert decoder.decode_response(written, api_key=key, api_version=version).to_dict() == fields
        assert written == message.frame
        assert list(message.errors()) == [] and list(message.forbidden_nulls()) == []


@pytest.mark.parametrize("key", facts.api_keys())
def test_every_byte_is_in_one_field_and_every_field_has_bytes(key: int) -> None:
    for message in examples(key):
        assert_complete(message)
        parts = [part for part in frame_parts(message) if not part.path.startswith(HEADER)]
        values = {without_indexes(part.path) for part in parts if part.role is PartRole.VALUE}
        fields = version_history.layout(message.plan.kind, key, message.api_version)
        # a tagged error code of 0 is left out, as every tagged field is that holds its default
        left_out = {path for path, each in fields.items() if each.field.tag is not None and is_error_code(each.field)}
        assert values == {path for path, each in fields.items() if each.field.struct is None} - left_out
        counted = {without_indexes(part.path) for part in parts if part.role is PartRole.COUNT}
        assert counted == {path for path, each in fields.items() if each.field.struct is not None and each.field.array}


@pytest.mark.parametrize("key", facts.api_keys())
def test_the_bytes_of_a_number_are_its_value(key: int) -> None:
    for message in examples(key):
        fields = version_history.layout(message.plan.kind, key, message.api_version)
        for part in frame_parts(message):
            field = fields.get(without_indexes(part.path))
            if field is not None and part.role is PartRole.VALUE and field.field.type in LAYOUTS and not field.field.array:
                data = message.frame[part.start : part.end]
                assert len(data) == SIZES[field.field.type]
                assert struct.unpack(LAYOUTS[field.field.type], data) == (message[part.path],)


def test_fields_that_are_null_or_left_out_have_their_bytes_too() -> None:
    for key in facts.api_keys():
        for version in facts.api(key).versions.every():
            assert_complete(decoder.decode_request(decoder.encode_request(key, version, {})))
            response = decoder.encode_response(key, version, {})
            assert_complete(decoder.decode_response(response, api_key=key, api_version=version))


def test_a_frame_by_hand() -> None:
    frame = decoder.encode_request(3, 12, {"topics": [{"name": "orders"}]}, correlation_id=7, client_id="me")
    parts = [(part.path, part.role, frame[part.start : part.end].hex(" ")) for part in frame_parts(decoder.decode_request(frame))]
    assert parts == [
        (f"{HEADER}request_api_key", PartRole.VALUE, "00 03"),
        (f"{HEADER}request_api_version", PartRole.VALUE, "00 0c"),
        (f"{HEADER}correlation_id", PartRole.VALUE, "00 00 00 07"),
        (f"{HEADER}client_id", PartRole.VALUE, "00 02 6d 65"),
        (f"{HEADER}{TAGGED_FIELDS}", PartRole.TAGS, "00"),
        ("topics", PartRole.COUNT, "02"),
        ("topics[0].topic_id", PartRole.VALUE, " ".join(["00"] * 16)),
        ("topics[0].name", PartRole.VALUE, "07 6f 72 64 65 72 73"),
        (f"topics[0].{TAGGED_FIELDS}", PartRole.TAGS, "00"),
        ("allow_auto_topic_creation", PartRole.VALUE, "01"),
        ("include_topic_authorized_operations", PartRole.VALUE, "00"),
        (TAGGED_FIELDS, PartRole.TAGS, "00"),
    ]


def test_a_nullable_struct_has_a_mark_and_is_nothing_else_if_it_is_null() -> None:
    key = facts.api_key("ConsumerGroupHeartbeat")
    null = decoder.decode_response(decoder.encode_response(key, 0, {}), api_key=key, api_version=0)
    for message, byte, fields in ((example("response", key, 0), 1, True), (null, 255, False)):
        (mark,) = (part for part in frame_parts(message) if part.role is PartRole.MARK)
        assert mark.path == "assignment" and message.frame[mark.start : mark.end] == bytes([byte])
        assert any(part.path.startswith("assignment.") for part in frame_parts(message)) == fields
