"""The request and the response of an exchange as fields of a `FieldTree`, made from messages and the byte ranges of their fields.

Records are shown as batches, their headers and the records inside; keys and values are hidden by default. In a large message
only the starts of the items of long arrays are read, until an item is opened. The meanings of some numbers are in
``decoder/reference/explanations/values.txt``.
"""

from __future__ import annotations

import gc
import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ....decoder import (
    DecodeError,
    Direction,
    Exchange,
    Message,
    decode_request,
    decode_request_header,
    decode_response,
    records,
)
from ....decoder.codec.decode import item_skipper
from ....decoder.codec.encode import UNKNOWN_TAGS
from ....decoder.codec.message import is_error_code, jsonable
from ....decoder.codec.secrets import mask, secret_paths, shown
from ....decoder.codec.truncated_frame import cut_fault
from ....decoder.codec.walk import FieldSpan, Walker
from ....decoder.present import Json, payloads
from ....decoder.records.batch import HEADER_SIZE
from ....decoder.reference.explain import meaning
from ....decoder.reference.fields import HEADER
from ....decoder.schema import facts
from ....decoder.schema.meaning import Meaning
from ....decoder.schema.notation import FieldLine as DefinedField
from ....decoder.schema.plan import FieldPlan, Plan, StructPlan, Value, extra_plan, plan
from ....decoder.values import SchemaSource, ViewKind, view
from ...safe import visible
from ...times import moment
from ..widgets.field_tree import Tree, TreeField, headline, nest
from ..widgets.palette import Cell, Role

if TYPE_CHECKING:
    from ....decoder.present import TopicName
    from ....decoder.values import SchemaSource

LONG = 12
"""Items of an array of structs that are read at once."""

Starts = dict[str, list[int]]


class BriefWalker(Walker):
    """Skips the items of long arrays, in bytes that were decoded before. `starts`: for the path of each such array, where
    its items begin, and where the last one ends. They are not in the values."""

    def __init__(self, plan: Plan, data: bytes, position: int = 0):
        super().__init__(plan, data, position)
        self.starts: Starts = {}

    def item(self, array: FieldPlan, path: str) -> dict[str, Value]:
        """The values of the item of an array of structs that begins here."""
        assert array.struct is not None
        into: dict[str, Value] = {}
        self._filled(array.struct, into, path)
        return into

    def _field(self, field: FieldPlan, path: str) -> Value:
        if not field.array or field.struct is None:
            return super()._field(field, path)
        start = self.position
        count = self._length(field, "i", 4, path)
        if count is None or count <= LONG:
            self.position = start
            return super()._field(field, path)
        pass_over, data, at = item_skipper(field), self.data, self.position
        starts = [at]
        for _ in range(count):
            at = pass_over(data, at)
            starts.append(at)
        self.position = at
        self.starts[path] = starts
        self.spans.append(FieldSpan(path, start, at))
        return []

    def _item(self, field: FieldPlan, path: str) -> Value:
        value = super()._item(field, path)
        return uuid.UUID(bytes=value) if field.type == "uuid" else value


_MOST_RECORDS = 500
"""Records shown of one batch; a batch can hold a million."""
_MOST_TEXT = 400
_MOST_BYTES = 1 << 12
LARGEST = 16 << 20
"""Bytes of a key or value that can be opened."""
_MOST_OUTPUT = 64 << 20
"""Bytes up to which one batch is decompressed."""


class Schemas(NamedTuple):
    """Where schemas of keys and values come from (`decoder.values`), and the topic of the records."""

    source: SchemaSource | None = None
    topic: str | None = None


NO_SCHEMAS = Schemas()


