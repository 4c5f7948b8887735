"""An exchange as a list of fields: names, values, positions, masks, damage."""

from __future__ import annotations

import uuid
from typing import Protocol

import pytest
from barnabas import decoder
from barnabas.captures import Capture
from barnabas.decoder import Exchange, State, records
from barnabas.decoder.records import Record
from barnabas.decoder.schema import facts
from barnabas.ui.tui.exchange import fields
from barnabas.ui.tui.exchange.fields import meaning, record_fields, request_tree, response_tree
from barnabas.ui.tui.widgets.field_tree import Tree, TreeField, field_at, visible_fields
from harness.recordings import produce
from traffic.every_kind import PRIVATE, batch


class Trees(Protocol):
    """The fields of the request and the response of an exchange of the story, by its name."""

    def __call__(self, name: str, values_shown: bool = False) -> tuple[Tree, Tree]: ...


def texts(tree: Tree) -> dict[str, str]:
    return {field.path or field.name: f"{field.name}: {field.value}" for field in tree.fields}


def whole(tree: Tree) -> str:
    return "\n".join(f"{field.name}: {field.value}" for field in tree.fields)


def named(tree: Tree, name: str) -> TreeField:
    return next(field for field in tree.fields if field.name == name)


@pytest.fixture
def trees(story: Capture, numbers: dict[str, int]) -> Trees:
    def of(name: str, values_shown: bool = False) -> tuple[Tree, Tree]:
        exchange = story.exchange(numbers[name])
        return request_tree(exchange, values_shown), response_tree(exchange, values_shown)

    return of


def test_error_codes_and_api_keys_have_names(trees: Trees) -> None:
    request, response = trees("not_leader")
    error = named(response, "error_code")
    assert (error.value, error.role, error.error) == ("6 NOT_LEADER_OR_FOLLOWER", "error", True)
    assert texts(request)["header.request_api_key"] == "request_api_key: 0 Produce"
    assert texts(request)["acks"] == "acks: -1 (all in-sync replicas)"
    assert named(trees("versions")[1], "error_code").value == "0 NONE"
    assert texts(trees("versions")[1])["api_keys[3].api_key"] == "api_key: 3 Metadata"


def test_folded_elements_show_their_error(trees: Trees) -> None:
    _, response = trees("not_leader")
    assert texts(response)["responses[0]"] == '[0]: "orders"  ! 6 NOT_LEADER_OR_FOLLOWER'


def test_every_position_agrees_with_the_message_map(story: Capture, numbers: dict[str, int]) -> None:
    exchange = story.exchange(numbers["metadata"])
    tree = response_tree(exchange)
    message = exchange.response_message
    assert message is not None
    spans = {span.path: (span.start, span.end) for span in message.map()}
    shown = {field.path: field.span for field in tree.fields if field.path in spans}
    assert shown.items() <= spans.items() and len(shown) > 20
    header = named(tree, "correlation_id")
    assert header.span == (0, 4)


def test_folding_is_arithmetic(trees: Trees) -> None:
    _, response = trees("metadata")
    for field in response.fields:
        field.folded = True
    shown = [response.fields[i] for i in visible_fields(response)]
    assert shown == [field for field in response.fields if field.depth == 0]
    assert [f.name for f in shown[:3]] == ["header", "throttle_time_ms", "brokers [3]"]
    for field in response.fields:
        field.folded = False
    assert list(visible_fields(response)) == list(range(len(response.fields)))


def test_long_arrays_start_folded(trees: Trees) -> None:
    _, response = trees("versions")
    assert named(response, "api_keys [20]").folded


@pytest.mark.parametrize("name", ["not_leader", "lz4"])
def test_records_are_masked_until_asked_for(trees: Trees, name: str) -> None:
    secret = PRIVATE.decode()
    hidden, shown = whole(trees(name)[0]), whole(trees(name, values_shown=True)[0])
    assert secret not in hidden and "header-value" not in hidden and "key-0" not in hidden
    assert named(trees(name)[0], "value").value == "<20 bytes>"
    assert named(trees(name)[0], 'header "trace"').value == "<12 bytes>"
    assert secret in shown
    tree = trees(name, values_shown=True)[0]
    assert named(tree, "value").value == f'"{secret}"' and named(tree, "key").value == '"key-0"'
    assert named(tree, 'header "trace"').value == '"header-value"'


