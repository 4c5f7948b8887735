"""Wireshark's reading of frames against ours: agreement over recordings of real brokers, and which side is found to be wrong."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from barnabas import decoder
from barnabas.captures import Capture, open_capture
from barnabas.captures.foreign import crosscheck
from barnabas.captures.foreign.crosscheck import Checked, Crosscheck, CrosscheckOutcome, compare
from barnabas.decoder import Direction, Exchange, State

RECORDED = Path(__file__).parents[1].parent / "decoder" / "findings" / "captures"
EVERY_DAY = ("ages-old-broker", "groups-backwards")


def checked(capture: Capture) -> list[Checked]:
    return list(Crosscheck(capture).frames())


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(p.stem, marks=() if p.stem in EVERY_DAY else pytest.mark.slow)
        for p in sorted(RECORDED.glob("*.pcapng"))
    ],
)
def test_wireshark_agrees_or_is_wrong(name: str) -> None:
    """Recordings of real brokers and clients, 0.8 to 4.x."""
    with open_capture(RECORDED / f"{name}.pcapng") as capture:
        frames = checked(capture)
        count = Counter(frame.outcome for frame in frames)
        assert set(count) <= {CrosscheckOutcome.AGREED, CrosscheckOutcome.NOT_READ, CrosscheckOutcome.WIRESHARK, CrosscheckOutcome.UNMATCHED}
        assert count[CrosscheckOutcome.AGREED] or count[CrosscheckOutcome.NOT_READ] or not frames
        if name in EVERY_DAY:
            assert count[CrosscheckOutcome.AGREED] > 10
            assert sum(frame.compared for frame in frames) > 200
        orphans = [row for row in capture.rows() if row.state is State.ORPHAN]
        assert count[CrosscheckOutcome.UNMATCHED] <= 2 * len(orphans)


def test_our_own_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata responses are read by the schema of the next version: Wireshark notices."""
    real = Capture.exchange

    def misread(self: Capture, row: Any) -> Exchange:
        exchange = real(self, row)
        if exchange.api_key == METADATA:
            exchange.api_version += 1
        return exchange

    METADATA = decoder.facts.api_key("Metadata")
    monkeypatch.setattr(Capture, "exchange", misread)
    with open_capture(RECORDED / "ages-old-broker.pcapng") as capture:
        wrong = [frame for frame in checked(capture) if frame.outcome is CrosscheckOutcome.BARNABAS]
    assert {(frame.api_key, frame.direction) for frame in wrong} == {
        (METADATA, Direction.REQUEST),
        (METADATA, Direction.RESPONSE),
    }


# Wireshark's output, written by hand: its release does not matter.


class LayerField(NamedTuple):
    """A field as pyshark gives it."""

    name: str
    pos: str
    size: str
    show: str
    raw_value: str
    unmaskedvalue: None = None


def field(name: str, at: int, frame: bytes, size: int, show: object) -> LayerField:
    """Places count from the size bytes of the frame, here at 100."""
    raw = frame[at : at + size].hex() if at >= 0 else ""
    return LayerField(name, str(104 + at), str(size), str(show), raw)


HEARTBEAT = {"group_id": "billing", "generation_id": 7, "member_id": "m-1"}
REQUEST = decoder.encode_request(12, 0, HEARTBEAT, correlation_id=5, client_id="c")


def exchange(request: bytes = REQUEST, version: int = 0) -> Exchange:
    return Exchange(api_key=12, api_version=version, correlation_id=5, client_id="c", request=request)


def fields(*more: LayerField, frame: bytes = REQUEST) -> list[LayerField]:
    size = len(frame)
    header = [field("kafka.len", -4, frame, 4, size), field("kafka.api_key", 0, frame, 2, 12)]
    return [*header, field("kafka.correlation_id", 4, frame, 4, 5), field("kafka.client_id", 8, frame, 3, "c"), *more]


GROUP = field("kafka.consumer_group", 11, REQUEST, 9, "billing")
GENERATION = field("kafka.generation_id", 20, REQUEST, 4, 7)


def test_the_same_fields_at_the_same_places_agree() -> None:
    outcome, compared, why, differences = compare(exchange(), Direction.REQUEST, fields(GROUP, GENERATION))
    assert (outcome, compared, why, differences) == (CrosscheckOutcome.AGREED, 6, "", [])


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (field("kafka.generation_id", 19, REQUEST, 4, 26368), "other fields there: group_id, generation_id"),
        (field("kafka.generation_id", 20, REQUEST, 4, 8), "generation_id = 7"),
        (field("kafka.error", 13, REQUEST, 2, 25193), "inside group_id = 'billing'"),
        (field("kafka.consumer_group", 11, REQUEST, 9, "other"), "group_id = 'billing'"),
    ],
)
def test_a_difference_is_reported_with_both_readings(wrong: LayerField, expected: str) -> None:
    outcome, _, why, (difference,) = compare(exchange(), Direction.REQUEST, fields(wrong))
    assert outcome is CrosscheckOutcome.WIRESHARK and "gives exactly these bytes" in why
    assert difference.wireshark.startswith(wrong.name)
    assert difference.barnabas == expected
    assert difference.start == int(wrong.pos) - 104


def test_frames_unknown_to_wireshark_count_as_not_read() -> None:
    unknown = field("kafka.unsupported_api_version", -104, REQUEST, 0, "")
    guessed = field("kafka.generation_id", 19, REQUEST, 4, 26368)
    outcome, compared, why, differences = compare(exchange(), Direction.REQUEST, fields(unknown, guessed))
    assert (outcome, compared, differences) == (CrosscheckOutcome.NOT_READ, 0, [])
    assert why == "the version is newer than its dissector"


def test_a_frame_that_neither_can_read_is_damaged() -> None:
    cut = REQUEST[:-2]
    outcome, _, why, _ = compare(exchange(cut), Direction.REQUEST, fields(frame=cut), malformed=True)
    assert outcome is CrosscheckOutcome.DAMAGED and "member_id" in why


def test_a_frame_that_only_wireshark_reads_is_our_fault() -> None:
    outcome, _, why, _ = compare(exchange(REQUEST[:-2]), Direction.REQUEST, fields(frame=REQUEST[:-2]))
    assert outcome is CrosscheckOutcome.BARNABAS and "only Wireshark reads it" in why


def test_values_that_do_not_encode_to_the_same_bytes_are_our_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crosscheck, "_encodes_again", lambda *of: False)
    wrong = field("kafka.generation_id", 19, REQUEST, 4, 26368)
    assert compare(exchange(), Direction.REQUEST, fields(wrong))[0] is CrosscheckOutcome.BARNABAS


def test_no_value_is_reported_where_secrets_may_stand() -> None:
    setting = {"name": "ssl.key.password", "config_operation": 0, "value": "open sesame"}
    resources = [{"resource_type": 4, "resource_name": "1", "configs": [setting]}]
    frame = decoder.encode_request(44, 0, {"resources": resources}, correlation_id=5, client_id="c")
    asked = Exchange(api_key=44, api_version=0, correlation_id=5, client_id="c", request=frame)
    wrong = field("kafka.error_message", frame.index(b"open"), frame, 4, "open")
    outcome, _, _, (difference,) = compare(
        asked, Direction.REQUEST, [field("kafka.len", -4, frame, 4, len(frame)), wrong]
    )
    assert outcome is CrosscheckOutcome.WIRESHARK
    assert difference.wireshark == "kafka.error_message"
    assert difference.barnabas == "inside resources[0].configs[0].value"
