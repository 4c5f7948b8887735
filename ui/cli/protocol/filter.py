"""``barnabas filter``: list the fields of the filter language, and validate a filter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ...times import zone
from ..common.completion import filter_words
from ..common.failure import Failure
from ..common.opening import open_or_fail
from ..common.options import CapturePath, RequiredFilterText
from ..common.output import print_json

if TYPE_CHECKING:
    from ....decoder.filter import Filter

app = typer.Typer(
    help="The filter language: list its fields, validate a filter.",
    no_args_is_help=True,
)


def compiled(text: str) -> Filter:
    """Compile a filter. Raises Failure, which points at the error."""
    from ....decoder.filter import FilterError, compile

    try:
        return compile(text, zone=zone())
    except FilterError as error:
        raise Failure(f"{error.message}\n{error.pointer()}") from None


@app.command("fields")
def fields_(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per field.")] = False,
) -> None:
    """List every field: its type, what it means, its other names and an example.

    Fields of bodies can also be given by their path, such as resp.topics[*].error_code; see: barnabas schema show API.
    """
    from ....decoder.filter import FIELDS

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
    expression: Annotated[
        str, typer.Argument(help="A filter, quoted for the shell.", metavar="FILTER", autocompletion=filter_words)
    ],
) -> None:
    """Validate a filter, and show what has to be read to evaluate it."""
    wanted = compiled(expression)
    once = "; once, as names are remembered" if wanted.has_names and wanted.names_decide else ""
    typer.echo(f"ok: {_reads(wanted)}{once}")


@app.command("try")
def try_(capture: CapturePath, filter_: RequiredFilterText) -> None:
    """Count the exchanges of a capture that match a filter."""
    from ....captures.reading.selection import Selection

    wanted = compiled(filter_)
    with open_or_fail(capture) as opened:
        selection = Selection(opened, wanted)
        count = selection.count()
        read = f", {selection.decoded} read" if selection.decoded else ""
        typer.echo(f"{count} of {len(opened.rows())} exchanges{read}")
        if opened.note:
            typer.echo(f"barnabas: {opened.note}", err=True)


def _reads(wanted: Filter) -> str:
    """Describe what has to be read to decide a filter."""
    from ....decoder.filter import Need
    from ....decoder.schema import facts

    if wanted.index_only:
        return "decided by the index alone; nothing is decoded"
    sides = [f"{need}s" for need in (Need.REQUEST, Need.RESPONSE) if need in wanted.needs]
    if not sides:
        return "decided by the index and by what clients and brokers report when they connect"
    what = f"decodes {' and '.join(sides)}"
    keys = wanted.apis()
    if keys is None:
        return what + (
            ", except those that the index rules out" if wanted.index_part is not None else " of all exchanges"
        )
    names = sorted(facts.api_name(key) for key in keys)
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"{what} of {shown or 'no API: it is never true'}"
