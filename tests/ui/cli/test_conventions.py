"""One convention for all commands: what comes first, what options are called, how placeholders look."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import typer
from barnabas.captures.serving import OfferMode
from barnabas.decoder.findings import Severity
from barnabas.proxy.metrics.settings import BY
from barnabas.proxy.relay.addressing.netfilter import FAMILIES
from barnabas.proxy.relay.addressing.transparent import MODES
from barnabas.proxy.relay.limits import OVERSIZE
from barnabas.proxy.relay.negotiation.sasl import MECHANISMS
from barnabas.proxy.serve import Contents, OnMiss
from barnabas.ui.cli.command_line import make_app
from barnabas.ui.cli.help.manual import tidy
from barnabas.ui.cli.recordings.serve import OfferedRecords, Timing
from barnabas.ui.tui.widgets.palette import THEMES


def tree(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from tree(each, f"{path} {name}".strip())


ALL = dict(tree(typer.main.get_command(make_app()), ""))
for each in ALL.values():
    tidy(each)

_WORD = "(?:[A-Z0-9]+|[a-z0-9]+)"
_METAVAR = re.compile(rf"{_WORD}(?:(?:[-:=|,]|\[:)(?:{_WORD}|\.\.\.)\]?|\.\.\.)*")
_WRITING = {"cut", "redact", "merge", "import", "sniff", "export", "replay", "pipeline run", "pipeline stream", "schema import"}
_FILTERING = {
    "cut", "import", "sniff", "export", "replay", "decode", "findings", "ui", "feed", "control exchanges", "filter try",
    "versions", "compat", "diff",
}  # fmt: skip
_READING = {
    "ui", "findings", "audit", "versions", "compat", "diff", "crosscheck", "decode", "import", "index", "export", "redact", "cut",
    "merge", "replay", "serve", "pipeline run", "pipeline stream", "rules try", "filter try",
}  # fmt: skip


def options(command: Any) -> list[Any]:
    return [each for each in command.params if each.opts[0].startswith("-") and not getattr(each, "hidden", False)]


def arguments(command: Any) -> list[Any]:
    return [each for each in command.params if not each.opts[0].startswith("-")]


CHOICES: list[tuple[str, str, Iterable[str]]] = [
    ("findings", "--fail-on", Severity), ("findings", "--min-severity", Severity), ("serve", "--on-miss", OnMiss),
    ("serve", "--offer", OfferMode), ("serve", "--contents", Contents), ("serve", "--timing", Timing),
    ("serve", "--records", OfferedRecords), ("proxy", "--sasl-mechanism", MECHANISMS),
    ("proxy", "--oversize", OVERSIZE), ("proxy", "--transparent", MODES), ("proxy", "--metrics-by", BY),
    ("transparent up", "--mode", MODES), ("transparent up", "--family", FAMILIES), ("ui", "--theme", THEMES),
]  # fmt: skip


@pytest.mark.parametrize(("name", "option", "values"), CHOICES)
def test_choices_are_all_there_are(name: str, option: str, values: Iterable[str]) -> None:
    (found,) = (each for each in options(ALL[name]) if option in each.opts)
    assert sorted(found.metavar.split("|")) == sorted(map(str, values))


def test_the_capture_comes_first() -> None:
    reading = {name for name, command in ALL.items() if any("CAPTURE" in each.metavar for each in arguments(command))}
    assert reading - {"report"} == _READING
    for name in reading:
        assert "CAPTURE" in arguments(ALL[name])[0].metavar, name


def test_the_output_is_o() -> None:
    for name, command in ALL.items():
        found = [each.opts for each in options(command) if {"-o", "--output"} & set(each.opts)]
        assert found == ([["--output", "-o"]] if name in _WRITING else []), name


def test_exchanges_are_selected_by_filter() -> None:
    assert {name for name, command in ALL.items() for each in options(command) if "--filter" in each.opts} == _FILTERING


def test_a_name_has_one_meaning() -> None:
    """By the placeholder, if it is no list of choices, and by the first words of the help."""
    meanings: dict[str, dict[tuple[Any, ...], str]] = defaultdict(dict)
    for name, command in ALL.items():
        for each in options(command):
            words = re.findall(r"[\w'-]+", each.help.replace("\\", ""))
            metavar = None if each.metavar and "|" in each.metavar else each.metavar
            for option in each.opts:
                if option.startswith("--"):
                    meanings[option][metavar, each.is_flag, *words[:2]] = name
    assert not {option: found for option, found in meanings.items() if len(found) > 1}


@pytest.mark.parametrize("name", ALL)
def test_placeholders_have_one_style(name: str) -> None:
    """Words in capitals for what is put in, small ones for choices. N is a number, DURATION and SIZE have units."""
    for each in (*options(ALL[name]), *arguments(ALL[name])):
        assert each.help, each.opts
        if each.metavar:
            assert _METAVAR.fullmatch(each.metavar), (each.opts, each.metavar)
            assert "|" in each.metavar or each.metavar.upper() == each.metavar, (each.opts, each.metavar)
