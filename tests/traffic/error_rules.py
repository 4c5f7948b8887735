"""A short way to make rules that answer with an error."""

from __future__ import annotations

from barnabas.decoder.schema import facts
from barnabas.plugins.rules.rules import Rule


def error_rule(
    name: str,
    api_key: int,
    error_code: int,
    topic: str | None = None,
    partition: int | None = None,
    forward: bool = False,
    after: int = 0,
    times: int | None = None,
) -> Rule:
    """`forward`: the broker executes the request."""
    match = f"api == {facts.api_name(api_key)}"
    match += f' and topic == "{topic}"' if topic is not None else ""
    match += f" and partition == {partition}" if partition is not None else ""
    when = ({"after": after} if after else {}) | ({"times": times} if times is not None else {})
    do = {"error": facts.error_name(error_code), "broker": "executed" if forward else "skipped"}
    return Rule.of(match, do, name=name, when=when)
