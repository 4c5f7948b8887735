"""A message as flat paths that are comparable between two runs.

Items are named by what they are about: ``topics[orders].partitions[0].error_code`` is the same place in both recordings,
wherever the item stands. Fields that differ between any two runs (`..replay.roles`) are left out; names of topics, groups and
transactions of the second recording are mapped to those of the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ...decoder import Message
from ...decoder.schema.meaning import Meaning
from ...decoder.schema.plan import FieldPlan, StructPlan
from ..replay.roles import NAMES, VOLATILE, paths
from ..serving.recorded_exchanges import Named

_TOPIC = frozenset({Meaning.TOPIC, Meaning.TOPIC_ID})
_INSIDE = frozenset({Meaning.SUBSCRIPTION, Meaning.ASSIGNMENT})


class Value(NamedTuple):
    """A value at a place. `path` without what its items are about, for differences that many items share; `shown`: the same with the
    names of settings and the like, each of which is a difference of its own."""

    path: str
    value: Any
    role: Meaning | None
    shown: str


class Flattener:
    """Flattens messages of one recording. `mapped` gives a name's counterpart; `asked_for` are all names that requests
    of either recording hold: items of answers about anything else are left out."""

    def __init__(self, named: Named, mapped: Mapping[str, str], asked_for: frozenset[str]) -> None:
        self._named, self._mapped, self._asked_for = named, mapped, asked_for

    def flat(self, message: Message) -> dict[str, Value]:
        """Every stable value by its path."""
        roles = paths(message.plan.kind, message.api_key, message.plan.version)
        answer = message.plan.kind == "response"
        return dict(self._struct(message.plan.root, message.values, "", "", "", roles, answer))

    def name(self, role: Meaning, value: Any) -> str:
        """A name as the first recording has it."""
        text = self._named(value) or value.hex() if role is Meaning.TOPIC_ID else str(value)
        return self._mapped.get(text, text)

    def _struct(
        self,
        of: StructPlan,
        values: tuple[Any, ...],
        path: str,
        plain: str,
        shown: str,
        roles: dict[str, Meaning],
        answer: bool,
    ) -> Iterator[tuple[str, Value]]:
        for field, value in zip(of.fields, values, strict=False):
            generic = plain + field.name + ("[*]" if field.array else "")
            role = roles.get(generic)
            if value is None or role is Meaning.RECORDS or (role in VOLATILE and role is not Meaning.TOPIC_ID):
                continue  # records are compared as a whole, by their content
            if field.struct is None:
                yield from self._plain(field, value, path, generic, shown, role)
                continue
            if not field.array:
                yield from self._struct(field.struct, value, f"{path}{field.name}.", generic + ".", f"{shown}{field.name}.", roles, answer)
                continue
            for at, item in enumerate(value):
                about, foreign, is_setting = self._about(field.struct, item, generic + ".", roles)
                if foreign and answer:
                    continue
                inner = f"{path}{field.name}[{at if about is None else about}]."
                words = f"{shown}{field.name}[{about if is_setting else '*'}]."
                yield from self._struct(field.struct, item, inner, generic + ".", words, roles, answer)

    def _plain(
        self, field: FieldPlan, value: Any, path: str, generic: str, shown: str, role: Meaning | None
    ) -> Iterator[tuple[str, Value]]:
        shown += field.name + ("[*]" if field.array else "")
        if role in NAMES and role is not None:
            if not field.array:
                if value and (role is not Meaning.TOPIC_ID or any(value)):
                    # A name and an id of the same topic are one thing.
                    label = "topic" if role in _TOPIC else field.name
                    yield path + label, Value(generic, self.name(role, value), role, shown)
                return
            value = tuple(sorted(self.name(role, item) for item in value))
        elif role in _INSIDE:
            for theirs, ours in self._mapped.items():
                value = value.replace(theirs.encode(), ours.encode())
        elif field.array:
            value = tuple(value)
        yield path + field.name, Value(generic, value, role, shown)

    def _about(
        self, of: StructPlan, values: tuple[Any, ...], plain: str, roles: dict[str, Meaning]
    ) -> tuple[str | None, bool, bool]:
        """The name of an item, None if only its position identifies it; whether no request named it; and whether it is the name of a
        setting or the like."""
        for field, value in zip(of.fields, values, strict=False):
            role = roles.get(plain + field.name)
            if role in NAMES and role is not None and value and (role is not Meaning.TOPIC_ID or any(value)):
                name = self.name(role, value)
                return name, name not in self._asked_for and role is not Meaning.COORDINATOR_KEY, False
            if role is Meaning.PARTITION and not field.array:
                return str(value), False, False
        for field, value in zip(of.fields, values, strict=False):
            if field.struct is None and not field.array and (field.map_key or field.name in ("api_key", "key", "name")):
                return str(value), False, isinstance(value, str)
        return None, False, False
