"""Why an exchange went as it did: what its error means, where from, what to do; what its API is for."""

from __future__ import annotations

import textwrap

from rich.text import Text

from ...decoder import Exchange, explain, facts
from .palette import Palette
from .safe import visible


def why(exchange: Exchange, palette: Palette, width: int) -> Text:
    """The explanation, wrapped to `width` cells; the texts are those of ``barnabas explain``."""
    text = Text()
    codes = dict.fromkeys([exchange.error, *_codes(exchange)])
    for code in [c for c in codes if c][:4]:
        _error(text, code, exchange.api, palette, width)
    if exchange.api_key in facts.api_keys():
        found = explain.api(exchange.api_key)
        text.append(f"{found.name}", palette.title)
        text.append(f"  API {found.key}, sent by {', '.join(found.senders)}\n", palette.muted)
        text.append(_wrapped(found.purpose, width))
        for note in (*([found.waits] if found.waits else []), *found.notes):
            text.append(_wrapped(note, width, "  - "))
        of = {fact.version: fact for fact in found.versions}.get(exchange.api_version)
        if of is not None:
            since = f"since Kafka {of.since}" if of.since else "in no release"
            text.append(f"  - v{of.version}: {since}{f', gone in {of.removed}' if of.removed else ''}\n")
    else:
        text.append(f"API {exchange.api_key} is not known: newer than what this knows, or no Kafka.\n")
    return text


def _codes(exchange: Exchange) -> list[int]:
    said = exchange.response_message
    return [code for _, code in said.errors()] if said is not None else []


def _error(text: Text, code: int, api: str, palette: Palette, width: int) -> None:
    if code not in facts.errors():
        text.append(f"{code}: an error code of no known release\n\n", palette.error)
        return
    found = explain.error(code)
    text.append(f"{found.name} ({code})", palette.error)
    again = "clients may try again" if found.retriable else "trying again gives the same"
    text.append(f"  {again}\n", palette.muted)
    text.append(_wrapped(found.what, width))
    causes = [c for c in found.causes if c.api in (None, api)]
    for title, lines in (("Why it comes", [c.text for c in causes]), ("What to do", found.do)):
        if lines:
            text.append(f"{title}\n", palette.name)
            for line in lines:
                text.append(_wrapped(line, width, "  - "))
    if found.kips:
        text.append(f"  see {', '.join(found.kips)}\n", palette.muted)
    text.append("\n")


def _wrapped(text: str, width: int, mark: str = "") -> str:
    lines = textwrap.wrap(visible(text), width, initial_indent=mark, subsequent_indent=" " * len(mark))
    return "\n".join(lines) + "\n"
