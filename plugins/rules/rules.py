"""Fault rules: what to break on purpose, for which exchanges, and when.

    rules:
      - name: leader moved
        match: api == Produce and topic == orders and partition == 3
        do: {error: NOT_LEADER_OR_FOLLOWER, broker: skipped}
        when: {after: 10, times: 3}

`match` is a filter (`decoder.filter`). `do` is one action or a list of them (`actions`), `when` says which of the matches
count (`when`). One model, whether it comes as YAML, TOML, JSON or from Python: `load_rules`, `parse_rules`, `Rule.of`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...decoder.filter import Filter, compile
from .. import actions
from ..actions import Action
from ..conditions import reach, when
from ..conditions.input_value import InputValue, InvalidInput, from_plain
from ..conditions.when import ALWAYS, When
from .rules_file import RuleError, read, read_text

KEYS = ("name", "match", "do", "when")


@dataclass(frozen=True)
class Rule:
    """A fault rule: which exchanges match, and what happens to them. Immutable; equal if all fields are equal."""

    name: str
    match: str
    do: tuple[Action, ...]
    when: When = ALWAYS
    filter: Filter = field(init=False, compare=False, repr=False)
    """`match`, compiled."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "filter", compile(self.match))

    @property
    def late(self) -> bool:
        """Whether it is decided when the response arrives."""
        return not self.filter.request_only

    def to_dict(self) -> dict[str, Any]:
        """The rule as in a rules file: plain data that `from_dict` accepts."""
        do = [action.to_dict() for action in self.do]
        found: dict[str, Any] = {"name": self.name, "match": self.match, "do": do[0] if len(do) == 1 else do}
        if wanted := self.when.to_dict():
            found["when"] = wanted
        return found

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Rule:
        """From plain data; `InvalidInput` (a ValueError) names what is wrong with it, by its path."""
        return _rule(from_plain(fields), 1)

    @classmethod
    def of(
        cls, match: str, do: Any = None, *, name: str = "", when: Mapping[str, Any] | None = None, **action: Any
    ) -> Rule:
        """A rule in Python: ``Rule.of("api == Produce", error="REQUEST_TIMED_OUT", when={"times": 2})``.

        `do`: an action or a list of actions as in a rules file; a single action's settings may be given as arguments instead.
        """
        fields: dict[str, Any] = {"match": match, "do": do if do is not None else action}
        if name:
            fields["name"] = name
        if when:
            fields["when"] = when
        return cls.from_dict(fields)


def _rule(given: InputValue, number: int) -> Rule:
    fields = given.mapping(KEYS, "a rule")
    for key in ("match", "do"):
        if key not in fields:
            given.invalid(f"the rule has no {key!r}")
    name = fields["name"].text("name") if "name" in fields else f"rule {number}"
    wanted = fields["match"].filter("match")
    if why := reach.why_never(wanted):
        fields["match"].invalid(f"the match is never true: {why}")
    if wanted.completed_only:
        what = "is not known while a message passes: it works only in recordings and lists"
        fields["match"].invalid(f"{wanted.completed_only!r} {what}")
    do = actions.read(fields["do"], wanted)
    found = when.read(fields["when"]) if "when" in fields else ALWAYS
    return Rule(name, wanted.text, do, found)


def _rules(listed: list[InputValue], first: int) -> list[Rule]:
    found: dict[str, Rule] = {}
    for number, given in enumerate(listed, first):
        rule = _rule(given, number)
        if rule.name in found:
            given.invalid(f"two rules are named {rule.name!r}: hits are counted by name")
        found[rule.name] = rule
    return list(found.values())


def load_rules(path: str | Path) -> list[Rule]:
    """The rules in a file, YAML or (by its name) TOML; RuleError gives file, line, column and what is possible."""
    source = read(Path(path))
    try:
        return _rules(source.rules(), 1)
    except InvalidInput as error:
        raise source.error(error) from None


def parse_rules(text: str, name: str = "rules", first: int = 1, most: int | None = None) -> list[Rule]:
    """The rules of a text: a rules file's content, a list of rules or one rule, in YAML or JSON.

    Raises RuleError like `load_rules`, with `name` as the file. Rules without a name are numbered from `first`. More than
    `most` rules are refused early.
    """
    source = read_text(text, name) if most is None else read_text(text, name, VALUES_PER_RULE * (max(most, 0) + 1))
    try:
        listed = source.rules(loose=True)
        if most is not None and len(listed) > most:
            listed[max(most, 0)].invalid(f"only {most} more rules are allowed here, not {len(listed)}")
        return _rules(listed, first)
    except InvalidInput as error:
        raise source.error(error) from None


VALUES_PER_RULE = 32
"""That a rule has at most on average, where their number is limited."""

__all__ = ["InvalidInput", "Rule", "RuleError", "load_rules", "parse_rules"]
