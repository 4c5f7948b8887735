"""The body of a message that can be changed: as fields in a tree, and as YAML in an editor. The body is the control API's JSON.

The API masks secrets and leaves out the values of records. Neither can be changed here, and both keep their bytes: only
fields that differ are sent back, by their paths. Input is checked against the field's type: error codes are accepted by
name, bytes as hexadecimal, lists as YAML.
"""

from __future__ import annotations

import difflib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import yaml
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.suggester import SuggestFromList
from textual.widgets import Input, Static

from ....decoder.codec.encode import UNKNOWN_TAGS, value_from
from ....decoder.codec.message import is_error_code
from ....decoder.errors import EncodeError
from ....decoder.present import Json
from ....decoder.reference.explain import meaning
from ....decoder.schema import facts
from ....decoder.schema.plan import FieldPlan, Plan, StructPlan, plan
from ....errors import BarnabasError
from ...safe import visible
from ..dialogs.dialogs import Dialog
from ..widgets.field_tree import FieldTree, Tree, TreeField, headline
from ..widgets.palette import DARK, Cell, Palette

RANGES: dict[str, tuple[int, int]] = {
    **{f"int{bits}": (-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, (1 << bits) - 1) for bits in (8, 16, 32, 64)},
}


class BadValue(BarnabasError, ValueError):
    """The input is no value of the field. The text says what is expected."""


def expected_input(field: FieldPlan) -> str:
    """What may be typed for a field, in a few words."""
    one = {
        "string": "text", "bytes": "bytes in hexadecimal", "uuid": "a UUID", "bool": "true or false",
        "float64": "a number",
    }.get(field.type, "")  # fmt: skip
    if is_error_code(field):
        one = "an error code, by name or number"
    elif field.type in RANGES:
        low, high = RANGES[field.type]
        one = f"a whole number, {low:,} to {high:,}"
    return (f"[a, b]: a list, each {one}" if field.array else one) + (", or null" if field.nullable else "")


