"""Code, rules and settings in the documentation are what they look like."""

from __future__ import annotations

import ast
import configparser
import importlib
import json
import re
import tomllib
from pathlib import Path

import pytest
import typer
import yaml
from barnabas.plugins.rules.rules import parse_rules
from barnabas.ui import cli
from barnabas.ui.tui.model.settings import parse_settings
from docs.pages import PAGES, ROOT, Block, blocks


def of(*languages: str) -> list[Block]:
    return [block for block in blocks() if block.language in languages]


def where(block: Block) -> str:
    return f"{block.page}:{block.line}"


@pytest.mark.parametrize("block", of("python"), ids=where)
def test_python_is_python_and_imports_what_there_is(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("barnabas"):
            module = importlib.import_module(node.module)
            for name in node.names:
                if not hasattr(module, name.name):
                    importlib.import_module(f"{node.module}.{name.name}")


@pytest.mark.parametrize("block", of("yaml"), ids=where)
def test_rules_are_rules(block: Block) -> None:
    content = yaml.safe_load(block.text)
    if "rules" in content:
        assert len(parse_rules(block.text, block.page)) == len(content["rules"])


@pytest.mark.parametrize("block", of("toml", "json"), ids=where)
def test_settings_can_be_read(block: Block) -> None:
    if block.page == "tui.md":
        settings = parse_settings(block.text)
        assert settings.filters and settings.colours and settings.keys
    else:
        assert tomllib.loads(block.text) if block.language == "toml" else json.loads(block.text)


@pytest.mark.parametrize("block", of("ini"), ids=where)
def test_units_start_what_there_is(block: Block) -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(block.text)
    run = [words.split() for name, words in unit["Service"].items() if name in ("ExecStart", "ExecStop")]
    assert run
    for path, *words in run:
        assert path == "/opt/barnabas/bin/barnabas"
        found = typer.main.get_command(cli.app)
        while hasattr(found, "commands"):
            found = found.commands[words.pop(0)]
        found.make_parser(found.context_class(found)).parse_args(words)


def test_benchmarks_are_there() -> None:
    """With the options that stand beside them."""
    lines = [line for block in blocks() for line in block.text.splitlines() if "python bench/" in line]
    assert len(lines) > 10
    for line in lines:
        for path in re.findall(r"bench/[\w/]+\.py", line):
            assert (ROOT / path).is_file(), line
        source = (ROOT / re.findall(r"bench/[\w/]+\.py", line)[0]).read_text()
        for option in re.findall(r"(?<!\S)--[a-z-]+", line):
            assert f'"{option}"' in source, line


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        text = page.read_text()
        for target in re.findall(r"\]\((?!https?:)([^)#\s]+)(?:#[\w-]+)?\)", text):
            assert (Path(page).parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/glossary.md", "CONTRIBUTING.md"])
def test_files_that_a_page_names_are_there(page: str) -> None:
    text = (ROOT / page).read_text()
    named = re.findall(r"`((?:decoder|captures|plugins|proxy|ui|tests|bench|docs)/[\w./-]+)`", text)
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name.replace("/SUBJECT", "")).exists()] == []
