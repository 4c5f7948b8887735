"""The typer application, made of the commands' modules."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

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

    from ... import diagnostics

    diagnostics.configure(logging.DEBUG if verbose > (file is None) else logging.INFO, file)
    logging.getLogger("barnabas").info(
        "barnabas %s, Python %s, %s", __version__, platform.python_version(), platform.platform()
    )


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", callback=_version, is_eager=True)
    ] = False,
    verbose: Annotated[
        int, typer.Option("-v", "--verbose", count=True, metavar="", help="Log what happens inside to stderr; -vv logs more.", show_default=False)
    ] = 0,
    log_file: Annotated[
        Path | None,
        typer.Option(
            "--log-file", metavar="FILE", dir_okay=False,
            help="Append this log to a file as JSON lines, of all processes. Use it where a screen needs the terminal.",
        ),
    ] = None,
) -> None:
    _log(verbose, log_file)


class _Root(TyperGroup):
    """The help of each command ends with its page of the manual. Errors quote words of the command line, which may come from
    elsewhere: they are made visible."""

    def get_command(self, *arguments: Any, **options: Any) -> Any:
        found = super().get_command(*arguments, **options)
        if found is not None and "format_help" not in vars(found):
            with_manual(found, found.name or "")
        return found

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


@contextmanager
def _made_visible() -> Iterator[None]:
    try:
        yield
    except _MISTAKE as error:
        error.message = visible(error.message)
        raise


def make_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with these commands. Only their modules are imported."""
    made = typer.Typer(
        cls=_Root,
        help="Stand between Apache Kafka clients and brokers: see, record, open again and break the traffic.",
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
            made.add_typer(found, name=name, rich_help_panel=command.panel)
        else:
            made.command(name, context_settings=command.settings, rich_help_panel=command.panel)(found)
    return made
