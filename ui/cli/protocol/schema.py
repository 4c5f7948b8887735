"""``barnabas schema``: show the protocol's schema, and import new releases."""

from __future__ import annotations

import json
import re
import textwrap
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ..common.completion import api_names, release_names
from ..common.existing import Force, refuse_existing, write_text
from ..common.failure import Failure
from ..common.output import terminal_width
from .frame import Draft, draft_of, note_former

if TYPE_CHECKING:
    from ....decoder.schema.notation import Definition
    from ....decoder.schema.plan import Plan, StructPlan

app = typer.Typer(
    help="The protocol's schema: APIs, versions, fields.",
    no_args_is_help=True,
)


_TABLES = "releases.txt"


def _decoded(kind: str, definition: Definition) -> list[int]:
    """The versions that really can be compiled, written and read back."""
    from ....decoder.codec.codec import decode_body, encode_body

    assert definition.key is not None
    found = []
    for version in definition.versions.every():
        body = encode_body(kind, definition.key, version, {})
        if decode_body(kind, definition.key, version, body).encode() == body:
            found.append(version)
    return found


@app.command()
def coverage(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: total, decoded, apis; newer by release.")
    ] = False,
) -> None:
    """Count the (API, version, direction) triples that can be decoded, by trying each one.

    The total covers Kafka 0.8 to 4.3; additions of newer releases are counted separately.
    """
    from ....decoder.schema import facts

    apis: list[dict[str, object]] = []
    newer: dict[str, Counter[str]] = {}
    total = decoded = 0
    for key in facts.api_keys():
        api = facts.api(key)
        counted: Counter[str] = Counter()
        for definition in (api.request, api.response):
            works, since = _decoded(definition.kind, definition), dict(definition.since)
            for version in definition.versions.every():
                release = since.get(version)
                if release is None:
                    counted["total"] += 1
                    counted[definition.kind] += version in works
                else:
                    newer.setdefault(release, Counter()).update(total=1, decoded=int(version in works))
        good = counted["request"] + counted["response"]
        total, decoded = total + counted["total"], decoded + good
        if counted["total"]:
            row = {"key": key, "name": api.name, "versions": str(api.versions)}
            apis.append({**row, "request": counted["request"], "response": counted["response"], "decoded": good})
    if as_json:
        releases = {release: dict(counts) for release, counts in sorted(newer.items())}
        typer.echo(json.dumps({"total": total, "decoded": decoded, "apis": apis, "newer": releases}))
        return
    typer.echo(f"{'key':>3}  {'API':<32} {'versions':>8} {'requests':>8} {'responses':>9}")
    for row in apis:
        typer.echo(f"{row['key']:>3}  {row['name']:<32} {row['versions']:>8} {row['request']:>8} {row['response']:>9}")
    typer.echo(f"{decoded} of {total} (API, version, direction) triples of Kafka 0.8 to 4.3 decoded, {len(apis)} APIs")
    for release, counts in sorted(newer.items()):
        typer.echo(f"and {counts['decoded']} of {counts['total']} that Kafka {release} adds")


