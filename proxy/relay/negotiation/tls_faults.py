"""What a failed TLS handshake means, in words: the cause, and what to do about it."""

from __future__ import annotations

import re
import ssl

PLAIN_CLIENT = (
    "the client uses plaintext on the TLS listener: set security.protocol=SSL (or SASL_SSL) in the client, or start "
    "the proxy without --tls-ca and --tls-cert"
)
PLAIN_BROKER = "the broker does not use TLS on this port: leave --broker-tls out, or give its TLS listener with --broker"
_VERIFY = {
    9: "is not valid yet",
    10: "has expired",
    18: "is self-signed",
    19: "comes from a CA that is not trusted (its chain ends in a self-signed certificate)",
    20: "comes from a CA that is not trusted",
    21: "comes from a CA that is not trusted",
    23: "was revoked",
    62: "is for another host name",
    64: "is for another IP address",
}
"""OpenSSL's X509_V_ERR codes."""
_REMEDY = {
    10: "renew it on the broker",
    62: "give the name in it with --broker-name, or connect by that name",
    64: "give the name in it with --broker-name, or connect by that name",
}
_TRUST = "give the CA's certificate with --broker-ca"


def _alert(error: ssl.SSLError) -> str:
    """The peer's alert, as the RFCs spell it; "" if it is none. OpenSSL numbers its reasons 1000 + alert."""
    found = re.fullmatch(r"(?:SSLV3|TLSV1|TLSV13)_ALERT_(\w+)", error.reason or "")
    return found[1].lower() if found else ""


def _plain(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


def why_client(error: ssl.SSLError, _: str = "") -> str:
    """What a failed handshake with a client means and what to do."""
    alert = _alert(error)
    if alert in ("unknown_ca", "certificate_unknown", "bad_certificate", "unsupported_certificate", "access_denied"):
        return (
            f"the client does not trust the proxy's certificate (alert {alert}): give the client the CA that issued it, "
            "and connect by a name that it contains"
        )
    if alert == "certificate_expired":
        return f"the proxy's certificate has expired (alert {alert}): give a new one with --tls-cert and --tls-key"
    if alert:
        return f"the client aborted the TLS connection (alert {alert})"
    if error.reason in ("UNSUPPORTED_PROTOCOL", "VERSION_TOO_LOW", "UNKNOWN_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION"):
        return "the client offers no TLS 1.2 or newer: update it, or allow TLSv1.2 in its ssl.enabled.protocols"
    if error.reason in ("NO_SHARED_CIPHER", "NO_SUITABLE_SIGNATURE_ALGORITHM", "NO_SUITABLE_KEY_SHARE"):
        return f"client and proxy have no TLS version or cipher in common ({_plain(error)})"
    if error.reason in ("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "HTTPS_PROXY_REQUEST"):
        return PLAIN_CLIENT
    if error.reason == "CALLBACK_FAILED":
        return "the client asks for a server name that is not text (bytes beyond ASCII in its TLS hello)"
    return f"TLS with the client failed: {_plain(error)}"


def why_broker(error: ssl.SSLError, expiry: str = "") -> str:
    """What a failed handshake with a broker means and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        code = error.verify_code
        what = _VERIFY.get(code, f"is refused ({error.verify_message})")
        if code == 10 and expiry:
            what = f"has expired (it was valid until {expiry})"
        return f"the broker's certificate {what}: {_REMEDY.get(code, _TRUST)}"
    alert = _alert(error)
    if alert in ("protocol_version", "insufficient_security") or error.reason in (
        "UNSUPPORTED_PROTOCOL",
        "VERSION_TOO_LOW",
    ):
        return "the broker offers no TLS 1.2 or newer: enable it in the broker's ssl.enabled.protocols"
    if alert in ("certificate_required", "bad_certificate", "unknown_ca", "certificate_unknown", "certificate_expired"):
        return (
            f"the broker does not accept the proxy's certificate (alert {alert}): "
            "give one that it trusts with --broker-cert and --broker-key"
        )
    if alert == "handshake_failure":
        return (
            "the broker refuses the TLS handshake (alert handshake_failure): it may require a client certificate "
            "(--broker-cert and --broker-key)"
        )
    if alert:
        return f"the broker aborted the TLS connection (alert {alert})"
    if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"):
        return PLAIN_BROKER
    return f"TLS with the broker failed: {_plain(error)}"
