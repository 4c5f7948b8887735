"""Settings of brokers and topics: which are credentials by their names, and which have credentials in their values."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

SENSITIVE = re.compile(
    r"passw|passphrase|passcode|secret|token|credential|jaas|private|keystore\.(key|cert)|truststore\.cert"
    r"|(access|api|encryption|account|master|shared|signing|hmac|license)[._-]?key|licen[sc]e$|(basic|bearer)\.auth"
    r"|pwd|connection[._-]?string|user[._-]?info|authorization$|keytab|(key|trust|store)pass|session[._-]?id|[._-]key$"
    r"|(^|[._-])(pass|pw|pin|psk|otp|sas|jwt|cookie|bearer|creds|auth|dsn|p12|[dk]ek)([._-]|$)",
    re.I,
)
"""Matches names of credentials. Used for names of at most `MOST_NAME` characters."""
MOST_NAME, MOST_VALUE = 1024, 4096
"""Characters of a setting's name and value that are searched. Longer ones count as secrets: hostile values cost no more, and
Kafka's own names and nearly all values are far shorter."""
_OF_A_LISTENER = re.compile(r"listener\.name\.[^.]+\.(?:(?:plain|gssapi|oauthbearer|scram-sha-(?:256|512))\.)?")
_WORD = re.compile(r"(\w++)([\"']?\s*+[=:])?", re.A)
"""A word, and whether ``=`` or ``:`` follows. Its repeats are possessive, so that it takes linear time."""
_CREDENTIAL_WORDS = re.compile(
    r"passw|secret|pwd|credential|(?:access|account|api|shared|private)_?key"
    r"|(?:passphrase|token|authorization|cookie|_pass|^pass|^sig|signature)$",
    re.I,
)
_TELLTALES = re.compile(
    r"PRIVATE KEY-----|\beyJ[\w-]{10}|\b(?:AKIA|ASIA)[0-9A-Z]{12}"
    r"|\b(?:gh[oprsu]_|github_pat_|glpat-|xox[abprs]-|hvs\.|sk-)[\w-]{12}"
    r"|(?i:\b(?:basic|bearer)\s{1,8}[\w+/=.~-]{8}|\bapi-key[\"']?\s{0,8}[=:]|--pass(?:word)?\s{1,8}\S"
    r"|<(?:password|secret|token)>|\bjdbc:oracle:\w{1,16}:[^/\s]{1,128}/[^/@\s]{1,128}@)"
)
"""Private keys, tokens of well-known kinds, and credentials as HTTP headers, command lines, XML and Oracle's URLs have
them. Each repeat is short, so that a search takes linear time."""


@cache
def _in_clear() -> frozenset[str]:
    text = resources.files(f"{__package__}.explanations").joinpath("settings_in_clear.txt").read_text("utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


def holds_no_credentials(name: str) -> bool:
    """Whether a setting is one of Kafka's own, also for a single listener, whose type has no credentials."""
    if len(name) > MOST_NAME:
        return False
    return name in _in_clear() or ("listener.name." in name and _OF_A_LISTENER.sub("", name, count=1) in _in_clear())


def holds_credentials(text: str) -> bool:
    """Whether a value has credentials, whatever its setting's name is: ``password=…``, ``user:password@host``, a private key. A
    value that is too long to be searched counts as if it has."""
    if len(text) > MOST_VALUE or _TELLTALES.search(text) is not None or ("@" in text and _has_user_info(text)):
        return True
    named = "=" in text or ":" in text
    return named and any(word[2] and _CREDENTIAL_WORDS.search(word[1]) for word in _WORD.finditer(text))


def _has_user_info(text: str) -> bool:
    """Whether there is a ``user:password`` or ``:password`` before an ``@``, as in URLs and connection strings."""
    for before in text.split("@")[:-1]:
        _, separator, password = re.split(r"[\s/,;\"']", before)[-1].partition(":")
        if separator and password:
            return True
    return False