def content(data: bytes | None, values_shown: bool, schemas: Schemas = NO_SCHEMAS, is_key: bool = False) -> str:
    """Bytes as text: their number; with `values_shown` their value, and its format unless it is plain text
    (`decoder.values`)."""
    if data is None:
        return "null"
    if not values_shown:
        return f"<{len(data)} bytes>"
    if schemas.source is None:
        found = view(data[:_MOST_BYTES])
    else:  # a schema needs all bytes
        found = view(data, registry=schemas.source, topic=schemas.topic, is_key=is_key)
    more = f" … <{len(data)} bytes>" if len(data) > _MOST_BYTES or len(found.text) > _MOST_TEXT else ""
    note = f", {visible(found.note[:_MOST_TEXT])}" if found.note and schemas.source is not None else ""
    text = found.text[:_MOST_TEXT]
    if found.kind is ViewKind.EMPTY:
        return '""'
    if found.kind is ViewKind.TEXT:
        return f'"{visible(text)}"{more}'
    schema = f", schema id {found.schema_id}" if found.schema_id is not None else ""
    shown = text if found.kind.endswith("json") or found.value is not None else f"0x{text}"
    return f"{visible(shown)}{more} ({found.kind}{schema}{note})"


def record_fields(
    data: bytes, values_shown: bool = False, schemas: Schemas = NO_SCHEMAS, aborted: Iterable[records.Aborted] = (), path: str = ""
) -> list[TreeField]:
    """The fields inside of a records field, whose path in the message is `path`. Byte ranges count from the first byte of the
    records. `aborted`: the transactions of which the response says so. Damaged bytes become a field; no exception is raised."""
    lines: list[TreeField] = []
    reached = number = 0
    dropped = records.aborted_batches(data, aborted)
    try:
        for i, entry in enumerate(records.batches(data)):
            reached = entry.end
            first = len(lines)
            if isinstance(entry, records.Partial):
                missing = "" if entry.missing is None else f", {entry.missing} bytes are missing"
                text = f"cut by the broker at its byte limit{missing}: consumers fetch it again"
                lines.append(TreeField(0, f"partial {i}", text, "muted", span=(entry.start, entry.end)))
                lines[first].hidden = (entry.start, entry.end)
                continue
            if isinstance(entry, records.Batch):
                lines.append(_batch_line(i, entry, entry.start in dropped))
                lines.extend(_batch_header(entry))
            else:
                lines.append(_message_line(i, entry))
            lines.extend(_records(entry, values_shown, schemas, path, number))
            number += entry.announced if isinstance(entry, records.Batch) else 1
            lines[first].below = len(lines) - first - 1
    except records.RecordsError as fault:
        lines.append(TreeField(0, "(damaged)", visible(str(fault)), "undecoded", span=(reached, len(data))))
        lines[-1].hidden = (reached, len(data))
    return lines


def _batch_line(i: int, batch: records.Batch, aborted: bool) -> TreeField:
    kind = [batch.codec_name if batch.codec else "uncompressed"]
    kind += ["transactional"] * batch.transactional + ["control"] * batch.control
    text = f"offsets {batch.base_offset}..{batch.last_offset}, {batch.record_count} records, {', '.join(kind)}"
    text = f"{text}, crc ok" if batch.crc_ok else f"! CRC BAD, {text}"
    text = f"aborted, for readers of uncommitted records only: {text}" if aborted else text
    role: Role = "error" if not batch.crc_ok else "waiting" if aborted else "muted"
    return TreeField(
        0, f"batch {i}", text, role, span=(batch.start, batch.end), hidden=(batch.start + HEADER_SIZE, batch.end)
    )


def _batch_header(batch: records.Batch) -> Iterator[TreeField]:
    flags = [batch.codec_name, f"{batch.timestamp_type} time"]
    flags += ["transactional"] * batch.transactional + ["control"] * batch.control
    if batch.crc_ok:
        crc = f"0x{batch.crc:08x} ok"
    else:
        crc = f"! 0x{batch.crc:08x} BAD, the bytes give 0x{batch.crc_computed:08x}"
    layout = (
        ("base_offset", 8, f"{batch.base_offset}"),
        ("batch_length", 4, f"{batch.batch_length}"),
        ("partition_leader_epoch", 4, f"{batch.partition_leader_epoch}"),
        ("magic", 1, f"{batch.magic}"),
        ("crc", 4, crc),
        ("attributes", 2, f"0x{batch.attributes & 0xFFFF:04x} ({', '.join(flags)})"),
        ("last_offset_delta", 4, f"{batch.last_offset_delta}"),
        ("base_timestamp", 8, _moment(batch.base_timestamp)),
        ("max_timestamp", 8, _moment(batch.max_timestamp)),
        ("producer_id", 8, f"{batch.producer_id}"),
        ("producer_epoch", 2, f"{batch.producer_epoch}"),
        ("base_sequence", 4, f"{batch.base_sequence}"),
        ("record_count", 4, f"{batch.record_count}"),
    )
    at = batch.start
    yield TreeField(1, "batch header", f"{HEADER_SIZE} bytes", "muted", span=(at, at + HEADER_SIZE), below=len(layout), folded=True)
    for name, width, value in layout:
        role: Role = "error" if name == "crc" and not batch.crc_ok else "number"
        yield TreeField(2, name, value, role, span=(at, at + width))
        at += width


