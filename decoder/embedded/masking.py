"""Which parts of embedded payloads are credentials, and how they are shown: the field stays, its content does not."""

from __future__ import annotations

from typing import Any

from ..reference.settings import SENSITIVE
from .metadata_log import SECRET_FIELDS, secret_setting

HIDDEN = "********"
"""Stands for a secret of any length."""

def sensitive(name: str) -> bool:
    """Whether a setting of this name, or an extension of an OAUTHBEARER step, may be a secret."""
    return bool(SENSITIVE.search(name))


def masked(record: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a metadata record as they may be shown."""
    hidden = SECRET_FIELDS.get(record, ())
    if record == "ConfigRecord" and not secret_setting(fields.get("name"), fields.get("value")):
        hidden = ()
    return {name: HIDDEN if name in hidden and value else value for name, value in fields.items()}
