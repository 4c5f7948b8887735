"""The manual behind the options: every command has examples that are right, exit statuses that are true, links that lead on."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from barnabas.captures.recording import index
from barnabas.ui.cli import COMMANDS
from barnabas.ui.cli.command_line import make_app
from barnabas.ui.cli.common.failure import Failure
from barnabas.ui.cli.help.man import man
from barnabas.ui.cli.help.manual import STATUS, page_of, pages

ROOT = Path(__file__).parents[4]
CLI = ROOT / "ui" / "cli"
Run = Callable[..., subprocess.CompletedProcess[str]]


def tree(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, each in getattr(command, "commands", {}).items():
        yield f"{path} {name}".strip(), each
        yield from tree(each, f"{path} {name}".strip())


ALL = dict(tree(typer.main.get_command(make_app())))
LEAVES = [name for name, command in ALL.items() if not hasattr(command, "commands")]


def test_every_page_is_a_commands() -> None:
    assert set(pages()) - {""} <= set(ALL)
    assert {name.partition(" ")[0] for name in ALL} == set(COMMANDS)


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_has_examples_and_links(name: str) -> None:
    page = page_of(name)
    assert page.examples and all(text for _, text in page.examples)
    assert any(f"barnabas {name}" in line or name.startswith("control ") for line, _ in page.examples)
    assert page.see
    assert {"0", "2"} <= {number for number, _ in page.statuses}


@pytest.mark.parametrize("name", ["", *ALL])
def test_links_lead_somewhere_and_lines_fit(name: str) -> None:
    page = page_of(name)
    for link in page.see:
        assert (ROOT / link).is_file() if "/" in link else link in ALL, link
    assert all(len(line) <= 76 and len(text) <= 100 for line, text in page.examples)
    for variable, _ in page.environment:
        for each in variable.split(", "):
            used = any(
                f'"{each}"' in path.read_text("utf-8")
                for part in ("ui", "proxy", "captures")
                for path in (ROOT / part).rglob("*.py")
            )
            assert used, each


EXAMPLES = [line for name in ["", *ALL] for line, _ in pages().get(name, page_of("-")).examples]


@pytest.mark.parametrize("line", EXAMPLES)
def test_examples_name_options_that_are_there(line: str) -> None:
    """The part of a line that is ours: its command exists, and so does each of its options."""
    words = shlex.split(line)
    words = words[words.index("barnabas") + 1 :]
    words = words[: next((at for at, word in enumerate(words) if word in "|>"), None)]
    if words[0] == "COMMAND":
        return
    command: Any = ALL[words.pop(0)]
    known: set[str] = set()
    while hasattr(command, "commands"):
        known |= {option for each in command.params for option in each.opts}
        at = next(number for number, word in enumerate(words) if word in command.commands)
        command, words = command.commands[words[at]], words[:at] + words[at + 1 :]
    known |= {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    assert {word for word in words if re.match(r"--?[a-z]", word)} <= known
    if "control" not in line:  # options of the group stand in between
        command.make_parser(command.context_class(command)).parse_args(words)


def test_statuses_are_those_that_commands_end_with() -> None:
    """By the source: who ends with 1 says so, and who says so does."""
    for name, (module, *_) in COMMANDS.items():
        source = ast.parse((CLI / f"{module.replace('.', '/')}.py").read_text("utf-8"))
        ends = {
            str(ast.literal_eval(call.args[0]))
            for call in ast.walk(source)
            if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant)
            and (getattr(call.func, "attr", "") == "Exit" or ast.unparse(call.func) == "sys.exit")
        }  # fmt: skip
        text = set(pages()[name].status if name in pages() else ())
        assert ends - STATUS.keys() == text - STATUS.keys(), name


def test_help_ends_with_the_manual(run: Run) -> None:
    shown = run("rules", "check", "--help").stdout
    parts = ["Usage", "─ Options", "─ Examples", "barnabas rules check rules.yaml", "─ Exit status", "─ See also"]
    assert sorted(parts, key=shown.index) == parts
    assert max(map(len, shown.splitlines())) <= 80
    assert "<bool>" not in shown and "Validate a rules file, and show what each rule does. The exit status is 2" in shown


def test_brackets_are_not_taken_for_markup(capsys: pytest.CaptureFixture[str]) -> None:
    make_app(["ui"])(["ui", "--help"], standalone_mode=False)
    assert "FILE[=TOPIC[:key]][#MESSAGE]" in capsys.readouterr().out
    man(["ui"])
    assert "FILE[=TOPIC[:key]][#MESSAGE]" in capsys.readouterr().out


def test_the_manual_as_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    man(None)
    whole = capsys.readouterr().out
    man(["rules", "try"])
    one = capsys.readouterr().out
    for name in LEAVES:
        assert f'.SS "barnabas {name}'.replace("-", "\\-") in whole
    for part in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT STATUS", "SEE ALSO"):
        assert f".SH {part}\n" in one
    assert ".B barnabas rules try\n[OPTIONS] CAPTURE\n" in one
    with pytest.raises(Failure, match="no command 'nothing'"):
        man(["nothing"])
    groff = shutil.which("groff")
    for page in (whole, one) if groff else ():
        done = subprocess.run([str(groff), "-man", "-ww", "-z", "-Tutf8"], input=page, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_files_beside_a_segment_are_those_that_are_written() -> None:
    beside = {path.suffix for path in index.paths(Path("a.pcapng"))}
    lines = [" ".join(file) for page in pages().values() for file in page.files if "next to" in file[1]]
    assert len(lines) > 3
    for line in lines:
        assert set(re.findall(r"\.[a-z]+", line)) - {".pcapng"} == beside, line
