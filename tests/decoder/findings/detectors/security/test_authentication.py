"""SASL and permissions, on recorded traffic of real clients and a real broker; nothing in the captures is masked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from barnabas.decoder import encode_request
from barnabas.decoder.findings import Finding, Severity
from barnabas.decoder.findings.engine.broker_messages import masked
from traffic.conversations import Conversations
from traffic.recordings import findings

SECRETS = ("alice-keeps-this", "not-alices-secret", "no-longer-the-one")
OURS = [
    "sasl-mechanism-mismatch", "sasl-authentication-failed", "credentials-in-clear", "sasl-out-of-turn",
    "request-before-authentication", "sasl-session-expired", "authorization-failed",
]  # fmt: skip


def above_info(found: list[Finding]) -> list[Finding]:
    for finding in found:
        text = json.dumps(finding.to_dict())
        assert not any(secret in text for secret in SECRETS)
    return [f for f in found if f.severity is not Severity.INFO]


@pytest.mark.parametrize(
    ("name", "id_", "words"),
    [
        (
            "wrong-password",
            "sasl-authentication-failed",
            "as 'alice' with PLAIN: Authentication failed: Invalid username",
        ),
        ("wrong-password-scram", "sasl-authentication-failed", "as 'alice' with SCRAM-SHA-256: Authentication failed"),
        ("reauthentication-fails", "sasl-authentication-failed", "with PLAIN on re-authentication: "),
        ("wrong-mechanism", "sasl-mechanism-mismatch", "for SASL mechanism 'SCRAM-SHA-512', but the broker has PLAIN, SCRAM-SHA-256 enabled"),
        ("sasl-on-plain-listener", "sasl-out-of-turn", "answers SaslHandshake of client 'shop'"),
        ("no-sasl", "request-before-authentication", "sends Metadata to broker 127.0.0.1:9092 without authenticating"),
        ("session-expires", "sasl-session-expired", "0.2 s after the end of its SASL session"),
    ],
)
def test_recorded(name: str, id_: str, words: str) -> None:
    (found,) = above_info(findings(f"security-{name}", *OURS))
    assert found.id == id_
    assert words in found.seen and "'shop'" in found.seen
    assert found.about["client_id"] == "shop"
    assert found.severity is (Severity.MEDIUM if id_ == "sasl-session-expired" else Severity.HIGH)


def test_many_tries_are_one_finding() -> None:
    (found,) = above_info(findings("security-wrong-password", *OURS))
    assert found.count == 6 and "; 6 times in " in found.seen and len(found.exchanges) == 5
    assert found.about["mechanism"] == "PLAIN" and found.about["user"] == "alice"


@pytest.mark.parametrize("name", ["plain", "scram", "session-renewed"])
def test_what_works_is_no_finding(name: str) -> None:
    found = findings(f"security-{name}", *OURS)
    assert above_info(found) == []
    assert [f.id for f in found] == ["credentials-in-clear"] and "on one machine" in found[0].seen


@pytest.mark.parametrize("name", ["tls-hello", "plain-on-tls", "http-probe", "refused", "unknown-name-group"])
def test_other_troubles_are_not_of_this_kind(name: str) -> None:
    assert findings(f"security-{name}", *OURS) == []


def test_permissions_by_client_and_error() -> None:
    found = above_info(findings("security-not-allowed", *OURS))
    assert {f.about["error"]: (f.about["apis"], f.about["resources"]) for f in found} == {
        "GROUP_AUTHORIZATION_FAILED": (["FindCoordinator"], ["billing"]),
        "TOPIC_AUTHORIZATION_FAILED": (["Produce"], ["open"]),
    }
    by_error = {f.about["error"]: f for f in found}
    assert "--operation Describe --group billing" in by_error["GROUP_AUTHORIZATION_FAILED"].remedy
    assert "--operation Write --topic open" in by_error["TOPIC_AUTHORIZATION_FAILED"].remedy


class SaslConversation(Conversations):
    """One connection."""

    def __init__(self) -> None:
        super().__init__(*OURS)
        self.connection = self.open()

    def exchange(self, api: str, version: int, body: dict[str, Any], answer: dict[str, Any] | None) -> None:
        self.ask(self.connection, api, version, body, answer)

    def end(self) -> list[Finding]:
        """The broker closes it."""
        self.close(self.connection, by="broker")
        return self.findings()


@pytest.mark.parametrize(
    ("mechanism", "severity"),
    [("PLAIN", Severity.MEDIUM), ("OAUTHBEARER", Severity.MEDIUM), ("SCRAM-SHA-512", Severity.LOW), ("GSSAPI", None)],
)
def test_credentials_in_clear_over_a_network(mechanism: str, severity: Severity | None) -> None:
    conversation = SaslConversation()
    conversation.exchange("SaslHandshake", 1, {"mechanism": mechanism}, {"mechanisms": [mechanism]})
    assert [f.severity for f in conversation.end()] == ([severity] if severity else [])


def test_a_token_out_of_its_time() -> None:
    conversation = SaslConversation()
    token = b"n,,\x01auth=Bearer eyJhbGciOi.eyJzdWIiOiJhbGljZSIsImV4cCI6MX0.c2lnbmF0dXJl\x01\x01"
    message = "The JWT eyJhbGciOi.eyJzdWIiOiJhbGljZSIsImV4cCI6MX0.c2lnbmF0dXJl is no longer valid: exp=1"
    conversation.exchange("SaslHandshake", 1, {"mechanism": "OAUTHBEARER"}, {"mechanisms": ["OAUTHBEARER"]})
    conversation.exchange("SaslAuthenticate", 1, {"auth_bytes": token}, {"error_code": 58, "error_message": message})
    found = next(f for f in conversation.end() if f.id == "sasl-authentication-failed")
    assert "clocks" in found.why and "sasl.oauthbearer.clock.skew.seconds" in found.remedy
    assert "eyJ" not in json.dumps(found.to_dict()) and "***" in found.seen


@pytest.mark.parametrize("reasons", [("Token expired at 12:00", None), (None, "Token expired at 12:00"), (None, "Token expired at 12:00", None)])
def test_a_reason_that_was_given_once_stays(reasons: tuple[str | None, ...]) -> None:
    conversation = SaslConversation()
    for reason in reasons:
        conversation.exchange("SaslHandshake", 1, {"mechanism": "OAUTHBEARER"}, {"mechanisms": ["OAUTHBEARER"]})
        refused = {"error_code": 58, "error_message": reason}
        conversation.exchange("SaslAuthenticate", 1, {"auth_bytes": b"n,,\x01auth=Bearer e.e.e\x01\x01"}, refused)
    found = next(f for f in conversation.end() if f.id == "sasl-authentication-failed")
    assert "Token expired at 12:00" in found.seen and "no reason given" not in found.seen
    assert found.about["said"] == "Token expired at 12:00" and found.count == len(reasons)
    assert "clocks" in found.why and "sasl.oauthbearer.clock.skew.seconds" in found.remedy


def test_a_request_in_time_or_answered_late_is_no_expired_session() -> None:
    for wait, answered in ((0.5, False), (9.0, True)):
        conversation = SaslConversation()
        conversation.exchange("SaslHandshake", 1, {"mechanism": "GSSAPI"}, {})
        conversation.exchange("SaslAuthenticate", 1, {}, {"session_lifetime_ms": 5000})
        conversation.wait(wait)
        conversation.exchange("Metadata", 9, {}, {} if answered else None)
        assert conversation.end() == []


def test_one_close_before_authentication_is_a_broker_that_stops() -> None:
    conversation = SaslConversation()
    conversation.exchange("ApiVersions", 3, {}, {"api_keys": [{"api_key": 3, "min_version": 0, "max_version": 12}]})
    conversation.exchange("Metadata", 9, {}, None)
    assert conversation.end() == []


@pytest.mark.parametrize(
    ("api", "version", "body", "answer", "resources"),
    [
        ("Metadata", 9, {"topics": [{"name": "a"}, {"name": "b"}]},
         {"topics": [{"name": "a", "error_code": 5}, {"name": "b", "error_code": 29}]}, ["b"]),
        ("JoinGroup", 5, {"group_id": "g"}, {"error_code": 30}, ["g"]),
        ("OffsetFetch", 8, {"groups": [{"group_id": "g"}]}, {"groups": [{"group_id": "g", "error_code": 30}]}, ["g"]),
        ("InitProducerId", 3, {"transactional_id": "t"}, {"error_code": 53}, ["t"]),
        ("InitProducerId", 3, {}, {"error_code": 31}, []),
    ],
)  # fmt: skip
def test_permissions_of_any_api(
    api: str, version: int, body: dict[str, Any], answer: dict[str, Any], resources: list[str]
) -> None:
    conversation = SaslConversation()
    for _ in range(2):
        conversation.exchange(api, version, body, answer)
    (found,) = conversation.end()
    assert found.id == "authorization-failed" and found.count == 2 and found.about["resources"] == resources


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("Authentication failed: Invalid username or password", None),
        ("invalid credentials with SASL mechanism SCRAM-SHA-256", None),
        ("bad password=hunter2x for alice", "bad password=*** for alice"),
        ("token: abc", "token: ***"),
        ("got hunter2x", "got ***"),
        ("x" * 300, "***"),
        ("word " * 60, "word " * 39 + "word…"),
    ],
)
def test_masking_of_error_messages(message: str, shown: str | None) -> None:
    asked = encode_request(36, 2, {"auth_bytes": b"\0alice\0hunter2x"})
    assert masked("SaslAuthenticate", message, asked) == (message if shown is None else shown)
    assert masked("SaslAuthenticate", message, asked[:20]) == "***"  # of a request that was cut, the password is not known
    assert masked("SaslAuthenticate", None, asked) == ""
