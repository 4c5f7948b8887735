"""``barnabas compat``: which clients of a capture would work with another Kafka release, and what to do about the rest."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ....decoder.compat import ClientReport, Reason, Report, Verdict, report
from ...safe import visible
from ..common.failure import Failure, write_text
from ..common.local_time import Local
from .compat_page import counted, html, markdown, often_when, seen_when
from .observed_clients import watch
from .versions import identity, terminal, who

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {Verdict.WORKS: "green", Verdict.MAY_BREAK: "yellow", Verdict.BREAKS: "bold red"}


class FailOn(StrEnum):
    """Which verdict makes the exit status 1."""

    BREAKS = "breaks"
    MAY_BREAK = "may-break"


def compat(
    captures: Annotated[
        list[Path],
        typer.Argument(help="Captures: segments, directories, pcap or pcapng files; they count together."),
    ],
    against: Annotated[
        str, typer.Option("--against", help="The brokers' release, e.g. 4.0, 0.10.2, 3.5-zk.", metavar="RELEASE")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    html_file: Annotated[
        Path | None, typer.Option("--html", help="Write a page that needs nothing else.", metavar="FILE")
    ] = None,
    md_file: Annotated[
        Path | None, typer.Option("--md", help="Write Markdown, for a ticket; - prints it.", metavar="FILE")
    ] = None,
    fail_on: Annotated[
        FailOn | None, typer.Option("--fail-on", help="Exit status 1 if a client has this verdict, or a worse one.")
    ] = None,
    local: Local = False,
) -> None:
    """Judge every client of the captures against brokers of a release: works, may break, breaks; why, and what helps.

    Older releases are as good as newer ones: --against 0.10.2 tells what a new client would meet there.
    """
    clients, notes = watch(captures)
    try:
        found = report(clients, against)
    except KeyError as error:
        raise Failure(f"--against: {error.args[0]}") from None
    if as_json:
        typer.echo(json.dumps(_as_dict(found)))
    if html_file is not None:
        write_text(html_file, html(found))
    if md_file is not None:
        if str(md_file) == "-":
            typer.echo(markdown(found), nl=False)
        else:
            write_text(md_file, markdown(found))
    if not as_json and str(md_file) != "-":
        _print(terminal(), found)
    for note in notes:
        print(f"barnabas: {visible(note)}", file=sys.stderr)
    limit = {FailOn.BREAKS: Verdict.BREAKS, FailOn.MAY_BREAK: Verdict.MAY_BREAK}
    if fail_on is not None and found.worst >= limit[fail_on]:
        raise typer.Exit(1)


def _print(console: Console, found: Report) -> None:
    from rich.text import Text

    console.print(Text(f"against brokers of Kafka {found.against.name}: {counted(found)}", "bold"))
    for client in found.clients:
        _print_client(console, client)


def _print_client(console: Console, of: ClientReport) -> None:
    from rich.text import Text

    console.print(Text.assemble("\n", (f"{of.verdict.text:<9}", _STYLES[of.verdict]), "  ", (who(of.client), "bold")))
    console.print(f"  {of.certainty}")
    console.print(f"  {of.client.requests} requests, {seen_when(of.client)}")
    for reason in of.reasons:
        often = f" ({often_when(reason)})" if reason.use else ""
        console.print(
            Text.assemble("  ", (reason.verdict.text, _STYLES[reason.verdict]), f": {visible(reason.text)}{often}")
        )
    for remedy in of.remedies:
        console.print(f"  -> {visible(remedy)}")
    for note in of.notes:
        console.print(f"  note: {visible(note)}")


def _as_dict(found: Report) -> dict[str, Any]:
    return {
        "against": found.against.name,
        "worst": found.worst.text,
        "counts": {verdict.text: found.count(verdict) for verdict in Verdict},
        "clients": [
            {
                **identity(of.client),
                "verdict": of.verdict.text,
                "certainty": of.certainty,
                "reasons": [_reason_dict(reason) for reason in of.reasons],
                "remedies": of.remedies,
                "notes": of.notes,
            }
            for of in found.clients
        ],
    }


def _reason_dict(reason: Reason) -> dict[str, Any]:
    use = reason.use
    return {
        "verdict": reason.verdict.text,
        "text": reason.text,
        "api": use.api if use else None,
        "api_key": use.api_key if use else None,
        "version": use.version if use else None,
        "served": list(reason.served) if reason.served else None,
        "dropped_in": reason.dropped_in or None,
        "came_with": reason.came_with or None,
        "kip": reason.kip or None,
        "requests": use.count if use else None,
        "refused": use.refused if use else None,
        "first_seen_ns": use.first_ns if use else None,
        "last_seen_ns": use.last_ns if use else None,
    }