def format_value(field: FieldPlan, value: Json) -> str:
    """A value of `Message.to_json` as text to be edited."""
    if value is None:
        return "null"
    if field.array:
        items = [facts.error_name(item) if is_error_code(field) else item for item in value]
        return yaml.safe_dump(items, default_flow_style=True, width=1 << 30, allow_unicode=True).strip()
    if is_error_code(field):
        return facts.error_name(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and (value == "null" or value != value.strip() or value[:1] in ("'", '"')):
        return f'"{value}"'
    return str(value)


def parse_value(field: FieldPlan, text: str) -> Json:
    """The value of a text that was typed, with JSON's types. Raises `BadValue`."""
    if text.strip() == "null":
        if not field.nullable:
            raise BadValue(f"{field.name} cannot be null at this version: {expected_input(field)}")
        return None
    if not field.array:
        return check_value(field, _parse_text(field, text))
    try:
        items = yaml.safe_load(text)
    except yaml.YAMLError:
        raise BadValue(f"this is not a list: {expected_input(field)}") from None
    if not isinstance(items, list):
        raise BadValue(f"expected a list in [ ]: {expected_input(field)}")
    return check_value(field, items)


def _parse_text(field: FieldPlan, text: str) -> Json:
    if field.type == "string":
        if len(text) > 1 and text[0] == text[-1] == '"':
            return text[1:-1]
        return text
    word = text.strip()
    if field.type == "bool":
        if word.lower() not in ("true", "false"):
            raise BadValue("true or false")
        return word.lower() == "true"
    return word


def check_value(field: FieldPlan, value: Json) -> Json:
    """A value from YAML or from `parse_value`, converted to one of JSON that the field can hold. Raises `BadValue`."""
    if value is None:
        if not (field.nullable or field.type == "records"):
            raise BadValue(f"{field.name} cannot be null at this version: {expected_input(field)}")
        return None
    if field.array:
        if not isinstance(value, list):
            raise BadValue(f"expected a list: {expected_input(field)}")
        return [_check_item(field, item) for item in value]
    return _check_item(field, value)


def _check_item(field: FieldPlan, value: Json) -> Json:
    if is_error_code(field) and isinstance(value, str) and not _is_whole(value):
        return _error_code(value.strip())
    if field.type in RANGES:
        return _whole_number(field, value)
    if field.type == "float64":
        try:
            return float(value)
        except (TypeError, ValueError):
            raise BadValue(f"{value!r} is not a number") from None
    if field.type == "string" and not isinstance(value, str):
        raise BadValue(f"expected text, got {value!r}: put it in quotes")
    if field.type == "bool" and not isinstance(value, bool):
        raise BadValue(f"expected true or false, got {value!r}")
    if field.type in ("bytes", "uuid"):
        value = str(value).strip()
    try:
        value_from(field, [value] if field.array else value, field.name)  # only to check it
    except EncodeError as error:
        raise BadValue(f"{error}: {expected_input(field)}") from None
    if field.type == "uuid":
        return str(uuid.UUID(value)) if len(value) > 22 else value
    return value


def _is_whole(text: str) -> bool:
    return text.strip().lstrip("+-").replace("_", "").isdecimal()


def _whole_number(field: FieldPlan, value: Json) -> int:
    low, high = RANGES[field.type]
    if isinstance(value, str):
        try:
            value = int(value.strip(), 0)
        except ValueError:
            raise BadValue(f"{value!r} is not a whole number: {expected_input(field)}") from None
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadValue(f"{value!r} is not a whole number: {expected_input(field)}")
    if not low <= value <= high:
        raise BadValue(f"{value} does not fit an {field.type}: {low:,} to {high:,}")
    return value


def _error_code(name: str) -> int:
    names = {fact.name: code for code, fact in facts.errors().items()}
    found = names.get(name.upper())
    if found is None:
        near = difflib.get_close_matches(name.upper(), list(names), 1)
        raise BadValue(f"there is no error {name!r}" + (f", did you mean {near[0]}?" if near else ""))
    return found


_FOLD_ABOVE = 12
Edits = Mapping[str, Json]


@dataclass(slots=True)
class BodyTree:
    """`tree`: to be drawn; `plans` and `values`: of the fields that can be edited, by their paths."""

    tree: Tree
    plans: dict[str, FieldPlan]
    values: dict[str, Json]


def body_tree(side: str, api_key: int, version: int, body: Mapping[str, Json], edits: Edits) -> BodyTree:
    """The fields of a body with the edits so far. Raises `DecodeError` for an unknown version."""
    builder = _Builder(plan(side, api_key, version), edits)
    builder.struct(builder.plan.root, body, 0, "")
    return BodyTree(Tree(builder.fields), builder.plans, builder.values)


def editable(field: FieldPlan, value: Json) -> bool:
    """Whether the field can be edited: structs, records and masked values cannot."""
    return field.struct is None and field.type != "records" and not masked(value)


def masked(value: Json) -> bool:
    """Whether a value is a secret that was replaced by stars of the same length."""
    if not isinstance(value, str) or not value:
        return False
    return not set(value) - {"*"} or (len(value) % 2 == 0 and value == "2a" * (len(value) // 2))


class _Builder:
    def __init__(self, of: Plan, edits: Edits):
        self.plan, self.edits = of, edits
        self.fields: list[TreeField] = []
        self.plans: dict[str, FieldPlan] = {}
        self.values: dict[str, Json] = {}

    def struct(self, of: StructPlan, values: Mapping[str, Json], depth: int, prefix: str) -> None:
        for field in of.fields:
            if field.name in values:
                self.field(field, values[field.name], depth, prefix + field.name)
        for tag in values.get(UNKNOWN_TAGS) or {}:
            self.fields.append(TreeField(depth, f"(unknown tag {visible(str(tag))})", "kept as it is", "muted"))

    def field(self, field: FieldPlan, value: Json, depth: int, path: str) -> None:
        changed = path in self.edits
        if changed:
            value = self.edits[path]
        at = len(self.fields)
        line = TreeField(depth, field.name, path=path)
        self.fields.append(line)
        if field.struct is not None and value is not None:
            if field.array:
                line.name += f" [{len(value)}]"
                line.folded = len(value) > _FOLD_ABOVE
                for i, item in enumerate(value):
                    self._element(field.struct, item, i, depth + 1, f"{path}[{i}]")
            else:
                self.struct(field.struct, value, depth + 1, path + ".")
        elif field.type == "records":
            line.value, line.role = _count_records(value), "masked"
        else:
            line.value, line.role = self._scalar(field, value)
            line.error = line.role == "error"
            if editable(field, value):
                self.plans[path], self.values[path] = field, value
        if changed:
            line.value, line.role = f"{line.value}  * changed".strip(), "warning"
        line.below = len(self.fields) - at - 1

    def _element(self, of: StructPlan, item: Mapping[str, Json], number: int, depth: int, path: str) -> None:
        at = len(self.fields)
        line = TreeField(depth, f"[{number}]", path=path)
        self.fields.append(line)
        self.struct(of, item, depth + 1, path + ".")
        inside = self.fields[at + 1 :]
        line.below = len(inside)
        line.value, line.role = headline(inside, depth + 1)

    def _scalar(self, field: FieldPlan, value: Json) -> Cell:
        if value is None:
            return "null", "muted"
        if masked(value):
            return "secret, masked: it is passed on unchanged", "masked"
        if field.array:
            return visible(format_value(field, value)), "string"
        if is_error_code(field):
            return f"{value} {facts.error_name(value)}", "error" if value else "number"
        if isinstance(value, bool | int | float):
            known = meaning(self.plan.api, field.name, value)
            text = str(value).lower() if isinstance(value, bool) else str(value)
            return (f"{text} {known}" if known else text), "number"
        return f'"{visible(str(value))}"' if field.type == "string" else visible(str(value)), "string"


def _count_records(value: Json) -> str:
    if not isinstance(value, list):
        return "null"
    count = sum(len(entry.get("records") or ()) for entry in value if isinstance(entry, dict))
    return f"{len(value)} batch{'' if len(value) == 1 else 'es'}, {count} record{'' if count == 1 else 's'}: kept as they are"


# --- YAML ------------------------------------------------------------------------------------------------------------

_KEPT = "(kept as it is)"


def to_yaml(side: str, api_key: int, version: int, body: Mapping[str, Json], edits: Edits) -> str:
    """The body as YAML with the edits so far: error codes by name, and a remark in place of what cannot be edited."""
    root = plan(side, api_key, version).root
    plain = _yaml_values(root, body, "", edits)
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100)
    if all(map(str.isprintable, text.split("\n"))):
        return text
    # YAML does not escape all characters that are harmful in a terminal, such as bidi controls.
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=False, width=100)


def _yaml_values(of: StructPlan, values: Mapping[str, Json], prefix: str, edits: Edits) -> dict[str, Json]:
    out: dict[str, Json] = {}
    for field in of.fields:
        if field.name not in values:
            continue
        path = prefix + field.name
        value = edits.get(path, values[field.name])
        if field.type == "records" or masked(value):
            out[field.name] = _KEPT if value is not None else None
        elif field.struct is not None and value is not None:
            out[field.name] = (
                [_yaml_values(field.struct, item, f"{path}[{i}].", edits) for i, item in enumerate(value)]
                if field.array
                else _yaml_values(field.struct, value, path + ".", edits)
            )
        elif is_error_code(field) and value is not None:
            names = [facts.error_name(code) for code in (value if field.array else [value])]
            out[field.name] = names if field.array else names[0]
        else:
            out[field.name] = value
    return out


def from_yaml(side: str, api_key: int, version: int, body: Mapping[str, Json], text: str) -> dict[str, Json]:
    """The values that an edited text changes, by path. Raises `BadValue` with the place."""
    try:
        given = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise BadValue(f"{where}{getattr(error, 'problem', None) or error}") from None
    if not isinstance(given, dict):
        raise BadValue("expected the fields of the message, name: value")
    return dict(_differences(plan(side, api_key, version).root, body, given, ""))


def _differences(
    of: StructPlan, old: Mapping[str, Json], new: Mapping[Json, Json], prefix: str
) -> Iterator[tuple[str, Json]]:
    known = {field.name: field for field in of.fields}
    for name in new:
        if name not in known:
            raise BadValue(f"{prefix}{name}: there is no such field at this version, only {', '.join(known)}")
    for name, field in known.items():
        path = prefix + name
        if name not in new:
            continue  # a field that was left out keeps its bytes
        value, was = new[name], old.get(name)
        if value == _KEPT:
            continue
        if field.type == "records":
            raise BadValue(f"{path}: records cannot be changed here; {_KEPT} keeps them")
        if field.struct is None:
            value = _checked_at(path, field, value)
            if value != was:
                yield path, value
        elif value is None or was is None:
            if value != was:
                yield path, _new_struct_at(path, field, value)
        elif not field.array:
            if not isinstance(value, dict):
                raise BadValue(f"{path}: expected fields, name: value")
            yield from _differences(field.struct, was, value, path + ".")
        elif not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise BadValue(f"{path}: expected a list of items with fields")
        elif len(value) != len(was):
            yield path, _new_struct_at(path, field, value)
        else:
            for i, (one, other) in enumerate(zip(was, value, strict=True)):
                yield from _differences(field.struct, one, other, f"{path}[{i}].")


def _checked_at(path: str, field: FieldPlan, value: Json) -> Json:
    try:
        return check_value(field, value)
    except BadValue as error:
        raise BadValue(f"{path}: {error}") from None


def _new_struct_at(path: str, field: FieldPlan, value: Json) -> Json:
    """A list or struct that replaces the old one. It cannot contain values that are kept."""
    if value is None:
        if not field.nullable:
            raise BadValue(f"{path}: cannot be null at this version")
        return None
    assert field.struct is not None
    if not field.array:
        return _whole_struct(field.struct, value, path)
    return [_whole_struct(field.struct, item, f"{path}[{i}]") for i, item in enumerate(value)]


def _whole_struct(of: StructPlan, given: Json, path: str) -> dict[str, Json]:
    if not isinstance(given, dict):
        raise BadValue(f"{path}: expected fields, name: value")
    known = {field.name: field for field in of.fields}
    out: dict[str, Json] = {}
    for name, value in given.items():
        field = known.get(name)
        if field is None:
            raise BadValue(f"{path}.{name}: there is no such field at this version, only {', '.join(known)}")
        if value == _KEPT or field.type == "records":
            raise BadValue(f"{path}: items that contain records or secrets cannot be added or removed here")
        inner = f"{path}.{name}"
        out[name] = _new_struct_at(inner, field, value) if field.struct is not None else _checked_at(inner, field, value)
    return out


# --- widgets -----------------------------------------------------------------------------------------------


class ValueBox(Dialog[str | None]):
    """Asks for a text for which `fault_of(text)` is ""; None when cancelled. `names` are suggested."""

    DEFAULT_CSS = """
    ValueBox > Vertical { max-width: 100; padding: 0 1; }
    ValueBox Input, ValueBox Input:focus { padding: 0; background: $surface; }
    ValueBox Static { height: auto; }
    """

    def __init__(
        self, title: str, expected: str, text: str, fault_of: Callable[[str], str], names: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self.headline, self.expected, self.text, self._fault_of, self._names = visible(title), expected, text, fault_of, names
        self._fault = Static("", markup=False)

    def compose(self) -> ComposeResult:
        suggester = SuggestFromList(self._names, case_sensitive=False) if self._names else None
        # An Input draws its text as it is, and the value comes from the traffic.
        about = Static(f"{self.headline}\n{visible(self.expected)}", markup=False)
        box = Vertical(about, Input(visible(self.text), suggester=suggester), self._fault)
        box.border_title, box.border_subtitle = "New value", "Enter: accept  Esc: back"
        yield box

    def on_mount(self) -> None:
        self.query_one(Input).action_select_all()

    @on(Input.Changed)
    def _look(self, event: Input.Changed) -> None:
        self._show_fault(self._fault_of(event.value))

    @on(Input.Submitted)
    def _done(self, event: Input.Submitted) -> None:
        fault = self._fault_of(event.value)
        if fault:
            self._show_fault(fault)
        else:
            self.dismiss(event.value)

    def _show_fault(self, fault: str) -> None:
        palette: Palette = getattr(self.app, "palette", DARK)
        self._fault.update(Text(f"! {visible(fault)}" if fault else "", palette.error))


class EditTree(FieldTree):
    """A field tree whose values can be edited: Enter asks for another one."""

    class Changed(Message):
        """A field was edited."""

        def __init__(self, path: str, value: Json):
            super().__init__()
            self.path, self.value = path, value

    class Asking(Message):
        """The box for a value is open."""

    def __init__(self, title: str, id: str):
        super().__init__(title, id)
        self.body: BodyTree | None = None
        self.refused = ""
        """Why nothing can be changed, or ""."""

    def show_body(self, body: BodyTree, keep_place: bool) -> None:
        """Show other fields. `keep_place`: they are of the same frame."""
        self.body = body
        self.show(body.tree, keep_place)

    def action_fold_or_unfold(self) -> None:
        field = self.current
        if field is not None and not field.below:
            self._ask(field)
        else:
            super().action_fold_or_unfold()

    def _ask(self, field: TreeField) -> None:
        if self.refused:
            self.notify(self.refused, severity="warning", timeout=3)
            return
        of = self.body.plans.get(field.path) if self.body is not None else None
        if of is None or self.body is None:
            self.notify("This field cannot be changed here.", timeout=2)
            return
        plan, old = of, self.body.values[field.path]
        first = visible(format_value(plan, old))

        def fault_of(text: str) -> str:
            try:
                parse_value(plan, text)
            except BadValue as error:
                return str(error)
            return ""

        def answered(text: str | None) -> None:
            if text is not None and text != first and (value := parse_value(plan, text)) != old:
                self.post_message(self.Changed(field.path, value))

        names = [fact.name for fact in facts.errors().values()] if is_error_code(plan) else []
        self.post_message(self.Asking())
        self.app.push_screen(ValueBox(field.path, expected_input(plan), first, fault_of, names), answered)