def _message_line(i: int, message: records.Message) -> TreeField:
    codec = f", {message.codec_name}" if message.codec else ""
    crc = "crc ok" if message.crc_ok else f"! CRC BAD, the bytes give 0x{message.crc_computed:08x}"
    text = f"offset {message.offset}, magic {message.magic}{codec}, {crc}"
    # The header ends with the timestamp of magic 1; keys and values are behind it.
    start = message.start + (18 if message.magic == 0 else 26)
    role: Role = "muted" if message.crc_ok else "error"
    return TreeField(0, f"message {i}", text, role, span=(message.start, message.end), hidden=(start, message.end))


def _records(
    entry: records.Batch | records.Message, values_shown: bool, schemas: Schemas, path: str, first: int
) -> list[TreeField]:
    """The records of an entry, the first of which is number `first` of the area at `path`."""
    lines: list[TreeField] = []
    where = _uncompressed_spans(entry)
    try:
        for i, record in enumerate(entry.records(limit=_MOST_OUTPUT)):
            if i == _MOST_RECORDS:
                count = entry.record_count if isinstance(entry, records.Batch) else "the"
                lines.append(TreeField(1, "…", f"{_MOST_RECORDS} of {count} records shown", "muted"))
                break
            made = _record(record, values_shown, where[i] if i < len(where) else (entry.start, entry.end), schemas)
            made[0].path = f"{path}[{first + i}]" if path else ""
            lines.extend(made)
    except records.RecordsError as fault:
        lines.append(TreeField(1, "(damaged)", visible(str(fault)), "undecoded", span=(entry.start, entry.end)))
    return lines


def _uncompressed_spans(entry: records.Batch | records.Message) -> list[tuple[int, int]]:
    """The byte range of each record; none of a compressed batch."""
    if not isinstance(entry, records.Batch) or entry.codec or entry.record_count < 0:
        return []
    found: list[tuple[int, int]] = []
    count = min(entry.record_count, _MOST_RECORDS)
    try:
        found.extend(records.spans(entry.data, entry.start + HEADER_SIZE, entry.end, count))
    except records.RecordsError:
        pass  # a line says that the record is damaged
    return found


def _record(record: records.Record, values_shown: bool, span: tuple[int, int], schemas: Schemas) -> list[TreeField]:
    key = content(record.key, values_shown, schemas, is_key=True)
    value = content(record.value, values_shown, schemas)
    brief = f"key {key[:40]}  value {value[:60]}"
    if record.control is not None:
        brief = f"{record.control.name} marker"
    line = TreeField(1, f"record {record.offset}", brief, "muted", span=span, folded=True)
    lines = [
        line,
        TreeField(2, "offset", f"{record.offset}", "number", span=span),
        TreeField(2, "timestamp", "none" if record.timestamp is None else _moment(record.timestamp), "number", span=span),
        _content_field("key", record.key, key, values_shown, span, schemas, is_key=True),
        _content_field("value", record.value, value, values_shown, span, schemas),
    ]
    if record.control is not None:
        epoch = record.control.coordinator_epoch
        text = record.control.name + ("" if epoch is None else f", coordinator epoch {epoch}")
        lines.append(TreeField(2, "control", text, "number", span=span))
    for name, header in record.headers:
        label = visible(name) if isinstance(name, str) else "0x" + name.hex()
        lines.append(_content_field(f'header "{label}"', header, content(header, values_shown), values_shown, span))
    line.below = len(lines) - 1
    return lines


