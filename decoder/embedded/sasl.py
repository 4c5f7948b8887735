"""Recognise a SASL token, and show it with every secret hidden.

Nothing is verified or computed. Names, nonce lengths and iteration counts are shown; passwords, tokens, salts, proofs and
signatures are not. Sources: RFC 4616 (PLAIN), RFC 5802 and 7677 (SCRAM), RFC 7628 (OAUTHBEARER),
RFC 4121 and 2743 (GSSAPI); KIP-48 and KIP-342 for Kafka's extensions.
"""

from __future__ import annotations

import base64
import binascii
import json
import re

from ..codec.payload import HIDDEN
from ..schema.plan import Fields
from ..schema.settings import SENSITIVE

_GS2 = re.compile(r"(?P<binding>[ny]|p=[A-Za-z0-9.-]+),(?:a=(?P<authzid>[^,]*))?,(?P<rest>.*)", re.S)
_NONCE = r"[!-+\--~]+"
_CLIENT_FIRST = re.compile(rf"n=(?P<user>[^,]*),r=(?P<nonce>{_NONCE})(?P<extensions>(?:,[a-zA-Z]+=[^,]*)*)")
_SERVER_FIRST = re.compile(rf"r=(?P<nonce>{_NONCE}),s=(?P<salt>[^,]+),i=(?P<iterations>\d{{1,10}})(?:,.*)?", re.S)
_CLIENT_FINAL = re.compile(rf"c=(?P<binding>[^,]*),r=(?P<nonce>{_NONCE})(?:,[^,]*)*?,p=(?P<proof>[^,]+)", re.S)
_SERVER_FINAL = re.compile(r"(?:v=(?P<signature>[^,]+)|e=(?P<error>[^,]+))(?:,.*)?", re.S)
_SCRAM = {32: "SCRAM-SHA-256", 64: "SCRAM-SHA-512"}

# RFC 4121, section 4.2: the first two bytes of tokens after the first; RFC 1964's wrap and MIC are 02 01 and 01 01.
_GSS_TOKENS = {b"\x05\x04": "wrap token", b"\x04\x04": "MIC token", b"\x02\x01": "wrap token", b"\x01\x01": "MIC token"}
_GSS_MECHANISMS = {
    b"\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02": "Kerberos 5",
    b"\x06\x06\x2b\x06\x01\x05\x05\x02": "SPNEGO",
}
_KRB5_TOKENS = {b"\x01\x00": "AP-REQ", b"\x02\x00": "AP-REP", b"\x03\x00": "KRB-ERROR"}


def step(data: bytes) -> Fields:
    """The content of a SASL token: ``mechanism`` (None if unknown), ``step``, and the fields that may be shown.

    Never raises. SCRAM's mechanism is None until a proof or signature shows which hash is used. The step of a token that
    was masked when it was recorded is ``masked``.
    """
    if not data:
        return {"mechanism": None, "step": "empty"}
    if not data.strip(b"*"):
        return {"mechanism": None, "step": "masked", "length": len(data)}
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    for read in (_plain, _oauth, _scram) if text else ():
        found = read(text)
        if found:
            return found
    return _gssapi(data) or {"mechanism": None, "step": "unknown", "length": len(data)}


def _plain(text: str) -> Fields | None:
    parts = text.split("\0")
    if len(parts) != 3 or not parts[1]:
        return None
    authzid, user, password = parts
    return {
        "mechanism": "PLAIN",
        "step": "credentials",
        "authzid": authzid,
        "username": user,
        "password": HIDDEN if password else "",
    }


def _oauth(text: str) -> Fields | None:
    if text == "\x01":
        return {"mechanism": "OAUTHBEARER", "step": "client acknowledges the error"}
    if text.startswith("{"):
        return _oauth_error(text)
    head = _GS2.fullmatch(text)
    if not head or not head["rest"].startswith("\x01"):
        return None
    pairs = dict(pair.partition("=")[::2] for pair in head["rest"].split("\x01") if "=" in pair)
    if "auth" not in pairs:
        return None
    scheme = pairs.pop("auth").partition(" ")[0]
    return {
        "mechanism": "OAUTHBEARER",
        "step": "client-first",
        "authzid": head["authzid"] or "",
        "scheme": scheme if scheme.lower() == "bearer" else HIDDEN,
        "token": HIDDEN,
        "extensions": {name: HIDDEN if SENSITIVE.search(name) else value for name, value in pairs.items()},
    }


def _oauth_error(text: str) -> Fields | None:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or "status" not in fields:
        return None
    shown = {
        name: fields[name] for name in ("status", "scope", "openid-configuration") if isinstance(fields.get(name), str)
    }
    return {"mechanism": "OAUTHBEARER", "step": "server error", **shown}


def _scram(text: str) -> Fields | None:
    head = _GS2.fullmatch(text)
    if head and (first := _CLIENT_FIRST.fullmatch(head["rest"])):
        pairs = [pair.partition("=")[::2] for pair in first["extensions"].split(",")[1:]]
        return {
            "mechanism": None,
            "step": "client-first",
            "family": "SCRAM",
            "authzid": _unescaped(head["authzid"] or ""),
            "username": _unescaped(first["user"]),
            "nonce_length": len(first["nonce"]),
            "extensions": {name: HIDDEN if SENSITIVE.search(name) and value != "true" else value for name, value in pairs},
        }
    if found := _SERVER_FIRST.fullmatch(text):
        return {
            "mechanism": None,
            "step": "server-first",
            "family": "SCRAM",
            "nonce_length": len(found["nonce"]),
            "salt": HIDDEN,
            "iterations": int(found["iterations"]),
        }
    if found := _CLIENT_FINAL.fullmatch(text):
        return {
            "mechanism": _hash_of(found["proof"]),
            "step": "client-final",
            "family": "SCRAM",
            "nonce_length": len(found["nonce"]),
            "proof": HIDDEN,
        }
    if found := _SERVER_FINAL.fullmatch(text):
        out = {"mechanism": _hash_of(found["signature"] or ""), "step": "server-final", "family": "SCRAM"}
        return {**out, "error": found["error"]} if found["error"] else {**out, "signature": HIDDEN}
    return None


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _hash_of(encoded: str) -> str | None:
    try:
        return _SCRAM.get(len(base64.b64decode(encoded, validate=True)))
    except (binascii.Error, ValueError):
        return None


def _gssapi(data: bytes) -> Fields | None:
    out: Fields = {"mechanism": "GSSAPI", "step": "", "length": len(data)}
    if data[0] == 0x60:
        # [APPLICATION 0], a DER length of 1 to 5 bytes, and the mechanism's object identifier.
        at = 2 + (data[1] & 0x7F if len(data) > 1 and data[1] & 0x80 else 0)
        out["step"] = "initial context token"
        for oid, name in _GSS_MECHANISMS.items():
            if data.startswith(oid, at):
                out["gss_mechanism"] = name
                kind = _KRB5_TOKENS.get(data[at + len(oid) : at + len(oid) + 2])
                if kind:
                    out["step"] = kind
        return out
    if data[0] == 0xA1:
        return {**out, "step": "SPNEGO answer"}
    out["step"] = _GSS_TOKENS.get(data[:2], "")
    return out if out["step"] else None
