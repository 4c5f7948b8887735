"""The ``barnabas`` command. Each command has a module of its own, imported when it is called."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ... import __version__
from . import (
    compat,
    config,
    control,
    cut,
    decode,
    demo,
    diff,
    explain,
    export,
    feed,
    filter,
    findings,
    frame,
    importing,
    index,
    merge,
    pipeline,
    proxy,
    redact,
    replay,
    rules,
    schema,
    serve,
    sniff,
    transparent,
    versions,
    view,
)
from .failure import Failure

app = typer.Typer(
    help="Stand between Apache Kafka clients and brokers: see, record, open again and break the traffic.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"barnabas {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


LIVE, WRONG, RECORDINGS, BREAK, KNOWN = (
    "Live traffic", "What is wrong", "Recordings", "Break and steer", "The protocol",
)  # fmt: skip
"""The panels of ``barnabas --help``."""

app.command("demo", rich_help_panel=LIVE)(demo.demo)
app.command("proxy", rich_help_panel=LIVE)(proxy.proxy)
app.command("ui", rich_help_panel=LIVE)(view.ui)
app.command("sniff", rich_help_panel=LIVE)(sniff.sniff)
app.command("feed", rich_help_panel=LIVE)(feed.feed)
app.add_typer(transparent.app, name="transparent", rich_help_panel=LIVE)
app.add_typer(config.app, name="config", rich_help_panel=LIVE)
app.command("findings", rich_help_panel=WRONG)(findings.findings)
app.command("versions", rich_help_panel=WRONG)(versions.versions)
app.command("compat", rich_help_panel=WRONG)(compat.compat)
app.command("explain", context_settings={"ignore_unknown_options": True}, rich_help_panel=WRONG)(explain.explain)
app.command("diff", rich_help_panel=WRONG)(diff.diff)
app.command("decode", rich_help_panel=RECORDINGS)(decode.decode)
app.command("import", rich_help_panel=RECORDINGS)(importing.import_)
app.command("index", rich_help_panel=RECORDINGS)(index.index)
app.command("export", rich_help_panel=RECORDINGS)(export.export)
app.command("redact", rich_help_panel=RECORDINGS)(redact.redact)
app.command("cut", rich_help_panel=RECORDINGS)(cut.cut)
app.command("merge", rich_help_panel=RECORDINGS)(merge.merge)
app.command("replay", rich_help_panel=RECORDINGS)(replay.replay)
app.command("serve", rich_help_panel=RECORDINGS)(serve.serve)
app.add_typer(pipeline.app, name="pipeline", rich_help_panel=RECORDINGS)
app.add_typer(rules.app, name="rules", rich_help_panel=BREAK)
app.add_typer(control.app, name="control", rich_help_panel=BREAK)
app.add_typer(filter.app, name="filter", rich_help_panel=KNOWN)
app.add_typer(schema.app, name="schema", rich_help_panel=KNOWN)
app.command("encode", rich_help_panel=KNOWN)(frame.encode)


def main() -> None:
    """Entry point: one clear line and exit status 2 for everything that is the user's to mend."""
    try:
        app()
    except Failure as failure:
        print(f"barnabas: {failure}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        # The reader of a pipe went away (``barnabas decode ... | head``): end quietly, as other filters do.
        sys.stderr.close()
        sys.exit(141)
    except KeyboardInterrupt:
        sys.exit(130)