def test_the_bytes_of_records_are_hidden_with_them(trees: Trees) -> None:
    tree = trees("not_leader")[0]
    start = tree.frame.index(PRIVATE)
    assert any(a <= start and start + len(PRIVATE) <= b for a, b in tree.hidden)
    assert trees("not_leader", values_shown=True)[0].hidden == []


def test_a_record_is_marked_where_it_lies(trees: Trees) -> None:
    tree = trees("not_leader")[0]
    start, end = named(tree, "record 100").span or (0, 0)
    assert PRIVATE in tree.frame[start:end] and b"second" not in tree.frame[start:end]


def test_batches_show_offsets_codec_and_crc(trees: Trees) -> None:
    assert named(trees("lz4")[0], "batch 0").value == "offsets 100..101, 2 records, lz4, crc ok"
    assert named(trees("lz4")[0], "crc").value.endswith(" ok")
    broken = trees("crc")[0]
    assert named(broken, "batch 0").value.startswith("! CRC BAD") and named(broken, "batch 0").role == "error"
    assert "BAD, the bytes give 0x" in named(broken, "crc").value


def test_damaged_and_cut_batches_are_lines_of_their_own() -> None:
    data = batch()
    assert [f.name for f in record_fields(data + data[:40]) if f.depth == 0] == ["batch 0", "partial 1"]
    unknown = bytearray(data)
    unknown[16] = 9
    (line,) = record_fields(bytes(unknown))
    assert line.name == "(damaged)" and "magic 9" in line.value and line.hidden == (0, len(data))
    truncated = bytearray(data)
    truncated[57:61] = (99).to_bytes(4, "big")
    assert any(f.name == "(damaged)" for f in record_fields(bytes(truncated)))


def test_huge_batches_are_cut_with_a_note() -> None:
    data = records.encode_batch([Record(i, 1, None, b"v") for i in range(2000)])
    lines = record_fields(data)
    assert lines[-1].value == "500 of 2000 records shown"
    assert sum(line.name.startswith("record ") for line in lines) == 500
    assert lines[0].below == len(lines) - 1


def test_secrets_are_masked_in_fields_and_bytes() -> None:
    frame = decoder.encode_request(36, 2, {"auth_bytes": b"\0user\0pa55word"}, correlation_id=1, client_id="c")
    exchange = Exchange(api_key=36, api_version=2, request=frame, state=State.PENDING)
    tree = request_tree(exchange, values_shown=True)
    assert named(tree, "auth_bytes").value == "<14 bytes, secret, masked>  SASL PLAIN"
    assert b"pa55word" not in tree.frame and len(tree.frame) == len(frame)


def test_a_truncated_message_shows_the_reason_and_what_was_read(trees: Trees) -> None:
    _, response = trees("truncated")
    assert response.fault is not None and "topics[1]" in response.fault
    assert texts(response)["brokers[2].port"] == "port: 9094"
    # it was cut inside of topics[1].partitions[1]: everything in front of that is shown, nothing is left over
    assert texts(response)["topics[1].partitions[0].partition_index"].startswith("partition_index: ")
    assert named(response, "(ends here)").span == (len(response.frame), len(response.frame))
    assert response.fault_at == len(response.frame)
    assert named(response, "brokers [3]").span is not None


def test_an_unknown_api_shows_its_header_and_bytes(trees: Trees) -> None:
    request, _ = trees("unknown")
    assert "1234" in (request.fault or "")
    assert texts(request)["header.correlation_id"] == "correlation_id: 8"
    assert request.frame.endswith(b"\0\3odd****") and request.hidden == []  # nobody knows what it says: masked in recordings


