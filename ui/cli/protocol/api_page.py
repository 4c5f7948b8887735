"""Pages about APIs of the protocol: versions, layouts, errors, examples. For one file (``barnabas schema show --html``) and the
documentation site, which has a page for each API.

A page is a list of sections. What stands in them is escaped, needs no script and takes its colours from the page around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from ....decoder.codec.message import Message, jsonable
from ....decoder.reference import clients, example_frames, explain, releases, version_history
from ....decoder.reference.example_frames import FramePart, PartRole
from ....decoder.reference.fields import HEADER, describe_field
from ....decoder.schema import facts
from ....decoder.schema.plan import SIZES, FieldPlan, StructPlan, extra_plan, plan
from ...pages.page import page, row, table, text
from ..common.output import json_text

KINDS = ("request", "response")
_ROLES = {"zk": "brokers with ZooKeeper", "kraft": "brokers with KRaft", "controller": "KRaft controllers"}
_COLOURS = 8
_LONGEST = 120
"""Characters of a value beside its bytes."""
STYLE = (
    """
.wire { display: flex; flex-wrap: wrap; gap: .3rem; align-items: stretch; margin: .4rem 0; }
.wire .field, .wire .struct { border: 1px solid #8888; border-radius: .25rem; padding: .2rem .45rem; max-width: 100%;
  box-sizing: border-box; overflow-wrap: anywhere; }
