"""Findings in one sentence that can be forwarded: who fails, at what, since when, and the likeliest cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .engine.finding import Finding, Severity
from .engine.formatting import some, times

_VERBS = {Severity.HIGH: "fails", Severity.MEDIUM: "has a problem"}
_SHOWN = 3


def summary(findings: Iterable[Finding], moment: Callable[[int], str]) -> str:
    """The sentence, or "" if no finding is above info.

    findings: as `Inspector.findings` returns them. moment: formats a time in nanoseconds since the epoch.
    """
    first = next((finding for finding in findings if finding.severity is not Severity.INFO), None)
    if first is None:
        return ""
    when = ""
    if first.first_ns is not None:
        when = f" {'at' if first.count == 1 else 'since'} {moment(first.first_ns)}"
    often = f", {times(first.count)}" if first.count > 1 else ""
    effects = f" It also explains {some(first.effects, _SHOWN)}." if first.effects else ""
    if first.severity is Severity.LOW:
        return f"Nothing fails. What costs most{when}{often}: {_sentence(first.seen)}{effects}"
    clients = first.about.get("clients")
    verb = _VERBS[first.severity]
    if clients and len(clients) > 1:
        verb = verb.replace("fails", "fail").replace("has ", "have ")
    return f"{_who(first)} {verb}{_at(first)}{when}{often}. Likeliest cause: {_cause(first)}{effects}"


def _who(finding: Finding) -> str:
    about = finding.about
    clients = about.get("clients") or []
    if len(clients) > 1:
        return f"{len(clients)} clients ({some((repr(each.get('client_id')) for each in clients), _SHOWN)})"
    if about.get("client_id"):
        software = f" ({about['software']})" if about.get("software") else ""
        return f"Client {about['client_id']!r}{software}"
    if about.get("client"):
        return f"The client at {str(about['client']).rpartition(':')[0]}"
    return f"Broker {about['broker']}" if about.get("broker") else "Traffic"


def _at(finding: Finding) -> str:
    about = finding.about
    if about.get("api"):
        version = about.get("api_version")
        return f" at {about['api']}{'' if version is None else f' v{version}'}"
    return ""


def _cause(finding: Finding) -> str:
    """What was seen, without naming the only client once more."""
    about, seen = finding.about, finding.seen
    if about.get("client_id") and len(about.get("clients") or ()) < 2:
        software = f" ({about['software']})" if about.get("software") else ""
        host = str(about.get("client") or "").rpartition(":")[0] or "an unknown address"
        seen = seen.replace(f"client {about['client_id']!r}{software} at {host}", "the client", 1)
    return _sentence(seen)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
