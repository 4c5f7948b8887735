"""No message switches a detector off, whatever stands in it: every API and version with unknown tagged fields, nulls, empty
and extreme values."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from barnabas.decoder import Exchange, findings
from barnabas.decoder.connection.events import Closed
from barnabas.decoder.findings import Inspector, Severity
from barnabas.decoder.findings.detectors.cluster.throttling import Throttled
from barnabas.decoder.findings.detectors.security.authorization import AuthorizationFailed
from barnabas.decoder.findings.engine.traffic import ClientConnection
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.plan import plan
from traffic.unusual_messages import Conversation, Message, every_version, nulls, unusual, usual

METADATA = facts.api_key("Metadata")


def _failed(exchanges: Iterable[Exchange]) -> list[str]:
    inspector = Inspector()
    for exchange in exchanges:
        inspector.look(exchange)
    inspector.feed(Closed(1, inspector.traffic.now_ns + 1, "rst", "broker"))
    return [finding.seen for finding in inspector.findings() if finding.id == "detector-failed"]


def _pairs(requests: Iterable[Message], responses: Iterable[Message]) -> Iterator[tuple[Message, Message]]:
    requests, responses = list(requests), list(responses)
    least, most = sorted((requests, responses), key=len)
    for one, other in zip(most, itertools.cycle(least), strict=False):
        yield (one, other) if most is requests else (other, one)


def _unusual(seed: int) -> Iterator[Exchange]:
    conversation = Conversation()
    for key, version in every_version():
        for request, response in _pairs(unusual("request", key, version, seed), unusual("response", key, version, seed)):
            yield conversation.exchange(request, response)


def _with_nulls(seed: int, every: int, first: int = 0) -> Iterator[Exchange]:
    """Every `every`-th of all messages with a null, those of requests with a usual answer and the other way round."""
    conversation = Conversation()
    number = first
    for key, version in every_version():
        for kind in ("request", "response"):
            for message in nulls(kind, key, version, seed):
                number += 1
                if number % every:
                    continue
                other = usual("response" if kind == "request" else "request", key, version)
                yield conversation.exchange(*((message, other) if kind == "request" else (other, message)))


def test_no_detector_fails_on_unusual_messages() -> None:
    assert _failed(_unusual(0)) == []


def test_no_detector_fails_on_nulls() -> None:
    assert _failed(_with_nulls(0, every=4)) == []


def _denied(count: int) -> list[Exchange]:
    """Metadata answered with TOPIC_AUTHORIZATION_FAILED."""
    of = plan("response", METADATA, 1)
    answer = Message(of, ((), -1, ((29, "orders", False, ()),)), "")
    conversation = Conversation()
    return [conversation.exchange(usual("request", METADATA, 1), answer) for _ in range(count)]


def test_a_detector_that_raises_loses_one_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    done = AuthorizationFailed.done

    def fails_once(self: AuthorizationFailed, conn: ClientConnection, exchange: Exchange) -> None:
        if exchange.correlation_id == 2:
            raise TypeError("a fault")
        done(self, conn, exchange)

    monkeypatch.setattr(AuthorizationFailed, "done", fails_once)
    inspector = Inspector()
    for exchange in _denied(5):
        inspector.look(exchange)
    for _ in range(2):  # findings may be asked for again
        found = {finding.id: finding for finding in inspector.findings()}
        assert found["authorization-failed"].count == 4
        failed = found["detector-failed"]
        assert (failed.severity, failed.count) == (Severity.MEDIUM, 1)
        assert failed.about == {"detector": "authorization-failed"} and "authorization-failed" in failed.seen
        assert [e.correlation_id for e in failed.exchanges] == [2]


def test_a_detector_that_cannot_finish_keeps_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Throttled, now_ns: int) -> None:
        raise KeyError("a fault")

    monkeypatch.setattr(Throttled, "finish", fails)
    inspector, conversation = Inspector(), Conversation()
    answer = Message(plan("response", METADATA, 3), (5000, (), None, -1, ()), "")
    for _ in range(3):
        inspector.look(conversation.exchange(usual("request", METADATA, 3), answer))
    for _ in range(2):
        found = {finding.id: finding.count for finding in inspector.findings()}
        assert (found["throttled-by-quota"], found["detector-failed"]) == (3, 1)


@pytest.mark.parametrize("path", ["request_message", "response_message", "values_at"])
def test_detectors_read_messages_through_their_view(path: str) -> None:
    """What is null against the definition, or unknown, is in messages and not in views."""
    folder = Path(findings.__file__).parent
    assert [file.name for file in folder.rglob("*.py") if path in file.read_text()] == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_no_detector_fails_on_many_unusual_messages(seed: int) -> None:
    assert _failed(_unusual(seed)) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_no_detector_fails_on_any_null(seed: int) -> None:
    assert _failed(_with_nulls(seed, every=1)) == []
