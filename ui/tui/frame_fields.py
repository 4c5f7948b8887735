"""The fields of one frame, made from its message and the map of its bytes."""

from __future__ import annotations

import uuid
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ...decoder import DecodeError, Direction, Message, facts
from ...decoder.encode import UNKNOWN_TAGS
from ...decoder.message import is_error_code, jsonable
from ...decoder.plan import FieldPlan, Plan, StructPlan, extra_plan
from ...decoder.secrets import secret_paths, shown
from ...decoder.walk import Walker
from .field_list import Field, Tree, headline
from .long_arrays import LONG, BriefWalker, Starts
from .meanings import meaning
from .record_fields import Schemas, content, record_fields
from .safe import visible

if TYPE_CHECKING:
    from ...decoder.present import TopicName
    from ...decoder.values import SchemaSource

MANY = 300
"""Items above which each of them starts folded, in a large message."""


class Builder:
    """Makes the fields of one frame. ``starts``: the long arrays whose items are made later."""

    def __init__(
        self,
        direction: Direction,
        frame: bytes,
        values_shown: bool,
        schemas: SchemaSource | None = None,
        topic_name: TopicName | None = None,
    ):
        self.direction, self.values_shown = direction, values_shown
        self.schemas, self.topic_name = schemas, topic_name
        self._topic: str | None = None
        self.tree = Tree(frame=frame)
        self.spans: dict[str, tuple[int, int]] = {}
        self.api = ""
        self.key = -1
        self.starts: Starts = {}
        self._plan: Plan | None = None

    def message(self, message: Message, brief: bool = False) -> Tree:
        """All fields; with `brief` items of long arrays are made when they are looked into. There must be no records
        in the message then: their bytes would be known too late to be hidden."""
        self.api, self.key = message.api, message.api_key
        if brief:
            self._plan = message.plan
            walker = BriefWalker(message.plan, self.tree.frame, message.body_start)
            walker.run()
            self.starts, values = walker.starts, walker.tree
            self.spans = {span.path: (span.start, span.end) for span in walker.spans}
            for path, code in message.errors():
                text, end = f"{code} {facts.error_name(code)}", len(path)
                while end > 0 and path[:end] not in self.tree.failures:
                    self.tree.failures[path[:end]] = text
                    end = max(path.rfind(".", 0, end), path.rfind("[", 0, end))
        else:
            self.spans, values = {span.path: (span.start, span.end) for span in message.map()}, shown(message)
        self.header(message.plan.header_version, message.header)
        self.values(message.plan.root, values, 0, "")
        if message.trailing:
            end = len(message.frame)
            self.add(
                0,
                "(surplus)",
                f"<{len(message.trailing)} bytes> behind the end of the message",
                "undecoded",
                span=(end - len(message.trailing), end),
            )
        return self.tree

    def add(self, depth: int, name: str, value: str, role: str = "", **more: Any) -> Field:
        made = Field(depth, name, value, role, **more)
        self.tree.fields.append(made)
        return made

    def close(self, parent: Field, at: int) -> None:
        """Everything added since position `at` is inside of `parent`, which stands right before."""
        parent.below = len(self.tree.fields) - at

    # --- headers -------------------------------------------------------------------------------------------

    def header(self, version: int, values: dict[str, Any]) -> int:
        """The header's fields, folded away: the title line says the same. Returns where the body starts."""
        name = "RequestHeader" if self.direction is Direction.REQUEST else "ResponseHeader"
        of = extra_plan("headers", name, version)
        walker = Walker(of, self.tree.frame)
        with suppress(DecodeError):  # the frame may end inside its header; the fault says so
            walker.run()
        parent = self.add(0, "header", f"v{version}", "muted", folded=True)
        at = len(self.tree.fields)
        body, self.spans = self.spans, {s.path: (s.start, s.end) for s in walker.spans}
        self.values(of.root, values, 1, "")
        self.spans = body
        parent.span = (0, walker.position)
        self.close(parent, at)
        return walker.position

    # --- bodies --------------------------------------------------------------------------------------------

    def values(self, of: StructPlan, values: dict[str, Any], depth: int, prefix: str) -> None:
        """The fields of a struct; those that `values` lacks (a partial tree) are left out."""
        outer = self._topic
        if self.schemas is not None:
            self._topic = self._topic_of(of, values) or outer
        for each in of.fields:
            if each.name in values:
                self.value(each, values[each.name], depth, prefix + each.name)
        self._topic = outer
        for tag, data in values.get(UNKNOWN_TAGS, {}).items():
            path = f"{prefix}{UNKNOWN_TAGS}[{tag}]"
            text = content(data, self.values_shown)
            self.add(depth, f"(unknown tag {tag})", text, "undecoded", path=path, span=self.spans.get(path))

    def _topic_of(self, of: StructPlan, values: dict[str, Any]) -> str | None:
        """The topic that a struct is about, by its name or its id."""
        for each in of.fields:
            value = values.get(each.name)
            if each.entity == "topicName" and isinstance(value, str):
                return value
            if each.name == "topic_id" and isinstance(value, uuid.UUID) and self.topic_name is not None:
                return self.topic_name(value.bytes)
        return None

    def value(self, of: FieldPlan, value: Any, depth: int, path: str) -> None:
        span = self.spans.get(path)
        name = of.name
        if value is None:
            self.add(depth, name, "null", "muted", path=path, span=span)
        elif of.array:
            self.array(of, value, depth, path)
        elif of.struct is not None:
            parent = self.add(depth, name, "", path=path, span=span)
            at = len(self.tree.fields)
            self.values(of.struct, value, depth + 1, path + ".")
            self.close(parent, at)
        elif of.type == "records":
            self.records(name, value, depth, path)
        else:
            text, role = self.scalar(of, value, path)
            made = self.add(depth, name, text, role, path=path, span=span)
            made.error = role == "error"

    def array(self, of: FieldPlan, items: list[Any], depth: int, path: str) -> None:
        count = f"[{len(items)}]"
        if of.struct is None:
            inline = ", ".join(self.scalar(of, item, path)[0] for item in items[:20])
            more = f", … {len(items) - 20} more" if len(items) > 20 else ""
            self.add(depth, f"{of.name} {count}", inline + more, path=path, span=self.spans.get(path))
            return
        if path in self.starts:
            starts = self.starts[path]
            parent = self.add(depth, f"{of.name} [{len(starts) - 1}]", "", path=path, span=self.spans.get(path))
            parent.folded, parent.later = True, partial(self._items, of, starts, depth + 1, path)
            return
        parent = self.add(depth, f"{of.name} {count}", "", path=path, span=self.spans.get(path))
        parent.folded = len(items) > LONG
        at = len(self.tree.fields)
        for i, item in enumerate(items):
            inner = f"{path}[{i}]"
            element = self.add(depth + 1, f"[{i}]", "", "muted", path=inner, span=self.spans.get(inner))
            first = len(self.tree.fields)
            self.values(of.struct, item, depth + 2, inner + ".")
            self.close(element, first)
            element.value, element.role = headline(self.tree.fields[first:], depth + 2)
        self.close(parent, at)

    def _items(self, of: FieldPlan, starts: list[int], depth: int, path: str) -> list[Field]:
        """The items of a long array, each with what is inside unless there are many."""
        made: list[Field] = []
        for i, (start, end) in enumerate(pairwise(starts)):
            inner = f"{path}[{i}]"
            element = Field(depth, f"[{i}]", "", "muted", inner, (start, end))
            made.append(element)
            if len(starts) > MANY:
                element.folded, element.later = True, partial(self._item, of, start, depth + 1, inner)
                continue
            inside = self._item(of, start, depth + 1, inner)
            element.below = len(inside)
            element.value, element.role = headline(inside, depth + 1, self.tree.failures.get(inner, ""))
            made += inside
        return made

    def _item(self, of: FieldPlan, start: int, depth: int, path: str) -> list[Field]:
        assert self._plan is not None and of.struct is not None
        walker = BriefWalker(self._plan, self.tree.frame, start)
        values = walker.item(of, path)
        inner = Builder(self.direction, self.tree.frame, self.values_shown)
        inner.api, inner.key, inner._plan, inner.starts = self.api, self.key, self._plan, walker.starts
        inner.tree.failures = self.tree.failures
        inner.spans = {span.path: (span.start, span.end) for span in walker.spans}
        inner.values(of.struct, values, depth, path + ".")
        return inner.tree.fields

    def scalar(self, of: FieldPlan, value: Any, path: str) -> tuple[str, str]:
        kind = type(value)
        if kind is int and not is_error_code(of):
            known = meaning(self.api, of.name, value)
            return (f"{value} {known}" if known else str(value)), "number"
        if (
            value
            and kind in (bytes, str)
            and any(p.fullmatch(path) for p in secret_paths(self.direction, self.key))
            and not set(value) - {42, "*"}
        ):
            return f"<{len(value)} bytes, secret, masked>", "masked"
        if isinstance(value, bool):
            return ("true" if value else "false"), "number"
        if isinstance(value, bytes):
            return content(value, self.values_shown), "masked"
        if isinstance(value, str):
            return f'"{visible(value)}"', "string"
        if isinstance(value, uuid.UUID):
            return jsonable(value), "string"
        if is_error_code(of):
            return f"{value} {facts.error_name(value)}", "error" if value else "number"
        known = meaning(self.api, of.name, value)
        return (f"{value} {known}" if known else f"{value}"), "number"

    def records(self, name: str, data: bytes, depth: int, path: str) -> None:
        span = self.spans.get(path)
        # The bytes of the records area are the last of the field; its length stands before them.
        start = span[1] - len(data) if span else None
        parent = self.add(depth, name, f"<{len(data)} bytes>", "masked", path=path, span=span)
        at = len(self.tree.fields)
        for line in record_fields(data, self.values_shown, Schemas(self.schemas, self._topic)):
            where = None if start is None or line.span is None else (start + line.span[0], start + line.span[1])
            made = self.add(depth + 1 + line.depth, line.name, line.value, line.role, path=path, span=where)
            made.below, made.folded = line.below, line.folded
            if line.hidden and start is not None and not self.values_shown:
                self.tree.hidden.append((start + line.hidden[0], start + line.hidden[1]))
        self.close(parent, at)
