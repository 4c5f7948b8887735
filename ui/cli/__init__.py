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


app.command("demo")(demo.demo)
app.command("proxy")(proxy.proxy)
app.command("decode")(decode.decode)
app.command("explain", context_settings={"ignore_unknown_options": True})(explain.explain)
app.command("replay")(replay.replay)
app.command("encode")(frame.encode)
app.command("export")(export.export)
app.command("findings")(findings.findings)
app.command("feed")(feed.feed)
app.command("diff")(diff.diff)
app.command("serve")(serve.serve)
app.command("import")(importing.import_)
app.command("index")(index.index)
app.command("sniff")(sniff.sniff)
app.command("redact")(redact.redact)
app.command("cut")(cut.cut)
app.command("merge")(merge.merge)
app.command("ui")(view.ui)
app.command("versions")(versions.versions)
app.command("compat")(compat.compat)
app.add_typer(control.app, name="control")
app.add_typer(filter.app, name="filter")
app.add_typer(rules.app, name="rules")
app.add_typer(schema.app, name="schema")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(transparent.app, name="transparent")
app.add_typer(config.app, name="config")


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
