"""The proxy's rules and their hits: add, from a recipe if you like, edit, enable, disable, remove."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import yaml
from fastapi import Request
from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from ....plugins.rules.recipes import RECIPES
from ....proxy.control import Control, ControlError
from ...safe import visible
from ...tui.model.session import NO_CONTROL
from ...tui.views.rules import FOR_A_FILE, NEW_RULE, ListedRule
from ..site import TICK_SECONDS, Site, button, link, note, text


def register(site: Site) -> None:
    """Add the page."""

    @ui.page("/rules")
    async def page(request: Request, add: str = "") -> None:
        with site.frame(request, "Rules", needs_rows=False):
            if site.session.control is None:
                words = NO_CONTROL if site.session.grows else FOR_A_FILE.rpartition("\n\n")[0]
                note(words.replace("barnabas ui", "barnabas ui --web"))
                link("Exchanges that rules acted on", site.exchanges("noted")).classes("button self").props("data-key=f")
                return
            rules = _RulesPage(site, site.session.control)
            await rules.ask()
            ui.timer(TICK_SECONDS, rules.ask)
            if add and not site.may_edit():
                rules.write("Add a rule", _recipe(add) or NEW_RULE, lambda words: lambda control: control.add_rule(words))


def _recipe(name: str) -> str:
    """The rules of a recipe as YAML, "" if there is none of this name."""
    found = next((recipe for recipe in RECIPES if recipe.name == name), None)
    if found is None:
        return ""
    rules = [rule.to_dict() for rule in found.to_rules()]
    return _yaml(rules if len(rules) > 1 else rules[0])


def _yaml(source: Any) -> str:
    return yaml.safe_dump(source, sort_keys=False, allow_unicode=False, width=100)


class _RulesPage:
    """One open page."""

    def __init__(self, site: Site, control: Control) -> None:
        self.site, self.control = site, control
        self._shown: object = None
        self._hits: dict[str, TextElement] = {}
        refused = site.may_edit()
        with ui.element("div").classes("bar"):
            if not refused:
                link("Add a rule", site.url("rules", add="new")).classes("button").props("data-key=a")
            link("Exchanges that rules acted on", site.exchanges("noted")).classes("button").props("data-key=f")
            self.state = text("", "muted")
            text(refused, "warning")
        self.holder = ui.element("div").classes("scroll")
        text("Recipes", "", "h2")
        for recipe in RECIPES:
            with ui.element("p").classes("note"):
                if refused:
                    text(recipe.name, "name")
                else:
                    link(recipe.name, site.url("rules", add=recipe.name))
                text(f": {recipe.about}. Sound clients: {recipe.expect}.")

    async def ask(self) -> None:
        """Show the rules as they are now."""
        try:
            rules = [ListedRule.of(each) for each in await asyncio.to_thread(self.control.rules)]
        except ControlError as error:
            self.state.set_text(visible(f"The proxy does not answer: {error}"))
            self.state.classes(replace="error")
            return
        self.state.classes(replace="muted")
        self.state.set_text(f"{sum(rule.enabled for rule in rules)} of {len(rules)} rules on" if rules else "No rules: traffic is passed on unchanged.")
        shown = [rule._replace(hits=0) for rule in rules]
        for rule in rules if shown == self._shown else ():  # buttons must stay where they are while hits come
            self._hits[rule.name].set_text(f"{rule.hits:,}")
        if shown != self._shown:
            self._shown = shown
            self.holder.clear()
            with self.holder:
                self._table(rules)

    def _table(self, rules: list[ListedRule]) -> None:
        if not rules:
            return
        refused = self.site.may_edit()
        with ui.element("table").classes("sheet rules"):
            with ui.element("tr"):
                for title in ("State", "Hits", "Name", "Origin", "Rule", "" if refused else "Change"):
                    text(title, tag="th")
            for rule in rules:
                with ui.element("tr"):
                    text("on" if rule.enabled else "off", "ok" if rule.enabled else "muted", "td")
                    self._hits[rule.name] = text(f"{rule.hits:,}", "number", "td")
                    text(visible(rule.name), "title", "td")
                    text(visible(rule.origin), "muted", "td")
                    with ui.element("td"):
                        text("\n".join(visible(line) for line in _yaml(rule.source).splitlines()), "", "pre")
                    if not refused:
                        with ui.element("td"):
                            self._buttons(rule)

    def _buttons(self, rule: ListedRule) -> None:
        name = rule.name
        button("Disable" if rule.enabled else "Enable").on("click", lambda: self._change(lambda c: c.enable_rule(name, not rule.enabled)))
        button("Edit").on(
            "click", lambda: self.write(f"Rule {name}", _yaml(rule.source), lambda words: lambda control: control.put_rule(name, words))
        )
        button("Remove").classes("danger").on("click", lambda: self._sure(name))

    def _sure(self, name: str) -> None:
        with ui.dialog() as dialog, ui.card():
            text(f"Remove the rule {visible(name)!r}?")

            async def remove() -> None:
                dialog.close()
                await self._change(lambda control: control.remove_rule(name))

            with ui.row():
                ui.button("Remove", on_click=remove)
                ui.button("Cancel", on_click=dialog.close)
        dialog.open()

    def write(self, title: str, words: str, change: Callable[[str], Callable[[Control], object]]) -> None:
        """Ask for a rule as YAML, again if the proxy refuses it."""
        with ui.dialog() as dialog, ui.card().style("width: 46rem; max-width: 95vw"):
            text(visible(title), "title")
            body = ui.textarea(value=words).classes("yaml").style("width: 100%").props("input-style='font-family: monospace; min-height: 14rem'")
            fault = text("", "error")

            async def done() -> None:
                refused = await self._change(change(body.value or ""), quiet=True)
                fault.set_text(refused)
                if not refused:
                    dialog.close()

            with ui.row():
                ui.button("Save", on_click=done)
                ui.button("Cancel", on_click=dialog.close)
        dialog.open()

    async def _change(self, change: Callable[[Control], object], quiet: bool = False) -> str:
        """Change something in the proxy. Returns why it refuses, or ""."""
        try:
            await asyncio.to_thread(change, self.control)
        except ControlError as error:
            line = error.details.get("line")
            refused = visible(f"line {line}: {error}" if line else str(error))
            if not quiet:
                ui.notify(refused, type="negative")
            return refused
        self.site.session.add_to_log("rules were changed")
        await self.ask()
        return ""
