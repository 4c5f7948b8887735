"""``barnabas rules``, as a user calls it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from barnabas.plugins.rules.recipes import RECIPES, Recipe
from barnabas.plugins.rules.rules import parse_rules

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_check_reports_the_apis_of_rules(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(
        "rules:\n  - {name: a, match: api == Produce and topic == x, do: {error: NOT_LEADER_OR_FOLLOWER}}\n"
        "  - {match: api == Fetch and err, do: [{delay: 20ms}, {drop: response}]}\n"
    )
    done = run("rules", "check", "rules.yaml")
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "ok: 2 rules"
    assert "decided when the response arrives; [{delay: 20ms}, {drop: response}]" in done.stdout
    listed = json.loads(run("rules", "check", "rules.yaml", "--json").stdout)["rules"]
    assert parse_rules(json.dumps(listed)) == parse_rules((tmp_path / "rules.yaml").read_text())


def test_check_warns_of_rules_that_never_fire(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(
        "rules:\n  - {name: all, match: api == Produce, do: {delay: 20ms}}\n"
        "  - {name: one, match: api == Produce and topic == x, do: {error: NOT_LEADER_OR_FOLLOWER}}\n"
    )
    done = run("rules", "check", "rules.yaml")
    assert done.returncode == 0 and "warning: 'one' never fires: 'all' comes first" in done.stdout


def test_check_warns_of_records_that_stand_twice(run: Run, tmp_path: Path) -> None:
    rules = [
        f"  - {{name: r{number}, match: api == {api} and topic == t{number}, do: {{error: {error}, broker: {broker}}}}}\n"
        for number, (api, error, broker) in enumerate(
            [
                ("Produce", "UNKNOWN_PRODUCER_ID", "executed"),
                ("Produce", "OUT_OF_ORDER_SEQUENCE_NUMBER", "skipped"),
                ("Produce", "NOT_ENOUGH_REPLICAS", "executed"),
                ("TxnOffsetCommit", "UNKNOWN_PRODUCER_ID", "executed"),
            ]
        )
    ]
    (tmp_path / "rules.yaml").write_text("rules:\n" + "".join(rules))
    done = run("rules", "check", "rules.yaml")
    warned = [line for line in done.stdout.splitlines() if line.startswith("warning: ")]
    assert len(warned) == 1 and warned[0].startswith("warning: 'r0' can duplicate records")


def test_check_lists_what_a_cap_takes_away_besides(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text("rules:\n  - {match: client == x, do: {cap: {Fetch: 12, Metadata: 9}}}\n")
    lines = [line.strip() for line in run("rules", "check", "rules.yaml").stdout.splitlines()]
    assert "and with it Produce up to v12: v13 needs Metadata v12, names topics by id (KIP-516)" in lines
    assert "and with it no ConsumerGroupHeartbeat: it needs Metadata v12, assigns topics by id (KIP-848)" in lines
    assert not any(line.startswith("and with it Fetch") for line in lines)


def test_what_is_wrong_is_shown_at_its_place(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text("rules:\n  - match: api == Prodce\n    do: {error: NONE}\n")
    done = run("rules", "check", "rules.yaml")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.splitlines() == [
        "barnabas: rules.yaml:2:19: no API is called 'Prodce', did you mean Produce?",
        "    - match: api == Prodce",
        "                    ^",
    ]
    assert "no such file" in run("rules", "check", "other.yaml").stderr


def test_try_reports_what_would_have_happened(run: Run, tmp_path: Path, recording: Path) -> None:
    (tmp_path / "rules.yaml").write_text(
        "rules:\n  - {name: beats, match: api == Heartbeat, do: {error: NOT_COORDINATOR}, when: {times: 1}}\n"
        "  - {name: failed, match: err != 0, do: {drop: response}}\n"
        "  - {name: other, match: topic == nobody, do: {drop: request}}\n"
    )
    lines = run("rules", "try", recording, "--rules", "rules.yaml").stdout.splitlines()
    assert lines[0] == "beats: 1 of 4 exchanges would have been changed; 1 matched while the rule could fire"
    assert "NOT_COORDINATOR, not forwarded" in lines[1]
    assert lines[2] == "failed: 0 of 4 exchanges would have been changed; 0 matched while the rule could fire"  # the first rule had it
    assert lines[3] == "other: 0 of 4 exchanges would have been changed; 0 matched while the rule could fire"
    found = [json.loads(line) for line in run("rules", "try", recording, "--rules", "rules.yaml", "--json").stdout.splitlines()]
    assert [(each["rule"], each["api"], each["done"]) for each in found] == [
        ("beats", "Heartbeat", ["NOT_COORDINATOR, not forwarded"])
    ]


def test_recipes_are_rules(run: Run, tmp_path: Path) -> None:
    listed = run("rules", "recipes").stdout
    assert all(recipe.name in listed and recipe.about in listed for recipe in RECIPES)
    done = run("rules", "recipes", "leader-election", "--topic", "orders")
    assert "topic ==" in done.stdout and done.stdout.startswith("# ")
    (tmp_path / "made.yaml").write_text(done.stdout)
    assert run("rules", "check", "made.yaml").stdout.endswith("ok: 3 rules\n")
    wrong = run("rules", "recipes", "leader-electon")
    assert wrong.returncode == 2 and "did you mean leader-election?" in wrong.stderr
    assert "is not used" in run("rules", "recipes", "quota", "--topic", "x").stderr


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_every_recipe_can_be_narrowed(recipe: Recipe) -> None:
    assert recipe.to_rules()
    if recipe.settings():
        rules = recipe.to_rules(**dict.fromkeys(recipe.settings(), 'a "b"'))
        assert any('\\"b\\"' in rule.match for rule in rules)
