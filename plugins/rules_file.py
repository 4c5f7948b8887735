"""Reading a rules file: YAML with a position for every complaint. Nothing in it is ever executed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from ..decoder import facts
from .match import Match, MatchError, nearest, parse_match

RULE_KEYS = ("name", "match", "do", "when")
DO_KEYS = ("error", "broker")
WHEN_KEYS = ("after", "times")
BROKER = ("skipped", "executed")
ANSWERED_APIS = ("Produce",)
"""APIs that `error` can answer."""


class RuleError(ValueError):
    """A rules file that cannot be used: `file`, `line` and `column` (from 1), `text`."""

    def __init__(self, file: str, line: int, column: int, text: str) -> None:
        super().__init__(f"{file}:{line}:{column}: {text}")
        self.file, self.line, self.column, self.text = file, line, column, text


@dataclass(frozen=True, slots=True)
class Entry:
    """One rule as it was read."""

    name: str
    match: Match
    error_code: int
    forward: bool
    after: int
    times: int | None


def read(path: Path) -> list[Entry]:
    """All rules of a file, in order; RuleError for the first thing that is wrong."""
    name = str(path)
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise RuleError(name, 1, 1, f"cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise RuleError(name, 1, 1, "is not UTF-8 text") from None
    return _File(name).rules(text)


def read_text(text: str, name: str, first: int = 1) -> list[Entry]:
    """The rules of a text that is a whole file, a list of rules, or one rule; see `read`."""
    return _File(name, first).rules(text, loose=True)


class _File:
    def __init__(self, name: str, first: int = 1) -> None:
        self.name = name
        self.first = first

    def error(self, node: yaml.Node, text: str, offset: int = 0) -> RuleError:
        mark = node.start_mark
        if offset and isinstance(node, yaml.ScalarNode) and node.style in ("'", '"'):
            offset += 1
        return RuleError(self.name, mark.line + 1, mark.column + 1 + offset, text)

    def rules(self, text: str, loose: bool = False) -> list[Entry]:
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            raise RuleError(self.name, line, column, f"is not YAML: {error.problem}") from None
        except yaml.YAMLError as error:
            raise RuleError(self.name, 1, 1, f"is not YAML: {error}") from None
        if root is None:
            raise RuleError(self.name, 1, 1, "is empty; it starts with 'rules:' and a list")
        if loose and isinstance(root, yaml.MappingNode) and "rules" not in [key.value for key, _ in root.value]:
            return [self.rule(root, self.first)]
        listed: yaml.Node = root
        if not loose or not isinstance(root, yaml.SequenceNode):
            fields = self.mapping(root, ("rules",), "a rules file")
            if "rules" not in fields:
                raise self.error(root, "has no 'rules:'")
            listed = fields["rules"]
        if not isinstance(listed, yaml.SequenceNode):
            raise self.error(listed, "'rules' is a list: each rule starts with '- '")
        entries = [self.rule(node, number) for number, node in enumerate(listed.value, self.first)]
        seen: set[str] = set()
        for entry, node in zip(entries, listed.value, strict=True):
            if entry.name in seen:
                raise self.error(node, f"a second rule is named {entry.name!r}: hits are counted by name")
            seen.add(entry.name)
        return entries

    def rule(self, node: yaml.Node, number: int) -> Entry:
        fields = self.mapping(node, RULE_KEYS, "a rule")
        for key in ("match", "do"):
            if key not in fields:
                raise self.error(node, f"the rule has no {key!r}")
        name = self.text(fields["name"], "name") if "name" in fields else f"rule {number}"
        match_node = fields["match"]
        try:
            match = parse_match(self.text(match_node, "match"))
        except MatchError as error:
            raise self.error(match_node, str(error), error.offset) from None
        if facts.api_name(match.api_key) not in ANSWERED_APIS:
            raise self.error(
                match_node,
                f"an error answer for {facts.api_name(match.api_key)} is not possible, only for "
                + ", ".join(ANSWERED_APIS),
            )
        action = self.mapping(fields["do"], DO_KEYS, "'do'")
        if "error" not in action:
            raise self.error(fields["do"], "'do' has no action; possible: error")
        try:
            code = facts.error_code(self.text(action["error"], "error"))
        except KeyError as error:
            raise self.error(action["error"], str(error.args[0])) from None
        forward = False
        if "broker" in action:
            word = self.text(action["broker"], "broker")
            if word not in BROKER:
                raise self.error(
                    action["broker"], f"broker is skipped or executed and not {word!r}{nearest(word, list(BROKER))}"
                )
            forward = word == "executed"
        when = self.mapping(fields["when"], WHEN_KEYS, "'when'") if "when" in fields else {}
        after = self.number(when["after"], "after", 0) if "after" in when else 0
        times = self.number(when["times"], "times", 1) if "times" in when else None
        return Entry(name, match, code, forward, after, times)

    def mapping(self, node: yaml.Node, known: tuple[str, ...], what: str) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            raise self.error(node, f"{what} consists of 'key: value' with the keys {', '.join(known)}")
        found: dict[str, yaml.Node] = {}
        for key, value in self.pairs(node):
            if key.value not in known:
                raise self.error(
                    key,
                    f"{what} has no key {key.value!r}{nearest(str(key.value), list(known))} "
                    f"(possible: {', '.join(known)})",
                )
            if key.value in found:
                raise self.error(key, f"{key.value!r} stands here twice")
            found[key.value] = value
        return found

    @staticmethod
    def pairs(node: yaml.MappingNode) -> Iterator[tuple[yaml.Node, yaml.Node]]:
        yield from node.value

    def text(self, node: yaml.Node, what: str) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag == "tag:yaml.org,2002:null" or not node.value:
            raise self.error(node, f"{what!r} is text")
        return str(node.value)

    def number(self, node: yaml.Node, what: str, least: int) -> int:
        if isinstance(node, yaml.ScalarNode) and node.value.isascii() and node.value.isdigit():
            value = int(node.value)
            if value >= least:
                return value
        raise self.error(node, f"{what!r} is a whole number from {least}")
