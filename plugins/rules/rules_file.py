"""Reading a rules file: YAML, JSON or TOML as `InputValue`s with their places. Nothing in it is executed."""

from __future__ import annotations

import json
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import BarnabasError
from ..conditions.input_value import InputValue, InvalidInput, from_plain

if TYPE_CHECKING:
    import yaml

MOST_VALUES = 100_000
"""Aliases count with all that they stand for: a few lines of them can expand beyond any memory."""


class RuleError(BarnabasError, ValueError):
    """A rules file that cannot be used: `file`, `line` and `column` (from 1), `text`."""

    def __init__(self, file: str, line: int, column: int, text: str) -> None:
        super().__init__(f"{file}:{line}:{column}: {text}")
        self.file, self.line, self.column, self.text = file, line, column, text


class RulesText:
    """A parsed text of rules. `name`: its name in errors."""

    def __init__(self, name: str, root: InputValue) -> None:
        self.name, self.root = name, root

    def rules(self, loose: bool = False) -> list[InputValue]:
        """The rules one by one; `loose`: also a list of rules, or one rule alone."""
        root = self.root
        if root.value is None:
            root.invalid("is empty; it must start with 'rules:' and a list")
        if loose and isinstance(root.value, dict) and "rules" not in root.items:
            return [root]
        if loose and isinstance(root.value, list):
            return root.listed
        fields = root.mapping(("rules",), "a rules file")
        if "rules" not in fields:
            root.invalid("has no 'rules:'")
        if not isinstance(fields["rules"].value, list):
            fields["rules"].invalid("'rules' must be a list: each rule starts with '- '")
        return fields["rules"].listed

    def error(self, invalid: InvalidInput) -> RuleError:
        """What is wrong, with its place in the text."""
        given = invalid.given
        line, column = (given.key_place if invalid.key and given.key_place else given.place) or (1, 1)
        if invalid.offset:
            column += invalid.offset + given.quoted
        return RuleError(self.name, line, column, invalid.text)


def read(path: Path) -> RulesText:
    """A file; RuleError if it cannot be read or is no YAML or TOML."""
    name = str(path)
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise RuleError(name, 1, 1, f"cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise RuleError(name, 1, 1, "is not UTF-8 text") from None
    return RulesText(name, _toml(text, name) if path.suffix == ".toml" else _yaml(text, name))


def read_text(text: str, name: str, most: int = MOST_VALUES) -> RulesText:
    """Like `read`, for YAML or JSON in a text; `most`: values in it."""
    return RulesText(name, _yaml(text, name, most))


# -- YAML and JSON -----------------------------------------------------------------------------------------------


@cache
def _bounded_loader() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Limits the number of values: each costs a thousand times its bytes."""

        def __init__(self, text: str, most: int) -> None:
            super().__init__(text)
            self._left, self._most = most, most

        def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
            self._left -= 1
            if self._left < 0:
                parser: Any = self  # not every release of its stubs has types here
                at = parser.peek_event().start_mark
                raise yaml.MarkedYAMLError(problem=_too_many(self._most), problem_mark=at)
            node: yaml.Node | None = super().compose_node(parent, index)
            return node

    return Loader


def _too_many(most: int) -> str:
    return f"it contains more than {most} values, including those that its aliases expand to"


def _yaml(text: str, name: str, most: int = MOST_VALUES) -> InputValue:
    import yaml  # imported late: a relay gets its rules without it

    try:
        loader = _bounded_loader()(_without_tabs(text), most)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
        if root is None:
            return InputValue(None)
        return _Nodes(yaml.SafeLoader(""), most).given(root, "", 0)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise RuleError(name, line, column, f"is not YAML: {error.problem}") from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, error.position - before.rfind("\n")
        raise RuleError(name, line, column, f"is not YAML: a character that is not allowed in text (#x{error.character:02x})") from None
    except yaml.YAMLError as error:
        raise RuleError(name, 1, 1, f"is not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise RuleError(name, 1, 1, "is nested too deeply") from None


def _without_tabs(text: str) -> str:
    """JSON with spaces instead of tabs, which YAML does not allow in indentation; all places stay the same."""
    if "\t" in text:
        try:
            json.loads(text)  # if it is JSON, tabs are only white space: in strings they are written \\t
            return text.replace("\t", " ")
        except (ValueError, RecursionError):
            pass
    return text


class _Nodes:
    """Turns YAML's nodes into `InputValue`s of plain data: a value with any other tag stays a text."""

    DEEPEST = 30

    def __init__(self, loader: yaml.SafeLoader, most: int) -> None:
        self.loader, self.most = loader, most
        self.seen = 0

    def given(self, node: yaml.Node, path: str, depth: int) -> InputValue:
        import yaml

        place = node.start_mark.line + 1, node.start_mark.column + 1
        self.seen += 1
        if self.seen > self.most:
            raise yaml.MarkedYAMLError(problem=_too_many(self.most), problem_mark=node.start_mark)
        if depth > self.DEEPEST:
            raise yaml.MarkedYAMLError(problem="it is nested too deeply", problem_mark=node.start_mark)
        if isinstance(node, yaml.MappingNode):
            given = InputValue({}, path, place=place)
            for key, value in node.value:
                name = str(key.value) if isinstance(key, yaml.ScalarNode) else "?"
                item = self.given(value, f"{path}.{name}" if path else name, depth + 1)
                item.key_place = key.start_mark.line + 1, key.start_mark.column + 1
                if name in given.items:
                    given.duplicate_key = name
                given.items[name], given.value[name] = item, item.value
            return given
        if isinstance(node, yaml.SequenceNode):
            given = InputValue([], path, place=place)
            for number, entry in enumerate(node.value):
                item = self.given(entry, f"{path}[{number}]", depth + 1)
                given.listed.append(item)
                given.value.append(item.value)
            return given
        plain: Any = node.value
        if node.tag in _PLAIN:
            try:
                plain = self.loader.construct_object(node)
            except (ValueError, yaml.YAMLError):
                plain = node.value  # such as a date that is none
        raw = None if plain is None else str(node.value)
        return InputValue(plain, path, raw, place, quoted=isinstance(node, yaml.ScalarNode) and node.style in ("'", '"'))


_PLAIN = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "str"))


