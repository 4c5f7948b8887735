"""The table `errors`: one row per error code that is not 0, anywhere in a response."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...decoder import Exchange, facts
from . import bodies
from .columns import KEY, Column, Table

TABLE = Table(
    "errors",
    "error code that is not 0, anywhere in a response",
    (
        *KEY,
        Column("path", "string", "where in the response it stands, such as `topics[0].partitions[1].error_code`"),
        *bodies.TOPIC,
        Column("group_id", "string", "the group that it is about, also where only the request names it", null=True),
        Column("resource", "string", "a config's resource, a transactional id, a coordinator's key", null=True),
        Column("error_code", "int16", "Kafka's number"),
        Column("error", "string", "its name"),
        Column("error_message", "string", "what the broker says beside it", null=True),
    ),
)


def rows(exchange: Exchange) -> Iterator[dict[str, Any]]:
    """The columns behind those of `KEY`."""
    answered = exchange.response_message
    if answered is None:
        return
    asked = None
    for leaf in bodies.errors(answered):
        if asked is None:
            asked = _asked(exchange)
        about = {**asked, **leaf.about}
        yield {
            "path": leaf.path,
            **bodies.named(about, exchange),
            "group_id": about.get("group_id"),
            "resource": about.get("resource"),
            "error_code": leaf.value,
            "error": facts.error_name(leaf.value),
            "error_message": leaf.message,
        }


def _asked(exchange: Exchange) -> dict[str, Any]:
    """The group that the request names as a whole: its answer may not say it again."""
    asked = exchange.request_message
    if asked is not None:
        for field, value in zip(asked.plan.root.fields, asked.values, strict=False):
            if field.name == "group_id" and isinstance(value, str):
                return {"group_id": value}
    return {}
