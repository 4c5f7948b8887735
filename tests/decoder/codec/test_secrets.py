"""Planted secrets are gone, lengths and everything else stay."""

from __future__ import annotations

import pytest
from barnabas import decoder
from barnabas.decoder import Direction
from barnabas.decoder.codec import secrets
from barnabas.decoder.native.accelerator import native
from harness.run.steps import assert_linear, steps
from torture.decoder.worst_cases import passwords

CANARY = b"c4nary-S3CRET"

REQUESTS = [
    (36, {"auth_bytes": CANARY}),
    (39, {"hmac": CANARY}),
    (40, {"hmac": CANARY}),
    (51, {"upsertions": [{"name": "u", "salt": CANARY, "salted_password": CANARY}], "deletions": []}),
    (33, {"resources": [{"configs": [{"name": "ssl.keystore.password", "value": CANARY.decode()}]}]}),
    (44, {"resources": [{"configs": [{"name": "sasl.jaas.config", "value": CANARY.decode()}]}]}),
]
RESPONSES = [(36, {"auth_bytes": CANARY}), (38, {"hmac": CANARY}), (41, {"tokens": [{"hmac": CANARY}]})]


def frames():
    for direction, rows in ((Direction.REQUEST, REQUESTS), (Direction.RESPONSE, RESPONSES)):
        for key, fields in rows:
            for version in decoder.facts.api(key).versions.every():
                if direction is Direction.REQUEST:
                    yield direction, key, version, decoder.encode_request(key, version, fields, client_id="me")
                else:
                    yield direction, key, version, decoder.encode_response(key, version, fields)


def decode(direction, key, version, frame):
    if direction is Direction.REQUEST:
        return decoder.decode_request(frame)
    return decoder.decode_response(frame, api_key=key, api_version=version)


@pytest.mark.parametrize(("direction", "key", "version", "frame"), list(frames()))
def test_masked_frames(direction, key, version, frame):
    assert CANARY in frame
    masked = secrets.mask(direction, key, version, frame)
    assert CANARY not in masked and len(masked) == len(frame)
    before, after = decode(direction, key, version, frame), decode(direction, key, version, masked)
    assert before.map() == after.map()
    assert CANARY.decode() not in str(secrets.shown(before)) and "c4nary" not in str(secrets.shown(before))
    # damaged, nobody knows where the secret is: everything behind the header goes
    assert CANARY not in secrets.mask(direction, key, version, frame[:-1] + b"\xff\xff\xff")[8:]


def test_other_frames_are_untouched():
    frame = decoder.encode_request(3, 12, {"topics": [{"name": "password"}]})
    assert secrets.mask(Direction.REQUEST, 3, 12, frame) is frame
    plain = decoder.encode_request(33, 2, {"resources": [{"configs": [{"name": "retention.ms", "value": "86400"}]}]})
    assert secrets.mask(Direction.REQUEST, 33, 2, plain) == plain


def test_only_the_secrets_of_a_request_inside_an_envelope_are_masked():
    inner = decoder.encode_request(
        33, 2, {"resources": [{"configs": [{"name": "ssl.key.password", "value": CANARY.decode()}]}]}, client_id="c"
    )
    frame = decoder.encode_request(58, 0, {"request_data": inner, "client_host_address": b"1234"})
    masked = secrets.mask(Direction.REQUEST, 58, 0, frame)
    assert CANARY not in masked and len(masked) == len(frame) and b"ssl.key.password" in masked
    assert CANARY not in secrets.shown(decoder.decode_request(frame))["request_data"]
    plain = decoder.encode_request(58, 0, {"request_data": decoder.encode_request(3, 12, {})})
    assert secrets.mask(Direction.REQUEST, 58, 0, plain) == plain
    answer = decoder.encode_response(58, 0, {"response_data": b"0000" + CANARY})
    assert CANARY not in secrets.mask(Direction.RESPONSE, 58, 0, answer)


@pytest.mark.parametrize("key", [33, 44])
def test_a_config_without_a_name_may_be_a_secret(key):
    named = decoder.encode_request(key, 0, {"resources": [{"configs": [{"name": "", "value": CANARY.decode()}]}]})
    size = len(CANARY).to_bytes(2, "big")
    head, tail = named.split((b"\0\0\0" if key == 44 else b"\0\0") + size + CANARY)
    frame = head + (b"\xff\xff\0" if key == 44 else b"\xff\xff") + size + CANARY + tail
    assert decoder.decode_request(frame)["resources[0].configs[0].name"] is None
    assert CANARY not in secrets.mask(Direction.REQUEST, key, 0, frame)
    assert CANARY.decode() not in str(secrets.shown(decoder.decode_request(frame)))