def test_an_undecoded_frame_that_may_hold_records_keeps_its_bytes_hidden() -> None:
    frame = decoder.encode_request(0, 9, produce("t", batch()), client_id="c")[:-20]
    exchange = Exchange(api_key=0, api_version=9, request=frame)
    start = frame.index(PRIVATE)
    hidden = request_tree(exchange).hidden
    assert any(a <= start < b for a, b in hidden)
    assert request_tree(exchange, values_shown=True).hidden == []
    unknown_version = frame[:2] + (99).to_bytes(2, "big") + frame[4:]
    exchange = Exchange(api_key=0, api_version=99, request=unknown_version)
    assert any(a <= start < b for a, b in request_tree(exchange).hidden)


def test_an_undecoded_frame_that_may_hold_secrets_shows_none() -> None:
    frame = decoder.encode_request(36, 2, {"auth_bytes": b"pa55word" * 4}, client_id="c")[:-5]
    tree = request_tree(Exchange(api_key=36, api_version=2, request=frame), values_shown=True)
    assert tree.fault and b"pa55word" not in tree.frame and "pa55word" not in whole(tree)


def test_a_missing_message_shows_the_reason(trees: Trees) -> None:
    assert "acks=0" in trees("acks0")[1].note
    assert response_tree(Exchange(api_key=3, api_version=9, state=State.PENDING)).note == "No response yet."
    orphan = Exchange(response=b"\0\0\0\x09rest", state=State.ORPHAN)
    assert "not recorded" in request_tree(orphan).note
    tree = response_tree(orphan)
    assert "without its request" in (tree.fault or "") and named(tree, "correlation_id").value == "9"


