"""``barnabas filter``: list the fields of the filter language, and validate a filter."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ....captures.reading.selection import Selection
from ....decoder.filter import FIELDS, Filter, FilterError, Need, compile
from ....decoder.schema import facts
from ...times import zone
from ..common.failure import Failure
from ..common.opening import open_or_fail
from ..common.output import print_json

app = typer.Typer(
    help="The filter language: its fields, and checking a filter.",
    no_args_is_help=True,
)


def compiled(text: str) -> Filter:
    """Compile a filter. Raises Failure, which points at the error."""
    try:
        return compile(text, zone=zone())
    except FilterError as error:
        raise Failure(f"{error.message}\n{error.pointer()}") from None


@app.command("fields")
def fields_(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per field.")] = False,
) -> None:
    """List every field: its type, what it means, its other names and an example.

    Fields of bodies are named by their path besides, such as resp.topics[*].error_code: barnabas schema show API.
    """
    if as_json:
        for field in FIELDS:
            found = {
                "name": field.name,
                "type": str(field.kind),
                "meaning": field.meaning,
                "synonyms": list(field.synonyms),
                "example": field.example,
                "needs": sorted(map(str, field.needs)),
                "many": field.many,
            }
            print_json(found)
        return
    width = max(len(field.name) for field in FIELDS)
    for field in FIELDS:
        typer.echo(f"{field.name:<{width}}  {field.kind:<12}  {field.meaning}")
        typer.echo(f"{'':<{width}}  {'':<12}  {field.example}")
        if field.synonyms:
            typer.echo(f"{'':<{width}}  {'':<12}  also: {', '.join(field.synonyms)}")


@app.command()
def check(
    expression: Annotated[str, typer.Argument(help="A filter, in quotes of the shell.", metavar="FILTER")],
    capture: Annotated[
        Path | None, typer.Argument(help="Count the exchanges of this capture that it is true of.")
    ] = None,
) -> None:
    """Say whether a filter is one, what has to be read for it, and how many exchanges of a capture it selects."""
    wanted = compiled(expression)
    typer.echo(f"ok: {_reads(wanted)}")
    if capture is None:
        return
    with open_or_fail(capture) as opened:
        selection = Selection(opened, wanted)
        count = selection.count()
        read = f", {selection.decoded} read" if selection.decoded else ""
        typer.echo(f"{count} of {len(opened.rows())} exchanges{read}")
        if opened.note:
            typer.echo(f"barnabas: {opened.note}", err=True)


def _reads(wanted: Filter) -> str:
    """Describe what has to be read to decide a filter."""
    if wanted.index_only:
        return "decided by the index, nothing is decoded"
    sides = [f"{need}s" for need in (Need.REQUEST, Need.RESPONSE) if need in wanted.needs]
    if not sides:
        return "decided by the index and what clients and brokers say of themselves when they connect"
    what = f"decodes {' and '.join(sides)}"
    keys = wanted.apis()
    if keys is None:
        return what + (
            ", but for those that the index rules out" if wanted.index_part is not None else " of all exchanges"
        )
    names = sorted(facts.api_name(key) for key in keys)
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"{what} of {shown or 'no API: it is never true'}"
