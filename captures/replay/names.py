"""Names that the user wants otherwise at the target: topics, groups, transactional ids, client ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...decoder import embedded
from ...decoder.embedded.payload import leading_int16
from ...decoder.errors import DecodeError, EncodeError


@dataclass(frozen=True, slots=True)
class Names:
    """Recorded name -> name at the target; what is not listed keeps its name."""

    topics: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    transactional_ids: Mapping[str, str] = field(default_factory=dict)
    client_ids: Mapping[str, str] = field(default_factory=dict)

    def topic(self, name: str) -> str:
        return self.topics.get(name, name)

    def group(self, name: str) -> str:
        return self.groups.get(name, name)

    def transactional_id(self, name: str) -> str:
        return self.transactional_ids.get(name, name)

    def client_id(self, name: str | None) -> str | None:
        return name if name is None else self.client_ids.get(name, name)

    def subscription(self, data: bytes) -> bytes:
        """A member's subscription with its topics renamed; bytes of other protocols stay."""
        return self._renamed(data, "ConsumerProtocolSubscription") if self.topics and data else data

    def assignment(self, data: bytes) -> bytes:
        """A member's assignment with its topics renamed; bytes of other protocols stay."""
        return self._renamed(data, "ConsumerProtocolAssignment") if self.topics and data else data

    def _renamed(self, data: bytes, name: str) -> bytes:
        read = embedded.subscription if name.endswith("Subscription") else embedded.assignment
        try:
            fields = read(data)
            version = leading_int16(data, name)
        except DecodeError:
            return data
        layout = fields.pop("layout_version", fields.pop("version"))
        fields.pop("version", None)
        if "surplus_bytes" in fields or not self._rename(fields):
            return data
        try:
            return version.to_bytes(2, "big") + embedded.encode(name, layout, fields)
        except (EncodeError, KeyError):
            return data

    def _rename(self, fields: dict[str, Any]) -> bool:
        """Whether a name was changed."""
        before = [list(fields.get("topics") or ()), [e["topic"] for e in _partitions(fields)]]
        if isinstance(fields.get("topics"), list):
            fields["topics"] = [self.topic(name) for name in fields["topics"]]
        for entry in _partitions(fields):
            entry["topic"] = self.topic(entry["topic"])
        return before != [list(fields.get("topics") or ()), [e["topic"] for e in _partitions(fields)]]


def _partitions(fields: dict[str, Any]) -> list[dict[str, Any]]:
    found = fields.get("owned_partitions") or fields.get("assigned_partitions") or []
    return [entry for entry in found if isinstance(entry, dict) and "topic" in entry]