def _content_field(
    name: str, data: bytes | None, text: str, values_shown: bool, span: tuple[int, int], schemas: Schemas = NO_SCHEMAS, is_key: bool = False
) -> TreeField:
    """A key, value or header. Where it is shown, all of it can be opened."""
    made = TreeField(2, name, text, "string" if values_shown else "masked", span=span)
    if values_shown and data is not None:
        made.data = data
        made.whole = partial(view, data, registry=schemas.source, topic=schemas.topic, is_key=is_key, limit=LARGEST)
    return made


def _moment(ms: int) -> str:
    """A record's timestamp: the number, and the date where it can be one."""
    if 0 < ms < 32_503_680_000_000:
        return f"{ms} ({moment(ms * 1_000_000, 3)})"
    return f"{ms}" + (" (none)" if ms == -1 else "")


MANY = 300
"""Items of an array in a large message above which each of them is folded at first."""


class FieldsBuilder:
    """Makes the fields of one frame. `starts`: of the long arrays whose items are made later (`BriefWalker`)."""

    def __init__(
        self,
        direction: Direction,
        frame: bytes,
        values_shown: bool,
        schemas: SchemaSource | None = None,
        topic_name: TopicName | None = None,
        request: Message | None = None,
        asked: bytes = b"",
    ):
        """`request`: the message that a response answers; `asked`: its bytes."""
        self.direction, self.values_shown = direction, values_shown
        self.schemas, self.topic_name, self.request, self._asked = schemas, topic_name, request, asked
        self._topic: str | None = None
        self._aborted: list[records.Aborted] = []
        self._payloads: Callable[[], Payloads] = dict
        self.tree = Tree(frame=frame)
        self.spans: dict[str, tuple[int, int]] = {}
        self.api = ""
        self.key = -1
        self.starts: Starts = {}
        self._plan: Plan | None = None

    def message(self, message: Message, brief: bool = False) -> Tree:
        """All fields. `brief`: items of long arrays are made when they are opened. The message must have no records then,
        as their bytes would be known too late to be hidden."""
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
            self.spans, values = {span.path: (span.start, span.end) for span in message.map()}, shown(message, self._asked)
        self.header(message.plan.header_version, message.header)
        if message.plan.kind in ("request", "response"):
            self._payloads = cache(partial(self._payloads_of, message))
        self.values(message.plan.root, values, 0, "")
        self.tree.fields = with_payloads(self.tree.fields, self._payloads())
        if message.trailing:
            end, size = len(message.frame), len(message.trailing)
            text = f"<{size} bytes> after the end of the message"
            self.add(TreeField(0, "(surplus)", text, "undecoded", span=(end - size, end)))
        return self.tree

    def _payloads_of(self, message: Message) -> Payloads:
        """The payloads in byte fields, by path. Those of records are shown as their values are."""
        found = payloads(message, self.request, self.values_shown)
        return {each["path"]: (each["kind"], each["fields"]) for each in found}

    def add(self, made: TreeField) -> TreeField:
        self.tree.fields.append(made)
        return made

    def close(self, parent: TreeField, at: int) -> None:
        """Put the fields from position `at` on below `parent`, which is the one before them."""
        parent.below = len(self.tree.fields) - at

    # --- headers -------------------------------------------------------------------------------------------

    def header(self, version: int, values: dict[str, Value]) -> int:
        """The header's fields, folded. Returns where the body starts."""
        name = "RequestHeader" if self.direction is Direction.REQUEST else "ResponseHeader"
        of = extra_plan("headers", name, version)
        walker = Walker(of, self.tree.frame)
        with suppress(DecodeError):  # the frame ends inside its header; the fault is shown
            walker.run()
        parent = self.add(TreeField(0, "header", f"v{version}", "muted", folded=True))
        at = len(self.tree.fields)
        body, self.spans = self.spans, {HEADER + s.path: (s.start, s.end) for s in walker.spans}
        self.values(of.root, values, 1, HEADER)
        self.spans = body
        parent.span = (0, walker.position)
        self.close(parent, at)
        return walker.position

    # --- bodies --------------------------------------------------------------------------------------------

    def values(self, of: StructPlan, values: dict[str, Value], depth: int, prefix: str) -> None:
        """The fields of a struct. Fields that `values` lacks (in a partial message) are left out."""
        outer, outer_aborted = self._topic, self._aborted
        if self.schemas is not None:
            self._topic = self._topic_of(of, values) or outer
        self._aborted = records.aborted_in(values)
        for each in of.fields:
            if each.name in values:
                self.value(each, values[each.name], depth, prefix + each.name)
        self._topic, self._aborted = outer, outer_aborted
        for tag, data in values.get(UNKNOWN_TAGS, {}).items():
            path = f"{prefix}{UNKNOWN_TAGS}[{tag}]"
            text = content(data, self.values_shown)
            self.add(TreeField(depth, f"(unknown tag {tag})", text, "undecoded", path=path, span=self.spans.get(path)))

    def _topic_of(self, of: StructPlan, values: dict[str, Value]) -> str | None:
        """The topic that a struct names, or whose id it has."""
        for each in of.fields:
            value = values.get(each.name)
            if each.meaning is Meaning.TOPIC and isinstance(value, str):
                return value
            if each.meaning is Meaning.TOPIC_ID and isinstance(value, uuid.UUID) and self.topic_name is not None:
                return self.topic_name(value.bytes)
        return None

    def value(self, of: FieldPlan, value: Value, depth: int, path: str) -> None:
        span = self.spans.get(path)
        name = of.name
        if value is None:
            self.add(TreeField(depth, name, "null", "muted", path=path, span=span))
        elif of.array:
            self.array(of, value, depth, path)
        elif of.struct is not None:
            parent = self.add(TreeField(depth, name, "", path=path, span=span))
            at = len(self.tree.fields)
            self.values(of.struct, value, depth + 1, path + ".")
            self.close(parent, at)
        elif of.type == "records":
            self.records(name, value, depth, path)
        else:
            text, role = self.scalar(of, value, path)
            made = self.add(TreeField(depth, name, text, role, path=path, span=span))
            made.error = role == "error"

    def array(self, of: FieldPlan, items: list[Value], depth: int, path: str) -> None:
        count = f"[{len(items)}]"
        if of.struct is None:
            inline = ", ".join(self.scalar(of, item, path)[0] for item in items[:20])
            more = f", … {len(items) - 20} more" if len(items) > 20 else ""
            self.add(TreeField(depth, f"{of.name} {count}", inline + more, path=path, span=self.spans.get(path)))
            return
        if path in self.starts:
            starts = self.starts[path]
            parent = self.add(TreeField(depth, f"{of.name} [{len(starts) - 1}]", "", path=path, span=self.spans.get(path)))
            parent.folded, parent.later = True, partial(self._items, of, starts, depth + 1, path)
            return
        parent = self.add(TreeField(depth, f"{of.name} {count}", "", path=path, span=self.spans.get(path)))
        parent.folded = len(items) > LONG
        at = len(self.tree.fields)
        for i, item in enumerate(items):
            inner = f"{path}[{i}]"
            element = self.add(TreeField(depth + 1, f"[{i}]", "", "muted", path=inner, span=self.spans.get(inner)))
            first = len(self.tree.fields)
            self.values(of.struct, item, depth + 2, inner + ".")
            self.close(element, first)
            element.value, element.role = headline(self.tree.fields[first:], depth + 2)
        self.close(parent, at)

    def _items(self, of: FieldPlan, starts: list[int], depth: int, path: str) -> list[TreeField]:
        """The items of a long array, with their own fields unless there are `MANY`."""
        made: list[TreeField] = []
        for i, (start, end) in enumerate(pairwise(starts)):
            inner = f"{path}[{i}]"
            element = TreeField(depth, f"[{i}]", "", "muted", inner, (start, end))
            made.append(element)
            if len(starts) > MANY:
                element.folded, element.later = True, partial(self._item, of, start, depth + 1, inner)
                continue
            inside = self._item(of, start, depth + 1, inner)
            element.below = len(inside)
            element.value, element.role = headline(inside, depth + 1, self.tree.failures.get(inner, ""))
            made += inside
        return made

    def _item(self, of: FieldPlan, start: int, depth: int, path: str) -> list[TreeField]:
        assert self._plan is not None and of.struct is not None
        walker = BriefWalker(self._plan, self.tree.frame, start)
        values = walker.item(of, path)
        inner = FieldsBuilder(self.direction, self.tree.frame, self.values_shown)
        inner.api, inner.key, inner._plan, inner.starts = self.api, self.key, self._plan, walker.starts
        inner.tree.failures = self.tree.failures
        inner.spans = {span.path: (span.start, span.end) for span in walker.spans}
        inner.values(of.struct, values, depth, path + ".")
        return with_payloads(inner.tree.fields, self._payloads())

    def scalar(self, of: FieldPlan, value: Value, path: str) -> Cell:
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
        # The records are the last bytes of the field, behind their length.
        start = span[1] - len(data) if span else None
        parent = self.add(TreeField(depth, name, f"<{len(data)} bytes>", "masked", path=path, span=span))
        at = len(self.tree.fields)
        for line in record_fields(data, self.values_shown, Schemas(self.schemas, self._topic), self._aborted, path):
            line.depth, line.path = depth + 1 + line.depth, line.path or path
            if start is None:
                line.span = line.hidden = None
            elif line.span is not None:
                line.span = start + line.span[0], start + line.span[1]
            if line.hidden and start is not None and not self.values_shown:
                self.tree.hidden.append((start + line.hidden[0], start + line.hidden[1]))
            self.tree.fields.append(line)
        self.close(parent, at)


