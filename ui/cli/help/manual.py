"""The end of a command's help: examples, exit statuses, files, environment variables, links.

The texts are in ``manual.txt``: ``== NAME`` begins a command, ``$ ...`` is an example and what follows says what it does,
``1: ...`` an exit status (``130:`` without words: it never ends with that), ``file`` and ``env`` what it reads and writes,
``see`` where to go on. What a group's page says of statuses, files, environment and links holds for its commands, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, get_origin

STATUS = {
    "0": "Done.",
    "1": "The output could not be written: the disk is full or broken.",
    "2": "Wrong usage, or an error you can fix: one line on standard error gives the cause, the place and the remedy.",
    "130": "Ended by Ctrl-C.",
    "141": "The reader of the output closed it, as with `| head`.",
}
"""What every command may end with."""


@dataclass
class Page:
    """The manual of one command besides its options."""

    examples: list[tuple[str, str]] = field(default_factory=list)
    """(command line, what it does)"""
    status: dict[str, str] = field(default_factory=dict)
    """The command's own, or its own words for one of all commands."""
    files: list[tuple[str, str]] = field(default_factory=list)
    environment: list[tuple[str, str]] = field(default_factory=list)
    see: list[str] = field(default_factory=list)

    @property
    def statuses(self) -> list[tuple[str, str]]:
        """Every exit status and its meaning, in order."""
        own = self.status | ({"1": f"{self.status['1']} Or: {STATUS['1']}"} if "1" in self.status else {})
        statuses = {number: words for number, words in (STATUS | own).items() if words}
        return sorted(statuses.items(), key=lambda each: int(each[0]))


@cache
def pages() -> dict[str, Page]:
    """Every page by the command's name: "" is `barnabas` itself, "rules try" a command of a group."""
    from importlib import resources

    text = resources.files(__package__).joinpath("manual.txt").read_text("utf-8")
    found: dict[str, Page] = {}
    for part in f"\n{text}".split("\n== ")[1:]:
        name, _, body = part.partition("\n")
        found[name.removeprefix("barnabas").strip()] = _page(body)
    return found


def _page(body: str) -> Page:
    page = Page()
    for line in filter(None, body.splitlines()):
        word, _, rest = line.partition(" ")
        if line.startswith("  "):
            command, words = page.examples[-1]
            page.examples[-1] = command, f"{words} {line.strip()}".strip()
        elif word == "$":
            page.examples.append((rest, ""))
        elif word == "see":
            page.see = rest.split(", ")
        elif word in ("file", "env"):
            name, _, words = rest.partition(": ")
            (page.files if word == "file" else page.environment).append((name, words))
        else:
            page.status[word.rstrip(":")] = rest
    return page


def page_of(path: str) -> Page:
    """The page of a command, its group's statuses and environment with it. Empty if there is none."""
    page = pages().get(path, Page())
    group = pages().get(path.partition(" ")[0], Page()) if " " in path else Page()
    return Page(page.examples, group.status | page.status, page.files or group.files,
                page.environment or group.environment, page.see or group.see)  # fmt: skip


def with_manual(command: Any, path: str) -> Any:
    """The command, whose help ends with its page; and so have all commands of a group."""
    before: Callable[[Any, Any], None] = command.format_help

    def format_help(context: Any, formatter: Any) -> None:
        tidy(command, command.get_help_option(context))
        before(context, formatter)
        show(path)

    command.format_help = format_help
    for name, each in getattr(command, "commands", {}).items():
        with_manual(each, f"{path} {name}".strip())
    return command


def tidy(command: Any, *more: Any) -> None:
    """Lines of paragraphs are joined, to fit any terminal; what an option takes is a word, and a switch takes nothing. `more`: options that are
    not among the command's own."""
    if command.help:
        command.help = "\n\n".join(" ".join(each.split()) for each in command.help.split("\n\n"))
    for each in (*command.params, *more):
        if each.metavar is None and not _chosen(each):
            if getattr(each, "is_flag", False):
                each.metavar = ""
            elif each.opts[0].startswith("-"):
                each.metavar = "N" if each.name in _NUMBERS else each.name.rpartition("_")[2].upper()


_NUMBERS = ("limit", "loop", "pages", "version", "correlation_id")


def _chosen(parameter: Any) -> bool:
    """Whether the help names the values that there are."""
    kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    return hasattr(kind, "__members__") or get_origin(kind) is Literal or hasattr(getattr(parameter, "type", None), "choices")


def show(path: str) -> None:
    """Print a command's page, in the manner of its options."""
    from rich.console import Console, Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    page = page_of(path)

    def panel(title: str, inside: Any) -> None:
        console.print(Panel(inside, title=title, title_align="left", border_style="dim"))

    def columns(rows: list[tuple[str, str]]) -> Any:
        table = Table.grid(padding=(0, 2))
        for name, words in rows:
            table.add_row(Text(name, "bold"), Text(words))
        return table

    if page.examples:
        lines: list[Text] = []
        for command, words in page.examples:
            lines += [Text(command, "bold cyan"), Text(f"  {words}")]
        panel("Examples", Group(*lines))
    panel("Exit status", columns(page.statuses))
    if page.files:
        panel("Files", columns(page.files))
    if page.environment:
        panel("Environment", columns(page.environment))
    if page.see:
        panel("See also", Text(", ".join(page.see)))
