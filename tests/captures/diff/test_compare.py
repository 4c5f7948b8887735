"""A recording of real clients compared with itself, edited: what was changed is found, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from barnabas import decoder
from barnabas.captures import open_capture
from barnabas.captures.diff import DifferenceKind, DiffReport, Level, compare
from barnabas.decoder import Exchange, State

RECORDED = Path(__file__).parents[1] / "serving" / "recorded"
Edit = Callable[[Exchange], "Exchange | None"]


def read(name: str, tmp_path: Path) -> list[Exchange]:
    copy = tmp_path / f"{name}.pcapng"
    copy.write_bytes((RECORDED / f"{name}.pcapng").read_bytes())
    with open_capture(copy) as capture:
        return list(capture.exchanges())


def edited(exchanges: list[Exchange], edit: Edit) -> Iterator[Exchange]:
    for exchange in exchanges:
        found = edit(exchange)
        if found is not None:
            yield found


def changed(
    exchange: Exchange, request: bytes | None = None, response: bytes | None = None, version: int = -1
) -> Exchange:
    return Exchange(
        connection=exchange.connection, client=exchange.client, broker=exchange.broker, api_key=exchange.api_key,
        api_version=exchange.api_version if version < 0 else version, correlation_id=exchange.correlation_id,
        client_id=exchange.client_id, request=request or exchange.request, request_time_ns=exchange.request_time_ns,
        response=response or exchange.response, response_time_ns=exchange.response_time_ns, state=exchange.state,
        topics=exchange.topics, about=exchange.about,
    )  # fmt: skip


@pytest.fixture(params=["transactions", "two-members", "admin"])
def name(request) -> str:
    return request.param


@pytest.fixture
def transactions(tmp_path) -> list[Exchange]:
    return read("transactions", tmp_path)


def above_noise(report: DiffReport) -> list[tuple[DifferenceKind, str, str, str, str]]:
    return [(d.kind, d.api, d.what, d.a, d.b) for d in report.above(Level.LOW)]


def test_a_recording_is_no_different_from_itself(name, tmp_path):
    exchanges = read(name, tmp_path)
    report = compare(exchanges, exchanges)
    assert report.differences == []
    assert report.worst is Level.NOISE


def test_one_changed_field_is_found(transactions):
    def edit(exchange: Exchange) -> Exchange:
        if exchange.api != "CreateTopics" or exchange.request_message is None:
            return exchange
        message = exchange.request_message.replace({"topics[0].num_partitions": 7})
        return changed(exchange, request=message.encode())

    report = compare(transactions, edited(transactions, edit))
    assert above_noise(report) == [(DifferenceKind.FIELD, "CreateTopics", "request topics[*].num_partitions", "1", "7")]
    (found,) = report.above(Level.LOW)
    assert found.count == 2 and found.level is Level.MEDIUM
    assert transactions[found.in_a[0] - 1].api == "CreateTopics"


def test_an_error_on_one_side_is_the_worst(transactions):
    done: list[Exchange] = []

    def edit(exchange: Exchange) -> Exchange:
        if exchange.api != "EndTxn" or exchange.response_message is None or done:
            return exchange
        done.append(exchange)
        refused = exchange.response_message.replace({"error_code": decoder.facts.error_code("INVALID_TXN_STATE")})
        return changed(exchange, response=refused.encode())

    report = compare(transactions, edited(transactions, edit))
    assert above_noise(report)[0] == (DifferenceKind.ERROR, "EndTxn", "response error_code", "NONE", "INVALID_TXN_STATE")
    assert report.worst is Level.HIGH


def test_a_request_that_only_one_side_makes(transactions):
    report = compare(transactions, [e for e in transactions if e.api != "TxnOffsetCommit"])
    assert [(d.kind, d.api, d.a, d.b) for d in report.above(Level.MEDIUM)] == [
        (DifferenceKind.ONLY, "TxnOffsetCommit", "1×", "never")
    ]


def test_another_version_is_reported_once(transactions):
    def edit(exchange: Exchange) -> Exchange:
        if exchange.api != "InitProducerId" or exchange.request_message is None or exchange.response_message is None:
            return exchange
        fields = exchange.request_message.to_dict()
        request = decoder.encode_request(22, 3, fields, correlation_id=exchange.correlation_id)
        response = decoder.encode_response(
            22, 3, exchange.response_message.to_dict(), correlation_id=exchange.correlation_id
        )
        return changed(exchange, request, response, version=3)

    report = compare(transactions, edited(transactions, edit))
    assert above_noise(report) == [(DifferenceKind.VERSION, "InitProducerId", "version", "v4", "v3")]


def test_other_records_are_found(transactions):
    def edit(exchange: Exchange) -> Exchange:
        data = (exchange.request or b"").replace(b"payment 3", b"payment 8")
        return changed(exchange, request=data) if exchange.api == "Produce" and data != exchange.request else exchange

    report = compare(transactions, edited(transactions, edit))
    topics = [d.what for d in report.above(Level.HIGH)]
    assert topics == [f"records of {kind}-c-kafka-python-transactions" for kind in ("ledger", "payments")]
    assert "1 of them only here" in report.above(Level.HIGH)[1].a


def test_names_of_one_run_are_taken_for_those_of_the_other(transactions):
    """A run names its topics and groups anew; sizes stay the same here, so that the frames do."""

    def edit(exchange: Exchange) -> Exchange:
        new = [data and data.replace(b"-c-kafka-", b"-d-kafka-") for data in (exchange.request, exchange.response)]
        return changed(exchange, *new)

    report = compare(transactions, edited(transactions, edit))
    assert above_noise(report) == []
    assert report.names["ledger-d-kafka-python-transactions"] == "ledger-c-kafka-python-transactions"


def test_more_polls_and_reconnects_are_noise(transactions):
    polls = [e for e in transactions if e.api in ("Fetch", "Heartbeat", "Metadata", "ApiVersions")]
    report = compare(transactions, transactions + polls[-5:])
    assert above_noise(report) == []
    assert [d.kind for d in report.differences if d.api == "Fetch"] == [DifferenceKind.COUNT]


def test_a_poll_that_does_not_name_what_its_client_works_with(transactions):
    """Which topics a Metadata request names depends on the moment at which it is sent."""

    def about(exchange: Exchange, topic: str) -> bool:
        return exchange.api == "Metadata" and topic.encode() in (exchange.request or b"")

    assert any(about(e, "ledger") for e in transactions)
    report = compare([e for e in transactions if not about(e, "ledger")], transactions)
    assert "request topics[*].name" in {d.what for d in report.above(Level.LOW) if d.b and "ledger" in d.b}
    assert report.above(Level.MEDIUM) == []
    # a topic that nobody works with on the other side is another matter
    asked = next(e for e in transactions if about(e, "ledger"))
    strange = changed(asked, request=(asked.request or b"").replace(b"ledger", b"rebels"))
    report = compare(transactions, [*transactions, strange])
    assert [d.b for d in report.above(Level.MEDIUM)] == ["rebels-c-kafka-python-transactions"]


def test_slower_responses_are_reported(transactions):
    def edit(exchange: Exchange) -> Exchange:
        slow = changed(exchange)
        if slow.api == "Metadata" and slow.response_time_ns is not None:
            slow.response_time_ns += 50_000_000
        return slow

    report = compare(transactions, edited(transactions, edit))
    assert [(kind, api) for kind, api, *_ in above_noise(report)] == [(DifferenceKind.LATENCY, "Metadata")]


def test_another_client_is_aligned_and_its_choices_are_named(tmp_path, transactions):
    report = compare(read("admin", tmp_path), transactions)
    assert {d.api for d in report.differences if d.kind is DifferenceKind.ONLY} >= {"InitProducerId", "DeleteTopics"}
    assert report.to_dict()["counts"]["medium"] == len([d for d in report.differences if d.level is Level.MEDIUM])


JOIN = {"group_id": "g", "member_id": "", "protocol_type": "consumer", "session_timeout_ms": 1, "rebalance_timeout_ms": 1}


@pytest.mark.parametrize(
    ("api", "version", "fields"),
    [
        ("JoinGroup", 9, lambda reason: JOIN | {"protocols": [], "reason": reason}),
        ("LeaveGroup", 5, lambda reason: {"group_id": "g", "members": [{"member_id": "", "reason": reason}]}),
    ],
)
def test_a_reason_that_names_a_member_is_no_difference(api: str, version: int, fields: Callable[[str], dict[str, Any]]) -> None:
    """Java members join "with the given member-id: consumer-g-1-UUID", another one in each run."""
    key = decoder.facts.api_key(api)

    def one(reason: str) -> Exchange:
        return Exchange(
            connection=1, client="10.0.0.5:4000", broker="kafka:9092", api_key=key, api_version=version, client_id="c",
            request=decoder.encode_request(key, version, fields(reason), client_id="c"), request_time_ns=1,
            response=decoder.encode_response(key, version, {}), response_time_ns=2, state=State.PAIRED,
        )  # fmt: skip

    first, second = (one(f"need to re-join with the given member-id: consumer-g-1-{tail}") for tail in ("aaaa", "bbbb"))
    assert above_noise(compare([first], [second])) == []


def test_a_setting_is_named() -> None:
    def described(**settings: str) -> Exchange:
        asked = {"resources": [{"resource_type": 2, "resource_name": "orders", "configuration_keys": None}]}
        configs = [{"name": name.replace("_", "."), "value": value} for name, value in settings.items()]
        answer = {"results": [{"resource_type": 2, "resource_name": "orders", "configs": configs}]}
        return Exchange(
            client_id="admin", api_key=32, api_version=4, request=decoder.encode_request(32, 4, asked, correlation_id=1, client_id="admin"),
            request_time_ns=1, response=decoder.encode_response(32, 4, answer, correlation_id=1), response_time_ns=2, state=State.PAIRED,
            correlation_id=1,
        )  # fmt: skip

    report = compare(
        [described(retention_ms="1", cleanup_policy="delete", segment_ms="5")],
        [described(retention_ms="2", cleanup_policy="compact", segment_ms="5")],
    )
    found = {(each.what, each.a, each.b) for each in report.differences}
    assert found == {
        ("response results[*].configs[retention.ms].value", "1", "2"),
        ("response results[*].configs[cleanup.policy].value", "delete", "compact"),
    }
