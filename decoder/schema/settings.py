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
_SUSPECT = re.compile(
    r"login|refresh|phrase|passkey|ticket|assertion|nonce|pepper|salt|seed|mnemonic|kubeconfig|webhook|community"
    r"|identity|service[._-]?account|verifier|backup[._-]?code|unlock|role[._-]?id"
    r"|(^|[._-])(hook|bot|pat|acl|code|mfa|totp|approle|session|hec|routing)([._-]|$)",
    re.I,
)
"""Matches names that may be of credentials: those of values that are no number or switch."""
_TELLS_NOTHING = re.compile(
    r"(?:[+-]?\d[\d.]*\s?(?:%|[a-z]{1,2})?)?|true|false|null|none|default|enabled?|disabled?|on|off"
    r"|yes|no|auto|never|always|required|requested|optional",
    re.I,
)
_RUN = re.compile(r"[A-Za-z0-9+]{8,}", re.A)
_CHANGES = re.compile(r"(?<=[A-Za-z])(?=\d)|(?<=\d)(?=[A-Za-z])", re.A)
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
    r"BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY|\beyJ[\w-]{10}|\b(?:AKIA|ASIA)[0-9A-Z]{12}|\bAIza[\w-]{20}|\bSK[0-9a-f]{32}"
    r"|\b(?:gh[oprsu]_|github_pat_|glpat-|xox[abprs]-|xapp-|hv[bsr]\.|sk-|[rs]k_(?:live|test)_|pypi-|SG\.|dp\.\w\w\.)"
    r"[\w-]{8}|\b(?:npm|hf)_[A-Za-z0-9]{20}"
    r"|(?i:\b(?:basic|bearer)\s{1,8}[\w+/=.~-]{8}|\bdigest\s{1,8}username=|\bapi-key[\"']?\s{0,8}[=:]"
    r"|(?<![\w-])--[\w-]{0,32}(?:pass|password|passwd|passphrase|pwd|secret|token|api-?key)[\s=]{1,8}\S"
    r"|\b(?:mysql|mysqldump|mariadb|sshpass|mongo|mongosh|redis-cli)\s[^\n]{0,64}?(?<=\s)-[ap]\s?\S"
    r"|\s-u\s?[\w.-]{1,64}:\S|\bsqlplus\s{1,8}[^/\s]{1,64}/\S|\blogin\s{1,8}\S{1,64}\s{1,8}password\s"
    r"|\bhooks\.slack\.com/\w|\bdiscord(?:app)?\.com/api/webhooks/|\bwebhook\.office\.com/|\bapi\.telegram\.org/bot"
    r"|[?&](?:key|code|auth)=[^&\s]{6}|<\w{0,32}(?:password|secret|token)>"
    r"|\bjdbc:oracle:\w{1,16}:[^/\s]{1,128}/[^/@\s]{1,128}@)"
)
"""Private keys, tokens of well-known kinds, and credentials as HTTP headers, command lines, webhooks, XML and Oracle's
URLs have them. Each repeat is short, so that a search takes linear time."""


@cache
def _in_clear() -> frozenset[str]:
    text = resources.files(f"{__package__}.definitions").joinpath("settings_in_clear.txt").read_text("utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


def holds_no_credentials(name: str) -> bool:
    """Whether a setting is one of Kafka's own, also for a single listener, whose type has no credentials."""
    if len(name) > MOST_NAME:
        return False
    return name in _in_clear() or ("listener.name." in name and _OF_A_LISTENER.sub("", name, count=1) in _in_clear())


def may_be_credentials(name: str, value: str | None) -> bool:
    """Whether a setting that is none of Kafka's own may be one, as far as its name says, or a value that no word or
    number is: letters and digits mixed."""
    if len(name) > MOST_NAME or SENSITIVE.search(name):
        return True
    if value is None or _TELLS_NOTHING.fullmatch(value):
        return False
    if _SUSPECT.search(name):
        return True
    return any(len(_CHANGES.findall(run[0])) > 1 for run in _RUN.finditer(value[:MOST_VALUE]))


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
