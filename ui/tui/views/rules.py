"""The rules view: what rules do, their hits, and keys to add, edit, switch and remove them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any, ClassVar, NamedTuple

import yaml
from textual.binding import BindingType
from textual.widget import Widget

from ....proxy.control import Control, ControlError
from ...safe import fit, visible
from ..dialogs.dialogs import Confirm, Find, Name, Write
from ..keys import bindings
from ..model.session import NO_CONTROL
from ..widgets.line_list import LineList, Table
from ..widgets.palette import Cell
from ..widgets.styled import TextPane, TitleLine
from .view import View

EVERY_SECONDS = 1.0
NEW_RULE = """\
name: my rule
match: api == Produce and topic == orders
do: {error: NOT_LEADER_OR_FOLLOWER}
when: {times: 3}
"""
FOR_A_FILE = (
    "Rules act on live traffic; this is a recording.\n\n"
    "To start a proxy with rules:\n"
    "  barnabas proxy --broker HOST:PORT --rules FILE\n"
    "To open this screen on a running proxy:\n"
    "  barnabas ui --attach newest --allow-edit\n"
    "Ready-made rules:\n"
    "  barnabas rules recipes\n\n"
    "f shows what rules have done in this recording."
)


class ListedRule(NamedTuple):
    """A rule of the proxy. `origin`: where it comes from; `source`: as it is written; `hits`: how often it has acted."""

    name: str
    enabled: bool
    hits: int
    origin: str
    source: dict[str, Any]

    @classmethod
    def of(cls, found: dict[str, Any]) -> ListedRule:
        """From the control API's JSON."""
        return cls(str(found["name"]), found["enabled"], found["hits"], str(found.get("origin", "")), found["source"])