Payloads = dict[str, tuple[str, Json]]
"""Kind and fields of payloads, by path."""


def with_payloads(fields: list[TreeField], found: Payloads) -> list[TreeField]:
    """The fields, and inside of those with a payload its fields."""
    if not found:
        return fields
    made: list[TreeField] = []
    done: set[str] = set()
    for each in fields:
        made.append(each)
        if each.path in done or each.path not in found:
            continue
        done.add(each.path)
        kind, values = found[each.path]
        depth = each.depth + 1
        if each.has_children:  # a record
            made.append(TreeField(depth, kind, "", "muted", span=each.span))
            depth += 1
        else:
            each.value = f"{each.value}  {kind}"
        made += with_payloads(_payload_fields(values, depth, each.path, each.span), {p: v for p, v in found.items() if p not in done})
    nest(made)
    return made


def _payload_fields(values: Json, depth: int, path: str, span: tuple[int, int] | None) -> list[TreeField]:
    """The fields of a payload, as JSON has them. All have the bytes of the field around them."""
    made: list[TreeField] = []
    for name, value in values.items():
        inner = f"{path}.{name}"
        nested = isinstance(value, list) and any(isinstance(item, dict) for item in value)
        if isinstance(value, dict):
            made.append(TreeField(depth, visible(str(name)), "", path=inner, span=span))
            made += _payload_fields(value, depth + 1, inner, span)
        elif nested:
            made.append(TreeField(depth, f"{visible(str(name))} [{len(value)}]", "", path=inner, span=span, folded=len(value) > LONG))
            for i, item in enumerate(value):
                inside = _payload_fields(item if isinstance(item, dict) else {"": item}, depth + 2, f"{inner}[{i}]", span)
                text, role = headline(inside, depth + 2)
                made += [TreeField(depth + 1, f"[{i}]", text, role, f"{inner}[{i}]", span), *inside]
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            quote = '"' if isinstance(value, str) else ""
            role = "string" if quote else "muted" if value is None else "number"
            made.append(TreeField(depth, visible(str(name)), f"{quote}{visible(text)}{quote}", role, inner, span))
    return made