def test_every_frame_of_random_damage_gives_a_tree(story: Capture) -> None:
    for row in story.rows():
        exchange = story.exchange(row)
        for cut in range(0, len(exchange.request or b""), 3):
            damaged = Exchange(
                api_key=exchange.api_key,
                api_version=exchange.api_version,
                request=(exchange.request or b"")[:cut],
                response=(exchange.response or b"")[: cut // 2],
                state=State.PAIRED,
            )
            for tree in (request_tree(damaged), response_tree(damaged)):
                assert all(0 <= f.below <= len(tree.fields) for f in tree.fields)


def test_hostile_strings_are_escaped(trees: Trees) -> None:
    for tree in trees("hostile", values_shown=True):
        assert all((f.name + f.value).isprintable() for f in tree.fields)
    assert r"\x1b]52" in whole(trees("hostile")[0])


def test_surplus_bytes_are_shown() -> None:
    frame = decoder.encode_response(12, 4, {}, correlation_id=1) + b"\x01\x02"
    tree = response_tree(Exchange(api_key=12, api_version=4, response=frame, state=State.PAIRED))
    assert tree.fault is None and named(tree, "(surplus)").span == (len(frame) - 2, len(frame))


@pytest.mark.parametrize(
    ("api", "name", "value", "word"),
    [
        ("FindCoordinator", "key_type", 1, "TRANSACTION"),
        ("Fetch", "isolation_level", 1, "READ_COMMITTED"),
        ("DescribeConfigs", "resource_type", 4, "BROKER"),
        ("DescribeAcls", "resource_type", 4, "CLUSTER"),
        ("CreateAcls", "operation", 3, "READ"),
        ("SomethingElse", "operation", 3, ""),
        ("ListOffsets", "timestamp", -2, "(earliest)"),
        ("Heartbeat", "generation_id", 1, ""),
    ],
)
def test_meanings(api: str, name: str, value: int, word: str) -> None:
    assert meaning(api, name, value) == word


def test_every_message_of_the_schema_becomes_a_tree() -> None:
    for key in facts.api_keys():
        for version in range(facts.api(key).versions.low, facts.api(key).versions.high + 1):
            request = decoder.encode_request(key, version, {}, client_id="c")
            response = decoder.encode_response(key, version, {})
            exchange = Exchange(
                api_key=key, api_version=version, request=request, response=response, state=State.PAIRED
            )
            for tree in (request_tree(exchange), response_tree(exchange)):
                assert tree.fault is None and tree.fields[0].name == "header", (key, version)


@pytest.fixture
def many_topics() -> Exchange:
    """A Metadata response with long arrays in long arrays, and two errors far inside."""
    topics = [
        {
            "name": f"t{t}",
            "topic_id": uuid.UUID(int=t + 1),
            "partitions": [
                {"partition_index": p, "replica_nodes": [1, 2], "error_code": 5 if (t, p) in ((0, 13), (29, 2)) else 0}
                for p in range(15)
            ],
        }
        for t in range(30)
    ]
    response = decoder.encode_response(3, 12, {"topics": topics, "brokers": [{"host": "b"}]}, correlation_id=1)
    request = decoder.encode_request(3, 12, {"topics": None}, correlation_id=1)
    return Exchange(api_key=3, api_version=12, request=request, response=response, state=State.PAIRED)


def shown_as(field: TreeField) -> tuple[object, ...]:
    return field.depth, field.name, field.value, field.role, field.path, field.span, field.error


def lazily(exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> Tree:
    monkeypatch.setattr(fields, "LARGE", 0)
    return response_tree(exchange)


def test_a_large_message_is_made_where_somebody_looks(many_topics: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = response_tree(many_topics)
    tree = lazily(many_topics, monkeypatch)
    assert len(tree.fields) < 20 < len(everything.fields)
    whole_path = "topics[29].partitions[2].error_code"
    at = tree.reveal(whole_path)
    assert at is not None and shown_as(tree.fields[at]) == shown_as(
        next(each for each in everything.fields if each.path == whole_path)
    )
    assert len(tree.fields) < len(everything.fields) / 2
    tree.complete()
    assert [shown_as(each) for each in tree.fields] == [shown_as(each) for each in everything.fields]
    assert [each.below for each in tree.fields] == [each.below for each in everything.fields]


@pytest.mark.parametrize("many", [5, 300])
def test_a_byte_of_a_large_message_leads_to_its_field(
    many_topics: Exchange, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = response_tree(many_topics)
    monkeypatch.setattr(fields, "MANY", many)
    size = len(everything.frame)
    for byte in (5, size // 3, size // 2, size - 30):
        tree = lazily(many_topics, monkeypatch)
        found, expected = field_at(tree, byte), field_at(everything, byte)
        assert found is not None and expected is not None
        assert shown_as(tree.fields[found]) == shown_as(everything.fields[expected]), byte
        assert tree.fields[found].below == everything.fields[expected].below
        for position, each in enumerate(tree.fields):
            inside = next((i for i, f in enumerate(tree.fields[position + 1 :]) if f.depth <= each.depth), None)
            assert each.below == (len(tree.fields) - position - 1 if inside is None else inside)


def test_folded_items_show_a_summary(many_topics: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = {each.path: each.value for each in response_tree(many_topics).fields}
    monkeypatch.setattr(fields, "MANY", 5)
    tree = lazily(many_topics, monkeypatch)
    tree.reveal("topics[3]")
    shown = [tree.headed(at) for at, each in enumerate(tree.fields) if each.path in ("topics[0]", "topics[7]")]
    assert (
        [each.value for each in shown]
        == [everything["topics[0]"], everything["topics[7]"]]
        == ['"t0"  ! 5 LEADER_NOT_AVAILABLE', '"t7"']
    )
    assert all(each.later is not None for each in shown)


def test_errors_of_a_large_message_are_gone_through_in_order(
    many_topics: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = lazily(many_topics, monkeypatch)
    message = many_topics.response_message
    assert message is not None
    found, at = [], 0
    for _ in range(4):
        position = tree.next_error(at, message.errors())
        assert position is not None
        found.append(tree.fields[position].path)
        at = position
    first, second = "topics[0].partitions[13].error_code", "topics[29].partitions[2].error_code"
    assert found == [first, second, first, second]
