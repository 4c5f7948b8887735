"""The typer application, made of the commands' modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from ... import __version__
from ..safe import visible
from .commands import COMMANDS
from .help.manual import show, tidy, with_manual

# ClickException, of the click that this release of typer brings or needs.
_MISTAKE: Any = next(each for each in typer.BadParameter.__mro__ if each.__name__ == "ClickException")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"barnabas {__version__}")
        raise typer.Exit


def _log(verbose: int, file: Path | None) -> None:
    """Log to the file, or to stderr: from info on; with another -v, from debug on."""
    if not verbose and file is None:
        return
    import logging
    import platform

    from ... import diagnostics

    diagnostics.configure(logging.DEBUG if verbose > (file is None) else logging.INFO, file)
    logging.getLogger("barnabas").info(
        "barnabas %s, Python %s, %s", __version__, platform.python_version(), platform.platform()
    )


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
    verbose: Annotated[
        int, typer.Option("-v", "--verbose", count=True, metavar="", help="Log to stderr; -vv logs more.", show_default=False)
    ] = 0,
    log_file: Annotated[
        Path | None,
        typer.Option(
            "--log-file", metavar="FILE", dir_okay=False,
            help="Append the log of all processes to a file, as JSON lines. For use with the terminal screen.",
        ),
    ] = None,
) -> None:
    _log(verbose, log_file)


class _Root(TyperGroup):
    """Lists commands by their table alone: a command's module is imported when it is called, or its own words are completed.

    The help of each command ends with its page of the manual. Errors quote words of the command line, which may come from
    elsewhere: they are made visible.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name, command in COMMANDS.items():
            self.commands.setdefault(name, TyperCommand(name, short_help=command.summary, rich_help_panel=command.panel))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, found, rest = super().resolve_command(ctx, args)
        if name is not None and found is not None:
            if found.callback is None and not isinstance(found, TyperGroup):  # only listed so far
                found = self.commands[name] = _imported(name)
            if "format_help" not in vars(found):
                with_manual(found, name)
        return name, found, rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        tidy(self, self.get_help_option(ctx))
        super().format_help(ctx, formatter)
        show("")

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with _made_visible():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        with _made_visible():
            return super().invoke(ctx)


def leave_values() -> None:
    """Leave the values of options texts, in a process that only completes for the shell: typer imports pydantic to convert them."""

    def as_given(self: Any, ctx: Any, value: Any) -> Any:
        return value

    TyperArgument.process_value = TyperOption.process_value = as_given  # type: ignore[method-assign]


@contextmanager
def _made_visible() -> Iterator[None]:
    try:
        yield
    except _MISTAKE as error:
        error.message = visible(error.message)
        raise


def _imported(name: str) -> Any:
    """The command, from its module."""
    return typer.main.get_command(make_app([name])).commands[name]  # type: ignore[attr-defined]


def make_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line. The modules of these commands are imported now, of others when they are called."""
    made = typer.Typer(
        cls=_Root,
        help="Sit between Apache Kafka clients and brokers: watch, record, replay and break the traffic.",
        no_args_is_help=True,
        add_completion=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(_root)
    for name in names:
        command = COMMANDS[name]
        found = getattr(import_module(f".{command.module}", __package__), command.function)
        if command.function == "app":
            made.add_typer(found, name=name, short_help=command.summary, rich_help_panel=command.panel)
        else:
            made.command(
                name, short_help=command.summary, context_settings=command.settings, rich_help_panel=command.panel
            )(found)
    return made