class RulesScreen(View):
    """The rules of the proxy that this is attached to."""

    DEFAULT_CSS = """
    RulesScreen Table { height: 1fr; }
    RulesScreen TextPane { height: 12; padding: 0 1; border-top: solid $border-blurred; }
    """
    BINDINGS: ClassVar[list[BindingType]] = bindings("rules")
    number = 7
    context = "rules"

    def __init__(self) -> None:
        super().__init__()
        self.rules: list[ListedRule] = []
        self.fault = ""
        self._asked = False
        self._answered = False

    def body(self) -> Iterable[Widget]:
        self.titles, self.table, self.text = TitleLine(), Table(), TextPane()
        return self.titles, self.table, self.text

    def on_mount(self) -> None:
        super().on_mount()
        if self.session.control is not None:
            self.set_interval(EVERY_SECONDS, self._ask)

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self._ask()

    def empty_text(self) -> str:
        if self.session.control is None:
            return NO_CONTROL if self.session.grows else FOR_A_FILE
        if self.fault:
            return f"The proxy does not answer.\n\n{self.fault}"
        if self.rules:
            return ""
        return "No rules: traffic is passed on unchanged.\n\na adds one, p a ready-made recipe." if self._answered else "Asking the proxy ..."

    def state_cells(self) -> list[Cell]:
        on = sum(bool(rule.enabled) for rule in self.rules)
        return [(f"{on} of {len(self.rules)} rules on", "")] if self.rules else []

    def update_rows(self) -> None:
        self.titles.show("  State     Hits  Name                           Origin      Match")
        self.table.show([
            [(" on    " if rule.enabled else " off   ", "ok" if rule.enabled else "muted"),
             (f"{rule.hits:>7}  ", "number" if rule.hits else "muted"),
             (fit(visible(rule.name), 30) + " ", "title"),
             (fit(visible(rule.origin), 10) + "  ", "muted"),
             (visible(str(rule.source.get("match", ""))), "")]
            for rule in self.rules
        ])  # fmt: skip
        self._show_details()

    @property
    def current(self) -> ListedRule | None:
        """The rule under the cursor."""
        return self.rules[self.table.cursor] if self.table.cursor < len(self.rules) else None

    def _show_details(self) -> None:
        rule = self.current
        lines = _yaml(rule.source).splitlines() if rule is not None else []
        self.text.show([[(visible(line), "string")] for line in lines])
        may = self.session.allow_edit or self.session.control is None
        note = "" if may else "READ-ONLY: --allow-edit, or the command :edit on, allows changes"
        self.about.show([(f" {note}", "waiting")])

    def on_line_list_moved(self) -> None:
        self._show_details()

    # --- the proxy -----------------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Ask for the rules, unless an answer is due."""
        if self.session.control is not None and not self._asked and self.barnabas.current is self:
            self._asked = True
            self.call_proxy(
                lambda control: [ListedRule.of(each) for each in control.rules()],
                lambda rules: self._show(rules, ""),
                lambda error: self._show(self.rules, visible(str(error))),
            )

    def _show(self, rules: list[ListedRule], fault: str) -> None:
        self._asked, self._answered = False, True
        if (rules, fault) != (self.rules, self.fault):
            self.rules, self.fault = rules, fault
            self.update_view()
        elif self.has_class("empty"):
            self.update_view()

    def _change(self, what: str, change: Callable[[Control], object], again: Callable[[str], None] | None = None) -> None:
        """Change something in the proxy. Why it refuses is shown, or given to `again`."""

        def refused(error: ControlError) -> None:
            line = error.details.get("line")
            (again or self._refused)(visible(f"line {line}: {error}" if line else str(error)))

        self.call_proxy(change, lambda _: self._done(what), refused)

    def _done(self, what: str) -> None:
        self.session.add_to_log(what)
        self._ask()

    def _refused(self, fault: str) -> None:
        self.notify(fault, severity="error", timeout=5)

    # --- keys ----------------------------------------------------------------------------------------------

    def _may(self) -> bool:
        reason = self.session.read_only()
        if reason:
            self.notify(reason, severity="warning", timeout=3)
        return not reason

    def action_add(self) -> None:
        if self._may():
            self._write("Add a rule", NEW_RULE, "", lambda text: lambda control: control.add_rule(text))

    def action_recipe(self) -> None:
        """Choose a recipe, and add its rules."""
        if not self._may():
            return
        from ....plugins.rules.recipes import RECIPES, find

        def chosen(name: str | None) -> None:
            recipe = find(name) if name else None
            if recipe is None:
                return
            taken = {rule.name for rule in self.rules}
            rules = [rule.to_dict() for rule in recipe.to_rules()]
            for rule in rules:
                rule["name"] = next(name for name in _numbered(rule["name"]) if name not in taken)
            self.notify(f"Expect: {recipe.expect}.", title=recipe.name, timeout=8)
            self._change(f"recipe {recipe.name} added", lambda control: control.add_rule(_yaml({"rules": rules})))

        self.app.push_screen(Find("Add the rules of a recipe", [Name(each.name, each.about) for each in RECIPES]), chosen)

    def action_edit(self) -> None:
        rule = self.current
        if rule is not None and self._may():
            name = rule.name
            self._write(f"Rule {name}", _yaml(rule.source), "", lambda text: lambda control: control.put_rule(name, text))

    def _write(self, question: str, text: str, fault: str, change: Callable[[str], Callable[[Control], object]]) -> None:
        def written(text: str | None) -> None:
            if text is not None:
                again = lambda refused: self._write(question, text, refused, change)  # noqa: E731
                self._change(question, change(text), again)

        self.app.push_screen(Write(question, text, fault), written)

    def action_switch(self) -> None:
        rule = self.current
        if rule is not None and self._may():
            name, on = rule.name, not rule.enabled
            self._change(f"rule {name} is {'on' if on else 'off'}", lambda control: control.enable_rule(name, on))

    def action_remove(self) -> None:
        rule = self.current
        if rule is None or not self._may():
            return
        name = rule.name

        def sure(yes: bool | None) -> None:
            if yes:
                self._change(f"rule {name} removed", lambda control: control.remove_rule(name))

        self.app.push_screen(Confirm(f"Remove the rule {name!r}?"), sure)

    def action_hits(self) -> None:
        self.barnabas.show_exchanges("noted")

    def on_line_list_opened(self, event: LineList.Opened) -> None:
        self.action_edit()


def _numbered(name: str) -> Iterator[str]:
    """The name, then the name with numbers from 2."""
    yield name
    yield from (f"{name} {number}" for number in count(2))


def _yaml(source: dict[str, Any]) -> str:
    return yaml.safe_dump(source, sort_keys=False, allow_unicode=True, width=100)
