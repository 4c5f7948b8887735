"""``barnabas explain``: explain an error code, an API, a draft, a KIP, a setting, a field or a value's name."""

from __future__ import annotations

import dataclasses
import sys
import textwrap
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...safe import has_colours, visible
from ..common.completion import explained_names
from ..common.failure import Failure
from ..common.output import print_json, terminal_width

if TYPE_CHECKING:
    from ....decoder.reference.explain import (
        ApiText,
        DraftText,
        ErrorText,
        Explanation,
        FieldFact,
        FieldText,
        KipText,
        SettingText,
        VersionFact,
    )
    from ....decoder.schema.facts import FormerName

_WIDEST, _MOST_PLACES = 100, 12
_KINDS = {
    "ErrorText": "error", "ApiText": "api", "DraftText": "draft", "KipText": "kip", "SettingText": "setting",
    "FieldText": "field",
}  # fmt: skip
_KINDS_OF_EACH = "error names and codes, API names and keys, KIPs, settings, fields, names of values"


def explain(
    word: Annotated[
        str,
        typer.Argument(
            help="UNSUPPORTED_VERSION, 35, Fetch, 1, KIP-896, max.poll.interval.ms, max_bytes; exception names too.",
            metavar="NAME",
            autocompletion=explained_names,
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object: word, found (a list).")] = False,
) -> None:
    """Explain an error, an API, a KIP, a setting, a field of a message, or the name of a value.

    A number is an error code, an API's key, or both. Names of older Kafka releases and of drafts are known too.
    """
    from ....decoder.reference import explain as texts

    try:
        found = texts.find(word)
    except texts.UnknownTerm as unknown:
        near = f"did you mean {' or '.join(unknown.near)}?" if unknown.near else f"known: {_KINDS_OF_EACH}"
        raise Failure(f"unknown name {visible(word)}; {near}") from None
    if as_json:
        print_json({"word": word, "found": [_plain(each) for each in found]})
        return
    lines: list[str] = list(_today(word))
    if len(found) > 1 and word.lstrip("-").isdigit():
        lines += [f"{word} is {_a_list([_short(each) for each in found], 'and')}.", ""]
    for number, each in enumerate(found):
        lines += [""] * bool(number) + list(_lines(each))
    typer.echo("\n".join(lines))


def _today(word: str) -> Iterator[str]:
    """A line for a former name: today's."""
    from ....decoder.reference import explain as texts

    for former in texts.former(word):
        apis, _, name = former.today.rpartition(":")
        of = f" of {_a_list(apis.split(','), 'and')}" if apis else ""
        yield from _wrapped(f"{former.name} ({former.where}) is {name}{of} today.")
        yield ""


def _plain(each: Explanation) -> dict[str, Any]:
    return {"kind": _KINDS[type(each).__name__], **dataclasses.asdict(each)}


def _short(each: Explanation) -> str:
    from ....decoder.reference.explain import ApiText, ErrorText

    if isinstance(each, ErrorText):
        return f"the error code {each.name}"
    if isinstance(each, ApiText):
        return f"the key of the API {each.name}"
    return each.name


def _lines(each: Explanation) -> Iterator[str]:
    from ....decoder.reference.explain import ApiText, DraftText, ErrorText, FieldText, KipText

    if isinstance(each, ErrorText):
        return _error(each)
    if isinstance(each, ApiText):
        return _api(each)
    if isinstance(each, FieldText):
        return _field(each)
    if isinstance(each, DraftText):
        return _draft(each)
    return _kip(each) if isinstance(each, KipText) else _setting(each)


def _error(error: ErrorText) -> Iterator[str]:
    retry = "" if error.code == 0 else ", retriable" if error.retriable else ", not retriable"
    yield _head(f"{error.name}", f"error {error.code}{retry}")
    yield from _wrapped(error.what)
    yield from _part("Causes", [f"{c.api}: {c.text}" if c.api else c.text for c in error.causes])
    yield from _part("What to do", error.do)
    for own in error.differs:
        yield from _part(f"In {own.api}", [text for text in (own.what, *own.do) if text])
    carriers = ["every API"] if error.every else list(error.apis) or ["no current API; see above"]
    yield from _part("Returned by", [", ".join(carriers)], marks=False)
    yield from _part("Introduced or changed by", [_kip_names(error.kips)] if error.kips else [], marks=False)
    yield from _also(error.see, error.alias, error.kips)
    yield from _once(error.former)


def _api(api: ApiText) -> Iterator[str]:
    from ....decoder.reference import explain as texts

    yield _head(api.name, f"API {api.key}, sent by {_a_list(api.senders, 'and')}")
    yield from _wrapped(api.purpose)
    if api.waits:
        yield from _part("Its response may be delayed", [api.waits], marks=False)
    yield from _part("Notes", api.notes)
    yield from _part("Versions", list(_versions(api)), marks=False)
    for name, fields in (("Request", api.request), ("Response", api.response)):
        yield from _part(name, [], always=True)
        yield from _fields(fields)
    errors = [", ".join(api.errors)] if api.errors else []
    yield from _part("Errors", [*errors, "and those of every API: see UNKNOWN_SERVER_ERROR, UNSUPPORTED_VERSION, "
                                "INVALID_REQUEST"], marks=False)  # fmt: skip
    yield from _part("KIPs", [f"{name}: {texts.kip(name).title}" for name in api.kips])
    yield from _also(api.see, (), api.kips)
    yield from _once(api.former)


def _draft(draft: DraftText) -> Iterator[str]:
    yield _head(draft.name, "a draft, never shipped in this form")
    yield from _wrapped(draft.purpose)
    yield from _part("Today", [", ".join(draft.today)] if draft.today else [], marks=False)
    for name, fields in (("Request", draft.request), ("Response", draft.response)):
        yield from _part(name, [], always=True)
        yield from _fields(fields)


def _kip(kip: KipText) -> Iterator[str]:
    yield _head(kip.name, f"{kip.title}, since Kafka {kip.since}")
    yield from _wrapped(kip.what)
    yield from _part("APIs", [", ".join(f"{name}{f' v{v}' if v else ''}" for name, v in kip.apis)], marks=False)
    yield from _part("Errors", [", ".join(kip.errors)] if kip.errors else [], marks=False)
    yield from _part("Issues", [", ".join(kip.issues)] if kip.issues else [], marks=False)
    yield from _also(kip.see, (), ())


def _setting(setting: SettingText) -> Iterator[str]:
    yield _head(setting.name, f"{'former ' if setting.today else ''}setting of {_a_list(setting.of, 'and')}")
    yield from _wrapped(setting.what)
    for name, text in (
        ("Today", setting.today),
        ("Default", setting.default),
        ("In other clients", setting.same),
        ("In the traffic", setting.wire),
    ):
        yield from _part(name, [text] if text else [], marks=False)
    yield from _part("Errors", [", ".join(setting.errors)] if setting.errors else [], marks=False)
    yield from _also(setting.see, (), setting.errors)


def _field(field: FieldText) -> Iterator[str]:
    apis = dict.fromkeys(place.api for place in field.places)
    yield _head(field.name, f"field of {_a_list(apis, 'and')}" if len(apis) <= 3 else f"field of {len(apis)} APIs")
    yield from _wrapped(f"{field.text}." if field.text else "")
    words = [f"{value}: {text}" for value, text in field.values if isinstance(value, str)]
    numbers = ", ".join(f"{value} {word}" for value, word in field.values if isinstance(value, int))
    yield from _part("Values", [*words, *([numbers] if numbers else [])], marks=False)
    where = [f"{each.api} {each.side}{f' v{each.versions}' if each.versions else ''}: {each.path}" for each in field.places[:_MOST_PLACES]]
    left = len(field.places) - len(where)
    yield from _part("Where it is", [*where, *([f"and in {left} more places"] if left else [])], marks=False)


def _versions(api: ApiText) -> Iterator[str]:
    """``0-2 since 0.8.0, gone in 4.0``, a line for each run of releases that share their end."""
    for removed, run in groupby(api.versions, key=lambda fact: fact.removed):
        facts = list(run)
        ranges = ", ".join(f"{_range(same)} since {since}" if since else f"{_range(same)} in no release" for since, same in _by_since(facts))  # fmt: skip
        yield f"{ranges}{f'; gone in {removed}' if removed else ''}"
    if api.flexible:
        yield f"tagged fields (KIP-482) in {api.flexible}"


def _by_since(facts: list[VersionFact]) -> Iterator[tuple[str | None, list[VersionFact]]]:
    for since, same in groupby(facts, key=lambda fact: fact.since):
        yield since, list(same)


def _range(facts: list[VersionFact]) -> str:
    low, high = facts[0].version, facts[-1].version
    return f"v{low}" if low == high else f"v{low}-v{high}"


def _fields(fields: Iterable[FieldFact]) -> Iterator[str]:
    empty = True
    for field in fields:
        empty = False
        name = "  " * (field.depth + 1) + field.name
        versions = f" (v{field.versions})" if field.versions else ""
        yield f"{name:<44} {field.type}{versions}".rstrip()
    if empty:
        yield "  (no fields)"


def _part(title: str, texts_: Iterable[str], marks: bool = True, always: bool = False) -> Iterator[str]:
    """A titled list; nothing at all when it is empty."""
    found = list(texts_)
    if not found and not always:
        return
    yield ""
    yield _bold(title)
    for text in found:
        yield from _wrapped(text, "  - " if marks else "  ", "    " if marks else "  ")


def _also(see: Iterable[str], alias: Iterable[str], above: Iterable[str]) -> Iterator[str]:
    left = [word for word in see if word not in set(above)]
    if left:
        yield from _part("See also", [", ".join(left)], marks=False)
    names = list(alias)
    if names:
        yield from _part("Also called", [", ".join(names)], marks=False)


def _once(former: Iterable[FormerName]) -> Iterator[str]:
    names = [f"{each.name} ({each.where})" for each in former]
    yield from _part("Once called", [", ".join(names)] if names else [], marks=False)


def _kip_names(names: Iterable[str]) -> str:
    from ....decoder.reference import explain as texts

    return "; ".join(f"{name} ({texts.kip(name).title})" for name in names)


def _head(name: str, rest: str) -> str:
    return f"{_bold(name)}  ({rest})"


def _wrapped(text: str, first: str = "", then: str = "") -> list[str]:
    return textwrap.wrap(
        text, terminal_width(_WIDEST), initial_indent=first, subsequent_indent=then, break_long_words=False, break_on_hyphens=False
    )


def _bold(text: str) -> str:
    return typer.style(text, bold=True) if has_colours(sys.stdout) else text


def _a_list(words: Iterable[str], last: str) -> str:
    found = list(words)
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} {last} {found[-1]}"
