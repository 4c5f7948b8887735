"""Any rules file gives rules, or an error with its place. Nothing in it is executed."""

from __future__ import annotations

import random

import pytest
import yaml
from barnabas.plugins.rules import recipes
from barnabas.plugins.rules.rules import RuleError, parse_rules

PIECES = (
    "rules", "name", "match", "do", "when", "error", "delay", "drop", "respond", "edit", "corrupt", "leader", "after",
    "times", "probability", "5%", "-1", "1e309", ".nan", "null", "~", "true", "[]", "{}", "- ", ": ", "\n", "  ", '"', "'",
    "!!python/object/apply:os.system [id]", "!!binary aGk=", "&a", "*a", "<<: *a", "|", ">", "#", "\t", "\x00", "\x1b[2J",
    "\u202e", "api == Produce", "(a+)+", "99999999999999999999", "0x", "12:30:45", "2026-13-45", "---", "...", "%TAG", "?",
)  # fmt: skip


def mutated(chance: random.Random, text: str) -> str:
    """A few pieces put in, taken out, doubled or moved."""
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(text) + 1)
        until = min(len(text), at + chance.randrange(1, 12))
        kind = chance.randrange(4)
        if kind == 0:
            text = text[:at] + chance.choice(PIECES) + text[at:]
        elif kind == 1:
            text = text[:at] + text[until:]
        elif kind == 2:
            text = text[:until] + text[at:]
        else:
            text = text[:at] + chance.choice(PIECES) + text[until:]
    return text


SEEDS = [
    yaml.safe_dump({"rules": [rule.to_dict() for rule in recipe.to_rules(topic="orders")]}, sort_keys=False)
    for recipe in recipes.RECIPES
]


@pytest.mark.parametrize("seed", range(4))
def test_rules_or_an_error_with_its_place(seed: int) -> None:
    chance = random.Random(seed)
    refused = 0
    for _ in range(400):
        text = mutated(chance, chance.choice(SEEDS))
        try:
            parse_rules(text, "rules.yaml")
        except RuleError as error:
            refused += 1
            message = str(error)
            assert message.startswith("rules.yaml:") and "\n" not in message, (text, message)
            assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in message), (text, message)
    assert 40 < refused < 400


def test_anchors_that_multiply_are_refused_quickly() -> None:
    """A billion laughs: each list holds ten times the one before."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(RuleError):
        parse_rules("\n".join([*lines, "rules: *a11", ""]), "rules.yaml")