LARGE = 100_000
"""Bytes of a frame above which items of long arrays are made when they are opened."""


def request_tree(exchange: Exchange, values_shown: bool = False, schemas: SchemaSource | None = None) -> Tree:
    """The request side; an empty tree with a note for an orphan response."""
    if exchange.request is None:
        return Tree(note="The request was not recorded: it was sent before the recording began, or was lost.")
    return _tree(Direction.REQUEST, exchange.request, exchange, values_shown, schemas)


def response_tree(exchange: Exchange, values_shown: bool = False, schemas: SchemaSource | None = None) -> Tree:
    """The response side; an empty tree with a note where there is none."""
    if exchange.response is not None:
        return _tree(Direction.RESPONSE, exchange.response, exchange, values_shown, schemas)
    if exchange.state == "pending":
        return Tree(note="No response yet.")
    message = exchange.request_message
    if message is not None and message.api == "Produce" and message["acks"] == 0:
        return Tree(note="No response: the producer asked for none (acks=0).")
    return Tree(note="No response: the connection ended, or continued without one.")


def _tree(
    direction: Direction, frame: bytes, exchange: Exchange, values_shown: bool, schemas: SchemaSource | None
) -> Tree:
    # A large frame becomes some hundred thousand objects, none of which is garbage: collections would take a third of the
    # time.
    collects = len(frame) > LARGE and gc.isenabled()
    if collects:
        gc.disable()
    try:
        return _made(direction, frame, exchange, values_shown, schemas)
    finally:
        if collects:
            gc.enable()


