"""Code, rules and settings in the documentation are what they look like."""

from __future__ import annotations

import ast
import importlib
import json
import tomllib
from pathlib import Path

import pytest
import yaml
from barnabas.plugins.rules import parse
from docs.pages import PAGES, Block, blocks


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
        assert len(parse(block.text, block.page)) == len(content["rules"])


@pytest.mark.parametrize("block", of("toml", "json"), ids=where)
def test_settings_can_be_read(block: Block) -> None:
    assert tomllib.loads(block.text) if block.language == "toml" else json.loads(block.text)


def test_links_lead_somewhere() -> None:
    import re

    for page in PAGES:
        text = page.read_text()
        for target in re.findall(r"\]\((?!https?:)([^)#\s]+)(?:#[\w-]+)?\)", text):
            assert (Path(page).parent / target).exists(), f"{page.name}: {target}"
