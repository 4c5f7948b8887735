"""Findings of what fault rules did are marked: they are no faults of brokers or clients."""

from __future__ import annotations

import pytest
from barnabas import decoder
from barnabas.decoder import Exchange
from barnabas.decoder.connection.events import Closed, Opened
from barnabas.decoder.connection.exchange import BrokerLeg, State
from barnabas.decoder.connection.hit_notes import BY_HAND, FOR_TOPICS, hit_note
from barnabas.decoder.findings import Finding, Inspector
from barnabas.decoder.schema import facts

SECOND = 1_000_000_000
NOTED = [hit_note("auth", 1, "GROUP_AUTHORIZATION_FAILED, not forwarded")]


def heartbeats(count: int, error: str, notes: list[str] | None = None, client: str = "shop", number: int = 1) -> list[Exchange]:
    code = facts.error_code(error)
    made = [
        Exchange(
            connection=number, client=f"10.0.0.{number}:5000", broker="10.0.1.1:9092", api_key=12, api_version=1, correlation_id=each,
            client_id=client, request=decoder.encode_request(12, 1, {"group_id": "g"}, correlation_id=each, client_id=client),
            request_time_ns=each * SECOND, response=decoder.encode_response(12, 1, {"error_code": code}, correlation_id=each),
            response_time_ns=each * SECOND + 1000, state=State.PAIRED,
        )
        for each in range(1, count + 1)
    ]  # fmt: skip
    for exchange in made:
        if notes:
            exchange.marks.notes = list(notes)
    return made


def found(*exchanges: Exchange) -> list[Finding]:
    inspector = Inspector()
    for number in {each.connection for each in exchanges}:
        inspector.feed(Opened(number, f"10.0.0.{number}:5000", "10.0.1.1:9092", SECOND))
    for exchange in exchanges:
        inspector.look(exchange)
    return inspector.findings()


def test_what_a_rule_did_is_marked_with_its_name() -> None:
    findings = found(*heartbeats(3, "GROUP_AUTHORIZATION_FAILED", NOTED))
    assert findings and all(each.injected and each.rules == ["auth"] for each in findings)
    assert all(each.to_dict()["injected"] is True and each.to_dict()["rules"] == ["auth"] for each in findings)


def test_what_no_rule_did_is_not() -> None:
    findings = found(*heartbeats(3, "GROUP_AUTHORIZATION_FAILED"))
    assert findings and not any(each.injected or each.rules for each in findings)


def test_a_finding_of_both_is_not_left_out() -> None:
    own = heartbeats(2, "GROUP_AUTHORIZATION_FAILED", NOTED)
    theirs = heartbeats(3, "GROUP_AUTHORIZATION_FAILED", client="other", number=2)
    findings = found(*own, *theirs)
    assert any(not each.injected for each in findings)
    assert not any(each.injected for each in findings if any(e.connection == 2 for e in each.exchanges))


def test_a_session_that_the_proxy_ended_is_its_own_doing() -> None:
    (first, *_) = heartbeats(1, "GROUP_AUTHORIZATION_FAILED", [f"{FOR_TOPICS}: the fetch session was ended"])
    assert all(each.injected and each.rules == [FOR_TOPICS] for each in found(first))


@pytest.mark.parametrize(
    ("mark", "note", "causes"),
    [
        ("broker_response", "edited by hand", [BY_HAND]),
        ("broker_response", f"{NOTED[0]}, edited by hand", ["auth", BY_HAND]),
        ("broker_response", "addresses, dropped by hand", [BY_HAND]),
        ("notes", "answered by hand, not forwarded", [BY_HAND]),
        ("broker_request", "plugin 'tenant': changed", ["plugin tenant"]),
        ("broker_response", "addresses", []),
        ("notes", "a topic that was edited by handwriting", []),
    ],
)
def test_what_stands_on_either_leg(mark: str, note: str, causes: list[str]) -> None:
    exchanges = heartbeats(3, "GROUP_AUTHORIZATION_FAILED")
    for exchange in exchanges:
        marks = exchange.marks
        if mark == "notes":
            marks.notes = [note]
        elif mark == "broker_request":
            marks.broker_request = BrokerLeg(exchange.request, notes=[note])
        else:
            marks.broker_response = BrokerLeg(exchange.response, notes=[note])
    findings = found(*exchanges)
    assert findings and all(each.rules == causes and each.injected is bool(causes) for each in findings)


@pytest.mark.parametrize("injected", [True, False])
def test_a_request_that_a_rule_left_without_an_answer(injected: bool) -> None:
    notes = [hit_note("drop", 1, "response dropped")] if injected else []
    inspector = Inspector()
    inspector.feed(Opened(1, "10.0.0.1:5000", "10.0.1.1:9092", SECOND))
    (exchange,) = heartbeats(1, "NONE")
    exchange.marks.notes = notes
    exchange.response = exchange.response_time_ns = None
    exchange.state = State.PENDING
    inspector.request(exchange)
    exchange.state = State.NO_RESPONSE
    inspector.traffic.at(120 * SECOND)
    inspector.done(exchange)
    inspector.feed(Closed(1, 120 * SECOND, "fin", "client"))
    findings = [each for each in inspector.findings() if each.severity.rank >= 2]
    assert findings and all(each.injected is injected for each in findings), findings


@pytest.mark.parametrize("touched", ["the request that waits", "one that was answered", "none"])
def test_an_answer_that_a_rule_gave_another_correlation_id(touched: str) -> None:
    """Only while a request waits that a rule did something to: what a rule did to others excuses no broker."""
    inspector = Inspector()
    inspector.feed(Opened(1, "10.0.0.1:5000", "10.0.1.1:9092", SECOND))
    first, exchange = heartbeats(2, "NONE")
    if touched != "none":
        noted = exchange if touched == "the request that waits" else first
        noted.marks.notes = [hit_note("corrupt", 1, "correlation damaged")]
    inspector.look(first)
    answer, exchange.response, exchange.state = exchange.response, None, State.PENDING
    inspector.request(exchange)
    inspector.done(
        Exchange(
            connection=1,
            client="10.0.0.1:5000",
            broker="10.0.1.1:9092",
            correlation_id=0x40000002,
            response=answer,
            response_time_ns=3 * SECOND,
            state=State.ORPHAN,
        )
    )
    findings = [each for each in inspector.findings() if each.id == "odd-correlation-ids"]
    assert findings and all(each.injected is (touched == "the request that waits") for each in findings)