# -- TOML --------------------------------------------------------------------------------------------------------


def _toml(text: str, name: str) -> InputValue:
    try:
        root = from_plain(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        line, column = (int(found[1]), int(found[2])) if found else (text.count("\n") + 1, len(text) - text.rfind("\n"))
        raise RuleError(name, line, column, f"is not TOML: {re.sub(r' [(]at .*[)]$', '', str(error)).lower()}") from None
    except RecursionError:
        raise RuleError(name, 1, 1, "is nested too deeply") from None
    _place(root, _lines(text), (1, 1))
    return root


_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]")
_KEY = re.compile(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"))*)\s*=\s*")


def _lines(text: str) -> dict[str, tuple[int, int]]:
    """The places of all values of a valid TOML text: path to line and column. Keys of inline tables are found by their
    name on the line."""
    found: dict[str, tuple[int, int]] = {}
    counts: dict[str, int] = {}
    prefix = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            name = re.sub(r"[\s\"']", "", header[2])
            head, _, rest = name.partition(".")
            if header[1] == "[[" and not rest:
                counts[name] = counts.get(name, -1) + 1
            prefix = (f"{head}[{counts[head]}]" if head in counts else head) + (f".{rest}" if rest else "")
            found.setdefault(prefix, (number, header.start(2) + 1))
        elif key := _KEY.match(line):
            name = re.sub(r"[\s\"']", "", key[1])
            path = f"{prefix}.{name}" if prefix else name
            found[path] = number, key.end() + 1
            for inner in re.finditer(r"[{,]\s*([\w-]+)\s*=\s*", line[key.end() :]):
                found.setdefault(f"{path}.{inner[1]}", (number, key.end() + inner.end() + 1))
    return found


def _place(given: InputValue, lines: dict[str, tuple[int, int]], around: tuple[int, int]) -> None:
    given.place = given.key_place = lines.get(given.path, around)
    given.quoted = isinstance(given.value, str)
    for item in (*given.items.values(), *given.listed):
        _place(item, lines, given.place)
