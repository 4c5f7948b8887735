"""Which errors a response can carry, those that brokers send for its API first."""

from __future__ import annotations

from ...decoder import explain, facts
from ...plugins.answers import carries
from .finding_box import Name


def answerable(api_key: int, version: int) -> bool:
    """Whether the API's response has a place for an error code at this version."""
    try:
        return carries(api_key, version)
    except KeyError:
        return False


def error_names(api_key: int) -> list[Name]:
    """Every error but NONE: first what brokers answer to this API, then what they answer to any, then the others."""
    api = facts.api_name(api_key)
    found: list[tuple[int, Name]] = []
    for code, fact in facts.errors().items():
        if not code:
            continue
        text = explain.error(code)
        own = api in text.apis
        rank = 0 if own else 1 if text.every else 2
        again = "retriable" if fact.retriable else "not retriable"
        where = "" if rank < 2 else "; brokers do not send it for this API"
        found.append((rank, Name(fact.name, f"{code:>4}  {again}{where}")))
    return [name for _, name in sorted(found, key=lambda each: each[0])]
