"""The map of a large message without the items of its long arrays: of these only where each begins."""

from __future__ import annotations

import uuid
from typing import Any

from ...decoder.decode import item_passer
from ...decoder.plan import FieldPlan, Plan
from ...decoder.walk import Span, Walker

LONG = 12
"""Items of structs that are all walked through."""

Starts = dict[str, list[int]]


class BriefWalker(Walker):
    """A walk that passes over the items of long arrays, for bytes that have been decoded before. ``starts``: by the path of
    such an array where each of its items begins, and where the last one ends. The tree holds none of them."""

    def __init__(self, plan: Plan, data: bytes, position: int = 0):
        super().__init__(plan, data, position)
        self.starts: Starts = {}

    def item(self, array: FieldPlan, path: str) -> dict[str, Any]:
        """The values of one item of an array of structs, which begins here."""
        assert array.struct is not None
        into: dict[str, Any] = {}
        self._filled(array.struct, into, path)
        return into

    def _field(self, field: FieldPlan, path: str) -> Any:
        if not field.array or field.struct is None:
            return super()._field(field, path)
        start = self.position
        count = self._length(field, "i", 4, path)
        if count is None or count <= LONG:
            self.position = start
            return super()._field(field, path)
        pass_over, data, at = item_passer(field), self.data, self.position
        starts = [at]
        for _ in range(count):
            at = pass_over(data, at)
            starts.append(at)
        self.position = at
        self.starts[path] = starts
        self.spans.append(Span(path, start, at))
        return []

    def _item(self, field: FieldPlan, path: str) -> Any:
        value = super()._item(field, path)
        return uuid.UUID(bytes=value) if field.type == "uuid" else value