def test_an_envelope_inside_an_envelope_is_masked_completely():
    frame = decoder.encode_request(36, 2, {"auth_bytes": CANARY})
    for _ in range(3000):
        frame = decoder.encode_request(58, 0, {"request_data": frame})
    masked = secrets.mask(Direction.REQUEST, 58, 0, frame)
    assert CANARY not in masked and len(masked) == len(frame)
    assert set(secrets.shown(decoder.decode_request(frame))["request_data"]) == set(secrets.MASK)


def test_masking_is_linear():
    def work(count):
        message = passwords(count)
        return lambda: secrets.shown(message)

    assert_linear(work, 500)


def settings(count: int) -> list[dict[str, object]]:
    return [{"name": f"my.setting.{i}", "config_operation": 0, "value": f"value-{i}"} for i in range(count)]


def altered(count: int) -> bytes:
    resource = {"resource_type": 2, "resource_name": "orders", "configs": settings(count)}
    return decoder.encode_request(44, 1, {"resources": [resource]})


def described(count: int) -> bytes:
    own = ("name", "value")
    configs = [{key: each[key] for key in own} | {"synonyms": [{key: each[key] for key in own}]} for each in settings(count)]
    return decoder.encode_response(32, 4, {"results": [{"configs": configs}]})


def scram_users(count: int) -> bytes:
    users = [{"name": f"u{i}", "salt": b"salt", "salted_password": b"password"} for i in range(count)]
    return decoder.encode_request(51, 0, {"upsertions": users, "deletions": []})


REFUSED = decoder.encode_response(44, 1, {"responses": [{"error_code": 40, "error_message": "Unknown topic config name: a"}]})
LONG_LISTS = {
    "a request": lambda count: (Direction.REQUEST, 44, 1, altered(count)),
    "the response to it": lambda count: (Direction.RESPONSE, 44, 1, REFUSED, altered(count)),
    "described settings": lambda count: (Direction.RESPONSE, 32, 4, described(count)),
    "users": lambda count: (Direction.REQUEST, 51, 0, scram_users(count)),
}


@pytest.mark.parametrize("made", LONG_LISTS.values(), ids=LONG_LISTS)
def test_masking_a_long_list_is_one_walk(made) -> None:
    """With the byte map of the whole message and its paths, an item took 340 to 2,130 steps."""

    def work(count):
        arguments = made(count)
        return lambda: secrets.mask(*arguments)

    assert_linear(work, 300)
    if native is not None:
        assert steps(work(600)) < 60 * 600


def test_every_one_of_many_secrets_is_masked():
    configs = secrets.shown(passwords(20_000))["resources"][0]["configs"]
    assert len(configs) == 20_000 and {config["value"] for config in configs} == {"*"}


def test_a_refused_version_of_api_versions_is_kept():
    """It is answered in version 0, also where nobody knows the version that was asked (KIP-511)."""
    refusal = {"error_code": 35, "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 4}]}
    frame = decoder.encode_response(18, 0, refusal, correlation_id=7)
    assert secrets.mask(Direction.RESPONSE, 18, 99, frame) == frame
    odd = decoder.encode_response(18, 0, {**refusal, "error_code": 0}, correlation_id=7) + CANARY
    assert CANARY not in secrets.mask(Direction.RESPONSE, 18, 99, odd)
    assert CANARY not in secrets.mask(Direction.RESPONSE, 18, 99, frame + CANARY)


@pytest.mark.parametrize("count", [3, 64, 65, 1000])
def test_what_a_broker_quotes_of_many_secrets_is_masked(count: int) -> None:
    configs = [{"name": f"password{i}", "config_operation": 0, "value": f"{CANARY.decode()}-{i}"} for i in range(count)]
    asked = decoder.encode_request(44, 1, {"resources": [{"resource_type": 2, "resource_name": "orders", "configs": configs}]})
    said = f"cannot set {CANARY.decode()}-0 and {CANARY.decode()}-{count - 1}"
    item = {"error_code": 40, "error_message": said, "resource_type": 2, "resource_name": "orders"}
    frame = decoder.encode_response(44, 1, {"responses": [item, item | {"error_message": None}]}, correlation_id=1)
    masked = secrets.mask(Direction.RESPONSE, 44, 1, frame, asked)
    assert CANARY not in masked and len(masked) == len(frame)
    found = decoder.decode_response(masked, api_key=44, api_version=1)["responses"]
    assert [(each["resource_name"], each["error_code"]) for each in found] == [("orders", 40)] * 2
    assert len(found[0]["error_message"]) == len(said) and found[1]["error_message"] is None