@app.command()
def show(
    api: Annotated[
        str,
        typer.Argument(
            help="An API's name or key, e.g. Metadata or 3; or a draft, e.g. kip-4.DescribeTopic.",
            metavar="API",
            autocompletion=api_names,
        ),
    ],
    version: Annotated[int | None, typer.Argument(help="A version; the newest known if omitted.", metavar="N")] = None,
    html_file: Annotated[
        Path | None,
        typer.Option(
            "--html", help="Write an HTML page, with errors, releases and example frames; - prints it.", metavar="FILE"
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Print one version of an API: every field of request and response in wire order, and its meaning."""
    from ....decoder.reference.fields import describe_field
    from ....decoder.schema import facts
    from ....decoder.schema.plan import plan

    refuse_existing(html_file, force, "--html")
    if (draft := draft_of(api, version)) is not None:
        if html_file is not None:
            raise Failure("--html supports only versions of Kafka's releases, and this is a draft: leave out --html")
        _show_draft(draft)
        return
    try:
        found = facts.api(int(api)) if api.lstrip("-").isdigit() else facts.api(facts.api_key(api))
    except KeyError as error:
        raise Failure(f"{_unquoted(error, api)}; the APIs are listed by: barnabas schema coverage") from None
    note_former(api)
    top = found.versions.every()[-1]
    wanted = top if version is None else version
    if wanted not in found.versions:
        raise Failure(f"{found.name} has versions {found.versions}, not {wanted}")
    if html_file is not None:
        from .api_page import one_page

        if str(html_file) != "-":
            write_text(html_file, one_page(found.key, wanted), "--html")
        else:
            typer.echo(one_page(found.key, wanted), nl=False)
        return
    for kind in ("request", "response"):
        of = plan(kind, found.key, wanted)
        typer.echo(f"{of.name} v{wanted}  (api key {found.key}, header v{of.header_version})")
        for line in _lines(of, partial(describe_field, found.name, side=kind)):
            typer.echo(line)
        if kind == "request":
            typer.echo()


def _show_draft(draft: Draft) -> None:
    """Every field of a draft's request and response."""
    from ....decoder.reference.definitions import drafts
    from ....decoder.reference.fields import describe_field

    for kind in ("request", "response"):
        of = drafts.layout(draft.name, kind, draft.version)
        typer.echo(f"{of.name} v{draft.version}  ({draft.name}, a draft: no header)")
        for line in _lines(of, partial(describe_field, draft.name, side=kind)):
            typer.echo(line)
        if kind == "request":
            typer.echo()


@app.command()
def release(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A release, e.g. 4.0, 0.10.2, 3.5-zk, 3.9-controller; all names if omitted.",
            metavar="RELEASE",
            autocompletion=release_names,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print which versions the brokers of a Kafka release serve."""
    from ....decoder.reference import releases
    from ....decoder.schema import facts

    if name is None:
        names = releases.releases(roles=True)
        typer.echo(json.dumps(names) if as_json else "\n".join(names))
        return
    try:
        found = releases.release(name)
    except KeyError as error:
        raise Failure(f"{error.args[0]}; all of them: barnabas schema release") from None
    if as_json:
        apis = {
            facts.api_name(key): {
                "key": key, "offered": [o.low, o.high], "served": [o.served_from, o.high], "optional": o.optional,
            }
            for key, o in found.offers.items()
        }  # fmt: skip
        typer.echo(json.dumps({"release": found.name, "role": found.role, "apis": apis}))
        return
    typer.echo(f"Kafka {found.name}, {found.role}")
    for key, offer in found.offers.items():
        served = f" (serves {offer.served_from}-{offer.high})" if offer.served_from != offer.low else ""
        when = " (only if configured)" if offer.optional else ""
        typer.echo(f"{key:>3}  {facts.api_name(key):<40} {offer.low}-{offer.high}{served}{when}")


def _unquoted(error: KeyError, api: str) -> str:
    return str(error.args[0]) if isinstance(error.args[0], str) else f"no API has key {api}"


_NARROWEST = 40
"""Columns below which a description goes onto lines of its own."""


def _lines(of: Plan, describe: Callable[[str], str | None]) -> Iterator[str]:
    """The fields of a message, each with its description beside it, or below it where there is no room."""
    rows = list(_rows(of.root, 1))
    if not rows:
        yield "  (no fields)"
        return
    width = terminal_width()
    name, type_name = max(len(row.name) for row in rows), max(len(row.type) for row in rows)
    column = name + 2 + type_name + 2
    for row in rows:
        text = describe(row.path) or ""
        head = f"{row.name:<{name}}  {row.type}"
        if not text:
            yield head
        elif width - column >= _NARROWEST:
            first, *rest = textwrap.wrap(text, width - column)
            yield f"{head:<{column}}{first}"
            yield from (" " * column + line for line in rest)
        else:
            yield head
            indent = " " * (len(row.name) - len(row.name.lstrip()) + 4)
            yield from textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent)


class _Row(NamedTuple):
    """A line of `show`: the indented name of a field, its type and what else there is to it, and its path."""

    name: str
    type: str
    path: str


def _rows(struct: StructPlan, depth: int, prefix: str = "") -> Iterator[_Row]:
    for field in struct.fields:
        type_name = ("[]" if field.array else "") + (field.struct.name if field.struct else field.type)
        words = [type_name + ("?" if field.nullable else "")]
        if field.tag is not None:
            words.append(f"tag {field.tag}")
        if field.default not in (0, "", (), False, b"", bytes(16)) and field.struct is None and not field.array:
            words.append(f"= {'null' if field.default is None else field.default}")
        if field.entity:
            words.append(f"({field.entity})")
        yield _Row(f"{'  ' * depth}{field.name}", " ".join(words), prefix + field.name)
        if field.struct:
            yield from _rows(field.struct, depth + 1, f"{prefix}{field.name}.")


@app.command("import")
def import_(
    jars: Annotated[
        list[Path],
        typer.Argument(help="A folder with a release's jars, or single jars, oldest first.", metavar="JAR|DIR..."),
    ],
    write: Annotated[bool, typer.Option("--write", help="Replace this package's own schema files.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the complete schema files into this directory.", metavar="PATH")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep known versions and names; only add new versions.")
    ] = False,
    force: Force = False,
) -> None:
    """Read message definitions from Kafka's jars, and show what they change in the schema.

    Requests and responses are in kafka-clients; records of internal topics are in kafka-group-coordinator,
    kafka-transaction-coordinator, kafka-share-coordinator, kafka-metadata, kafka-storage, kafka-raft, kafka-streams.

    Versions that a release has dropped stay in the schema. A changed layout of a known version is an ALARM: review
    it before you write.

    A kafka-clients jar also contains the table of its release: which versions its brokers serve.
    """
    from ....decoder.reference import release_tables, releases
    from ....decoder.reference.definitions import importer
    from ....decoder.schema import facts

    refuse_existing(output, force, "--output")
    current = _own()
    merged = current
    alarms = 0
    table_text = (facts.schema_folder() / _TABLES).read_text("utf-8")
    tables = releases.read(table_text)
    for jar in _with_definitions(jars):
        release = _read(jar)
        # What a release no longer has is no change here: the schema keeps every version there ever was.
        found = [
            d for d in importer.differences(merged, release) if "no longer" not in d.text and "not in" not in d.text
        ]
        alarms += sum(d.alarm for d in found)
        typer.echo(f"{jar.name}: {len(release)} definitions, {len(found)} differences")
        for difference in found:
            typer.echo(f"  {difference}")
        merged = importer.union(release, merged) if keep else importer.union(merged, release)
        if number := re.search(r"-(\d+\.\d+)([\d.]*)\.jar$", jar.name):
            merged = importer.since_release(merged, current, number[1])
            tables, lines = release_tables.merge_release(tables, release, number[1] + number[2])
            for line in lines:
                typer.echo(f"  {line}")
    files, before = importer.schema_files(merged), importer.schema_files(current)
    head = "".join(line for line in table_text.partition("\n\n")[0].splitlines(True) if line.startswith("#"))
    files[_TABLES], before[_TABLES] = releases.write(tables, head), table_text
    changed = sorted(name for name in files if files[name] != before.get(name))
    writes = write or output is not None
    typer.echo(f"{len(changed)} schema files would change" if not writes else f"{len(changed)} schema files change")
    if writes:
        target = output or Path(str(facts.schema_folder()))
        target.mkdir(parents=True, exist_ok=True)
        for name in files if output else changed:
            (target / name).parent.mkdir(exist_ok=True)
            (target / name).write_text(files[name], "utf-8")
        typer.echo(
            f"written to {target}; run the tests before you use it" + (" (there were alarms)" if alarms else "")
        )
    elif changed:
        typer.echo("add --write to replace the schema of this package, or -o DIR to write them elsewhere")


def _own() -> dict[str, Definition]:
    from ....decoder.schema import facts

    found = {}
    for key in facts.api_keys():
        api = facts.api(key)
        found[api.request.name], found[api.response.name] = api.request, api.response
    for file in facts.extra_files():
        found.update(facts.extra(file))
    return found


def _with_definitions(paths: list[Path]) -> Iterator[Path]:
    """The given jars; for a folder, those of its Kafka jars that hold definitions."""
    from ....decoder.reference.definitions import importer

    for path in paths:
        if not path.is_dir():
            yield path
            continue
        found = [jar for jar in sorted(path.glob("kafka-*.jar")) if importer.definition_files(_entries(jar))]
        if not found:
            raise Failure(f"{path} contains no kafka-*.jar with message definitions")
        yield from found


def _entries(jar: Path) -> list[str]:
    try:
        with zipfile.ZipFile(jar) as archive:
            return archive.namelist()
    except (OSError, zipfile.BadZipFile) as error:
        raise Failure(f"{jar} cannot be read as a jar: {error}") from None


def _read(jar: Path) -> dict[str, Definition]:
    from ....decoder.reference.definitions import importer

    try:
        with zipfile.ZipFile(jar) as archive:
            entries = archive.namelist()
            files = {name: archive.read(name).decode() for name in importer.definition_files(entries)}
            if not files:
                raise Failure(f"{jar} contains no common/message/*.json: give a kafka-clients jar of release 2.5 or newer")
            return importer.read_definitions(files, importer.topic_of(entries))
    except (OSError, zipfile.BadZipFile) as error:
        raise Failure(f"{jar} cannot be read as a jar: {error}") from None
    except importer.ImportProblem as error:
        raise Failure(f"{jar}: {error}") from None
