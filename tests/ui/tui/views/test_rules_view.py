"""The rules view on a proxy: what it asks of the control API, and that it changes nothing unless it may."""

from __future__ import annotations

from functools import partial
from typing import Any

from barnabas.plugins.rules.rules import parse_rules
from barnabas.proxy.control import ControlError
from textual.pilot import Pilot

from ..support.awaiting import until, until_true
from ..support.driving import on_screen


class Proxy:
    """As much of `Control` as the view needs; keeps rules as the real one gives them."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        rule = {"name": "moved", "match": "api == Produce", "do": {"error": "NOT_LEADER_OR_FOLLOWER"}}
        self.held = [{"name": "moved", "enabled": True, "hits": 3, "origin": "file", "source": rule}]

    def rules(self) -> list[dict[str, Any]]:
        return [dict(rule) for rule in self.held]

    def enable_rule(self, name: str, enabled: bool = True) -> None:
        self.asked.append(f"enable {name} {enabled}")
        self.held[0]["enabled"] = enabled

    def remove_rule(self, name: str) -> None:
        self.asked.append(f"remove {name}")
        self.held.clear()

    def add_rule(self, text: str) -> None:
        self.asked.append("add")
        raise ControlError(400, "no API is called 'Prodce'", {"line": 2})


rules_view = partial(on_screen, size=(110, 36), press="7", proxy=Proxy)


@rules_view()
async def test_rules_are_listed_and_read_only(pilot: Pilot[None], proxy: Proxy) -> None:
    shown = await until(pilot, "moved")
    assert "READ-ONLY" in shown and "1 of 1 rules on" in shown and "error: NOT_LEADER_OR_FOLLOWER" in shown
    for key in ("space", "a", "p", "e", "d"):
        await pilot.press(key)
        await until(pilot, "Read-only: start with --allow-edit")
    assert proxy.asked == []


@rules_view(allow_edit=True)
async def test_rules_are_switched_and_removed_where_that_is_allowed(pilot: Pilot[None], proxy: Proxy) -> None:
    assert " EDIT " in await until(pilot, "moved")
    await pilot.press("space")
    await until(pilot, "0 of 1 rules on")
    await pilot.press("d")
    await until(pilot, "Remove the rule 'moved'?")
    await pilot.press("n", "d", "y")
    await until(pilot, "No rules: traffic is passed on unchanged.")
    assert proxy.asked == ["enable moved False", "remove moved"]
    await pilot.press("a")
    await until(pilot, "Add a rule")
    await pilot.press("ctrl+s")
    await until(pilot, "line 2: no API is called 'Prodce'")  # what was written is there to be mended
    await pilot.press("escape", "8")
    await until(pilot, "rule moved removed")


@rules_view(allow_edit=True)
async def test_a_recipe_is_added_under_names_that_are_free(pilot: Pilot[None], proxy: Proxy) -> None:
    proxy.held[0]["name"] = "narrow"  # as the recipe's only rule
    added: list[str] = []
    proxy.add_rule = added.append  # type: ignore[method-assign]
    await until(pilot, "narrow")
    await pilot.press("p")
    await until(pilot, "Add the rules of a recipe")
    await pilot.press(*"network", "enter")
    await until(pilot, "Expect: consumers fetch")
    await until_true(pilot, lambda: added)
    assert [(rule.name, str(rule.match)) for rule in parse_rules(added[0])] == [("narrow 2", "api == Fetch")]


@rules_view()
async def test_allowing_edits_is_a_command(pilot: Pilot[None], proxy: Proxy) -> None:
    await until(pilot, "READ-ONLY")
    await pilot.press("colon", *"edit", "space", *"on", "enter")
    await pilot.press("space")
    await until(pilot, "0 of 1 rules on")
