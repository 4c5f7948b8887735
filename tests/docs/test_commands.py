"""Every command that the documentation shows exists, takes these options, and does its work."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from barnabas.ui import cli
from docs.environment import Environment
from docs.kinds import kind
from docs.pages import Command, commands

ROOT: Any = typer.main.get_command(cli.app)
COMMANDS = commands()
GO_ON = ("proxy", "serve", "sniff")
"""They run until Ctrl-C."""
MAY_FAIL = ("--fail-on", "diff")


def _found(command: Command) -> tuple[Any, list[str]]:
    """The command of the words, and the words behind its name."""
    found, words = ROOT, list(command.words)
    while hasattr(found, "commands"):
        if not words or words[0].startswith("-"):
            assert found.invoke_without_command, f"{command.where}: {command.text}: which command of {found.name}?"
            break
        name = words.pop(0)
        inner = found.commands.get(name)
        assert inner is not None, f"{command.where}: there is no command {name!r} in {command.text!r}"
        found = inner
    return found, words


def test_the_commands_are_found() -> None:
    assert len(COMMANDS) > 120
    assert {command.words[0] for command in COMMANDS} >= set(cli.COMMANDS) - {"demo"}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.where)
def test_the_command_has_these_options(command: Command) -> None:
    found, words = _found(command)
    known = {name for parameter in found.params for name in (*parameter.opts, *parameter.secondary_opts)}
    shown = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", " ".join(words) if command.pattern else ""))
    shown |= {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word) and not command.pattern}
    assert shown <= known, command.text
    if not command.pattern:
        found.make_parser(found.context_class(found)).parse_args(words)


def _params() -> Iterator[Any]:
    """What the README shows is tried every day, and of each other command the first example."""
    seen: set[str] = set()
    for command in COMMANDS:
        if kind(command) == "plain":
            daily = command.where.startswith("README.md") or command.words[0] not in seen
            seen.add(command.words[0])
            yield pytest.param(command, id=command.where, marks=() if daily else pytest.mark.slow)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("command", list(_params()))
def test_the_command_works(command: Command, environment: Environment) -> None:
    if command.words[0] == "sniff" and os.geteuid():
        pytest.skip("only root may listen at an interface")
    text = " ".join(command.words)
    if command.words[0] in GO_ON or "--follow" in command.words:
        done = environment.stopped(command.words) if "--check" not in command.words else environment.run(command.words)
    else:
        done = environment.run(command.words, command.into)
    allowed = {0, 1} if any(word in text for word in MAY_FAIL) else {0}
    assert done.status in allowed, f"{command.text}\n{done.out}\n{done.err}"
    assert "Traceback" not in done.out + done.err
