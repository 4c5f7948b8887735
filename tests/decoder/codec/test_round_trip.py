"""Every (api, version, direction): bytes -> values -> bytes is identity, and the byte map covers the message."""

from __future__ import annotations

from barnabas import decoder
from barnabas.decoder.codec.decode import decoder as compiled
from barnabas.decoder.codec.encode import encode_struct, values_from
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.plan import plan


def test_there_are_722_triples_up_to_4_3_and_14_of_4_4(every_triple):
    assert len(every_triple) == 736 and len(set(every_triple)) == 736
    newer = [
        release
        for key in facts.api_keys()
        for definition in (facts.api(key).request, facts.api(key).response)
        for _, release in definition.since
    ]
    assert newer == ["4.4"] * 14


def test_values_survive_encode_and_decode(every_triple, generator):
    for kind, key, version in every_triple:
        for _ in range(3):
            values, body = generator.body(kind, key, version)
            read, end = compiled(plan(kind, key, version))(body, 0)
            assert (read, end) == (values, len(body)), (kind, key, version)
            again = bytearray()
            encode_struct(plan(kind, key, version).root, read, again)
            assert bytes(again) == body, (kind, key, version)


def test_dicts_survive_encode_and_decode(every_triple, generator):
    for kind, key, version in every_triple:
        _, body = generator.body(kind, key, version)
        message = decoder.decode_body(kind, key, version, body)
        assert decoder.encode_body(kind, key, version, message.to_dict()) == body, (kind, key, version)
        # JSON's forms of bytes (hex) and UUIDs (base64) are read back too
        assert decoder.encode_body(kind, key, version, message.to_json()) == body, (kind, key, version)


def test_frames_carry_the_right_header(every_triple, generator):
    for kind, key, version in every_triple:
        fields = decoder.decode_body(kind, key, version, generator.body(kind, key, version)[1]).to_dict()
        if kind == "request":
            frame = decoder.encode_request(key, version, fields, correlation_id=77, client_id="me")
            message = decoder.decode_request(frame)
            assert message.header["correlation_id"] == 77
            # only ControlledShutdown v0 has no client id in its header
            assert message.header.get("client_id") == (None if (key, version) == (7, 0) else "me")
        elif (key, fields.get("error_code")) != (18, 35):
            frame = decoder.encode_response(key, version, fields, correlation_id=77)
            message = decoder.decode_response(frame, api_key=key, api_version=version)
        assert message.encode() == frame
        assert message.to_dict() == fields, (kind, key, version)


def test_the_byte_map_covers_every_byte_of_the_body(every_triple, generator):
    for kind, key, version in every_triple:
        _, body = generator.body(kind, key, version)
        covered = bytearray(len(body))
        of = plan(kind, key, version)
        for path, start, end in decoder.decode_body(kind, key, version, body).map():
            assert 0 <= start <= end <= len(body), path
            covered[start:end] = b"x" * (end - start)
        # what no field covers are the counts and sizes of tagged sections, in flexible messages only
        assert of.root.flexible or all(covered), (kind, key, version)


def test_defaults_fill_what_is_left_out(every_triple):
    for kind, key, version in every_triple:
        of = plan(kind, key, version)
        message = decoder.decode_body(kind, key, version, decoder.encode_body(kind, key, version, {}))
        assert message.values == values_from(of.root, {})