.wire .field { display: flex; flex-direction: column; }
.wire .struct { width: 100%; border-left-width: .35rem; }
.wire .tags { border-style: dashed; }
.wire small { opacity: .8; }
.bytes { font-family: ui-monospace, Menlo, Consolas, monospace; line-height: 1.9; overflow-wrap: anywhere; }
.bytes a { color: inherit; text-decoration: none; border-radius: .2rem; padding: .1rem .25rem; }
.bytes a:hover, .bytes a:focus, .bytes a:target, tr:target { outline: 2px solid; }
tr, .bytes a { scroll-margin-top: 4rem; }
.added, .removed, .changed { font-weight: 600; }
@media print { .wire, tr { break-inside: avoid; } }
"""
    + "\n".join(f".c{n} {{ background: hsl({n * 360 // _COLOURS} 80% 50% / .25); }}" for n in range(_COLOURS))
    + "\n"
)


class Section(NamedTuple):
    """A part of a page: its heading, the anchor of that, and HTML. `of`: the version that it is about."""

    title: str
    anchor: str
    html: str
    of: int | None = None


def sections(key: int, versions: Iterable[int] | None = None) -> list[Section]:
    """The page of an API, with these of its versions and their examples open; all versions if left out, the newest first."""
    shown = reversed(facts.api(key).versions.every()) if versions is None else versions
    opened = versions is not None
    about = explain.api(key)
    return [
        Section("Versions", "versions", _versions(about)),
        Section("Brokers", "brokers", _brokers(key)),
        Section("Clients", "clients", _clients(about)),
        Section("Fields", "fields", _fields(about)),
        Section("Errors", "errors", _errors(about)),
        *(Section(f"Version {version}", f"v{version}", _version(key, version, opened), version) for version in shown),
    ]


def introduction(key: int) -> str:
    """What the API is for, as HTML."""
    about = explain.api(key)
    notes = "".join(f"<li>{text(note)}</li>" for note in about.notes)
    waits = f"<p>The response may be held back: {text(about.waits)}</p>" if about.waits else ""
    return (
        f"<p>{text(about.purpose)}</p>\n<p>API key {key}, versions {facts.api(key).versions}, "
        f"sent by {text(' and '.join(about.senders))}.</p>\n{waits}" + (f"<ul>{notes}</ul>" if notes else "")
    )


def one_page(key: int, version: int | None = None) -> str:
    """An API, or one version of it, as a page of its own."""
    title = facts.api_name(key) + ("" if version is None else f" v{version}")
    found = sections(key, None if version is None else [version])
    parts = [f"<h1>{text(title)}</h1>", introduction(key)]
    for section in sorted(found, key=lambda each: each.of is None):  # layouts first
        parts.append(f'<h2 id="{section.anchor}">{text(section.title)}</h2>\n{section.html}')
    return page(title, parts, STYLE)


def index(link: Callable[[str], str]) -> str:
    """The table of all APIs. `link`: where the page of an API is, by its name."""
    rows = []
    for key in facts.api_keys():
        about = explain.api(key)
        last = about.versions[-1].removed
        until = f", dropped in {last}" if last else ""
        rows.append(
            row(
                (str(key), "number"),
                f'<a href="{text(link(about.name))}">{text(about.name)}</a>',
                text(str(facts.api(key).versions)),
                text((releases.introduced(key) or "no release") + until),
                text(about.purpose),
            )
        )
    return table(("key", "API", "versions", "since", "what it is for"), rows)


def index_page(link: Callable[[str], str]) -> str:
    """The table of all APIs as a page of its own."""
    return page("The Kafka protocol", ["<h1>The Kafka protocol</h1>", index(link)])


def page_named(name: str) -> str | None:
    """The page of an API by its name, or the index for ""; None if there is no such API. They link each other by their names."""
    if not name:
        return index_page(lambda api: api)
    try:
        return one_page(facts.api_key(name))
    except KeyError:
        return None


# --- about all versions --------------------------------------------------------------------------------------


def _versions(about: explain.ApiText) -> str:
    rows = []
    for fact in reversed(about.versions):
        flexible = fact.version in facts.api(about.key).request.flexible
        kips = version_history.kips_of(about.key, fact.version)
        rows.append(
            row(
                f"{fact.version}",
                text(fact.since or "no release"),
                text(fact.removed or ""),
                "compact, tagged fields" if flexible else "",
                "<br>".join(text(f"{kip.name}: {kip.title}") for kip in kips),
            )
        )
    return table(("version", "since", "dropped in", "encoding", "brought by"), rows)


def offered_by(key: int) -> Iterator[tuple[str, str, str]]:
    """The releases that serve an API: role, ``"4.0 to 4.3"``, ``"0-12"``."""
    for role, words in _ROLES.items():
        tables = [table for name in releases.releases(roles=True) if (table := releases.release(name)).role == role]
        for offer, run in groupby(tables, key=lambda each: each.offers.get(key)):
            if offer is None:
                continue
            numbers = [each.number for each in run]
            when = numbers[0] if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
            served = str(offer.high) if offer.served_from == offer.high else f"{offer.served_from}-{offer.high}"
            offered = f" (ApiVersions says {offer.low}-{offer.high})" if offer.low != offer.served_from else ""
            yield words, when, served + offered + (" (only if configured)" if offer.optional else "")


def _brokers(key: int) -> str:
    rows = [row(text(words), text(when), text(served)) for words, when, served in offered_by(key)]
    return table(("role", "Kafka", "versions served"), rows) if rows else "<p>No release serves this API.</p>"


def _clients(about: explain.ApiText) -> str:
    """The clients that are known to do without the versions that releases dropped."""
    dropped = [release for release in dict.fromkeys(fact.removed for fact in about.versions) if release]
    rows = []
    for release in dropped:
        gone = [fact.version for fact in about.versions if fact.removed == release]
        range_ = str(gone[0]) if len(gone) == 1 else f"{gone[0]}-{gone[-1]}"
        for client in clients.clients().values():
            if known := client.needed_for(release):
                rows.append(row(text(client.called), text(known.version), text(release), range_))
    if not rows:
        return "<p>No client is known to depend on a version of this API that a release dropped.</p>"
    return table(("client", "from", "works with brokers of", "which dropped"), rows)


def _fields(about: explain.ApiText) -> str:
    rows = []
    for kind, fields in zip(KINDS, (about.request, about.response), strict=True):
        for field in fields:
            indent = "&nbsp;" * (4 * field.depth)
            name = f"{indent}<code>{text(field.name)}</code>"
            rows.append(row(kind, name, text(field.type), text(field.versions or "all"), text(field.text)))
    return table(("message", "field", "type", "versions", "meaning"), rows) if rows else "<p>No fields.</p>"


def _errors(about: explain.ApiText) -> str:
    every = [fact.name for code, fact in facts.errors().items() if explain.error(code).every]
    rows = []
    for name in (*about.errors, *every):
        error = explain.error(facts.error_code(name)).of(about.name)
        rows.append(
            row(
                (str(error.code), "number"),
                f"<code>{text(name)}</code>{'<br>retriable' if error.retriable else ''}",
                text(error.what),
                "<br>".join(text(cause.text) for cause in error.causes),
                "<br>".join(map(text, error.do)),
            )
        )
    return table(("code", "error", "what it means", "causes", "what to do"), rows)


# --- one version ---------------------------------------------------------------------------------------------


def _version(key: int, version: int, opened: bool) -> str:
    fact = next(each for each in explain.api(key).versions if each.version == version)
    since = f"Since Kafka {text(fact.since)}" if fact.since else "In no release"
    gone = f"; dropped in {text(fact.removed)}" if fact.removed else ""
    kips = version_history.kips_of(key, version)
    brought = f" ({', '.join(text(f'{kip.name}, {kip.title}') for kip in kips)})" if kips else ""
    parts = [f"<p>{since}{brought}{gone}.</p>", _difference(key, version)]
    for kind in KINDS:
        message = example_frames.example(kind, key, version)
        parts += [f"<p><b>{kind.capitalize()}</b></p>", _diagram(kind, key, version), frame_map(message, opened)]
    return "\n".join(filter(None, parts))


def _difference(key: int, version: int) -> str:
    if version - 1 not in facts.api(key).versions:
        return ""
    items = []
    for kind in KINDS:
        if version_history.became_flexible(kind, key, version):
            items.append(f"<li>{kind}: <span class=changed>new encoding</span>: compact lengths and tagged fields (KIP-482)</li>")
        for change in version_history.changes(kind, key, version):
            what = f"<code>{text(change.path)}</code>: {text(change.what)}"
            items.append(f"<li>{kind}: <span class={change.kind}>{change.kind}</span> {what}</li>")
    if not items:
        return f"<p>The layout is that of version {version - 1}.</p>"
    return f"<p>Different from version {version - 1}:</p>\n<ul>\n" + "\n".join(items) + "\n</ul>"


def _diagram(kind: str, key: int, version: int) -> str:
    of = plan(kind, key, version)
    header = extra_plan("headers", f"{kind.capitalize()}Header", of.header_version).root
    notes = _Notes(key, kind, version_history.first_versions(kind, key))
    size = '<div class="field"><b>size</b><small>int32, 4 bytes: size of what follows</small></div>'
    head = f'<div class="struct"><small>header v{of.header_version}</small>{_boxes(header, HEADER, None)}</div>'
    return f'<div class="wire">{size}{head}</div>\n{_boxes(of.root, "", notes)}'


class _Notes(NamedTuple):
    """Whose fields are drawn, and the first version of each."""

    key: int
    kind: str
    first: dict[str, int]


def _boxes(struct: StructPlan, prefix: str, of: _Notes | None) -> str:
    """The fields of a struct, in the order of the wire; of a header without notes."""
    boxes = [_box(field, prefix, of) for field in struct.fields[: struct.untagged]]
    if struct.flexible:
        tagged = [_box(field, prefix, of) for field in struct.fields[struct.untagged :]]
        words = "<b>tagged fields</b> <small>number (uvarint); for each: tag and size (uvarints), value</small>"
        inside = f'<div class="wire">{"".join(tagged)}</div>' if tagged else ""
        boxes.append(f'<div class="{"struct" if tagged else "field"} tags">{words}{inside}</div>')
    return f'<div class="wire">{"".join(boxes) or "no fields"}</div>'


def _box(field: FieldPlan, prefix: str, of: _Notes | None) -> str:
    path = prefix + field.name
    meaning = describe_field(facts.api_name(of.key), path, of.kind) if of else describe_field("", path)
    name = f'<b title="{text(meaning)}">{text(field.name)}</b>' if meaning else f"<b>{text(field.name)}</b>"
    encoding, notes = text(_encoding(field)), text(_notes(field, path, of))
    if field.struct is None:
        more = f"<small>{notes}</small>" if notes else ""
        return f'<div class="field">{name}<small>{encoding}</small>{more}</div>'
    words = ", ".join(filter(None, (encoding, notes)))
    return f'<div class="struct">{name} <small>{words}</small>{_boxes(field.struct, f"{path}.", of)}</div>'


def _encoding(field: FieldPlan) -> str:
    """``"string: length (int16), UTF-8"``, ``"int32, 4 bytes"``, ``"array of int32: number of items (int32)"``."""
    name = field.struct.name if field.struct else field.type
    if field.array:
        each = f", {SIZES[name]} bytes each" if name in SIZES else ""
        return f"array of {name}{each}: number of items ({'uvarint, + 1' if field.compact else 'int32'})"
    if field.struct:
        return f"{name}{': a presence byte (int8), then its fields' if field.nullable else ''}"
    if name in SIZES:
        return f"{name}, {SIZES[name]} byte{'s' * (SIZES[name] > 1)}"
    length = "uvarint, + 1" if field.compact else "int16" if name == "string" else "int32"
    return f"{name}: length ({length}), {'UTF-8' if name == 'string' else 'bytes'}"


def _notes(field: FieldPlan, path: str, of: _Notes | None) -> str:
    words = []
    if field.tag is not None:
        words.append(f"tag {field.tag}")
    if field.nullable:
        words.append("nullable")
    if field.default not in (0, "", (), False, b"", bytes(16)) and field.struct is None:
        words.append(f"default {json_text(field.default)}")
    since = of.first[path] if of else 0
    if of and since > facts.api(of.key).versions.low:
        kips = [kip.name for kip in version_history.kips_of(of.key, since)]
        words.append(" ".join([f"since v{since}", *([f"({', '.join(kips)})"] if kips else [])]))
    return ", ".join(words)


# --- an example ----------------------------------------------------------------------------------------------


def frame_map(message: Message, opened: bool = True) -> str:
    """The bytes of a frame with its size in front, linked with a list of what each of them is."""
    prefix = f"v{message.api_version}-{message.plan.kind}"
    size = len(message.frame).to_bytes(4, "big")
    shown = [("size", "of all that follows", str(len(message.frame)), 0, size)]
    for part in example_frames.frame_parts(message):
        value = _value_of(message, part) if part.role is PartRole.VALUE else ""
        shown.append((part.path, str(part.role), value, part.start + 4, message.frame[part.start : part.end]))
    spans, rows = [], []
    for number, (path, role, value, start, data) in enumerate(shown):
        colour, anchor = f"c{number % _COLOURS}", f"{prefix}-{number}"
        value = value if len(value) <= _LONGEST else value[: _LONGEST - 1] + "…"
        title = text(f"{path}: {value or role}")
        spans.append(f'<a class="{colour}" id="{anchor}-bytes" href="#{anchor}" title="{title}">{data.hex(" ")}</a>')
        offset = f'<a href="#{anchor}-bytes">{start}</a>'
        cells = (f"<td>{cell}</td>" for cell in (offset, str(len(data)), f"<code>{text(path)}</code>", text(value or role)))
        rows.append(f'<tr id="{anchor}" class="{colour}">{"".join(cells)}</tr>')
    return (
        f"<details{' open' * opened}><summary>Example: {len(message.frame) + 4} bytes</summary>\n"
        f'<p class="bytes">{" ".join(spans)}</p>\n' + table(("offset", "bytes", "field", "value"), rows) + "</details>"
    )


def _value_of(message: Message, part: FramePart) -> str:
    """The value of a field, and what it means if it is a number that stands for something."""
    name = part.path.rpartition(".")[2]
    value = message.header[name] if part.path.startswith(HEADER) else jsonable(message[part.path])
    return f"{json_text(value)} {explain.meaning(message.api, name, value)}".rstrip()
