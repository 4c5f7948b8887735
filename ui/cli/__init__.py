"""The ``barnabas`` command. Each command has a module of its own, imported when it is called."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer

from ... import __version__
from .failure import Failure

LIVE, WRONG, RECORDINGS, BREAK, KNOWN = (
    "Live traffic", "What is wrong", "Recordings", "Break and steer", "The protocol",
)  # fmt: skip
"""The panels of ``barnabas --help``."""


class _Command(NamedTuple):
    """Where a command is: its module, the function in it ("app" for a group), and its panel."""

    module: str
    function: str
    panel: str
    settings: dict[str, Any] | None = None


COMMANDS = {
    "demo": _Command("demo", "demo", LIVE),
    "proxy": _Command("proxy", "proxy", LIVE),
    "ui": _Command("view", "ui", LIVE),
    "sniff": _Command("sniff", "sniff", LIVE),
    "feed": _Command("feed", "feed", LIVE),
    "transparent": _Command("transparent", "app", LIVE),
    "config": _Command("config", "app", LIVE),
    "findings": _Command("findings", "findings", WRONG),
    "versions": _Command("versions", "versions", WRONG),
    "compat": _Command("compat", "compat", WRONG),
    "explain": _Command("explain", "explain", WRONG, {"ignore_unknown_options": True}),
    "diff": _Command("diff", "diff", WRONG),
    "decode": _Command("decode", "decode", RECORDINGS),
    "import": _Command("importing", "import_", RECORDINGS),
    "index": _Command("index", "index", RECORDINGS),
    "export": _Command("export", "export", RECORDINGS),
    "redact": _Command("redact", "redact", RECORDINGS),
    "cut": _Command("cut", "cut", RECORDINGS),
    "merge": _Command("merge", "merge", RECORDINGS),
    "replay": _Command("replay", "replay", RECORDINGS),
    "serve": _Command("serve", "serve", RECORDINGS),
    "pipeline": _Command("pipeline", "app", RECORDINGS),
    "rules": _Command("rules", "app", BREAK),
    "control": _Command("control", "app", BREAK),
    "filter": _Command("filter", "app", KNOWN),
    "schema": _Command("schema", "app", KNOWN),
    "encode": _Command("frame", "encode", KNOWN),
}
"""Every command by its name, in the order of the help."""


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
        found = getattr(import_module(f".{command.module}", __name__), command.function)
        if command.function == "app":
            made.add_typer(found, name=name, rich_help_panel=command.panel)
        else:
            made.command(name, context_settings=command.settings, rich_help_panel=command.panel)(found)
    return made


def __getattr__(name: str) -> Any:
    # `app`, with every command, for those who call commands from Python.
    if name == "app":
        return make_app()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main() -> None:
    """Entry point: one clear line and exit status 2 for everything that is the user's to mend."""
    first = sys.argv[1] if len(sys.argv) > 1 else ""
    # One command is a fifth of the imports of all; help, mistakes and the shell's completion need all of them.
    completing = any(name.endswith("_COMPLETE") for name in os.environ)
    wanted = [first] if first in COMMANDS and not completing else [] if first == "--version" else list(COMMANDS)
    try:
        make_app(wanted)()
    except Failure as failure:
        print(f"barnabas: {failure}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        # The reader of a pipe went away (``barnabas decode ... | head``): end quietly, as other filters do.
        sys.stderr.close()
        sys.exit(141)
    except KeyboardInterrupt:
        sys.exit(130)
