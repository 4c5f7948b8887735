"""``barnabas man``: the manual of all commands, or of one, as a page for man(1)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from .... import __version__
from ..common.failure import Failure
from .manual import Page, page_of, tidy

_MARKUP = re.compile(r"\\(?=\[)")
"""Rich's escape of a bracket, in the texts of options."""


def man(
    command: Annotated[
        list[str] | None, typer.Argument(help="A command, such as proxy or rules try; all of them if omitted.", metavar="COMMAND")
    ] = None,
) -> None:
    """Print the manual as a man page: all commands, or one.

    To read it: barnabas man | man -l -
    """
    from ..command_line import make_app

    root = typer.main.get_command(make_app())
    name = " ".join(command or ())
    found = dict(_commands(root, ""))
    for each in found.values():
        tidy(each)
    if name and name not in found:
        raise Failure(f"there is no command {name!r}; see: barnabas --help")
    chosen = {each: found[each] for each in found if not name or each == name or each.startswith(f"{name} ")}
    typer.echo("\n".join(_page_of(root if not name else found[name], name, chosen)))


def _commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every command by its name, groups before their commands."""
    for name, command in getattr(group, "commands", {}).items():
        yield f"{path} {name}".strip(), command
        yield from _commands(command, f"{path} {name}".strip())


def _page_of(top: Any, name: str, chosen: dict[str, Any]) -> Iterator[str]:
    title = "-".join(["barnabas", *name.split()])
    page = page_of(name)
    yield f'.TH "{title.upper()}" "1" "" "barnabas {__version__}" "Barnabas"'
    yield from (".SH NAME", f"{_text(title)} \\- {_text(_paragraphs(top)[0].rstrip('.'))}")
    yield ".SH SYNOPSIS"
    for each, command in chosen.items() if name else [("COMMAND", None)]:
        yield from (f".B barnabas {_text(each)}", _text(_synopsis(command)), ".br")
    yield ".SH DESCRIPTION"
    for paragraph in _paragraphs(top)[1:] or _paragraphs(top):
        yield from (".PP", _text(paragraph))
    if name and not hasattr(top, "commands"):
        yield from (".SH OPTIONS", *_options(top))
    else:
        yield ".SH COMMANDS"
        for each, command in chosen.items():
            if each != name:
                yield from _section(each, command)
    yield from _rest(page, ".SH")


def _section(name: str, command: Any) -> Iterator[str]:
    """One command in the page of several."""
    yield f'.SS "barnabas {_text(name)} {_text(_synopsis(command))}"'
    for paragraph in _paragraphs(command):
        yield from (".PP", _text(paragraph))
    yield from _options(command)
    page = page_of(name)
    for line, words in page.examples:
        yield from (".PP", ".nf", f"\\fB{_text(line)}\\fR", ".fi", _text(words))


def _rest(page: Page, heading: str) -> Iterator[str]:
    if page.examples:
        yield f"{heading} EXAMPLES"
        for line, words in page.examples:
            yield from (".TP", f"\\fB{_text(line)}\\fR", _text(words))
    for title, rows in (("EXIT STATUS", page.statuses), ("FILES", page.files), ("ENVIRONMENT", page.environment)):
        if rows:
            yield f"{heading} {title}"
            for name, words in rows:
                yield from (".TP", f"\\fB{_text(name)}\\fR", _text(words))
    if page.see:
        yield from (f"{heading} SEE ALSO", _text(", ".join(page.see)))


def _synopsis(command: Any) -> str:
    """What stands behind a command's name."""
    if command is None or hasattr(command, "commands"):
        return "[OPTIONS] COMMAND [ARGUMENTS]" if command is not None else "[OPTIONS] [ARGUMENTS]"
    words = ["[OPTIONS]"]
    for each in command.params:
        if not each.opts[0].startswith("-"):
            word = (each.metavar or each.name).strip("[]{}").upper()
            words.append(word if each.required else f"[{word}]")
    return " ".join(words)


def _options(command: Any) -> Iterator[str]:
    """Arguments and options, with their help."""
    for each in command.params:
        if getattr(each, "hidden", False):
            continue
        option = each.opts[0].startswith("-")
        names = (
            ", ".join([*each.opts, *each.secondary_opts])
            if option
            else (each.metavar or each.name).strip("[]{}").upper()
        )
        value = f" {each.metavar}" if option and each.metavar else ""
        words = getattr(each, "help", None) or ""
        usual = each.default if getattr(each, "show_default", False) and not callable(each.default) else None
        if usual not in (None, "", False, True, ()) and "default" not in words:
            words += f" Default: {getattr(usual, 'value', usual)}."
        yield from (".TP", f"\\fB{_text(names)}\\fR\\fI{_text(value)}\\fR", _text(words.strip()))


def _paragraphs(command: Any) -> list[str]:
    return [" ".join(each.split()) for each in (command.help or command.name).split("\n\n")]


def _text(words: str) -> str:
    """Words as roff has them: nothing in them is an order to it."""
    plain = _MARKUP.sub("", words).replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + plain if plain[:1] in (".", "'") else plain
