"""The command line: the commands' modules made into one."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Annotated

import typer

from ... import __version__
from . import COMMANDS


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"barnabas {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def make_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with these commands. Only their modules are imported."""
    made = typer.Typer(
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