def _made(
    direction: Direction, frame: bytes, exchange: Exchange, values_shown: bool, schemas: SchemaSource | None
) -> Tree:
    key, version = exchange.api_key, exchange.api_version
    cut = exchange.response_cut if direction is Direction.RESPONSE else exchange.request_cut
    try:
        if direction is Direction.RESPONSE and exchange.state == "orphan":
            raise DecodeError("without its request, the API of this response is unknown", path="", offset=4)
        if cut:
            raise cut_fault(direction, frame, key, version, cut)
        if direction is Direction.REQUEST:
            message = decode_request(frame)
        else:
            message = decode_response(frame, api_key=key, api_version=version)
    except DecodeError as fault:
        if fault.message is None:
            return _damaged(direction, frame, exchange, fault, values_shown)
        message = fault.message
    brief = len(frame) > LARGE and not _carries_records(key)
    known = schemas if values_shown else None
    request = exchange.request_message if direction is Direction.RESPONSE else None
    names = exchange.topics.name if exchange.topics else None
    asked = (exchange.request or b"") if direction is Direction.RESPONSE else b""
    frame = mask(direction, key, version, frame, asked)
    builder = FieldsBuilder(direction, frame, values_shown, known, names, request, asked)
    return builder.message(message, brief)


def _damaged(direction: Direction, frame: bytes, exchange: Exchange, fault: DecodeError, values_shown: bool) -> Tree:
    """The fields before the fault. Bytes that may be secrets or record values are hidden."""
    key, version = exchange.api_key, exchange.api_version
    builder = FieldsBuilder(direction, mask(direction, key, version, frame), values_shown)
    tree = builder.tree
    tree.fault, tree.fault_at = visible(str(fault)), fault.offset
    of, start = None, 0
    if exchange.state != "orphan":
        with suppress(DecodeError):  # an unknown API or version: the fault is shown
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
        missing = exchange.response_cut if direction is Direction.RESPONSE else exchange.request_cut
        walker = Walker(of, frame, start, missing)
        walker.explain()  # bounded, unlike a full walk
        builder.spans = {span.path: (span.start, span.end) for span in walker.spans}
        builder.values(of.root, fault.partial, 0, "")
        start = max((f.span[1] for f in tree.fields if f.span), default=start)
    if start < len(frame):
        text = f"bytes {start} to {len(frame)}; the fault is at byte {fault.offset}"
        builder.add(TreeField(0, "(not decoded)", text, "undecoded", span=(start, len(frame))))
    else:
        text = f"more bytes were expected at {fault.offset}"
        builder.add(TreeField(0, "(ends here)", text, "undecoded", span=(start, start)))
    return tree


def _carries_records(key: int) -> bool:
    try:
        api = facts.api(key)
    except KeyError:
        return False

    def has_records(fields: Iterable[DefinedField]) -> bool:
        return any(f.type == "records" or has_records(f.fields) for f in fields)

    return any(has_records(d.fields) or any(has_records(f) for _, f in d.structs) for d in (api.request, api.response))
