"""How ApiVersions is asked, and what refusals of all kinds mean: the version to ask next, and never a failure."""

from __future__ import annotations

import pytest
from barnabas import decoder
from barnabas.decoder.connection import api_versions

MOCK = bytes.fromhex("00000007 0023 01 0012 0000 0002 00 00000000")
"""librdkafka 2.16's mock brokers: a compact array without its length, and version 3's throttle time."""
REFUSED = b"\0\0\0\7\0\x23"
OWN = "0012 0000 0004"


@pytest.mark.parametrize(
    ("frame", "version", "again"),
    [
        (MOCK, 5, 0),
        (MOCK, 3, 0),
        (REFUSED + bytes.fromhex("00000001" + OWN), 5, 4),  # Kafka 2.4 to 4.3
        (REFUSED + bytes.fromhex("00000001" + OWN), 4, 3),  # says that it serves what it refuses
        (REFUSED + bytes.fromhex("00000000"), 5, 0),  # Kafka before 2.4
        (REFUSED + bytes.fromhex("00000001 0003 0000 000d"), 5, 0),  # names another API only
        (REFUSED + bytes.fromhex("00000001" + OWN + "00"), 5, 0),  # bytes left over
        (REFUSED + bytes.fromhex("02" + OWN + "00 00000000 00"), 5, 0),  # in the version that was asked
        (REFUSED, 5, 0),
        (REFUSED + b"\xff" * 9, 3, 0),
    ],
)
def test_a_refusal_says_which_version_to_ask_next(frame: bytes, version: int, again: int) -> None:
    answer = api_versions.read(frame, version)
    assert (answer.error_code, answer.again) == (35, again)


@pytest.mark.parametrize("version", range(6))
def test_an_answer_is_read_at_every_version_with_what_is_behind_it(version: int) -> None:
    ranges = {0: (0, 13), 18: (0, version)}
    keys = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in ranges.items()]
    frame = decoder.encode_response(18, version, {"api_keys": keys}, correlation_id=7)
    for behind in (b"", b"\0"):
        assert api_versions.read(frame + behind, version) == api_versions.ApiVersionsAnswer(0, ranges)


def test_version_0_refused_is_an_answer() -> None:
    """There is no version below it to ask."""
    assert api_versions.read(REFUSED + bytes(4), 0) == api_versions.ApiVersionsAnswer(35, {})


@pytest.mark.parametrize("frame", [b"", b"\0\0\0\7", b"\0\0\0\7\0\0\0\0\0\1"])
def test_what_is_no_answer_is_an_error(frame: bytes) -> None:
    with pytest.raises(decoder.DecodeError):
        api_versions.read(frame, 0)


@pytest.mark.parametrize("version", range(6))
def test_the_request_says_who_asks_from_version_3_on(version: int) -> None:
    message = decoder.decode_request(api_versions.request(version, correlation_id=3, client_id="me", software="1.2"))
    assert (message.api_version, message.header["client_id"]) == (version, "me")
    said = message.to_dict()
    assert said.get("client_software_name") == ("barnabas" if version >= 3 else None)
    assert said.get("client_software_version") == ("1.2" if version >= 3 else None)
