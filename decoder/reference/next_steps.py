"""What clients must do after an error before they may send the same request again; the facts are in ``explanations/next_steps.txt``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from ..schema import facts
from .explanations.blocks import BlockError, NotationRule, TextBlock, parse
from .explanations.texts import carriers, check_words, read_text

_ONCE, _MAY = NotationRule(needed=True), NotationRule()
_RULES = {
    "errors": _ONCE, "apis": _ONCE, "per": _MAY, "keeps": _MAY, "right": _MAY, "until": _MAY, "after": _MAY, "times": _MAY, "pause": _MAY,
    "again": _ONCE, "must": _ONCE, "source": _ONCE,
}  # fmt: skip
_FILE = "next_steps.txt"
_UNITS = {"ms": 1_000_000, "s": 1_000_000_000}
_AFTER, _TIMES = "2 s", "5"


@dataclass(frozen=True, slots=True)
class NextStep:
    """A row of the table, as its head describes it. `right`: (field, value) pairs. `until`: api keys. Times are nanoseconds; `pause_ns` is 0
    where the step is not to wait."""

    name: str
    per: tuple[str, ...]
    keeps: tuple[str, ...]
    right: frozenset[tuple[str, str]]
    until: frozenset[int]
    after_ns: int
    times: int
    pause_ns: int
    again: str
    must: str
    source: str


@cache
def next_steps() -> Mapping[tuple[int | None, int], NextStep]:
    """The steps by (api key, error code); None in place of a key for every API."""
    found: dict[tuple[int | None, int], NextStep] = {}
    codes = {fact.name: code for code, fact in facts.errors().items()}
    for block in parse(read_text(_FILE), _FILE, _RULES):
        check_words(block, "errors", codes)
        step = _step(block)
        apis, every = carriers(block)
        for key in (None,) if every else map(facts.api_key, apis):
            for name in block.words("errors"):
                if (key, codes[name]) in found:
                    raise BlockError(block.source, block.line, 1, f"{block.name}: {name} of {apis or 'every API'} has a step already")
                found[key, codes[name]] = step
    return found


def next_step(api_key: int, code: int) -> NextStep | None:
    """The step after an error of an API; None if there is none."""
    steps = next_steps()
    return steps.get((api_key, code)) or steps.get((None, code))


def _step(block: TextBlock) -> NextStep:
    right = frozenset((field, value) for field, _, value in (word.partition("=") for word in block.words("right")))
    until = frozenset(map(facts.api_key, block.words("until")))
    times = int(block.text("times") or _TIMES)
    texts = (block.text(field) for field in ("again", "must", "source"))
    after, pause = _ns(block.text("after") or _AFTER), _ns(block.text("pause") or "0 s")
    return NextStep(block.name, tuple(block.words("per")), tuple(block.words("keeps")), right, until, after, times, pause, *texts)


def _ns(text: str) -> int:
    number, unit = text.split()
    return int(number) * _UNITS[unit]
