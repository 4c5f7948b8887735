"""SASL steps: names and numbers are shown, secrets are not."""

from __future__ import annotations

import base64

import pytest
from barnabas import decoder
from barnabas.decoder import embedded

CANARY = "c4nary-S3CRET"
B64 = base64.b64encode(CANARY.encode()).decode()
SHA_256 = base64.b64encode(b"proof-" + bytes(26)).decode()
SHA_512 = base64.b64encode(b"proof-" + bytes(58)).decode()

STEPS = [
    (
        f"\0alice\0{CANARY}",
        {"mechanism": "PLAIN", "step": "credentials", "authzid": "", "username": "alice", "password": "********"},
    ),
    (f"bob\0alice\0{CANARY}", {"mechanism": "PLAIN", "authzid": "bob", "username": "alice"}),
    (
        f"n,,n=al=2Cice=3D,r={CANARY}",
        {"family": "SCRAM", "step": "client-first", "username": "al,ice=", "nonce_length": 13, "extensions": {}},
    ),
    (f"n,a=bob,n=alice,r={CANARY},tokenauth=true", {"authzid": "bob", "extensions": {"tokenauth": "true"}}),
    (f"p=tls-unique,,n=alice,r={CANARY}", {"step": "client-first", "username": "alice"}),
    (
        f"r={CANARY},s={B64},i=8192",
        {"family": "SCRAM", "step": "server-first", "nonce_length": 13, "salt": "********", "iterations": 8192},
    ),
    (f"c=biws,r={CANARY},p={SHA_256}", {"mechanism": "SCRAM-SHA-256", "step": "client-final", "proof": "********"}),
    (f"c=biws,r={CANARY},x=1,p={SHA_512}", {"mechanism": "SCRAM-SHA-512", "step": "client-final"}),
    (f"v={SHA_512}", {"mechanism": "SCRAM-SHA-512", "step": "server-final", "signature": "********"}),
    ("e=invalid-proof", {"family": "SCRAM", "step": "server-final", "error": "invalid-proof"}),
    (
        f"n,a=alice,\x01auth=Bearer {CANARY}.{B64}.x\x01logicalCluster=lc-1\x01my-secret={CANARY}\x01\x01",
        {
            "mechanism": "OAUTHBEARER",
            "step": "client-first",
            "authzid": "alice",
            "token": "********",
            "extensions": {"logicalCluster": "lc-1", "my-secret": "********"},
        },
    ),
    (f"n,,\x01auth={CANARY}\x01\x01", {"mechanism": "OAUTHBEARER", "scheme": "********", "extensions": {}}),
    (
        f'{{"status":"invalid_token","scope":"kafka","more":"{CANARY}"}}',
        {"mechanism": "OAUTHBEARER", "step": "server error", "status": "invalid_token", "scope": "kafka"},
    ),
    ("\x01", {"mechanism": "OAUTHBEARER", "step": "client acknowledges the error"}),
    ("*" * 20, {"mechanism": None, "step": "masked", "length": 20}),
    ("", {"step": "empty"}),
    (f"nothing known {CANARY}", {"mechanism": None, "step": "unknown", "length": 27}),
    (f"a\0b\0c\0{CANARY}", {"mechanism": None, "step": "unknown"}),
    (f"{{{CANARY}", {"mechanism": None, "step": "unknown"}),
]


@pytest.mark.parametrize(("token", "expected"), STEPS)
def test_steps(token, expected):
    found = embedded.sasl_step(token.encode())
    assert expected.items() <= found.items()
    assert "c4nary" not in str(found) and B64 not in str(found) and "proof-" not in str(found)
    assert SHA_256 not in str(found) and SHA_512 not in str(found)


KRB5 = bytes.fromhex("06092a864886f712010202")
GSSAPI = [
    (b"\x60\x82\x02\x00" + KRB5 + b"\1\0" + b"ticket", "AP-REQ", "Kerberos 5"),
    (b"\x60\x1f" + KRB5 + b"\2\0" + b"ticket", "AP-REP", "Kerberos 5"),
    (b"\x60\x1f" + KRB5 + b"\x99\0", "initial context token", "Kerberos 5"),
    (b"\x60\x1f" + bytes.fromhex("06062b0601050502") + b"ticket", "initial context token", "SPNEGO"),
    (b"\x60", "initial context token", None),
    (b"\xa1\x14\x30", "SPNEGO answer", None),
    (bytes.fromhex("050404ff000c0000"), "wrap token", None),
    (b"\x04\x04\x00", "MIC token", None),
]


@pytest.mark.parametrize(("token", "step", "mechanism"), GSSAPI)
def test_gssapi(token, step, mechanism):
    found = embedded.sasl_step(token)
    assert (found["mechanism"], found["step"], found["length"]) == ("GSSAPI", step, len(token))
    assert found.get("gss_mechanism") == mechanism and "ticket" not in str(found)


@pytest.mark.parametrize("kind", ["request", "response"])
def test_in_messages(body, kind):
    (payload,) = embedded.of(body(kind, "SaslAuthenticate", 2, {"auth_bytes": f"\0alice\0{CANARY}".encode()}))
    assert (payload.path, payload.kind) == ("auth_bytes", "SASL PLAIN") and payload.fields["username"] == "alice"
    (payload,) = embedded.of(body(kind, "SaslAuthenticate", 0, {"auth_bytes": f"r=x,s={B64},i=1".encode()}))
    assert payload.kind == "SASL SCRAM"
    assert list(embedded.of(body(kind, "SaslAuthenticate", 1, {"auth_bytes": b""}))) == []


def test_tokens_recorded_by_kafkajs(vectors):
    steps = set()
    for row in vectors("kafkajs_bodies.jsonl"):
        api, _, name = row["src"].partition("/fixtures/")
        if api == "saslAuthenticate" and name.startswith(("v0_", "v1_")) and ("request" in name or "response" in name):
            kind = "request" if "request" in name else "response"
            try:
                message = decoder.decode_body(kind, 36, int(name[1]), bytes.fromhex(row["hex"]))
            except decoder.DecodeError:
                continue  # a token without the message around it
            steps |= {(p.kind, p.fields["step"]) for p in embedded.of(message)}
    assert {step for _, step in steps} & {"credentials", "client-first", "server-first", "client-final", "server-final"}
    assert "unknown" not in {step for _, step in steps}
