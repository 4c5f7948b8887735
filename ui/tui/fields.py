"""A decoded frame as a flat list of fields: what the field tree draws, line by line.

A field knows its depth and how many fields below it follow, so folding is arithmetic and nothing is nested. The
text is safe for the terminal here already. Byte positions count from the frame's first byte.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ...decoder import (
    DecodeError,
    Direction,
    Exchange,
    Message,
    decode_request,
    decode_request_header,
    decode_response,
    facts,
)
from ...decoder.encode import UNKNOWN_TAGS
from ...decoder.message import is_error_code, jsonable
from ...decoder.plan import FieldPlan, StructPlan, extra_plan, plan
from ...decoder.secrets import mask, secret_paths, shown
from ...decoder.walk import Walker
from .meanings import meaning
from .record_fields import content, record_fields
from .safe import visible

_FOLD_ABOVE = 12
"""Arrays with more items start folded."""


@dataclass(slots=True, eq=False)
class Field:
    """One line of the tree. ``below``: how many of the next fields are inside of it; ``span``: (start, end) or None."""

    depth: int
    name: str
    value: str = ""
    role: str = ""
    path: str = ""
    span: tuple[int, int] | None = None
    below: int = 0
    folded: bool = False
    error: bool = False


@dataclass(slots=True)
class Tree:
    """One side of an exchange: fields, the frame to be shown as bytes, and which byte ranges stay hidden.

    ``fault``: why it could not be decoded, with the ``fault_at`` byte. ``spans``: of the body's fields, by path.
    """

    fields: list[Field] = field(default_factory=list)
    frame: bytes = b""
    hidden: list[tuple[int, int]] = field(default_factory=list)
    fault: str | None = None
    fault_at: int | None = None
    note: str = ""
    """What to say where there is no frame."""


def request_tree(exchange: Exchange, values_shown: bool = False) -> Tree:
    """The request side; an empty tree with a note for an orphan response."""
    if exchange.request is None:
        return Tree(note="The request was not recorded: it was sent before the recording began, or was lost.")
    return _tree(Direction.REQUEST, exchange.request, exchange, values_shown)


def response_tree(exchange: Exchange, values_shown: bool = False) -> Tree:
    """The response side; an empty tree with a note where there is none."""
    if exchange.response is not None:
        return _tree(Direction.RESPONSE, exchange.response, exchange, values_shown)
    if exchange.state == "pending":
        return Tree(note="No response yet.")
    message = exchange.request_message
    if message is not None and message.api == "Produce" and message["acks"] == 0:
        return Tree(note="No response: the producer asked for none (acks=0).")
    return Tree(note="No response: the connection ended, or went on without one.")


def _tree(direction: Direction, frame: bytes, exchange: Exchange, values_shown: bool) -> Tree:
    key, version = exchange.api_key, exchange.api_version
    try:
        if direction is Direction.RESPONSE and exchange.state == "orphan":
            raise DecodeError("without its request nobody can say which API this answers", path="", offset=4)
        if direction is Direction.REQUEST:
            message = decode_request(frame)
        else:
            message = decode_response(frame, api_key=key, api_version=version)
    except DecodeError as fault:
        if fault.message is None:
            return _damaged(direction, frame, exchange, fault, values_shown)
        message = fault.message
    return _Builder(direction, mask(direction, key, version, frame), values_shown).message(message)


def _damaged(direction: Direction, frame: bytes, exchange: Exchange, fault: DecodeError, values_shown: bool) -> Tree:
    """What was read before the fault. Where secrets or record values could stand nobody knows, so they stay hidden."""
    key, version = exchange.api_key, exchange.api_version
    builder = _Builder(direction, mask(direction, key, version, frame), values_shown)
    tree = builder.tree
    tree.fault, tree.fault_at = visible(str(fault)), fault.offset
    of, start = None, 0
    if exchange.state != "orphan":
        with suppress(DecodeError):  # an API or version that nobody knows: the fault says so
            of = plan("request" if direction is Direction.REQUEST else "response", key, version)
    if direction is Direction.REQUEST:
        with suppress(DecodeError):
            values, _ = decode_request_header(frame)
            start = builder.header(of.header_version if of else 1, values)
    else:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        start = builder.header(of.header_version if of else 0, {"correlation_id": correlation_id})
    if not values_shown and _carries_records(key):
        tree.hidden.append((start, len(frame)))
    if of is not None and fault.partial and not secret_paths(direction, key):
        walker = Walker(of, frame, start)
        walker.explain()  # bounded, unlike a full walk
        builder.spans = {span.path: (span.start, span.end) for span in walker.spans}
        builder.values(of.root, fault.partial, 0, "")
        start = max((f.span[1] for f in tree.fields if f.span), default=start)
    if start < len(frame):
        text = f"bytes {start} to {len(frame)}; the fault is at byte {fault.offset}"
        builder.add(0, "(not decoded)", text, "undecoded", span=(start, len(frame)))
    else:
        builder.add(0, "(ends here)", f"more bytes were expected at {fault.offset}", "undecoded", span=(start, start))
    return tree


def _carries_records(key: int) -> bool:
    try:
        api = facts.api(key)
    except KeyError:
        return False

    def holds(fields: Any) -> bool:
        return any(f.type == "records" or holds(f.fields) for f in fields)

    return any(holds(d.fields) or any(holds(f) for _, f in d.structs) for d in (api.request, api.response))


class _Builder:
    """Makes the fields of one frame."""

    def __init__(self, direction: Direction, frame: bytes, values_shown: bool):
        self.direction, self.values_shown = direction, values_shown
        self.tree = Tree(frame=frame)
        self.spans: dict[str, tuple[int, int]] = {}
        self.api = ""
        self.key = -1

    def message(self, message: Message) -> Tree:
        self.api, self.key = message.api, message.api_key
        self.spans = {span.path: (span.start, span.end) for span in message.map()}
        self.header(message.plan.header_version, message.header)
        self.values(message.plan.root, shown(message), 0, "")
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
        for each in of.fields:
            if each.name in values:
                self.value(each, values[each.name], depth, prefix + each.name)
        for tag, data in values.get(UNKNOWN_TAGS, {}).items():
            path = f"{prefix}{UNKNOWN_TAGS}[{tag}]"
            text = content(data, self.values_shown)
            self.add(depth, f"(unknown tag {tag})", text, "undecoded", path=path, span=self.spans.get(path))

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
        parent = self.add(depth, f"{of.name} {count}", "", path=path, span=self.spans.get(path))
        parent.folded = len(items) > _FOLD_ABOVE
        at = len(self.tree.fields)
        for i, item in enumerate(items):
            inner = f"{path}[{i}]"
            element = self.add(depth + 1, f"[{i}]", "", "muted", path=inner, span=self.spans.get(inner))
            first = len(self.tree.fields)
            self.values(of.struct, item, depth + 2, inner + ".")
            self.close(element, first)
            element.value, element.role = self.headline(first, depth + 2)
        self.close(parent, at)

    def headline(self, first: int, depth: int) -> tuple[str, str]:
        """What an array element says about itself when folded: its first telling field, and its error if it has one."""
        inside = self.tree.fields[first:]
        error = next((f.value for f in inside if f.error), "")
        own = (f for f in inside if f.depth == depth and f.value and not f.name.endswith("error_code"))
        first_one = next(own, None)
        naming = ""
        if first_one is not None:
            naming = first_one.value if first_one.role == "string" else f"{first_one.name} {first_one.value}"
        return "  ".join(
            part for part in (naming[:40], f"! {error}" if error else "") if part
        ), "error" if error else "muted"

    def scalar(self, of: FieldPlan, value: Any, path: str) -> tuple[str, str]:
        if (
            any(p.fullmatch(path) for p in secret_paths(self.direction, self.key))
            and value
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
        for line in record_fields(data, self.values_shown):
            where = None if start is None or line.span is None else (start + line.span[0], start + line.span[1])
            made = self.add(depth + 1 + line.depth, line.name, line.value, line.role, path=path, span=where)
            made.below, made.folded = line.below, line.folded
            if line.hidden and start is not None and not self.values_shown:
                self.tree.hidden.append((start + line.hidden[0], start + line.hidden[1]))
        self.close(parent, at)


def visible_fields(tree: Tree) -> Iterator[int]:
    """The positions of the fields that are not inside of a folded one."""
    at, fields = 0, tree.fields
    while at < len(fields):
        yield at
        at += 1 + (fields[at].below if fields[at].folded else 0)
