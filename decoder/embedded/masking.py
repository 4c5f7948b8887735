"""Which parts of embedded payloads are credentials, and how they are shown: the field stays, its content does not."""

from __future__ import annotations

from typing import Any

from ..secrets import SENSITIVE

HIDDEN = "********"
"""Stands for a secret of any length."""

MASKED_RECORDS = {
    "UserScramCredentialRecord": ("salt", "stored_key", "server_key"),
    "ConfigRecord": ("value",),
}
"""Metadata records with credentials, or with settings that may be some."""


def sensitive(name: str) -> bool:
    """Whether a setting of this name, or an extension of an OAUTHBEARER step, may be a secret."""
    return bool(SENSITIVE.search(name))


def masked(record: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of one of `MASKED_RECORDS` as they may be shown."""
    if record == "ConfigRecord" and not sensitive(str(fields.get("name"))):
        return fields
    hidden = MASKED_RECORDS[record]
    return {name: HIDDEN if name in hidden and value else value for name, value in fields.items()}
